import copy
import math
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import strategies as st
from model_contract import ModelContract, trained_a_little
from torch import Tensor, nn
from torch.nn import functional as F

from models.counts import checked_build
from models.rank_encoder import (
    AveragedAttention,
    AveragingLinear,
    RankEncoder,
    ScalarNorm,
    nearest_neighbor_encoder,
)

SMALL = RankEncoder(embed_dim=12, depth=2, heads=3, head_dim=5, seq_len=6, mlp_ratio=2)


@st.composite
def configs(draw: st.DrawFn) -> RankEncoder:
    heads = draw(st.integers(1, 6))
    coupled = draw(st.booleans())
    positions = draw(st.sampled_from(["none", "added", "concatenated"]))
    embed_dim = heads * draw(st.integers(1, 6)) if coupled else draw(st.integers(1, 24))
    return RankEncoder(
        embed_dim=embed_dim,
        depth=draw(st.integers(1, 3)),
        heads=heads,
        head_dim=None if coupled else draw(st.integers(1, 12)),
        mlp_ratio=draw(st.floats(1.0, 8.0)),
        seq_len=draw(st.integers(1, 8)),
        norm=draw(st.sampled_from(["scalar", "layer"])),
        positions=positions,
        position_dim=heads * draw(st.integers(1, 3)),
        copy_first_layer=draw(st.booleans()),
    )


def points(config: RankEncoder, batch_size: int) -> Tensor:
    return F.normalize(torch.randn(batch_size, config.seq_len, config.embed_dim), dim=-1)


class TestRankEncoder(ModelContract):
    coupled = replace(SMALL, head_dim=None)
    decoupled = SMALL
    realistic: ClassVar = {
        "ordinary": (nearest_neighbor_encoder(), 256),
        "rank one, widened": (nearest_neighbor_encoder(depth=3, rank=1, widening=8), 256),
        "positions beside": (
            nearest_neighbor_encoder(depth=3, rank=16, widening=8, positions="concatenated"),
            256,
        ),
        "layer norms": (
            nearest_neighbor_encoder(rank=4, widening=64, positions="added", norm="layer"),
            64,
        ),
    }
    impossible: ClassVar = [
        ({"heads": 0}, "^heads must be "),
        ({"depth": (1, 2)}, r"depth must be a whole number of at least 1, not \(1, 2\)"),
        ({"embed_dim": (12, 12)}, "^embed_dim must be "),
        ({"seq_len": 0}, "^seq_len must be "),
        ({"mlp_ratio": 0}, "^mlp_ratio must be positive"),
        ({"norm": "batch"}, r"^norm must be one of 'scalar', 'layer', not 'batch'"),
        ({"positions": None}, "^positions must be one of "),
        ({"position_dim": 0.5}, "^position_dim must be "),
        ({"copy_first_layer": "yes"}, "^copy_first_layer must be True or False"),
        ({"heads": 5}, "12 is not a multiple of 5; give head_dim to decouple"),
        ({"positions": "concatenated", "heads": 6}, "76 is not a multiple of 6"),
    ]
    configs = staticmethod(configs)
    inputs = staticmethod(points)

    @staticmethod
    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Compare with other points of the example: at zero a norm's output has no gradient."""
        return F.mse_loss(model(*batch), batch[0].roll(1, dims=1))

    @staticmethod
    def group_of(parameter: str) -> str:
        parts = parameter.split(".")
        if parts[0] == "positions":
            return "embedding"
        return {"attention": "attention", "feed_forward": "mlp"}.get(parts[2], "norm")


class PublishedNorm(nn.Module):
    """The paper's norm as it is written: s * x / ||x||."""

    eps = 0.0  # torch's encoder asks for it

    def __init__(self) -> None:
        super().__init__()
        self.length = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.length * x / x.square().sum(-1, keepdim=True).sqrt()


def torchs_encoder(config: RankEncoder) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        config.width, config.heads, config.stage.mlp_dim, dropout=0.0, batch_first=True
    )
    if config.norm == "scalar":
        layer.norm1, layer.norm2 = PublishedNorm(), PublishedNorm()  # type: ignore[assignment]
    return nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)


TORCHS_NAMES = {
    "attention.qkv.weight": "self_attn.in_proj_weight",
    "attention.qkv.bias": "self_attn.in_proj_bias",
    "attention.proj": "self_attn.out_proj",
    "feed_forward.fc1": "linear1",
    "feed_forward.fc2": "linear2",
}


