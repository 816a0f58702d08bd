"""timm's DaVit with attention of a head width of one's own. Importing this module imports timm,
which takes seconds.

Tensor legend: B examples, T tokens, E embed_dim, H heads, N head_dim, I = H * N.
"""

# ruff: noqa: E402  torchvision must be made importable before timm imports it
# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from torch import Tensor, nn

from models.attention import MultiHeadAttention
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.layers.mlp import Mlp
from timm.models.davit import DaVit

__all__ = ["ChannelAttention", "DaVit", "Mlp", "MultiHeadAttention"]


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
