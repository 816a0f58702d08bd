"""The post-norm encoder of paper Q, in which the rank of a head and the number of heads vary apart.

Paper Q is "Quality over Quantity in Attention Layers: When Adding More Heads Hurts" (Amsel, Yehudai
and Bruna, ICLR 2025). Tensor legend: B examples, T tokens, D embed_dim, P position_dim, E width of
the residual stream, H heads, N head_dim, I = H * N.
"""

# ruff: noqa: N803, N806  tensors carry their shape as a suffix

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.blocks import FeedForward
from models.fields import settle, whole_number
from models.shape import Stage, check_feed_forward, stage_of

NormKind: TypeAlias = Literal["scalar", "layer"]
Positions: TypeAlias = Literal["none", "added", "concatenated"]
_SHORTEST: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEncoder:
    """A post-norm encoder from vectors to vectors of the same width, without projections.

    torch's TransformerEncoder (ReLU, biases, no dropout) with two changes that paper Q makes: a
    norm that only scales, and attention whose inner width ``heads * head_dim`` is free. There it
    is the average of W ordinary attentions, W = heads * head_dim / width; see
    ``AveragedAttention``.

    Attributes:
        embed_dim: width of a token, of inputs and outputs.
        depth: number of layers.
        heads: heads in each layer.
        head_dim: width of a head, the rank of its query-key product, or None for
            ``width / heads``.
        mlp_ratio: hidden width of the feed-forward parts over ``width``; 32 makes it the paper's
            2048 where that is 64.
        seq_len: tokens of an example; other lengths are taken too if there are no positions.
        norm: ``scalar`` for ``ScalarNorm``, ``layer`` for a layer norm.
        positions: ``none``; ``added``, learned vectors on the tokens; ``concatenated``, learned
            vectors beside the tokens, which the outputs are without.
        position_dim: width of concatenated positions; of no effect otherwise.
        copy_first_layer: whether all layers start as copies of the first, as torch's do.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a switch
            that is no boolean, or an unknown choice.
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 32.0
    seq_len: int
    norm: NormKind = "scalar"
    positions: Positions = "none"
    position_dim: int = 64
    copy_first_layer: bool = True

    def __post_init__(self) -> None:
        settle(self)
        check_feed_forward([self.stage])

    @property
    def width(self) -> int:
        """Width of the residual stream: that of a token, with its position if concatenated."""
        return self.embed_dim + self.position_dim * (self.positions == "concatenated")

    @property
    def stage(self) -> Stage:
        """The transformer's shape; its ``embed_dim`` is the residual stream's ``width``."""
        return stage_of(self, self.seq_len, embed_dim=self.width)

    def build(self) -> "RankEncoderNetwork":
        """Return the network: (batch, seq_len, embed_dim) to the same shape."""
        return RankEncoderNetwork(self)

    def counts(self) -> Counts:
        """Return the network's counts, from its structure."""
        stage, tokens = self.stage, self.seq_len
        norm = _scalar_norm_cost if self.norm == "scalar" else count.layer_norm
        position_width = {"none": 0, "added": self.embed_dim, "concatenated": self.position_dim}
        return count.total(
            embedding=count.Cost(params=tokens * position_width[self.positions]),
            attention=count.self_attention(stage, qkv_bias=True) * self.depth,
            mlp=count.mlp(tokens, stage, activation="relu") * self.depth,
            norm=norm(tokens, stage.embed_dim) * (2 * self.depth),
            outputs=tokens * self.embed_dim,
        )


def nearest_neighbor_encoder(
    *,
    depth: int = 1,
    rank: int = 64,
    widening: float = 1,
    embed_dim: int = 64,
    seq_len: int = 16,
    mlp_dim: int = 2048,
    **settings: Any,
) -> RankEncoder:
    """Return an encoder of paper Q by its own axes: the rank of a head, and W for the width.

    The paper's figure 1 has depths 1, 3 and 5, ranks 1 to 64 and W = 1, 8 and 64; there are
    W * width / rank heads. Other ``settings`` are fields of ``RankEncoder``.

    Args:
        depth: number of layers.
        rank: width of a head.
        widening: W, inner width of attention over the residual stream's.
        embed_dim: width of a token.
        seq_len: tokens of an example.
        mlp_dim: hidden width of the feed-forward parts.
        settings: further fields.

    Raises:
        ValueError: the rank does not divide W * width, or what ``RankEncoder`` refuses.
    """
    rank, mlp_dim = whole_number("rank", rank), whole_number("mlp_dim", mlp_dim)
    settings = {"embed_dim": embed_dim, "depth": depth, "seq_len": seq_len, **settings}
    width = RankEncoder(heads=1, head_dim=rank, **settings).width
    heads = widening * width / rank
    if heads < 1 or heads != int(heads):
        raise ValueError(
            f"rank must divide widening * width: {rank} does not divide {widening:g} * {width}"
        )
    ratio = mlp_dim / width
    if int(width * ratio) < mlp_dim:  # the quotient was rounded down
        ratio = math.nextafter(ratio, math.inf)
    return RankEncoder(heads=int(heads), head_dim=rank, mlp_ratio=ratio, **settings)


def _scalar_norm_cost(rows: int, width: int) -> count.Cost:
    """Return the cost of a ``ScalarNorm``, which keeps its input and 3 numbers of each row."""
    kept = rows * (width + 3)
    return count.Cost(params=1, kept=kept, kept_float32=kept)


