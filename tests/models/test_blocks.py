from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_costs import bytes_kept_per_example, flops_of
from torch import Tensor, nn

from models import counts
from models.attention import MultiHeadAttention
from models.blocks import (
    FeedForward,
    GatedFeedForward,
    PreNormBlock,
    draw_normal,
)
from models.counts import Activation, Cost
from models.shape import Stage
from models.torchvision_compat import make_torchvision_importable


def copy_weights(into: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    with torch.no_grad():
        into.weight.copy_(weight)
        into.bias.copy_(bias)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_coupled_block_equals_torchs_own_encoder_layer(
    activation: Activation, causal: bool
) -> None:
    torch.manual_seed(0)
    own = nn.TransformerEncoderLayer(
        24, 3, 40, dropout=0.0, activation=activation, batch_first=True, norm_first=True
    )
    attention = MultiHeadAttention(24, 3, 8, bias=True)
    feed_forward = FeedForward(24, 40, activation)
    ours = PreNormBlock(attention, 24, feed_forward)
    nn.init.normal_(own.self_attn.in_proj_bias)
    nn.init.normal_(own.norm1.weight)
    nn.init.normal_(own.norm2.bias)
    copy_weights(attention.qkv, own.self_attn.in_proj_weight, own.self_attn.in_proj_bias)
    copy_weights(attention.proj, own.self_attn.out_proj.weight, own.self_attn.out_proj.bias)
    copy_weights(feed_forward.fc1, own.linear1.weight, own.linear1.bias)
    copy_weights(feed_forward.fc2, own.linear2.weight, own.linear2.bias)
    ours.norm1.load_state_dict(own.norm1.state_dict())
    ours.norm2.load_state_dict(own.norm2.state_dict())

    x = torch.randn(3, 7, 24)
    mask = nn.Transformer.generate_square_subsequent_mask(7) if causal else None
    expected = own(x, src_mask=mask, is_causal=causal)
    torch.testing.assert_close(ours(x, causal=causal), expected, atol=1e-6, rtol=0)


def test_a_gated_feed_forward_equals_modernberts() -> None:
    make_torchvision_importable()
    from transformers import ModernBertConfig
    from transformers.models.modernbert.modeling_modernbert import ModernBertMLP

    torch.manual_seed(0)
    own = ModernBertMLP(ModernBertConfig(hidden_size=24, intermediate_size=36))
    ours = GatedFeedForward(24, 36)
    ours.fc1.load_state_dict(own.Wi.state_dict())
    ours.fc2.load_state_dict(own.Wo.state_dict())
    x = torch.randn(3, 7, 24)
    torch.testing.assert_close(ours(x), own(x), atol=1e-6, rtol=0)


class Recorder(nn.Module):
    """Stands where attention stands, and remembers what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {}

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        self.arguments = arguments
        return torch.ones_like(x)


def test_a_block_takes_any_attention_and_any_norm_and_hands_the_arguments_on() -> None:
    attention = Recorder()
    block = PreNormBlock(attention, 4, nn.Identity(), norm=lambda width: nn.Linear(width, width))
    with torch.no_grad():
        block.norm2.weight.copy_(2 * torch.eye(4))
        block.norm2.bias.zero_()
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(block(x, mask="theirs"), 3 * (x + 1))
    assert attention.arguments == {"mask": "theirs"}


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
def test_dropout_drops_from_what_each_part_adds_and_only_in_training(part: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 50, 8)
    silent = nn.Linear(8, 8)
    nn.init.zeros_(silent.weight)
    nn.init.zeros_(silent.bias)
    parts: dict[str, nn.Module] = {"attention": silent, "feed_forward": silent, part: Recorder()}
    block = PreNormBlock(parts["attention"], 8, parts["feed_forward"], dropout=0.5)
    added = block(x) - x
    assert sorted({round(value, 4) for value in added.flatten().tolist()}) == [0.0, 2.0]
    torch.testing.assert_close(block.eval()(x), x + 1)


def test_a_feed_forward_part_drops_hidden_numbers_only_in_training() -> None:
    torch.manual_seed(0)
    part = FeedForward(4, 6, dropout=0.9)
    x = torch.randn(5, 4)
    assert not torch.equal(part(x), part(x))
    assert torch.equal(part.eval()(x), part(x))


SIZES = st.integers(1, 12)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    embed_dim=SIZES,
    ratio=st.floats(1.0, 4.0),
    rows=SIZES,
    activation=st.sampled_from(["gelu", "relu"]),
    bias=st.booleans(),
    dropout=st.sampled_from([0.0, 0.2]),
    gated=st.booleans(),
)
def test_a_feed_forward_part_costs_what_was_counted(
    embed_dim: int,
    ratio: float,
    rows: int,
    activation: Activation,
    bias: bool,
    dropout: float,
    gated: bool,
) -> None:
    stage = Stage(embed_dim=embed_dim, depth=1, heads=1, mlp_ratio=ratio, seq_len=rows)
    part: nn.Module
    if gated:
        part = GatedFeedForward(embed_dim, stage.mlp_dim, bias)
        cost = counts.gated_mlp(rows, stage, bias=bias)
    else:
        part = FeedForward(embed_dim, stage.mlp_dim, activation, bias, dropout)
        settings = {"bias": bias, "has_dropout": dropout > 0}
        cost = counts.mlp(rows, stage, activation=activation, **settings)
    measured = Cost(
        params=sum(parameter.numel() for parameter in part.parameters()),
        flops=flops_of(part.to("meta"), torch.empty(1, rows, embed_dim, device="meta")),
        kept=round(
            bytes_kept_per_example(part.to_empty(device="cpu"), torch.randn(1, rows, embed_dim)) / 4
        ),
        passing=cost.passing,
    )
    assert cost == measured


def test_drawing_normal_weights_leaves_no_other_ones_and_no_bias() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(300, 40), nn.Linear(40, 200), nn.LayerNorm(200))
    draw_normal(model, std=0.5)
    for module in (model[0], model[1]):
        assert isinstance(module.weight, Tensor)
        assert module.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(model[1].bias, torch.zeros(200))
    assert torch.equal(model[2].weight, torch.ones(200))
