"""The Nyströmformer that paper L trains on Long Range Arena, and its exact-attention twin.

Paper L is "Leaner Transformers: More Heads, Less Depth" (arXiv 2505.20802). Tensor legend:
B examples, T tokens, E embed_dim.
"""

# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.blocks import FeedForward, PreNormBlock
from models.fields import settle, share
from models.nystrom_attention import (
    InverseScale,
    NystromAttention,
    check_landmarks,
    nystrom_attention_cost,
    padding_bias,
)
from models.shape import Stage, check_feed_forward, stage_of

PADDING: Final = 0
AttentionKind: TypeAlias = Literal["nystrom", "softmax"]

Task: TypeAlias = Literal["listops", "text", "retrieval", "image", "pathfinder"]
_LRA: Final[dict[Task, dict[str, Any]]] = {
    "listops": {"vocab_size": 32, "seq_len": 2048, "num_classes": 10},
    "text": {"vocab_size": 512, "seq_len": 4096, "num_classes": 2},
    "retrieval": {"vocab_size": 512, "seq_len": 4096, "num_classes": 2, "pair": True},
    "image": {"vocab_size": 512, "seq_len": 1024, "num_classes": 10},
    "pathfinder": {"vocab_size": 512, "seq_len": 1024, "num_classes": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nystromformer:
    """A pre-norm encoder of token ids whose mean over all positions is classified.

    Xiong et al. 2021 (arXiv 2102.03902), as configured for Long Range Arena and for table 3 of
    paper L: learned positions, biases throughout, a GELU feed-forward part, a two-layer ReLU head.
    Id 0 is padding: it is not attended to, and adds nothing to the mean, which is over the full
    length all the same.

    Attributes:
        embed_dim: width of a token.
        depth: number of blocks.
        heads: heads in each block.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward parts over ``embed_dim``.
        seq_len: tokens of a text, padding included.
        vocab_size: ids that tokens have, padding's included.
        num_classes: classes that are told apart.
        landmarks: landmarks of the Nyström attention; divides ``seq_len``. With as many as there
            are tokens, attention is the exact one. Softmax attention has none and ignores it.
        conv_kernel: odd length of the depth-wise convolution that the Nyström attention adds, or
            None for none, as in the models that table 3 counts.
        attention: ``nystrom``, or ``softmax`` for fused exact attention.
        inverse_scale: where the pseudo-inverse starts: over the ``batch``, as published, or for
            each ``matrix`` by itself, so that no example's result depends on the others.
        pair: whether an example is two texts. Both pass through the one encoder; the head sees
            both means, their product and their difference.
        head_hidden: hidden width of the head.
        dropout: share that is dropped of the embeddings, of what each half of a block adds, and
            of the feed-forward parts' hidden numbers. Attention weights are not dropped.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, landmarks
            that do not divide ``seq_len``, an even convolution, or an unknown choice.
    """

    embed_dim: int = 64
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 2.0
    seq_len: int
    vocab_size: int
    num_classes: int
    landmarks: int = 64
    conv_kernel: int | None = None
    attention: AttentionKind = "nystrom"
    inverse_scale: InverseScale = "batch"
    pair: bool = False
    head_hidden: int = 128
    dropout: float = 0.1

    def __post_init__(self) -> None:
        settle(self, dropout=share)
        check_feed_forward([self.stage])
        if self.attention == "nystrom":
            check_landmarks(self.seq_len, self.landmarks)
        if self.conv_kernel is not None:
            if self.conv_kernel % 2 == 0:
                raise ValueError(
                    "conv_kernel must be odd, so that a token is in its middle, not "
                    f"{self.conv_kernel}"
                )
            if self.attention == "softmax":
                raise ValueError(
                    f"conv_kernel must be None with softmax attention, not {self.conv_kernel}: the "
                    "convolution is part of the Nyström attention, which is exact with "
                    "landmarks=seq_len"
                )

    @property
    def stage(self) -> Stage:
        """The transformer's shape."""
        return stage_of(self, self.seq_len)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example's ids: (seq_len), or (2, seq_len) for a pair."""
        return (2, self.seq_len) if self.pair else (self.seq_len,)

    def build(self) -> "NystromformerNetwork":
        """Return the network: (batch, \\*input_shape) ids to (batch, num_classes) logits."""
        return NystromformerNetwork(self)

    def counts(self) -> Counts:
        """Return the network's counts, from its structure; a pair is two texts and one head."""
        stage, tokens, embed, texts = self.stage, self.seq_len, self.embed_dim, 1 + self.pair
        embedding = count.embedding(tokens, self.vocab_size, embed)
        embedding += count.Cost(params=tokens * embed)
        if self.attention == "nystrom":
            attention = nystrom_attention_cost(
                stage, landmarks=self.landmarks, conv_kernel=self.conv_kernel
            )
        else:
            attention = count.self_attention(stage, qkv_bias=True)
            embedding += count.Cost(kept=tokens)
        mlp = count.mlp(tokens, stage, has_dropout=self.dropout > 0)
        mlp += count.Cost(passing=tokens * stage.mlp_dim)
        if self.dropout:
            dropped = tokens * embed
            embedding += count.Cost(kept=dropped, kept_float32=dropped)
            attention += count.dropout(dropped)
            mlp += count.dropout(dropped)
        norms = count.layer_norm(tokens, embed) * (2 * self.depth + 1)
        kept_by_mask = count.Cost(kept=tokens, kept_float32=tokens)
        features = embed
        head = count.Cost()
        if self.pair:
            features = 4 * embed
            head += count.Cost(kept=2 * embed)
        head += count.linear(1, features, self.head_hidden)
        head += count.linear(1, self.head_hidden, self.num_classes)
        return count.total(
            embedding=(embedding + kept_by_mask).of_parts(texts),
            attention=(attention * self.depth).of_parts(texts),
            mlp=(mlp * self.depth).of_parts(texts),
            norm=norms.of_parts(texts),
            head=head,
            outputs=self.num_classes,
        )


def lra(task: Task = "listops", **settings: Any) -> Nystromformer:
    """Return the model of one Long Range Arena task, by default 2 layers of 2 heads, each 32 wide
    however many there are.

    Table 3 of paper L compares ``lra(task)`` with ``lra(task, depth=1, heads=4)``; figures 8 and 9
    vary the heads at both depths. The ``settings`` are fields of ``Nystromformer``; published
    runs of Xiong et al. have ``conv_kernel=35``, which the printed counts leave out.

    Raises:
        ValueError: an unknown task, or what ``Nystromformer`` refuses.
    """
    if task not in _LRA:
        raise ValueError(f"task must be one of {tuple(_LRA)}, not {task!r}")
    return Nystromformer(**{**_LRA[task], "depth": 2, "heads": 2, "head_dim": 32, **settings})


class NystromformerNetwork(nn.Module):
    """What ``Nystromformer`` builds.

    Embeddings start at a normal of deviation 0.02, all else as torch initialises it.
    """

    def __init__(self, config: Nystromformer) -> None:
        super().__init__()
        stage = config.stage
        self.input_shape = config.input_shape
        self.pair = config.pair
        self.exact = config.attention == "softmax"
        self.token_embedding = nn.Embedding(config.vocab_size, stage.embed_dim)
        self.positions = nn.Parameter(torch.empty(stage.seq_len, stage.embed_dim))
        for table in (self.token_embedding.weight, self.positions):
            nn.init.normal_(table, std=0.02)
        self.dropout = nn.Dropout(config.dropout)

        def attention() -> MultiHeadAttention:
            size = (stage.embed_dim, stage.heads, stage.head_width)
            if self.exact:
                return MultiHeadAttention(*size, bias=True)
            return NystromAttention(
                *size,
                landmarks=config.landmarks,
                conv_kernel=config.conv_kernel,
                inverse_scale=config.inverse_scale,
            )

        self.blocks = nn.ModuleList(
            PreNormBlock(
                attention(),
                stage.embed_dim,
                FeedForward(stage.embed_dim, stage.mlp_dim, dropout=config.dropout),
                dropout=config.dropout,
            )
            for _ in range(stage.depth)
        )
        self.norm = nn.LayerNorm(stage.embed_dim)
        features = stage.embed_dim * (4 if config.pair else 1)
        self.head = nn.Sequential(
            nn.Linear(features, config.head_hidden),
            nn.ReLU(),
            nn.Linear(config.head_hidden, config.num_classes),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits, (B, C), for ids of shape (B, T), or (B, 2, T) for pairs.

        Raises:
            ValueError: examples of another length, or not pairs where pairs are expected.
        """
        if tokens.shape[1:] != self.input_shape:
            raise ValueError(
                f"every example must be of shape {self.input_shape}, padded with {PADDING}, "
                f"not {tuple(tokens.shape[1:])}"
            )
        features = self.encode(tokens.flatten(0, -2))
        if self.pair:
            first, second = features.view(len(tokens), 2, -1).unbind(1)
            features = torch.cat((first, second, first * second, first - second), dim=-1)
        logits: Tensor = self.head(features)
        return logits

    def encode(self, tokens_BT: Tensor) -> Tensor:
        """Return each text's mean, (B, E), over its full length; padding counts as zero."""
        keep_BT = tokens_BT != PADDING
        x_BTE = self.dropout(self.token_embedding(tokens_BT) + self.positions)
        arguments: dict[str, Tensor] = {"keep_BT": keep_BT}
        if self.exact:
            arguments = {"mask": padding_bias(keep_BT, x_BTE.dtype)}
        for block in self.blocks:
            x_BTE = block(x_BTE, **arguments)
        normed_BTE = self.norm(x_BTE)
        mean: Tensor = (normed_BTE * keep_BT.unsqueeze(-1).to(normed_BTE.dtype)).mean(1)
        return mean
