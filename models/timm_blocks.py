"""timm's vision transformers with what they lack: a head width of one's own, fused attention, and
last blocks that compute only what is read. Importing this module imports timm, which takes seconds.

Every block has the parameters of timm's. Tensor legend: B examples, T tokens (a class token first),
P patches, X pixels of a patch, E embed_dim, D width of a pixel, H heads, N head_dim, I = H * N; in
outlook attention H and W are rows and columns of the grid, N windows, K cells of a window, h heads
and d head_dim.
"""

# ruff: noqa: E402  torchvision must be made importable before timm imports it
# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import (
    MultiHeadAttention,
    attended,
    class_token_heads,
    heads_of_one_query,
    split_heads,
)
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.layers.attention import Attention as TimmAttention
from timm.layers.mlp import Mlp
from timm.models.cait import ClassAttn
from timm.models.davit import DaVit
from timm.models.tnt import TNT as TIMM_TNT
from timm.models.tnt import Block as TNTBlock
from timm.models.vision_transformer import Block as ViTBlock
from timm.models.vision_transformer import VisionTransformer
from timm.models.volo import VOLO as TIMM_VOLO
from timm.models.xcit import ClassAttentionBlock, PositionalEncodingFourier, Xcit

__all__ = [
    "ChannelAttention",
    "CrossCovarianceAttention",
    "DaVit",
    "GridAttention",
    "GridPositions",
    "Mlp",
    "OutlookAttention",
    "TNTAttention",
    "TNTReadAttention",
    "TNTReadBlock",
    "TIMM_TNT",
    "VOLOClassAttention",
    "ViTBlock",
    "ViTReadBlock",
    "VisionTransformer",
    "TIMM_VOLO",
    "XCiTClassBlock",
    "Xcit",
    "vit_attention",
]


@cache
def vit_attention(head_dim: int) -> type[TimmAttention]:
    """Return timm's attention with heads of width ``head_dim``.

    A class, because timm's blocks pass no ``attn_head_dim`` on and refuse a partial.
    """

    class DecoupledAttention(TimmAttention):
        """timm's attention with a head width that does not follow from its other arguments."""

        def __init__(self, dim: int, **settings: Any) -> None:
            super().__init__(dim, attn_head_dim=head_dim, **settings)

        def forward(
            self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
        ) -> Tensor:
            """Return what timm's does for what this model sets: no norms, gates or dropout."""
            query, key, value = split_heads(self.qkv(x), 3, self.num_heads)
            mixed = F.scaled_dot_product_attention(
                query, key, value, attn_mask=attn_mask, is_causal=is_causal
            )
            output: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
            return output

    return DecoupledAttention


class ViTReadBlock(ViTBlock):
    """The last block of a model that reads its class token only: (B, N, E) to (B, 1, E).

    It has the parameters of timm's block and returns the first of its tokens; the others are
    attended to, but not updated.
    """

    attn: TimmAttention
    mlp: nn.Module

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Return the class token's output.

        Raises:
            ValueError: a mask is given, which a class token that sees every token cannot use.
        """
        if attn_mask is not None or is_causal:
            raise ValueError("a last block that reads only the class token takes no mask")
        tokens = self.norm1(x)
        heads = class_token_heads(tokens[:, 0], tokens, self.attn.qkv, heads=self.attn.num_heads)
        update = self.attn.proj(heads).unsqueeze(1)
        class_token = x[:, :1] + self.drop_path1(update)
        output: Tensor = class_token + self.drop_path2(self.mlp(self.norm2(class_token)))
        return output


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

    def __init__(self, timms: PositionalEncodingFourier, grid: int) -> None:
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


class XCiTClassAttention(ClassAttn):
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


class XCiTClassBlock(ClassAttentionBlock):
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
        self.attn = XCiTClassAttention(dim, settings["num_heads"], qkv_bias=settings["qkv_bias"])
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


class ChannelAttention(nn.Module):
    """Attention among the channels of each head, (B, T, E) to the same, with timm's parameters.

    Ding et al. 2022 (arXiv 2204.03645), section 3.2. A head's weights are a softmax over its
    channels, ``head_dim`` by ``head_dim``: small beside the tokens, so that a fused kernel, whose
    rows would be as long as there are tokens, has nothing to save.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: channels of a head.
        scale_by_tokens: see ``models.davit.DaViT``.
    """

    def __init__(
        self, embed_dim: int, heads: int, head_dim: int, *, scale_by_tokens: bool = False
    ) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = head_dim
        self.scale_by_tokens = scale_by_tokens
        self.qkv = nn.Linear(embed_dim, 3 * heads * head_dim)
        self.proj = nn.Linear(heads * head_dim, embed_dim)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the attention's output."""
        batch, tokens, _ = x_BTE.shape
        qkv = self.qkv(x_BTE).view(batch, tokens, 3, self.num_heads, self.head_dim)
        # One copy of all three, of which every product then takes its operand as it lies.
        query, key, value = qkv.permute(2, 0, 3, 4, 1).contiguous().unbind(0)
        if self.scale_by_tokens:
            scale, asking, asked, mixed = tokens**-0.5, query, key, value
        else:
            scale, asking, asked, mixed = self.head_dim**-0.5, key, value, query
        weights_BHNN = (asking @ asked.mT * scale).softmax(dim=-1)
        heads_BIT = (weights_BHNN @ mixed).flatten(1, 2)
        projected: Tensor = self.proj(heads_BIT.mT)
        return projected


