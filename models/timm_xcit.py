"""timm's XCiT with what it lacks: a head width of one's own for cross-covariance attention, and
class attention that computes only what is read. Importing this module imports timm, which takes
seconds.

Tensor legend: B examples, P patches, T tokens (class token first, then patches), E embed_dim,
H heads, N head_dim.
"""

# ruff: noqa: E402  torchvision must be made importable before timm imports it
# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from typing import Any, Final

import torch
from torch import Tensor, nn

from models.attention import heads_of_one_query
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.models import xcit as timm_xcit
from timm.models.cait import ClassAttn

__all__ = ["ClassAttentionBlock", "CrossCovarianceAttention", "GridPositions", "timm_xcit"]


_SMALLEST_LENGTH: Final = 1e-12


class CrossCovarianceAttention(nn.Module):
    """Attention among the channels of each head, (B, P, E) to the same, with timm's parameters.

    El-Nouby et al. 2021 (arXiv 2106.09681), section 3.2: softmax of temperature times the cosines
    between a query's and a key's channels over all patches. The products are divided by the
    channels' lengths, so that no normalised copies of queries and keys are made and kept.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
    """

    def __init__(self, embed_dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = head_dim
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv = nn.Linear(embed_dim, 3 * heads * head_dim)
        self.proj = nn.Linear(heads * head_dim, embed_dim)

    def forward(self, x_BPE: Tensor) -> Tensor:
        """Return the attention's output."""
        qkv_BP3HN = self.qkv(x_BPE).unflatten(-1, (3, self.num_heads, self.head_dim))
        # One copy here instead of one for each product that needs its matrices contiguous.
        query, key, value = qkv_BP3HN.permute(2, 0, 3, 1, 4).contiguous().unbind(0)
        query_length_BH1N, key_length_BH1N = _channel_length(query), _channel_length(key)
        gain_BHN1 = self.temperature / query_length_BH1N.mT
        weights_BHNN = ((query.mT @ key) * gain_BHN1 / key_length_BH1N).softmax(dim=-1)
        mixed_BHPN = value @ weights_BHNN.mT
        projected: Tensor = self.proj(mixed_BHPN.transpose(1, 2).flatten(2))
        return projected


def _channel_length(x_BHPN: Tensor) -> Tensor:
    """Return each channel's length over all patches, (B, H, 1, N), in float32 at least."""
    dtype = torch.promote_types(x_BHPN.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(x_BHPN, dim=-2, keepdim=True, dtype=dtype)
    return length.clamp_min(_SMALLEST_LENGTH)


class GridPositions(nn.Module):
    """timm's Fourier positions with its parameters, their features computed once for one grid.

    El-Nouby et al. 2021, section 4.1: sines and cosines of row and column at many frequencies,
    each grid one period long, mapped to the tokens' width. timm computes them in every pass.

    Args:
        timms: timm's module, whose projection is taken over.
        grid: rows, and columns, of the grid.
    """

    def __init__(self, timms: timm_xcit.PositionalEncodingFourier, grid: int) -> None:
        super().__init__()
        self.token_projection = timms.token_projection
        seen: list[Tensor] = []

        def see(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            seen.extend(arguments)

        with torch.no_grad(), self.token_projection.register_forward_pre_hook(see):
            timms(1, grid, grid)
        self.features: Tensor
        self.register_buffer("features", seen[0], persistent=False)

    def forward(self, batch: int, *_: int) -> Tensor:
        """Return the positions for so many examples, (B, E, rows, columns)."""
        positions: Tensor = self.token_projection(self.features)
        return positions.expand(batch, -1, -1, -1)


class ClassAttention(ClassAttn):
    """timm's class attention without a key or a value for any token: (B, T, E) to (B, 1, E)."""

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the class token's output; see ``models.attention.heads_of_one_query``."""
        heads_BI = heads_of_one_query(
            x_BTE[:, 0],
            x_BTE,
            query_weight=self.q.weight,
            key_weight=self.k.weight,
            value_weight=self.v.weight,
            query_bias=self.q.bias,
            key_bias=self.k.bias,
            value_bias=self.v.bias,
            heads=self.num_heads,
        )
        projected: Tensor = self.proj(heads_BI)
        return projected.unsqueeze(1)


class ClassAttentionBlock(timm_xcit.ClassAttentionBlock):
    """timm's class-attention block (Touvron et al. 2021, arXiv 2103.17239, section 3).

    It updates the class token as timm's does, and the patches too (each is scaled, normalised and
    doubled on the way), unless it is the last, which returns the class token alone.

    Args:
        dim: width of a token.
        last: whether nothing but the class token is read from it.
        settings: those of timm's block.
    """

    def __init__(self, dim: int, *, last: bool, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.attn = ClassAttention(dim, settings["num_heads"], qkv_bias=settings["qkv_bias"])
        self.last = last

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the tokens, (B, T, E), or the class token, (B, 1, E)."""
        normed = self.norm1(x_BTE)
        class_token: Tensor = self.norm2(x_BTE[:, :1] + self.gamma1 * self.attn(normed))
        class_token = class_token + self.gamma2 * self.mlp(class_token)
        if self.last:
            return class_token
        patches = x_BTE[:, 1:] + self.gamma1 * normed[:, 1:]
        if self.tokens_norm:
            patches = self.norm2(patches)
        return torch.cat([class_token, 2 * patches], dim=1)
