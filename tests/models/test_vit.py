from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_contract import ModelContract, check_skipping, images, trained_a_little

from models.counts import checked_build
from models.torchvision_compat import make_torchvision_importable
from models.vit import ViT, deit_base, deit_large, vit_base, vit_large

SMALL = ViT(embed_dim=24, depth=2, heads=3, head_dim=5, image_size=8, patch_size=4, num_classes=6)
GROUPS = {
    "embedding": ("patch_embed.", "cls_token", "pos_embed"),
    "attention": tuple(f"blocks.{i}.attn." for i in range(12)),
    "mlp": tuple(f"blocks.{i}.mlp." for i in range(12)),
    "norm": (*(f"blocks.{i}.norm" for i in range(12)), "norm.", "fc_norm."),
    "head": ("head.",),
}


@st.composite
def configs(draw: st.DrawFn) -> ViT:
    heads, patch_size = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    coupled = draw(st.booleans())
    embed_dim = heads * draw(st.integers(1, 8)) if coupled else draw(st.integers(1, 40))
    return ViT(
        embed_dim=embed_dim,
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        image_size=patch_size * draw(st.integers(1, 4)),
        patch_size=patch_size,
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(1, 12)),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
        class_token=draw(st.booleans()),
        skip_unread_tokens=draw(st.booleans()),
    )


class TestViT(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {"base": (vit_base(), 64), "lean": (vit_base(depth=7, heads=16), 64)}
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (3, 3)}, r"heads must be a whole number of at least 1, not \(3, 3\)"),
        ({"num_classes": 2.5}, "^num_classes must be "),
        ({"image_size": True}, "^image_size must be "),
        ({"drop_path": 1.0}, "^drop_path must lie in "),
        ({"mlp_ratio": 0}, "^mlp_ratio must be "),
        ({"class_token": 1}, "^class_token must be "),
        ({"skip_unread_tokens": "no"}, "^skip_unread_tokens must be "),
        ({"heads": 7}, "24 is not a multiple of 7; give head_dim to decouple"),
        ({"image_size": 30, "patch_size": 8}, "patch_size must divide image_size: 30 is not a"),
    ]
    published: ClassVar = [
        (vit_base(), 86.568),
        (vit_base(head_dim=None), 86.568),
        (vit_base(depth=7, heads=16, mlp_ratio=2), 40.113),
        (vit_large(mlp_ratio=2), 203.614),
        (vit_large(depth=8, heads=30, mlp_ratio=2), 98.598),
        (vit_large(), 304.327),
        (deit_base(), 86.568),
        (deit_base(depth=7, heads=16, mlp_ratio=2), 40.113),
        (deit_large(mlp_ratio=2), 203.614),
        (deit_large(depth=8, heads=30, mlp_ratio=2), 98.598),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(images)

    @staticmethod
    def group_of(parameter: str) -> str:
        (group,) = [group for group, starts in GROUPS.items() if parameter.startswith(starts)]
        return group


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_a_coupled_model_equals_timms_own(class_token: bool, skip: bool) -> None:
    make_torchvision_importable()
    from timm.models.vision_transformer import VisionTransformer

    config = replace(
        SMALL, depth=3, head_dim=None, class_token=class_token, skip_unread_tokens=skip
    )
    own = VisionTransformer(
        img_size=8,
        patch_size=4,
        embed_dim=24,
        depth=3,
        num_heads=3,
        num_classes=6,
        class_token=class_token,
        global_pool="token" if class_token else "avg",
    )
    torch.manual_seed(0)
    ours = trained_a_little(config.build())
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=4)
    torch.testing.assert_close(ours(x), own(x), atol=1e-6, rtol=0)


def test_a_fresh_model_has_the_weights_timm_draws_from_the_same_seed() -> None:
    make_torchvision_importable()
    import timm

    torch.manual_seed(3)
    ours = vit_base(depth=1, mlp_ratio=1, image_size=32, num_classes=5).build()
    torch.manual_seed(3)
    own = timm.create_model(
        "vit_base_patch16_224", depth=1, mlp_ratio=1, img_size=32, num_classes=5
    )
    twins = own.state_dict()
    assert all(torch.equal(value, twins[name]) for name, value in ours.state_dict().items())


def test_the_weights_of_a_deit_load_into_timms() -> None:
    make_torchvision_importable()
    import timm

    torch.manual_seed(0)
    ours = deit_base(depth=1, num_classes=5).build().double().eval()
    own = timm.create_model("deit_base_patch16_224", depth=1, num_classes=5).double().eval()
    own.load_state_dict(ours.state_dict())
    x = images(deit_base()).double()
    torch.testing.assert_close(ours(x), own(x), atol=1e-6, rtol=0)
    with torch.device("meta"):
        whole = timm.create_model("deit_base_patch16_224").state_dict()
    counted = {name: value.shape for name, value in checked_build(deit_base()).state_dict().items()}
    assert counted == {name: value.shape for name, value in whole.items()}