class RankEncoderNetwork(nn.Module):
    """What ``RankEncoder`` builds.

    Attention starts as torch's MultiheadAttention does, linear maps as torch's do, the scalar
    norms at 1, added positions from a normal of mean -1 (as published) and deviation 1,
    concatenated ones uniformly between -1 and 1.
    """

    def __init__(self, config: RankEncoder) -> None:
        super().__init__()
        self.concatenated = config.positions == "concatenated"
        self.embed_dim = config.embed_dim
        self.positions: nn.Parameter | None = None
        if config.positions != "none":
            width = config.position_dim if self.concatenated else config.embed_dim
            self.positions = nn.Parameter(torch.empty(config.seq_len, width))
            if self.concatenated:
                nn.init.uniform_(self.positions, -1.0, 1.0)
            else:
                nn.init.normal_(self.positions, mean=-1.0, std=1.0)
        first = PostNormLayer(config.stage, norm=config.norm)
        later_layers = range(config.depth - 1)
        self.layers = nn.ModuleList([first])
        self.layers.extend(
            deepcopy(first)
            if config.copy_first_layer
            else PostNormLayer(config.stage, norm=config.norm)
            for _ in later_layers
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the last norm's output, (B, T, D), without what positions were concatenated."""
        x_BTE = x_BTD
        if self.concatenated and self.positions is not None:
            positions_BTP = self.positions.expand(len(x_BTD), -1, -1)
            x_BTE = torch.cat((x_BTD, positions_BTP), dim=-1)
        elif self.positions is not None:
            x_BTE = x_BTD + self.positions
        for layer in self.layers:
            x_BTE = layer(x_BTE)
        return x_BTE[..., : self.embed_dim]


class PostNormLayer(nn.Module):
    """Attention and a ReLU feed-forward part, each around a residual connection and then normed.

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.1: norm(x + attention(x)), then
    norm(x + feed_forward(x)).

    Args:
        stage: widths and heads.
        norm: ``scalar`` or ``layer``.
    """

    def __init__(self, stage: Stage, *, norm: NormKind) -> None:
        super().__init__()
        kind = ScalarNorm if norm == "scalar" else nn.LayerNorm
        self.attention = AveragedAttention(stage.embed_dim, stage.heads, stage.head_width)
        self.norm1 = kind(stage.embed_dim)
        self.feed_forward = FeedForward(stage.embed_dim, stage.mlp_dim, activation="relu")
        self.norm2 = kind(stage.embed_dim)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the tokens, updated: (B, T, E)."""
        x_BTE = self.norm1(x_BTE + self.attention(x_BTE))
        updated: Tensor = self.norm2(x_BTE + self.feed_forward(x_BTE))
        return updated


class ScalarNorm(nn.Module):
    """Brings every token to the same length, s * x / ||x||, with one learned s that starts at 1.

    Paper Q, section on experiments, where it is called RMS norm. A token shorter than 1e-12,
    such as a zero one, is scaled as if it were that long.

    Args:
        embed_dim: width of a token; any will do.
    """

    def __init__(self, embed_dim: int) -> None:  # noqa: ARG002  as other norms are made
        super().__init__()
        self.length = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` scaled along its last axis."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scaled: Tensor = x * (self.length / norm.clamp_min(_SHORTEST))
        return scaled


class AveragedAttention(MultiHeadAttention):
    """The average of W = heads * head_dim / embed_dim attentions, as one of their joint width.

    Side by side, W of torch's MultiheadAttention with ``embed_dim / head_dim`` heads each are one
    attention whose output projection is the row of theirs, and their average is its output over W.
    It starts as they would: queries, keys and values from a Xavier uniform of the (3 E, E) matrix
    of one of them, its output projection from a uniform within 1 / sqrt(E), biases at 0. One
    output bias stands for the average of theirs, which start equal and have equal gradients; it
    is not scaled, so that an Adam step moves it as far as the average of theirs.

    W may be any number from 1. Below 1 there is nothing to average: the output is not scaled, and
    the initialisation is that of one attention of the inner width.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
    """

    def __init__(self, embed_dim: int, heads: int, head_dim: int) -> None:
        super().__init__(embed_dim, heads, head_dim, bias=True)
        inner = heads * head_dim
        self.proj = AveragingLinear(inner, embed_dim, averaged=max(1.0, inner / embed_dim))
        of_one = min(inner, embed_dim)
        with torch.no_grad():
            bound = math.sqrt(6 / (embed_dim + 3 * of_one))
            self.qkv.weight.uniform_(-bound, bound)
            self.proj.weight.uniform_(-1 / math.sqrt(of_one), 1 / math.sqrt(of_one))
            self.qkv.bias.zero_()
            self.proj.bias.zero_()


class AveragingLinear(nn.Linear):
    """A linear map whose product, but not its bias, is divided by how many maps it averages.

    Args:
        in_features: width of the input.
        out_features: width of the output.
        averaged: the number of maps.
    """

    def __init__(self, in_features: int, out_features: int, *, averaged: float) -> None:
        super().__init__(in_features, out_features)
        self.averaged = averaged

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (..., out_features)."""
        rows = x.flatten(0, -2)
        averages = torch.addmm(self.bias, rows, self.weight.mT, alpha=1 / self.averaged)
        return averages.view(*x.shape[:-1], -1)

    def extra_repr(self) -> str:
        """Return what the module's text form says."""
        return f"{super().extra_repr()}, averaged={self.averaged:g}"
