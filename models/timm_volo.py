"""timm's VOLO with attention of a head width of one's own. Importing this module imports timm,
which takes seconds.

Tensor legend: B examples, H and W rows and columns of the token grid, N windows, E embed_dim,
I heads * head_dim, K cells of a window.
"""

# ruff: noqa: E402  torchvision must be made importable before timm imports it
# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import MultiHeadAttention, heads_of_one_query
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.models import volo as timm_volo

__all__ = ["ClassAttention", "GridAttention", "OutlookAttention", "timm_volo"]

if TYPE_CHECKING:
    pass


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


class ClassAttention(nn.Module):
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
