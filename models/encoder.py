"""A Crammed-BERT-style text encoder whose heads are as wide as one likes.

Tensor legend: B examples, T tokens, E embed_dim, V vocab_size, R tokens that are read.
"""

# ruff: noqa: N806  tensors carry their shape as a suffix

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.blocks import GatedFeedForward, PreNormBlock, draw_normal
from models.fields import positive_share_or_all, settle, share
from models.shape import Stage, check_feed_forward, stage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CrammedBert:
    """Pre-norm blocks with gated feed-forward parts, for masked language modelling.

    Geiping and Goldstein 2023 ("Cramming: Training a Language Model on a Single GPU in One Day",
    arXiv 2212.14034), section 4.3; the BERT of paper L ("Leaner Transformers: More Heads, Less
    Depth", arXiv 2505.20802), table 1. Linear maps have no biases, positions are sinusoidal with
    one learned scale, the embeddings are normalised, and a token is read out with the token
    embedding's weights, without a bias or a further map.

    Attributes:
        embed_dim: width of a token.
        depth: number of blocks.
        heads: heads in each block.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward parts after gating, over ``embed_dim``. The
            published ratio is 2: 768 numbers become 3072, which gate each other to 1536. Such a
            part has as many weights as one without a gate of ratio 3.
        seq_len: longest sequence, in tokens.
        vocab_size: different tokens.
        dropout: share of the embeddings, and of what attention and feed-forward parts add, that
            is dropped in training. The published pre-training drops nothing, its fine-tuning 0.1:
            build the same configuration with another rate and load the weights.
        attention_dropout: share of the attention weights that is dropped in training. It costs
            memory on the CPU alone, which keeps the weights for it.
        predicted_share: share of an example's tokens that a training step predicts, in (0, 1].
            The model is the same: it says what ``counts()`` counts, for training that gives the
            model only those tokens to read out (``read_at``). With BERT's masking it is the
            masked share.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a rate
            outside [0, 1), a share outside (0, 1].
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 2.0
    seq_len: int
    vocab_size: int = 32768
    dropout: float = 0.0
    attention_dropout: float = 0.0
    predicted_share: float = 1.0

    def __post_init__(self) -> None:
        shares = {"dropout": share, "attention_dropout": share}
        settle(self, **shares, predicted_share=positive_share_or_all)
        check_feed_forward([self.stage])

    @property
    def stage(self) -> Stage:
        """The transformer's shape."""
        return stage_of(self, self.seq_len)

    @property
    def predicted_tokens(self) -> int:
        """Tokens of an example that a training step predicts, at least one."""
        return max(1, round(self.predicted_share * self.seq_len))

    def build(self) -> "EncoderNetwork":
        """Return the model: (batch, tokens) of int64 to (batch, tokens, vocab_size) logits."""
        return EncoderNetwork(self)

    def counts(self) -> Counts:
        """Return the model's counts, from its structure.

        An example has ``seq_len`` tokens, none of them padding, and ``predicted_tokens`` of them
        are read out.
        """
        stage, tokens, embed = self.stage, self.seq_len, self.embed_dim
        embedding = count.embedding(tokens, self.vocab_size, embed) + count.Cost(params=1)
        attention = count.self_attention(stage, qkv_bias=False, out_bias=False)
        mlp = count.gated_mlp(tokens, stage)
        if self.dropout:
            masks = count.dropout(tokens * embed)
            embedding, attention, mlp = embedding + masks, attention + masks, mlp + masks
        read = self.predicted_tokens
        head = count.linear(read, embed, self.vocab_size, bias=False)
        norm = count.layer_norm(tokens, embed) * (2 * self.depth + 1)
        return count.total(
            embedding=embedding,
            attention=attention * self.depth,
            mlp=mlp * self.depth,
            norm=norm + count.layer_norm(read, embed),
            head=count.Cost(flops=head.flops, kept=head.kept),
            outputs=read * self.vocab_size,
        )


