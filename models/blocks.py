"""The pre-norm transformer block that the sequence models share; ``models.counts`` has its cost.

Tensor legend: B examples, T tokens, E embed_dim, M mlp_dim.
"""

# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from models.counts import Activation


class PreNormBlock(nn.Module):
    """Attention and a feed-forward part, each behind a norm and around a residual connection.

    Xiong et al. 2020 (arXiv 2002.04745), figure 1b: x + attention(norm(x)), then
    x + feed_forward(norm(x)).

    Args:
        attention: maps (B, T, E) to (B, T, E); further keyword arguments of ``forward`` are its.
        embed_dim: width of a token.
        feed_forward: maps (B, T, E) to (B, T, E), each token by itself.
        norm: makes a normalisation of that width.
        dropout: share of the numbers that each of the two adds to a token which are dropped.
    """

    def __init__(
        self,
        attention: nn.Module,
        embed_dim: int,
        feed_forward: nn.Module,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = norm(embed_dim)
        self.attention = attention
        self.norm2 = norm(embed_dim)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTE: Tensor, **attention_arguments: Any) -> Tensor:
        """Return the tokens, updated: (B, T, E)."""
        x_BTE = x_BTE + self.dropout(self.attention(self.norm1(x_BTE), **attention_arguments))
        updated: Tensor = x_BTE + self.dropout(self.feed_forward(self.norm2(x_BTE)))
        return updated


class FeedForward(nn.Module):
    """Two linear maps with an activation between them (Vaswani et al. 2017, section 3.3).

    Args:
        embed_dim: width of a token.
        mlp_dim: hidden width.
        activation: ``gelu`` (the exact one) or ``relu``.
        bias: whether the linear maps have biases.
        dropout: share of the hidden numbers that are dropped.
    """

    def __init__(
        self,
        embed_dim: int,
        mlp_dim: int,
        activation: Activation = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, mlp_dim, bias=bias)
        self.activation = nn.GELU() if activation == "gelu" else nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(mlp_dim, embed_dim, bias=bias)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the feed-forward part's output, (B, T, E)."""
        output: Tensor = self.fc2(self.dropout(self.activation(self.fc1(x_BTE))))
        return output


class GatedFeedForward(nn.Module):
    """A feed-forward part whose hidden numbers are gated: GEGLU of Shazeer 2020 (arXiv
    2002.05202), equation 6.

    The first linear map makes 2 M numbers of a token; GELU of the first half scales the second
    half, and the second map leads the M products back.

    Args:
        embed_dim: width of a token.
        mlp_dim: hidden width after gating.
        bias: whether the linear maps have biases.
    """

    def __init__(self, embed_dim: int, mlp_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 2 * mlp_dim, bias=bias)
        self.fc2 = nn.Linear(mlp_dim, embed_dim, bias=bias)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the feed-forward part's output, (B, T, E)."""
        gate_BTM, value_BTM = self.fc1(x_BTE).chunk(2, dim=-1)
        output: Tensor = self.fc2(F.gelu(gate_BTM) * value_BTM)
        return output


def draw_normal(model: nn.Module, std: float = 0.02) -> None:
    """Draw all linear and embedding weights again from a normal distribution; biases become 0.

    Radford et al. 2018 ("Improving Language Understanding by Generative Pre-Training"), section
    4.1, and Devlin et al. 2019's code: a deviation of 0.02 everywhere.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
