"""timm's vision transformer with what it lacks: a head width of one's own, and a last block that
computes only what is read. Importing this module imports timm, which takes seconds."""

# ruff: noqa: E402  torchvision must be made importable before timm imports it

from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import class_token_heads, split_heads
from models.torchvision_compat import make_torchvision_importable

make_torchvision_importable()

from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer

__all__ = ["Block", "ClassTokenBlock", "VisionTransformer", "attention_of_head_dim"]


@cache
def attention_of_head_dim(head_dim: int) -> type[Attention]:
    """Return timm's attention with heads of width ``head_dim``.

    A class, because timm's blocks pass no ``attn_head_dim`` on and refuse a partial.
    """

    class DecoupledAttention(Attention):
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


class ClassTokenBlock(Block):
    """The last block of a model that reads its class token only: (B, N, E) to (B, 1, E).

    It has the parameters of timm's block and returns the first of its tokens; the others are
    attended to, but not updated.
    """

    attn: Attention
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
