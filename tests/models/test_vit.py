import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_costs import bytes_kept_per_example, flops_of, params_by_group
from torch import Tensor, nn

from models.base import ModelConfig
from models.counts import checked_build
from models.torchvision_compat import make_torchvision_importable
from models.vit import ViT, vit_base, vit_large

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


def images(config: ViT, batch_size: int = 1) -> Tensor:
    return torch.randn(batch_size, config.in_chans, config.image_size, config.image_size)


def trained_a_little(model: nn.Module) -> nn.Module:
    """Move every parameter, so that zero biases and near-equal class tokens hide nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


@settings(deadline=None, derandomize=True, max_examples=60)
@given(config=configs())
def test_counted_parameters_are_the_built_ones_in_every_group(config: ViT) -> None:
    assert params_by_group(checked_build(config), GROUPS) == config.counts().params


@settings(deadline=None, derandomize=True, max_examples=40)
@given(config=configs())
def test_counted_operations_are_those_of_torchs_counter(config: ViT) -> None:
    measured = flops_of(checked_build(config), images(config).to("meta"))
    assert config.counts().forward_flops == pytest.approx(measured, rel=0.01)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(config=configs())
def test_counted_activations_are_what_autograd_keeps(config: ViT) -> None:
    measured = bytes_kept_per_example(config.build(), images(config)) / 4
    assert config.counts().activation_elements == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("depth", [2, 6])
def test_activations_under_autocast_are_estimated_too(depth: int, skip: bool) -> None:
    config = replace(
        SMALL, embed_dim=48, head_dim=16, depth=depth, image_size=32, skip_unread_tokens=skip
    )
    counts = config.counts()
    estimate = 2 * counts.activation_elements + 2 * counts.float32_activation_elements
    measured = bytes_kept_per_example(config.build(), images(config), bfloat16=True)
    assert estimate == pytest.approx(measured, rel=0.15)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(config=configs())
def test_a_training_step_gives_every_parameter_a_finite_gradient(config: ViT) -> None:
    torch.manual_seed(0)
    model = config.build()
    output = model(images(config, batch_size=3))
    assert output.shape == (3, config.num_classes)
    output.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


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


@settings(deadline=None, derandomize=True, max_examples=30)
@given(config=configs(), seed=st.integers(0, 2**31))
def test_skipping_unread_tokens_changes_neither_outputs_nor_gradients(
    config: ViT, seed: int
) -> None:
    config = replace(config, class_token=True, skip_unread_tokens=False, drop_path=0.3)
    torch.manual_seed(seed)
    every = trained_a_little(config.build().double())
    skipping = replace(config, skip_unread_tokens=True).build().double()
    skipping.load_state_dict(every.state_dict())
    x = images(config, batch_size=3).double()
    outputs = []
    for model in (every, skipping):
        torch.manual_seed(seed)  # the same blocks are dropped
        outputs.append(model(x))
        outputs[-1].square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0])
    for (name, parameter), twin in zip(
        every.named_parameters(), skipping.parameters(), strict=True
    ):
        torch.testing.assert_close(twin.grad, parameter.grad, msg=name)


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


@pytest.mark.parametrize(
    ("config", "millions"),
    [
        (vit_base(), 86.568),
        (vit_base(head_dim=None), 86.568),
        (vit_base(depth=7, heads=16, mlp_ratio=2), 40.113),
        (vit_large(mlp_ratio=2), 203.614),
        (vit_large(depth=8, heads=30, mlp_ratio=2), 98.598),
        (vit_large(), 304.327),
    ],
)
def test_the_published_shapes_have_their_parameter_counts_built_and_counted(
    config: ViT, millions: float
) -> None:
    checked_build(config)
    assert round(config.counts().num_params / 1e6, 3) == millions


def test_a_patch_size_that_does_not_divide_the_image_is_refused_with_both_values() -> None:
    with pytest.raises(ValueError, match="patch_size must divide image_size: 30 is not a multiple"):
        replace(SMALL, image_size=30, patch_size=8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("heads", 0),
        ("num_classes", 2.5),
        ("image_size", True),
        ("drop_path", 1.0),
        ("mlp_ratio", 0),
        ("class_token", 1),
        ("skip_unread_tokens", "no"),
    ],
)
def test_an_impossible_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be "):
        replace(SMALL, **{field: value})  # type: ignore[arg-type]


def test_coupled_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="768 is not a multiple of 7; give head_dim to decouple"):
        vit_base(heads=7, head_dim=None)


def test_planning_a_vit_does_not_wait_for_timm() -> None:
    program = "import sys; from models.vit import vit_base; vit_base().counts()\n"
    program += "sys.exit('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_building_on_meta_leaves_the_seed_alone() -> None:
    torch.manual_seed(7)
    first = SMALL.build().state_dict()
    torch.manual_seed(7)
    checked_build(SMALL)
    second = SMALL.build().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_configuration_is_a_picklable_model_config() -> None:
    assert isinstance(SMALL, ModelConfig)
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL
    assert hash(replace(SMALL)) == hash(SMALL)
