"""The generalised-retrieval transformer of paper H ("The Effect of Attention Head Count on
Transformer Approximation", arXiv 2510.06662), with the choices the paper leaves open made
explicit."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import counts as count
from models.attention import ClassTokenAttention, MultiHeadAttention
from models.base import Counts
from models.fields import settle
from models.shape import Stage, stage_of, token_width


@dataclass(frozen=True, slots=True)
class RetrievalTransformer:
    """A token encoder, ``depth`` attention layers, and a read-out of the class token.

    Paper H, section on synthetic experiments: one layer, the head width fixed while the heads
    vary, no positions, no residual and no normalisation, a two-layer GELU read-out. A learned
    class token asks; keys and values come from the ``seq_len`` tokens alone. With more layers the
    tokens attend to each other in all but the last one, the class token asks with the same
    weights, and each layer's query is the class token's output of the layer before.

    Attributes:
        heads: heads in each layer.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        seq_len: tokens of an example (the class token not counted).
        input_dim: width of a raw token.
        output_dim: outputs; 1 gives predictions of shape (batch,).
        depth: attention layers.
        embed_dim: width of a token; None for ``heads * head_dim``. Given, it stays fixed while
            heads and their width vary, and the output projection leads back to it.
        encoder_hidden: hidden width of the two-layer GELU encoder, shared over positions.
        readout_hidden: hidden width of the two-layer GELU read-out (the paper's N).
        residual: whether a layer's output is added to its input.
        learnable_temperature: whether each head learns a factor on its logits.

    Raises:
        ValueError: a size that is not a whole number of at least 1, a switch that is no boolean,
            neither ``embed_dim`` nor ``head_dim``, or coupled heads that do not divide
            ``embed_dim``.
    """

    heads: int
    head_dim: int | None
    seq_len: int
    input_dim: int
    output_dim: int = 1
    depth: int = 1
    embed_dim: int | None = None
    encoder_hidden: int = 32
    readout_hidden: int = 32
    residual: bool = False
    learnable_temperature: bool = False

    def __post_init__(self) -> None:
        settle(self)
        self.stage  # noqa: B018  refuses impossible ones

    @property
    def stage(self) -> Stage:
        """The transformer's shape; there is no feed-forward block between the layers."""
        return stage_of(
            self,
            self.seq_len,
            embed_dim=token_width(self.embed_dim, self.heads, self.head_dim),
            mlp_ratio=0,
        )

    def build(self) -> "RetrievalNetwork":
        """Return the network: (batch, seq_len, input_dim) to (batch,) or (batch, output_dim)."""
        return RetrievalNetwork(self)

    def counts(self) -> Counts:
        """Return the network's counts, from its structure."""
        # A lone layer leaves the tokens' last linear map to the read, which applies it to one
        # mixture a head instead of to every token, and its query depends on no example.
        stage, tokens, folded = self.stage, self.seq_len, self.depth == 1
        encoder = count.linear(tokens, self.input_dim, self.encoder_hidden)
        encoder += count.gelu(tokens * self.encoder_hidden)
        to_tokens = count.linear(tokens, self.encoder_hidden, stage.embed_dim)
        if folded:
            to_tokens = count.Cost(params=to_tokens.params)
        last = count.class_token_read(
            stage,
            tokens=tokens,
            qkv_bias=False,
            shared_query=folded,
            token_features=self.encoder_hidden if folded else None,
        )
        if not folded:
            last += count.Cost(kept=stage.embed_dim)
        full = count.self_attention(stage, qkv_bias=False, query_only=1)
        if self.learnable_temperature:
            last += count.Cost(params=self.heads, kept=0 if folded else stage.inner_dim)
            full += count.Cost(params=self.heads, kept=(tokens + 1) * stage.inner_dim)
        readout = count.linear(1, stage.embed_dim, self.readout_hidden)
        readout += count.gelu(self.readout_hidden)
        readout += count.linear(1, self.readout_hidden, self.output_dim)
        return count.total(
            embedding=encoder + to_tokens + count.Cost(params=stage.embed_dim),
            attention=full * (self.depth - 1) + last,
            head=readout,
            outputs=self.output_dim,
        )


_FEW: Final = 8
"""Inputs of a linear map up to which `_few_inputs` is the quicker way; measured with 3 to 16."""


class RetrievalNetwork(nn.Module):
    """What ``RetrievalTransformer`` builds.

    Initialised as torch initialises linear layers, the class token from a standard normal.
    """

    def __init__(self, config: RetrievalTransformer) -> None:
        super().__init__()
        stage = config.stage
        self.residual = config.residual
        self.encoder = nn.Linear(config.input_dim, config.encoder_hidden)
        self.to_tokens = nn.Linear(config.encoder_hidden, stage.embed_dim)
        self.class_token = nn.Parameter(torch.randn(stage.embed_dim))

        def layer(kind: type[MultiHeadAttention]) -> MultiHeadAttention:
            return kind(
                stage.embed_dim,
                stage.heads,
                stage.head_width,
                learnable_temperature=config.learnable_temperature,
            )

        self.layers = nn.ModuleList(layer(MultiHeadAttention) for _ in range(config.depth - 1))
        self.last_layer = layer(ClassTokenAttention)
        self.readout_hidden = nn.Linear(stage.embed_dim, config.readout_hidden)
        self.readout = nn.Linear(config.readout_hidden, config.output_dim)

    @property
    def readout_bias(self) -> nn.Parameter:
        """The last bias: started at the targets' mean, it leaves only their variation to learn."""
        return self.readout.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions for ``x`` of shape (batch, tokens, input_dim)."""
        features = F.gelu(_few_inputs(x, self.encoder))
        if len(self.layers) == 0:
            class_token: Tensor = self.class_token
            read = self.last_layer(class_token, features, token_map=self.to_tokens)
        else:
            tokens = self.to_tokens(features)
            first = self.class_token.expand(len(x), 1, -1)
            sequence = torch.cat((first, tokens), dim=1)
            for layer in self.layers:
                update = layer(sequence, query_only=1)
                sequence = sequence + update if self.residual else update
            class_token = sequence[:, 0]
            read = self.last_layer(class_token, sequence[:, 1:])
        summary = class_token + read if self.residual else read
        output: Tensor = self.readout(F.gelu(self.readout_hidden(summary)))
        return output.squeeze(-1) if output.shape[-1] == 1 else output


def _few_inputs(x: Tensor, linear: nn.Linear) -> Tensor:
    """Return ``linear(x)``, at half its cost on the CPU where it has a few inputs and many rows.

    The bias is added where the product lies, not copied there first, and the gradient of the weight
    comes as the transposed product, whose long axis the matrix library shares out. Equal to the bit
    forward; the weight's gradient is, up to rounding.
    """
    if x.device.type != "cpu" or linear.in_features > _FEW:
        output: Tensor = linear(x)
        return output
    product = x.flatten(0, -2) @ linear.weight.t().contiguous()
    return product.add_(linear.bias).view(*x.shape[:-1], -1)