@settings(deadline=None, derandomize=True, max_examples=30)
@given(config=configs(), seed=st.integers(0, 2**31))
def test_skipping_unread_tokens_changes_neither_outputs_nor_gradients(
    config: ViT, seed: int
) -> None:
    check_skipping(replace(config, class_token=True, skip_unread_tokens=False, drop_path=0.3), seed)


def test_a_last_block_that_reads_only_the_class_token_refuses_a_mask() -> None:
    model = SMALL.build()
    with pytest.raises(ValueError, match="takes no mask"):
        model(images(SMALL), is_causal=True)


# Millions of parameters with 2, 4, ..., 20 heads of width 64, at width 768, by depth and MLP width.
VIT_BASE_GRID = {
    (12, 3072): (62.95, 67.67, 72.40, 77.12, 81.84, 86.57, 91.29, 96.01, 100.74, 105.46),
    (8, 3072): (42.47, 45.62, 48.77, 51.92, 55.07, 58.22, 61.36, 64.51, 67.66, 70.81),
    (8, 1536): (23.59, 26.73, 29.88, 33.03, 36.18, 39.33, 42.48, 45.63, 48.78, 51.92),
    (7, 3072): (37.35, 40.11, 42.86, 45.62, 48.37, 51.13, 53.88, 56.64, 59.39, 62.15),
    (7, 1536): (20.83, 23.58, 26.34, 29.09, 31.85, 34.60, 37.36, 40.11, 42.87, 45.62),
    (6, 3072): (32.23, 34.59, 36.96, 39.32, 41.68, 44.04, 46.40, 48.76, 51.13, 53.49),
    (6, 1536): (18.07, 20.43, 22.79, 25.15, 27.51, 29.88, 32.24, 34.60, 36.96, 39.32),
}


@pytest.mark.parametrize(("depth", "mlp_dim"), VIT_BASE_GRID)
def test_the_vit_base_grid_has_the_known_parameter_counts(depth: int, mlp_dim: int) -> None:
    row = tuple(
        round(
            vit_base(depth=depth, heads=heads, mlp_ratio=mlp_dim / 768).counts().num_params / 1e6, 2
        )
        for heads in range(2, 21, 2)
    )
    assert row == VIT_BASE_GRID[depth, mlp_dim]


@pytest.mark.parametrize(
    ("depth", "ratios"),
    [
        (12, {1: 44.07, 2: 58.24, 3: 72.40, 4: 86.57, 6: 114.90, 8: 143.23}),
        (8, {1: 29.89, 2: 39.33, 3: 48.77, 4: 58.22, 6: 77.10, 8: 95.99}),
    ],
)
def test_the_mlp_ratio_grid_has_the_known_parameter_counts(
    depth: int, ratios: dict[int, float]
) -> None:
    for ratio, millions in ratios.items():
        assert (
            round(vit_base(depth=depth, mlp_ratio=ratio).counts().num_params / 1e6, 2) == millions
        )


def test_deit_without_its_distillation_token_is_a_vit() -> None:
    assert deit_base(depth=7, heads=16, mlp_ratio=2) == vit_base(depth=7, heads=16, mlp_ratio=2)
    assert deit_large(mlp_ratio=2) == vit_large(mlp_ratio=2)


def test_building_on_meta_leaves_the_seed_alone() -> None:
    torch.manual_seed(7)
    first = SMALL.build().state_dict()
    torch.manual_seed(7)
    checked_build(SMALL)
    second = SMALL.build().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("masked", [True, False])
def test_attention_is_timms_to_the_bit_in_outputs_and_gradients(masked: bool) -> None:
    make_torchvision_importable()
    from timm.layers.attention import Attention

    from models.timm_blocks import vit_attention

    torch.manual_seed(0)
    ours = vit_attention(5)(12, num_heads=3, qkv_bias=True)
    timms = Attention(12, num_heads=3, attn_head_dim=5, qkv_bias=True)
    timms.load_state_dict(ours.state_dict())
    x = torch.randn(4, 7, 12, requires_grad=True)
    mask = torch.ones(7, 7, dtype=torch.bool).tril() if masked else None
    weights = torch.randn(4, 7, 12)
    results = []
    for attention in (ours, timms):
        output = attention(x, attn_mask=mask)
        gradients = torch.autograd.grad(
            (output * weights).sum(), [x, *attention.parameters()], retain_graph=True
        )
        results.append((output, *gradients))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