def under_torchs_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    def renamed(name: str) -> str:
        for ours, torchs in TORCHS_NAMES.items():
            name = name.replace(ours, torchs)
        return name

    return {renamed(name): value for name, value in state.items()}


@pytest.mark.parametrize("norm", ["scalar", "layer"])
@pytest.mark.parametrize("heads", [1, 4])
def test_unwidened_it_equals_torchs_encoder_with_that_norm(norm: str, heads: int) -> None:
    config = RankEncoder(
        embed_dim=16,
        depth=3,
        heads=heads,
        seq_len=6,
        norm=norm,  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    ours, theirs = trained_a_little(config.build()), torchs_encoder(config)
    theirs.load_state_dict(under_torchs_names(ours.state_dict()))
    x = points(config, 4)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=0)


class AverageOf(nn.Module):
    """Widened attention as the paper builds it: the average of ordinary attentions."""

    def __init__(self, attentions: list[nn.MultiheadAttention]) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(attentions)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([each(x, x, x)[0] for each in self.attentions]).mean(0)


def widened_pair(embed_dim: int, heads_of_one: int, copies: int) -> tuple[nn.Module, nn.Module]:
    theirs = AverageOf(
        [
            nn.MultiheadAttention(embed_dim, heads_of_one, batch_first=True, dtype=torch.float64)
            for _ in range(copies)
        ]
    )
    ours = AveragedAttention(embed_dim, copies * heads_of_one, embed_dim // heads_of_one).double()
    state = [each.state_dict() for each in theirs.attentions]
    thirds = [torch.stack([each["in_proj_weight"].chunk(3)[i] for each in state]) for i in range(3)]
    ours.load_state_dict(
        {
            "qkv.weight": torch.cat([third.flatten(0, 1) for third in thirds]),
            "qkv.bias": torch.zeros(3 * copies * embed_dim),
            "proj.weight": torch.cat([each["out_proj.weight"] for each in state], dim=1),
            "proj.bias": torch.zeros(embed_dim),
        }
    )
    return ours, theirs


@pytest.mark.parametrize("heads_of_one", [1, 2, 12])
def test_widened_threefold_it_equals_the_average_of_three_and_learns_as_they_do(
    heads_of_one: int,
) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(2, 5, 7, 12, dtype=torch.float64)
    pair = widened_pair(12, heads_of_one, copies=3)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01, weight_decay=0) for each in pair]
    for _ in range(6):
        outputs = [attention(x) for attention in pair]
        torch.testing.assert_close(*outputs, atol=1e-6, rtol=0)
        for output, optimizer in zip(outputs, optimizers, strict=True):
            optimizer.zero_grad()
            F.mse_loss(output, target).backward()
            optimizer.step()
    assert pair[0].proj.bias.abs().max() > 0.01


@pytest.mark.parametrize("copies", [1, 8])
def test_widened_attention_starts_as_torchs_attentions_do(copies: int) -> None:
    torch.manual_seed(0)
    ours = AveragedAttention(32, 4 * copies, 8)
    torchs = nn.MultiheadAttention(32, 4)
    for weight, twin, bound in (
        (ours.qkv.weight, torchs.in_proj_weight, math.sqrt(6 / (32 + 96))),
        (ours.proj.weight, torchs.out_proj.weight, 1 / math.sqrt(32)),
    ):
        for drawn in (weight, twin):
            assert 0.98 * bound < drawn.abs().max() <= bound
            assert drawn.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not ours.qkv.bias.any()
    assert not ours.proj.bias.any()


def test_attention_narrower_than_the_tokens_averages_nothing() -> None:
    assert AveragedAttention(12, 1, 3).proj.averaged == 1
    assert AveragedAttention(12, 4, 3).proj.averaged == 1
    assert AveragedAttention(12, 6, 3).proj.averaged == 1.5


def test_a_scalar_norm_gives_every_token_its_learned_length() -> None:
    torch.manual_seed(0)
    norm = ScalarNorm(8)
    x = 50 * torch.randn(3, 4, 8)
    torch.testing.assert_close(norm(x).norm(dim=-1), torch.ones(3, 4))
    norm.length.data.fill_(2.5)
    torch.testing.assert_close(norm(x).norm(dim=-1), torch.full((3, 4), 2.5))
    assert not norm(torch.zeros(1, 8)).any()


