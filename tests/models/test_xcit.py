from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_contract import ModelContract, images, trained_a_little
from model_costs import flops_of
from torch import Tensor

from models.counts import checked_build
from models.meta_build import without_numbers
from models.torchvision_compat import make_torchvision_importable
from models.xcit import XCiT, xcit_large, xcit_medium

SMALL = XCiT(embed_dim=24, depth=2, heads=3, head_dim=5, image_size=16, patch_size=8, num_classes=6)


@st.composite
def configs(draw: st.DrawFn) -> XCiT:
    heads, patch_size = draw(st.integers(1, 4)), draw(st.sampled_from([8, 16]))
    width = draw(st.integers(-(-patch_size // (2 * heads)), 12))
    return XCiT(
        embed_dim=heads * width,
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=draw(st.none() | st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 4.0)),
        # One patch and a batch of one would leave a batch norm a single value.
        image_size=patch_size * draw(st.integers(2, 4)),
        patch_size=patch_size,
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(1, 12)),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
        cls_attn_layers=draw(st.integers(1, 3)),
        tokens_norm=draw(st.booleans()),
    )


def timms_own(config: XCiT) -> Any:
    make_torchvision_importable()
    from timm.models.xcit import Xcit

    return Xcit(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_chans,
        num_classes=config.num_classes,
        embed_dim=config.embed_dim,
        depth=config.depth,
        num_heads=config.heads,
        mlp_ratio=config.mlp_ratio,
        drop_path_rate=config.drop_path,
        cls_attn_layers=config.cls_attn_layers,
        eta=config.layer_scale,
        tokens_norm=config.tokens_norm,
    )


class TestXCiT(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "lean medium": (xcit_medium(depth=12, heads=16, head_dim=64), 64),
        "large": (xcit_large(depth=8, heads=24), 32),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (3, 3)}, r"heads must be a whole number of at least 1, not \(3, 3\)"),
        ({"cls_attn_layers": 0}, "^cls_attn_layers must be "),
        ({"layer_scale": -1}, "^layer_scale must be "),
        ({"drop_path": 1.0}, "^drop_path must lie in "),
        ({"mlp_ratio": 0}, "^mlp_ratio must be "),
        ({"tokens_norm": 1}, "^tokens_norm must be "),
        ({"heads": 7}, "24 is not a multiple of 7; give head_dim to decouple"),
        ({"heads": 7, "head_dim": 4}, "class attention splits .* 24 is not a multiple of 7"),
        ({"patch_size": 4}, r"^patch_size must be one of \(8, 16\), not 4"),
        ({"image_size": 20}, "patch_size must divide image_size: 20 is not a multiple of 8"),
        ({"embed_dim": 3}, r"patch_size 8 it has embed_dim // 4 of them, and embed_dim is 3"),
    ]
    published: ClassVar = [
        (xcit_medium(), 84.396),
        (xcit_medium(depth=12, heads=16, head_dim=64), 59.003),
        (xcit_medium(depth=12, heads=16), 46.401),
        (xcit_medium(depth=16, heads=16), 59.066),
        (xcit_large(), 189.096),
        (xcit_large(depth=12, heads=24), 103.793),
        (xcit_large(depth=12, heads=24, head_dim=48), 117.962),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(images)

    @staticmethod
    def group_of(parameter: str) -> str:
        if parameter.startswith(("patch_embed.", "pos_embed.", "cls_token")):
            return "embedding"
        if parameter.startswith("head."):
            return "head"
        part = parameter.removeprefix("cls_attn_").split(".")
        if "norm" in parameter or "bn" in part:
            return "norm"
        return "attention" if {"attn", "gamma1"} & set(part) else "mlp"


@settings(deadline=None, derandomize=True, max_examples=15)
@given(config=configs(), seed=st.integers(0, 2**31))
def test_a_coupled_model_equals_timms_own_in_outputs_and_gradients(config: XCiT, seed: int) -> None:
    config = replace(config, head_dim=None)
    torch.manual_seed(seed)
    ours = trained_a_little(config.build().double())
    own = timms_own(config).double()
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=3).double()
    outputs = []
    for model in (own, ours):
        torch.manual_seed(seed)  # the same blocks are dropped
        outputs.append(model(x))
        outputs[-1].square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-6, rtol=0)
    for (name, parameter), twin in zip(own.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(twin.grad, parameter.grad, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("tokens_norm", [True, False])
def test_a_coupled_model_equals_timms_own_in_single_precision(tokens_norm: bool) -> None:
    config = replace(SMALL, head_dim=None, depth=3, image_size=32, tokens_norm=tokens_norm)
    torch.manual_seed(0)
    ours = trained_a_little(config.build()).eval()
    own = timms_own(config).eval()
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=4)
    torch.testing.assert_close(ours(x), own(x), atol=1e-6, rtol=0)


def test_heads_that_project_nothing_change_nothing() -> None:
    config = replace(SMALL, head_dim=8, cls_attn_layers=1)
    torch.manual_seed(0)
    few = trained_a_little(config.build()).double().eval()
    many = replace(config, heads=6).build().double().eval()
    weights = few.state_dict()
    for name, value in many.state_dict().items():
        if not name.startswith("blocks.") or ".attn." not in name:
            continue
        narrow, wide = weights[name], torch.zeros_like(value)
        if "qkv" in name:
            wide.unflatten(0, (3, 6, 8))[:, :3] = narrow.unflatten(0, (3, 3, 8))
        elif name.endswith("proj.weight"):
            wide[:, :24] = narrow
        else:
            wide[: len(narrow)] = narrow
        weights[name] = wide
    many.load_state_dict(weights)
    # Class attention is coupled, hence other heads there; the patches that reach it are compared.
    reached: list[Tensor] = []
    for model in (few, many):
        model.cls_attn_blocks[0].register_forward_pre_hook(
            lambda _, arguments: reached.append(arguments[0])
        )
    x = images(config, batch_size=2).double()
    few(x), many(x)
    torch.testing.assert_close(reached[1], reached[0], atol=1e-12, rtol=0)


def test_a_fresh_model_is_initialised_as_timms() -> None:
    config = xcit_medium(depth=1, head_dim=128, num_classes=5)
    torch.manual_seed(3)
    ours = config.build().state_dict()
    torch.manual_seed(3)
    own = timms_own(config).state_dict()
    assert ours.keys() == own.keys()
    for name, value in ours.items():
        if value.dim() == 2 and name.startswith(("blocks.0.attn.", "cls_attn_blocks.")):
            assert value.std().item() == pytest.approx(0.02, rel=0.02), name  # drawn anew
        elif value.shape == own[name].shape:
            assert torch.equal(value, own[name]), name
        else:
            assert name == "blocks.0.attn.qkv.bias"
            assert not value.any()


def test_every_attention_projects_its_heads_side_by_side() -> None:
    config = replace(SMALL, head_dim=5)
    model = config.build()
    widths = []
    for block in (*model.blocks, *model.cls_attn_blocks):
        assert block.attn.num_heads == 3
        block.attn.proj.register_forward_pre_hook(
            lambda _, arguments: widths.append(arguments[0].shape[-1])
        )
    model(images(config, 2))
    assert widths == [15, 15, 24, 24]


@pytest.mark.parametrize(
    ("config", "name"),
    [(xcit_medium(), "xcit_medium_24_p16_224"), (xcit_large(), "xcit_large_24_p16_224")],
)
def test_a_preset_takes_the_weights_of_timms_model(config: XCiT, name: str) -> None:
    make_torchvision_importable()
    import timm

    with without_numbers():
        own = timm.create_model(name)
    ours = {key: value.shape for key, value in checked_build(config).state_dict().items()}
    assert ours == {key: value.shape for key, value in own.state_dict().items()}


def test_class_attention_costs_less_than_timms() -> None:
    config = xcit_medium(depth=1)
    with torch.device("meta"):
        own = timms_own(config)
    x = images(config).to("meta")
    assert flops_of(checked_build(config), x) < flops_of(own, x)


@pytest.mark.parametrize("grid", [1, 2, 7])
def test_positions_computed_once_are_timms_to_the_bit(grid: int) -> None:
    make_torchvision_importable()
    from timm.models.xcit import PositionalEncodingFourier

    from models.timm_blocks import GridPositions

    torch.manual_seed(0)
    timms = PositionalEncodingFourier(dim=12)
    ours = GridPositions(timms, grid)
    x, y = ours(3, grid, grid), timms(3, grid, grid)
    assert torch.equal(x, y)
    weights = torch.randn_like(x)
    parameters = list(timms.parameters())
    gradients = [torch.autograd.grad((each * weights).sum(), parameters) for each in (x, y)]
    torch.testing.assert_close(*gradients)
