"""A GPT-2-style language model whose heads are as wide as one likes."""

from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn
from torch.nn import functional as F

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.blocks import FeedForward, PreNormBlock, draw_normal
from models.counts import Activation
from models.fields import settle, share, whole_number
from models.shape import Stage, check_feed_forward, stage_of

_TINY_STORIES_WIDTH: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Pre-norm blocks of causal attention over learned token and position embeddings.

    Radford et al. 2019 ("Language Models are Unsupervised Multitask Learners"), section 2.3, with
    the choices of the model that paper L ("Leaner Transformers: More Heads, Less Depth", arXiv
    2505.20802), table 2, trains on TinyStories: ReLU, no biases of queries, keys and values, and a
    read-out with weights of its own and a bias. GPT-2 itself has ``qkv_bias`` and is ``tied``.

    Attributes:
        embed_dim: width of a token.
        depth: number of blocks.
        heads: heads in each block.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward parts over ``embed_dim``.
        seq_len: longest sequence, in tokens; there are so many position embeddings.
        vocab_size: different tokens.
        activation: ``relu`` or ``gelu``.
        qkv_bias: whether queries, keys and values have biases.
        tied: whether the read-out has the token embedding's weights and no bias.
        dropout: share of what attention and feed-forward parts add that is dropped in training.
        attention_dropout: share of the attention weights that is dropped in training. It costs
            memory on the CPU alone, which keeps the weights for it.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a rate
            outside [0, 1), an unknown activation, a switch that is no boolean.
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 4.0
    seq_len: int
    vocab_size: int = 50257
    activation: Activation = "relu"
    qkv_bias: bool = False
    tied: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        settle(self, dropout=share, attention_dropout=share)
        check_feed_forward([self.stage])

    @property
    def stage(self) -> Stage:
        """The transformer's shape."""
        return stage_of(self, self.seq_len)

    def build(self) -> "DecoderNetwork":
        """Return the model: (batch, tokens) of int64 to (batch, tokens, vocab_size) logits."""
        return DecoderNetwork(self)

    def counts(self) -> Counts:
        """Return the model's counts, from its structure; an example has ``seq_len`` tokens."""
        stage, tokens, embed = self.stage, self.seq_len, self.embed_dim
        attention = count.self_attention(stage, qkv_bias=self.qkv_bias)
        mlp = count.mlp(tokens, stage, activation=self.activation)
        if self.dropout:
            attention += count.dropout(tokens * embed)
            mlp += count.dropout(tokens * embed)
        head = count.linear(tokens, embed, self.vocab_size, bias=not self.tied)
        if self.tied:
            head = count.Cost(flops=head.flops, kept=head.kept)
        positions = count.Cost(params=tokens * embed)
        return count.total(
            embedding=count.embedding(tokens, self.vocab_size, embed) + positions,
            attention=attention * self.depth,
            mlp=mlp * self.depth,
            norm=count.layer_norm(tokens, embed) * (2 * self.depth + 1),
            head=head,
            outputs=tokens * self.vocab_size,
        )


class DecoderNetwork(nn.Module):
    """What ``Decoder`` builds. Weights are drawn from a normal distribution of deviation 0.02."""

    def __init__(self, config: Decoder) -> None:
        super().__init__()
        stage = config.stage
        self.token_embedding = nn.Embedding(config.vocab_size, stage.embed_dim)
        self.position_embedding = nn.Embedding(stage.seq_len, stage.embed_dim)

        def block() -> PreNormBlock:
            attention = MultiHeadAttention(
                stage.embed_dim,
                stage.heads,
                stage.head_width,
                bias=config.qkv_bias,
                dropout=config.attention_dropout,
            )
            feed_forward = FeedForward(stage.embed_dim, stage.mlp_dim, config.activation)
            return PreNormBlock(attention, stage.embed_dim, feed_forward, dropout=config.dropout)

        self.blocks = nn.ModuleList(block() for _ in range(stage.depth))
        self.norm = nn.LayerNorm(stage.embed_dim)
        self.head = None if config.tied else nn.Linear(stage.embed_dim, config.vocab_size)
        draw_normal(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each token's successor: (batch, tokens, vocab_size).

        Args:
            tokens: (batch, tokens) of int64, at most ``seq_len`` tokens.

        Raises:
            ValueError: a sequence that is longer.
        """
        positions = self.position_embedding.weight
        if tokens.shape[1] > len(positions):
            raise ValueError(
                f"a sequence must have at most seq_len = {len(positions)} tokens, "
                f"not {tokens.shape[1]}"
            )
        x = self.token_embedding(tokens) + positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, causal=True)
        x = self.norm(x)
        logits: Tensor
        logits = F.linear(x, self.token_embedding.weight) if self.head is None else self.head(x)
        return logits


def gpt2_tiny_stories(
    *, heads: int = 12, head_dim: int | None = None, dropout: float = 0.2, **settings: Any
) -> Decoder:
    """Return the TinyStories model of paper L, table 2: width 512, GPT-2's vocabulary, by default
    12 layers and 64 tokens.

    ``gpt2_tiny_stories(depth=4, heads=16)`` is the lean one.

    Args:
        heads: heads in each block.
        head_dim: width of a head, or None for the published code's rule, 512 / heads rounded
            down: 42 for 12 heads, which is less than coupled, and coupled where heads divide 512.
        dropout: share of attention weights, and of what the parts of a block add, that is dropped.
        settings: other fields of ``Decoder``.
    """
    heads = whole_number("heads", heads)
    if head_dim is None and _TINY_STORIES_WIDTH % heads:
        head_dim = _TINY_STORIES_WIDTH // heads
    shape = {"embed_dim": _TINY_STORIES_WIDTH, "depth": 12, "heads": heads, "head_dim": head_dim}
    rates = {"dropout": dropout, "attention_dropout": dropout}
    return Decoder(**{**shape, "seq_len": 64, **rates, **settings})