@pytest.mark.parametrize("copied", [True, False])
def test_layers_start_as_copies_of_the_first_if_so_wanted_and_share_nothing(copied: bool) -> None:
    torch.manual_seed(0)
    layers = replace(SMALL, copy_first_layer=copied).build().layers
    for ours, others in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        assert ours.data_ptr() != others.data_ptr()
    weights = [layer.attention.qkv.weight for layer in layers]
    assert torch.equal(*weights) is copied


def test_without_positions_the_order_of_the_tokens_is_of_no_effect_and_any_length_is_taken() -> (
    None
):
    torch.manual_seed(0)
    model = SMALL.build()
    x = torch.randn(2, 9, 12)
    torch.testing.assert_close(model(x.flip(1)), model(x).flip(1))


@pytest.mark.parametrize("positions", ["added", "concatenated"])
def test_with_positions_the_order_of_the_tokens_matters(positions: str) -> None:
    torch.manual_seed(0)
    model = replace(SMALL, positions=positions).build()  # type: ignore[arg-type]
    x = points(SMALL, 2)
    output = model(x)
    assert output.shape == x.shape
    assert not torch.allclose(model(x.flip(1)), output.flip(1), atol=1e-2)


def test_added_positions_start_around_minus_one_and_concatenated_ones_within_one() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, seq_len=500, position_dim=20)
    added = replace(config, positions="added").build().positions
    assert added.shape == (500, 12)
    assert (added.mean().item(), added.std().item()) == pytest.approx((-1, 1), abs=0.05)
    beside = replace(config, positions="concatenated").build().positions
    assert beside.shape == (500, 20)
    assert beside.abs().max() <= 1
    assert beside.std().item() == pytest.approx(1 / math.sqrt(3), abs=0.02)


def test_concatenated_positions_widen_every_layer_and_are_stripped_from_the_output() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, positions="concatenated", position_dim=8, norm="scalar")
    model = config.build()
    assert config.stage.embed_dim == model.layers[0].attention.proj.out_features == 20
    whole = copy.deepcopy(model)
    whole.embed_dim = 20
    x = points(config, 3)
    torch.testing.assert_close(model(x), whole(x)[..., :12])
    torch.testing.assert_close(whole(x).norm(dim=-1), torch.ones(3, 6))


@pytest.mark.parametrize("widening", [1, 8, 64])
@pytest.mark.parametrize("rank", [1, 2, 4, 8, 16, 32, 64])
def test_attentions_weights_are_4_r_d_h_over_the_papers_grid(rank: int, widening: int) -> None:
    config = nearest_neighbor_encoder(depth=3, rank=rank, widening=widening)
    heads = widening * 64 // rank
    assert (config.heads, config.head_dim, config.stage.mlp_dim) == (heads, rank, 2048)
    weights, biases = 4 * rank * 64 * heads, 3 * rank * heads + 64
    assert config.counts().params["attention"] == 3 * (weights + biases)
    checked_build(config)


@pytest.mark.parametrize("embed_dim", [16, 49, 64, 96, 107, 256])
@pytest.mark.parametrize("positions", ["none", "concatenated"])
def test_the_presets_feed_forward_width_is_met_exactly(embed_dim: int, positions: str) -> None:
    config = nearest_neighbor_encoder(embed_dim=embed_dim, rank=1, positions=positions)
    assert config.stage.mlp_dim == 2048


def test_a_rank_that_divides_no_inner_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank must divide widening \* width: 5 does not divide"):
        nearest_neighbor_encoder(rank=5)
    with pytest.raises(ValueError, match="128 does not divide 1 "):
        nearest_neighbor_encoder(rank=128)
    assert nearest_neighbor_encoder(rank=16, widening=0.5).heads == 2


def test_the_compiled_model_computes_the_same() -> None:
    torch.manual_seed(0)
    model = SMALL.build()
    x = points(SMALL, 2)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("averaged", [1.0, 2.5])
def test_an_averaging_map_divides_its_product_and_not_its_bias(averaged: float) -> None:
    torch.manual_seed(0)
    ours = AveragingLinear(6, 4, averaged=averaged).double()
    x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    expected = x @ ours.weight.T / averaged + ours.bias
    torch.testing.assert_close(ours(x), expected)
    wanted, weights = [x, *ours.parameters()], torch.randn_like(expected)
    gradients = [torch.autograd.grad((y * weights).sum(), wanted) for y in (ours(x), expected)]
    torch.testing.assert_close(*gradients)
