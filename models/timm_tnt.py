"""timm's TNT with what it lacks: a head width of one's own, fused attention, and a last block that
computes only what is read. Importing this module imports timm, which takes seconds.

Tensor legend: B examples, P patches, X pixels of a patch, T tokens (class token first, then
patches), E embed_dim, D inner_dim, H heads, N head_dim.
"""

# ruff: noqa: E402  torchvision must be made importable before timm imports it
# ruff: noqa: N803, N806  tensors carry their shape as a suffix

import torch
from torch import Tensor, nn

from models.attention import attended, heads_of_one_query, split_heads
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.models import tnt as timm_tnt

__all__ = ["Attention", "ClassTokenAttention", "ClassTokenBlock", "timm_tnt"]


class Attention(nn.Module):
    """Attention over all tokens, (B, T, E) to the same, with timm's parameters and fused.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
    """

    def __init__(self, embed_dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = head_dim
        self.qk = nn.Linear(embed_dim, 2 * heads * head_dim, bias=False)
        self.v = nn.Linear(embed_dim, heads * head_dim, bias=False)
        self.proj = nn.Linear(heads * head_dim, embed_dim)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the attention's output."""
        x_BTE = _as_autocast_would(x_BTE)
        query, key = split_heads(self.qk(x_BTE), 2, self.num_heads)
        (value,) = split_heads(self.v(x_BTE), 1, self.num_heads)
        mixed_BHTN = attended(query, key, value)
        projected: Tensor = self.proj(mixed_BHTN.transpose(1, 2).flatten(2))
        return projected


def _as_autocast_would(x: Tensor) -> Tensor:
    """Return ``x`` in the type autocast gives a projection's input, if it is on: cast once, not
    once for each of two projections, which would both keep their copy."""
    device = x.device.type
    if x.dtype != torch.float32 or not torch.amp.is_autocast_available(device):
        return x
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class ClassTokenAttention(Attention):
    """The class token's attention to all tokens: (B, T, E) to (B, 1, E).

    It has the parameters of ``Attention`` and returns the first of its tokens; no token is
    projected to a key or a value, see ``models.attention.heads_of_one_query``.
    """

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the class token's output."""
        query_weight, key_weight = self.qk.weight.chunk(2)
        heads_BI = heads_of_one_query(
            x_BTE[:, 0],
            x_BTE,
            query_weight=query_weight,
            key_weight=key_weight,
            value_weight=self.v.weight,
            heads=self.num_heads,
        )
        projected: Tensor = self.proj(heads_BI)
        return projected.unsqueeze(1)


class ClassTokenBlock(timm_tnt.Block):
    """The last block of a model that reads its class token only.

    It has the parameters of timm's block, whose ``attn_out`` must be a ``ClassTokenAttention``:
    patches take in what their pixels hold and are attended to, but are not updated.
    """

    norm2_proj: nn.Module

    def forward(self, pixel_embed: Tensor, patch_embed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pixels' tokens, (B * P, X, D), and the class token's output, (B, 1, E)."""
        pixels = pixel_embed + self.drop_path(self.attn_in(self.norm_in(pixel_embed)))
        pixels = pixels + self.drop_path(self.mlp_in(self.norm_mlp_in(pixels)))
        class_token, patches = patch_embed[:, :1], patch_embed[:, 1:]
        of_each_patch = pixels.reshape(*patches.shape[:2], -1)
        patches = patches + self.norm2_proj(self.proj(self.norm1_proj(of_each_patch)))
        tokens = self.norm_out(torch.cat([class_token, patches], dim=1))
        class_token = class_token + self.drop_path(self.attn_out(tokens))
        class_token = class_token + self.drop_path(self.mlp(self.norm_mlp(class_token)))
        return pixels, class_token
