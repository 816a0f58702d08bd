"""An encoder over the candidates of a query that scores each of them: the text-retrieval model of
paper H ("The Effect of Attention Head Count on Transformer Approximation", arXiv 2510.06662), with
the choices the paper leaves open made explicit."""

from dataclasses import dataclass

from torch import Tensor, nn

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.blocks import FeedForward, PreNormBlock
from models.fields import settle
from models.shape import Stage, check_feed_forward, stage_of, token_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A trained projection of frozen features, ``depth`` pre-norm blocks, one score a candidate.

    Candidates attend to each other and have no positions: their scores do not depend on their
    order. Paper H, section on text retrieval: two layers over the candidates, the width of a head
    fixed while the heads vary. The head width, residuals and norms are not stated there.

    Attributes:
        heads: heads in each layer.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        seq_len: candidates of a query.
        input_dim: width of a candidate's features.
        depth: layers.
        embed_dim: width of a token; None for ``heads * head_dim``. Given, it stays fixed while
            heads and their width vary.
        mlp_ratio: hidden width of the feed-forward blocks over the token's width.

    Raises:
        ValueError: a size that is not a whole number of at least 1, neither ``embed_dim`` nor
            ``head_dim``, coupled heads that do not divide ``embed_dim``, or no feed-forward block.
    """

    heads: int
    head_dim: int | None = None
    seq_len: int
    input_dim: int
    depth: int = 2
    embed_dim: int | None = None
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        settle(self)
        check_feed_forward([self.stage])

    @property
    def stage(self) -> Stage:
        """The transformer's shape."""
        return stage_of(
            self, self.seq_len, embed_dim=token_width(self.embed_dim, self.heads, self.head_dim)
        )

    def build(self) -> "RankerNetwork":
        """Return the network: (batch, candidates, input_dim) to scores (batch, candidates)."""
        return RankerNetwork(self)

    def counts(self) -> Counts:
        """Return the network's counts, from its structure."""
        stage, tokens = self.stage, self.seq_len
        return count.total(
            embedding=count.linear(tokens, self.input_dim, stage.embed_dim),
            attention=count.self_attention(stage, qkv_bias=True) * self.depth,
            mlp=count.mlp(tokens, stage) * self.depth,
            norm=count.layer_norm(tokens, stage.embed_dim) * (2 * self.depth + 1),
            head=count.linear(tokens, stage.embed_dim, 1),
            outputs=tokens,
        )


class RankerNetwork(nn.Module):
    """What ``Ranker`` builds, initialised as torch initialises linear layers."""

    def __init__(self, config: Ranker) -> None:
        super().__init__()
        stage = config.stage
        self.projection = nn.Linear(config.input_dim, stage.embed_dim)
        self.blocks = nn.ModuleList(
            PreNormBlock(
                MultiHeadAttention(stage.embed_dim, stage.heads, stage.head_width, bias=True),
                stage.embed_dim,
                FeedForward(stage.embed_dim, stage.mlp_dim),
            )
            for _ in range(stage.depth)
        )
        self.norm = nn.LayerNorm(stage.embed_dim)
        self.head = nn.Linear(stage.embed_dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return one score a candidate for ``x`` of shape (batch, candidates, input_dim)."""
        tokens = self.projection(x)
        for block in self.blocks:
            tokens = block(tokens)
        scores: Tensor = self.head(self.norm(tokens))
        return scores.squeeze(-1)
