from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_contract import ModelContract, check_skipping, images, trained_a_little
from model_costs import flops_of

from models.counts import checked_build
from models.tnt import TNT, tnt_base
from models.torchvision_compat import make_torchvision_importable

SMALL = TNT(
    embed_dim=24,
    depth=2,
    heads=3,
    head_dim=5,
    image_size=16,
    patch_size=8,
    inner_dim=6,
    inner_heads=2,
    num_classes=6,
)
NOT_IN_BLOCKS = {
    "embedding": ("pixel_embed.", "proj.", "cls_token", "patch_pos", "pixel_pos"),
    "norm": ("norm.", "norm1_proj.", "norm2_proj."),
    "head": ("head.",),
}
IN_BLOCKS = {
    "attention": ("attn_in.", "attn_out."),
    "mlp": ("mlp_in.", "mlp.", "proj."),
    "norm": ("norm",),
}


@st.composite
def configs(draw: st.DrawFn) -> TNT:
    heads, inner_heads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    coupled = draw(st.booleans())
    patch_size = draw(st.integers(1, 9))
    return TNT(
        embed_dim=heads * draw(st.integers(1, 8)) if coupled else draw(st.integers(1, 40)),
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        image_size=patch_size * draw(st.integers(1, 3)),
        patch_size=patch_size,
        inner_dim=inner_heads * draw(st.integers(1, 5)),
        inner_heads=inner_heads,
        inner_stride=draw(st.integers(1, 4)),
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(1, 12)),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
        skip_unread_tokens=draw(st.booleans()),
    )


def timms_own(config: TNT) -> Any:
    make_torchvision_importable()
    from timm.models import tnt

    return tnt.TNT(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_chans,
        num_classes=config.num_classes,
        embed_dim=config.embed_dim,
        inner_dim=config.inner_dim,
        depth=config.depth,
        num_heads_inner=config.inner_heads,
        num_heads_outer=config.heads,
        mlp_ratio=config.mlp_ratio,
        drop_path_rate=config.drop_path,
        first_stride=config.inner_stride,
    )


class TestTNT(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "lean": (tnt_base(depth=8, heads=16, mlp_ratio=2), 64),
        "widened": (tnt_base(depth=4, heads=16, head_dim=64, skip_unread_tokens=False), 32),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (3, 3)}, r"heads must be a whole number of at least 1, not \(3, 3\)"),
        ({"inner_stride": 0}, "^inner_stride must be "),
        ({"drop_path": 1.0}, "^drop_path must lie in "),
        ({"mlp_ratio": 0}, "^mlp_ratio must be "),
        ({"skip_unread_tokens": "no"}, "^skip_unread_tokens must be "),
        ({"heads": 7}, "24 is not a multiple of 7; give head_dim to decouple"),
        ({"inner_heads": 4}, "inner_heads must divide inner_dim: 6 is not a multiple of 4"),
        ({"image_size": 20}, "patch_size must divide image_size: 20 is not a multiple of 8"),
    ]
    published: ClassVar = [
        (tnt_base(), 65.429),
        (tnt_base(depth=8, heads=16, mlp_ratio=2), 30.898),
        (tnt_base(depth=8, heads=16), 44.015),
        (tnt_base(depth=8, heads=16, head_dim=64), 51.880),
        (tnt_base(depth=8, heads=16, head_dim=64, mlp_ratio=2), 38.762),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(images)

    @staticmethod
    def group_of(parameter: str) -> str:
        if parameter.startswith("blocks."):
            parameter, groups = parameter.split(".", maxsplit=2)[2], IN_BLOCKS
        else:
            groups = NOT_IN_BLOCKS
        (group,) = [group for group, starts in groups.items() if parameter.startswith(starts)]
        return group


@pytest.mark.parametrize("skip", [True, False])
def test_a_coupled_model_equals_timms_own(skip: bool) -> None:
    config = replace(SMALL, depth=3, head_dim=None, drop_path=0.3, skip_unread_tokens=skip)
    torch.manual_seed(0)
    ours = trained_a_little(config.build())
    own = timms_own(config)
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=4)
    outputs = []
    for model in (ours, own):
        torch.manual_seed(1)  # the same blocks are dropped
        outputs.append(model(x))
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=0)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(config=configs(), seed=st.integers(0, 2**31))
def test_skipping_unread_tokens_changes_neither_outputs_nor_gradients(
    config: TNT, seed: int
) -> None:
    check_skipping(replace(config, skip_unread_tokens=False, drop_path=0.3), seed)


def test_heads_that_project_nothing_change_nothing() -> None:
    config = replace(SMALL, head_dim=8)
    torch.manual_seed(0)
    few = trained_a_little(config.build()).double()
    many = replace(config, heads=6).build().double()
    weights = few.state_dict()
    for name, value in many.state_dict().items():
        if value.shape != weights[name].shape:
            narrow, wide = weights[name], torch.zeros_like(value)
            if name.endswith("qk.weight"):
                wide.unflatten(0, (2, 48))[:, :24] = narrow.unflatten(0, (2, 24))
            else:
                wide[: narrow.shape[0], : narrow.shape[1]] = narrow
            weights[name] = wide
    many.load_state_dict(weights)
    x = images(config, batch_size=2).double()
    torch.testing.assert_close(many(x), few(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("skip", [True, False])
def test_a_fresh_model_is_initialised_as_timms(skip: bool) -> None:
    config = tnt_base(depth=1, num_classes=5, inner_dim=64, skip_unread_tokens=skip)
    torch.manual_seed(3)
    ours = config.build().state_dict()
    torch.manual_seed(3)
    own = timms_own(config).state_dict()
    assert ours.keys() == own.keys()
    for name, value in ours.items():
        if value.dim() == 2 and name.startswith("blocks."):
            assert value.std().item() == pytest.approx(0.02, rel=0.03), name  # drawn anew
        else:
            assert torch.equal(value, own[name]), name


@pytest.mark.parametrize(("skip", "last_tokens"), [(True, 1), (False, 5)])
def test_every_attention_projects_its_heads_side_by_side(skip: bool, last_tokens: int) -> None:
    config = replace(SMALL, skip_unread_tokens=skip)
    model = config.build()
    seen: list[tuple[int, ...]] = []
    for block in model.blocks:
        for attention, heads in ((block.attn_in, 2), (block.attn_out, 3)):
            assert attention.num_heads == heads
            attention.proj.register_forward_pre_hook(
                lambda module, arguments: seen.append(
                    (arguments[0].numel() // module.in_features // 2, module.in_features)
                )
            )
    model(images(config, 2))
    assert seen == [(4 * 4, 6), (5, 15), (4 * 4, 6), (last_tokens, 15)]


def test_the_preset_takes_the_weights_of_timms_model() -> None:
    make_torchvision_importable()
    import timm

    with torch.device("meta"):
        own = timm.create_model("tnt_b_patch16_224")
    ours = {key: value.shape for key, value in checked_build(tnt_base()).state_dict().items()}
    assert ours == {key: value.shape for key, value in own.state_dict().items()}


def test_skipping_unread_tokens_saves_most_of_the_last_blocks_outer_half() -> None:
    config = tnt_base(depth=1)
    every = replace(config, skip_unread_tokens=False)
    x = images(config).to("meta")
    saved = flops_of(checked_build(every), x) - flops_of(checked_build(config), x)
    outer_half = 197 * 2 * (4 + 8) * 640**2 + 4 * 197**2 * 640
    assert saved > 0.95 * outer_half