class EncoderNetwork(nn.Module):
    """What ``CrammedBert`` builds. Weights are drawn from a normal distribution of deviation 0.02.

    Attributes:
        embed_dim: width of a token.
        seq_len: longest sequence, in tokens.
    """

    def __init__(self, config: CrammedBert) -> None:
        super().__init__()
        stage = config.stage
        self.embed_dim, self.seq_len = stage.embed_dim, stage.seq_len
        norm = partial(nn.LayerNorm, eps=1e-12)

        def block() -> PreNormBlock:
            attention = MultiHeadAttention(
                stage.embed_dim,
                stage.heads,
                stage.head_width,
                out_bias=False,
                dropout=config.attention_dropout,
            )
            feed_forward = GatedFeedForward(stage.embed_dim, stage.mlp_dim)
            return PreNormBlock(
                attention, stage.embed_dim, feed_forward, norm=norm, dropout=config.dropout
            )

        self.token_embedding = nn.Embedding(config.vocab_size, stage.embed_dim)
        self.position_scale = nn.Parameter(torch.tensor(1 / math.sqrt(stage.embed_dim)))
        self.positions_TE: Tensor
        self.register_buffer(
            "positions_TE", sinusoidal_positions(stage.seq_len, stage.embed_dim), persistent=False
        )
        self.embedding_norm = norm(stage.embed_dim)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(block() for _ in range(stage.depth))
        self.norm = norm(stage.embed_dim)
        draw_normal(self)

    def forward(
        self, tokens: Tensor, *, mask: Tensor | None = None, read_at: Tensor | None = None
    ) -> Tensor:
        """Return each token's logits over the vocabulary, or those of the tokens that are read.

        Every token is computed alike whatever is read; reading a quarter of them saves three
        quarters of the product with the vocabulary and of the logits' memory.

        Args:
            tokens: (B, T) of int64, T at most ``seq_len``.
            mask: (B, T) of booleans (or 1 and 0), which tokens are text; the others are padding,
                which no token attends to. At least one of an example is text; None if all are.
                No token's number means padding by itself.
            read_at: which tokens' logits are wanted: (B, R) of int64, R positions in each
                example; or (B, T) of booleans, which makes the output's size depend on its values.

        Returns:
            (B, T, V); with positions in ``read_at`` (B, R, V), with booleans (marked tokens, V).

        Raises:
            ValueError: a sequence that is longer.
        """
        x = self._hidden(tokens, mask)
        if read_at is not None and read_at.dtype == torch.bool:
            x = x[read_at]
        elif read_at is not None:
            x = x.take_along_dim(read_at.unsqueeze(-1), dim=1)
        return F.linear(self.norm(x), self.token_embedding.weight)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what the read-out reads, (B, T, E).

        Arguments and errors are those of ``forward``.
        """
        features_BTE: Tensor = self.norm(self._hidden(tokens, mask))
        return features_BTE

    def _hidden(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Return the last block's output, (B, T, E)."""
        length = tokens.shape[1]
        if length > self.seq_len:
            raise ValueError(
                f"a sequence must have at most seq_len = {self.seq_len} tokens, not {length}"
            )
        x = self.token_embedding(tokens) + self.position_scale * self.positions_TE[:length]
        x_BTE: Tensor = self.dropout(self.embedding_norm(x))
        attended = None if mask is None else mask[:, None, None, :].bool()
        for block in self.blocks:
            x_BTE = block(x_BTE, mask=attended)
        return x_BTE


def sinusoidal_positions(seq_len: int, embed_dim: int) -> Tensor:
    """Return sin and cos of every position at ``embed_dim / 2`` frequencies: (T, E).

    Vaswani et al. 2017, section 3.5: the numbers 2i and 2i + 1 of position t are sin and cos of
    t / 10000^(2i / E).
    """
    frequency = 10000.0 ** -(torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    angle = torch.arange(seq_len, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :embed_dim].float()


def crammed_bert(**settings: Any) -> CrammedBert:
    """Return the Crammed BERT of paper L, table 1: width 768, 32,768 tokens, by default 16 layers
    of 12 heads.

    ``crammed_bert(depth=10, heads=24)`` is the lean one, its heads 32 wide. A quarter of an
    example's tokens is masked, and predicted, in training. The ``settings`` are fields of
    ``CrammedBert``.
    """
    shape = {"embed_dim": 768, "depth": 16, "heads": 12, "seq_len": 128, "predicted_share": 0.25}
    return CrammedBert(**{**shape, **settings})
