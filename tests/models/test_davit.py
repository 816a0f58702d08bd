import re
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import strategies as st
from model_contract import ModelContract, images, trained_a_little
from model_costs import flops_of
from torch import Tensor, nn

from models.davit import DaViT, davit_base, davit_large
from models.torchvision_compat import make_torchvision_importable

SMALL = DaViT(
    embed_dim=(6, 8, 12, 12),
    depth=(1, 1, 2, 1),
    heads=(2, 2, 4, 3),
    head_dim=5,
    image_size=32,
    window_size=3,
    num_classes=6,
)
LEAN_BASE: dict[str, Any] = {"depth": (1, 1, 5, 1), "heads": (4, 8, 32, 32)}
LEAN_LARGE: dict[str, Any] = {"depth": (1, 1, 5, 1), "heads": (6, 12, 48, 48)}
GROUPS = {
    "embedding": r"stem\.conv\.|stages\.\d\.downsample\.conv\.|stages\..*cpe[12]\.",
    "attention": r"stages\..*attn\.",
    "mlp": r"stages\..*mlp\.",
    "norm": r"stem\.norm\.|stages\.\d\.downsample\.norm\.|stages\..*norm[12]\.|head\.norm\.",
    "head": r"head\.fc\.",
}


@st.composite
def configs(draw: st.DrawFn) -> DaViT:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(4))

    heads, coupled = each(1, 4), draw(st.booleans())
    narrow = each(1, 5)
    widths = st.one_of(st.integers(1, 8), st.tuples(*[st.integers(1, 8)] * 4))
    return DaViT(
        embed_dim=tuple(h * n for h, n in zip(heads, narrow, strict=True)) if coupled else narrow,
        depth=draw(st.permutations([1, 1, 1, 2])),
        heads=heads,
        head_dim=None if coupled else draw(widths),
        mlp_ratio=draw(st.one_of(st.floats(1.0, 4.0), st.tuples(*[st.floats(1.0, 4.0)] * 4))),
        image_size=draw(st.sampled_from([32, 32, 64])),
        window_size=draw(st.integers(1, 8)),
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(1, 12)),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
        scale_by_tokens=draw(st.booleans()),
    )