class TNTAttention(nn.Module):
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


class TNTReadAttention(TNTAttention):
    """The class token's attention to all tokens: (B, T, E) to (B, 1, E).

    It has the parameters of ``TNTAttention`` and returns the first of its tokens; no token is
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


class TNTReadBlock(TNTBlock):
    """The last block of a model that reads its class token only.

    It has the parameters of timm's block, whose ``attn_out`` must be a ``TNTReadAttention``:
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


class OutlookAttention(nn.Module):
    """Outlook attention (Yuan et al. 2021, arXiv 2106.13112, section 3.1), (B, H, W, E) to the
    same, with the parameters of timm's and values as wide as ``heads * head_dim``.

    The mean token of every 2 x 2 tokens is mapped to 9 x 9 weights a head, which mix the values
    of the 3 x 3 tokens around them into nine outputs; outputs that fall on one token are added.
    The logits are scaled by the square root of ``head_dim``, as timm's are.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head's values.
        kernel: tokens along a side of the square that is mixed.
        stride: tokens along a side of the square whose mean asks.
    """

    def __init__(
        self, embed_dim: int, heads: int, head_dim: int, *, kernel: int, stride: int
    ) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = head_dim
        self.kernel = kernel
        self.stride = stride
        self.v = nn.Linear(embed_dim, heads * head_dim, bias=False)
        self.attn = nn.Linear(embed_dim, kernel**4 * heads)
        self.proj = nn.Linear(heads * head_dim, embed_dim)

    def forward(self, x_BHWE: Tensor) -> Tensor:
        """Return the attention's output for tokens on a grid of even height and width."""
        batch, height, width, _ = x_BHWE.shape
        kernel, stride, padding = self.kernel, self.stride, self.kernel // 2
        cells = kernel**2

        values_BIHW = self.v(x_BHWE).permute(0, 3, 1, 2)
        windows = F.unfold(values_BIHW, kernel, padding=padding, stride=stride)
        windows = windows.view(batch, self.num_heads, self.head_dim, cells, -1)
        values_BNhKd = windows.permute(0, 4, 1, 3, 2)

        # A mean, because timm's pooling keeps its input in float32 for a gradient without need.
        pairs = (height // stride, stride, width // stride, stride)
        centres_BNE = x_BHWE.view(batch, *pairs, -1).mean(dim=(2, 4)).flatten(1, 2)
        logits = self.attn(centres_BNE).view(batch, -1, self.num_heads, cells, cells)
        # The type is given, because autocast would keep the weights in float32 and bfloat16 both.
        weights_BNhKK = (logits * self.head_dim**-0.5).softmax(dim=-1, dtype=logits.dtype)

        mixed = (weights_BNhKK @ values_BNhKd).permute(0, 2, 4, 3, 1).flatten(1, 3)
        mixed_BIHW = F.fold(mixed, (height, width), kernel, padding=padding, stride=stride)
        projected: Tensor = self.proj(mixed_BIHW.flatten(2).transpose(1, 2))
        return projected.view(x_BHWE.shape)


class GridAttention(MultiHeadAttention):
    """Attention over all tokens of a grid, (B, H, W, E) to the same, with timm's parameters."""

    def forward(self, x_BHWE: Tensor) -> Tensor:  # type: ignore[override]
        """Return the attention's output."""
        return super().forward(x_BHWE.flatten(1, 2)).view(x_BHWE.shape)


class VOLOClassAttention(nn.Module):
    """The class token's attention to all tokens, itself among them: (B, T, E) to (B, 1, E).

    Touvron et al. 2021 (arXiv 2103.17239), section 3, with the parameters of timm's. No token is
    projected to a key or a value: see ``models.attention.heads_of_one_query``.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
    """

    def __init__(self, embed_dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = head_dim
        self.kv = nn.Linear(embed_dim, 2 * heads * head_dim, bias=False)
        self.q = nn.Linear(embed_dim, heads * head_dim, bias=False)
        self.proj = nn.Linear(heads * head_dim, embed_dim)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the class token's output; the class token is the first."""
        key_weight, value_weight = self.kv.weight.chunk(2)
        heads_BI = heads_of_one_query(
            x_BTE[:, 0],
            x_BTE,
            query_weight=self.q.weight,
            key_weight=key_weight,
            value_weight=value_weight,
            heads=self.num_heads,
        )
        projected: Tensor = self.proj(heads_BI.unsqueeze(1))
        return projected