class TestDaViT(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {"lean": (davit_base(**LEAN_BASE), 16)}
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"heads": (2, 2, 4)}, "^heads must have one value or 4, one for each stage, not 3"),
        ({"head_dim": (4, 4, 0, 4)}, "^head_dim of stage 2 must be "),
        ({"heads": (2, 2, 5, 3)}, "12 is not a multiple of 5; give head_dim to decouple"),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
        ({"mlp_ratio": (1, 1, 0.01, 1)}, "^mlp_ratio must leave at least one hidden unit"),
        ({"window_size": 0}, "^window_size must be "),
        ({"num_classes": 2.5}, "^num_classes must be "),
        ({"drop_path": 1.0}, "^drop_path must lie in "),
        ({"scale_by_tokens": 1}, "^scale_by_tokens must be "),
        ({"image_size": 48}, "^image_size must be a multiple of 32, the stride of .*, not 48"),
    ]
    published: ClassVar = [
        (davit_base(), 87.954),
        (davit_base(**LEAN_BASE), 62.653),
        (davit_base(**LEAN_BASE, head_dim=32), 73.155),
        (davit_large(), 196.812),
        (davit_large(**LEAN_LARGE), 139.986),
        (davit_large(**LEAN_LARGE, head_dim=32), 163.602),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(images)

    @staticmethod
    def group_of(parameter: str) -> str:
        (group,) = [group for group, names in GROUPS.items() if re.match(names, parameter)]
        return group


def test_a_value_for_all_stages_and_one_for_each_are_the_same_model() -> None:
    one = replace(SMALL, embed_dim=12, depth=2, heads=3, head_dim=4, mlp_ratio=2)
    four = replace(
        SMALL,
        embed_dim=[12] * 4,
        depth=(2, 2, 2, 2),
        heads=(3, 3, 3, 3),
        head_dim=(4, 4, 4, 4),
        mlp_ratio=(2, 2.0, 2, 2),
    )
    assert (one, hash(one)) == (four, hash(four))
    assert one.heads == (3, 3, 3, 3)


def test_a_stage_has_a_quarter_of_the_tokens_of_the_one_before() -> None:
    assert [stage.seq_len for stage in davit_base().stages] == [3136, 784, 196, 49]


@pytest.mark.parametrize("scale_by_tokens", [False, True])
@pytest.mark.parametrize("window_size", [2, 3, 7])
def test_a_coupled_model_equals_timms_own(scale_by_tokens: bool, window_size: int) -> None:
    make_torchvision_importable()
    from timm.models.davit import DaVit

    config = replace(
        SMALL,
        head_dim=None,
        image_size=64,
        window_size=window_size,
        scale_by_tokens=scale_by_tokens,
    )
    own = DaVit(
        depths=(1, 1, 2, 1),
        embed_dims=(6, 8, 12, 12),
        num_heads=(2, 2, 4, 3),
        window_size=window_size,
        channel_attn_v2=scale_by_tokens,
        num_classes=6,
    )
    torch.manual_seed(0)
    ours = trained_a_little(config.build())
    own.load_state_dict(ours.state_dict())
    x = images(config, batch_size=4)
    torch.testing.assert_close(ours(x), own(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["WindowAttention", "ChannelAttention", "ChannelAttentionV2"])
def test_attention_whose_heads_fill_the_width_equals_timms(name: str) -> None:
    from timm.models import davit as timm_davit

    from models.attention import MultiHeadAttention
    from models.timm_blocks import ChannelAttention

    torch.manual_seed(1)
    attention: nn.Module
    if name == "WindowAttention":
        attention = MultiHeadAttention(24, 3, 8, bias=True)
        theirs = timm_davit.WindowAttention(24, (3, 3), 3)
    else:
        attention = ChannelAttention(24, 3, 8, scale_by_tokens=name.endswith("V2"))
        theirs = getattr(timm_davit, name)(24, 3, qkv_bias=True)
    trained_a_little(attention)
    theirs.load_state_dict(attention.state_dict())
    x = torch.randn(4, 9, 24)
    torch.testing.assert_close(attention(x), theirs(x), atol=1e-6, rtol=0)


def test_a_ratio_for_each_stage_gives_each_its_hidden_width() -> None:
    model = replace(SMALL, mlp_ratio=(1, 2, 3, 1.5)).build()
    hidden = {
        name.split(".")[1]: module.out_features
        for name, module in model.named_modules()
        if name.endswith("mlp.fc1") and isinstance(module, nn.Linear)
    }
    assert hidden == {"0": 6, "1": 16, "2": 36, "3": 18}


@pytest.mark.parametrize("window_size", [3, 5, 7])
def test_padding_up_to_whole_windows_is_counted(window_size: int) -> None:
    """Grids of 8, 4, 2 and 1 are multiples of none of these."""
    config = replace(SMALL, window_size=window_size)
    model = config.build()
    padded: dict[str, int] = {}
    for name, module in model.named_modules():
        if name.endswith(".0.0.attn.qkv"):
            module.register_forward_pre_hook(
                lambda _, inputs, name=name: padded.__setitem__(name, inputs[0][..., 0].numel())
            )
    flops = flops_of(model, images(config))
    assert config.counts().forward_flops == flops
    assert list(padded.values()) == [
        (-(-grid // window_size) * window_size) ** 2 for grid in config.grids
    ]


def test_a_projection_reads_every_heads_output_side_by_side() -> None:
    """With one head's values at zero, so are its columns of what the projection reads."""
    from models.timm_blocks import ChannelAttention

    attention = ChannelAttention(6, 2, 5)
    with torch.no_grad():
        # What is mixed are the queries' part of the product, of which these are the second head's.
        attention.qkv.weight[5:10] = 0
        attention.qkv.bias[5:10] = 0
    inputs: list[Tensor] = []
    attention.proj.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    attention(torch.randn(2, 4, 6))
    assert inputs[0].shape == (2, 4, 10)
    assert inputs[0][..., :5].abs().min() > 0
    assert inputs[0][..., 5:].abs().max() == 0


def test_fresh_weights_are_spread_as_timms_and_biases_start_at_zero() -> None:
    torch.manual_seed(0)
    model = replace(SMALL, embed_dim=48, heads=4, head_dim=24, mlp_ratio=(4, 3, 2, 2)).build()
    for name, parameter in model.named_parameters():
        if ".attn." in name or ".mlp." in name:
            if name.endswith("weight"):
                assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
            else:
                assert parameter.count_nonzero() == 0, name
