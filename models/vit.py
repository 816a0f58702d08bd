"""Vision transformers through timm, with a head width free of the embedding's."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from models import counts as count
from models.base import Counts
from models.fields import check_divides, settle, share
from models.shape import Stage, check_feed_forward, stage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ViT:
    """timm's VisionTransformer: pre-norm blocks, learned positions, biases throughout.

    Dosovitskiy et al. 2021 (arXiv 2010.11929), section 3.1. With ``head_dim`` given, the width of
    attention is ``heads * head_dim`` whatever ``embed_dim`` is, as in the ViT and DeiT rows of
    paper L ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802), tables 4 and 5.

    Attributes:
        embed_dim: width of a token.
        depth: number of blocks.
        heads: heads in each block.
        head_dim: width of a head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward blocks over ``embed_dim``.
        image_size: height and width of an image, in pixels.
        patch_size: height and width of a patch, in pixels; divides ``image_size``.
        in_chans: channels of an image.
        num_classes: classes that are told apart.
        drop_path: stochastic depth's rate in the last block; it rises to it linearly from 0.
        class_token: whether a class token is read; otherwise the mean over all patches is.
        skip_unread_tokens: whether the last block leaves out what never reaches the class token.
            The outputs are the same up to rounding and the parameters are the same; the last
            block's other tokens do not exist then, which matters to a probe of its attention
            (set it to False for one). Without a class token it changes nothing.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a rate
            outside [0, 1), or a patch size that does not divide the image size.
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 4.0
    image_size: int = 224
    patch_size: int = 16
    in_chans: int = 3
    num_classes: int = 1000
    drop_path: float = 0.0
    class_token: bool = True
    skip_unread_tokens: bool = True

    def __post_init__(self) -> None:
        settle(self, drop_path=share)
        check_divides("patch_size", "image_size", self)
        check_feed_forward([self.stage])

    @property
    def stage(self) -> Stage:
        """The transformer's shape; ``seq_len`` counts patches and the class token."""
        return stage_of(self, self.num_patches + self.class_token)

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def reads_class_token_only(self) -> bool:
        """Whether the last block computes the class token's output alone."""
        return self.class_token and self.skip_unread_tokens

    def build(self) -> nn.Module:
        """Return timm's model: (batch, in_chans, height, width) to (batch, num_classes) logits."""
        from models.timm_blocks import VisionTransformer, ViTBlock, ViTReadBlock, vit_attention

        def block(**settings: Any) -> ViTBlock:
            reads_one_token = self.reads_class_token_only and settings["depth"] == self.depth - 1
            return (ViTReadBlock if reads_one_token else ViTBlock)(**settings)

        return VisionTransformer(
            img_size=self.image_size,
            patch_size=self.patch_size,
            in_chans=self.in_chans,
            num_classes=self.num_classes,
            global_pool="token" if self.class_token else "avg",
            class_token=self.class_token,
            embed_dim=self.embed_dim,
            depth=self.depth,
            num_heads=self.heads,
            mlp_ratio=self.mlp_ratio,
            drop_path_rate=self.drop_path,
            attn_layer=vit_attention(self.stage.head_width),
            block_fn=block,  # type: ignore[arg-type]  # timm only calls it
        )

    def counts(self) -> Counts:
        """Return the model's counts, from its structure."""
        stage, tokens, embed = self.stage, self.stage.seq_len, self.embed_dim
        patch = self.in_chans * self.patch_size**2
        tokens_and_positions = count.Cost(params=(tokens + self.class_token) * embed)
        read_only = int(self.reads_class_token_only)
        blocks = count.pre_norm_blocks(
            stage, qkv_bias=True, full=self.depth - read_only, read_only=read_only
        )
        # timm takes the mean over patches before the last norm, the class token after it: the
        # head's input is then one row of all normalised tokens, and keeps every one alive.
        rows = tokens if self.class_token and not self.reads_class_token_only else 1
        head = count.linear(1, embed, self.num_classes, keeps_input=False)
        head += count.Cost(kept=rows * embed)
        return count.total(
            embedding=count.linear(self.num_patches, patch, embed) + tokens_and_positions,
            attention=blocks["attention"],
            mlp=blocks["mlp"],
            norm=blocks["norm"] + count.layer_norm(rows, embed),
            head=head,
            outputs=self.num_classes,
        )


def vit_base(**settings: Any) -> ViT:
    """Return a ViT-B/16 of width 768, by default 12 layers of 12 heads, each 64 wide however many
    there are.

    ``vit_base(depth=7, heads=16, mlp_ratio=2)`` is the lean model of paper L, table 4. The
    ``settings`` are fields of ``ViT``; ``head_dim=None`` couples the heads to the width.
    """
    return ViT(**{"embed_dim": 768, "depth": 12, "heads": 12, "head_dim": 64, **settings})


def vit_large(**settings: Any) -> ViT:
    """Return a ViT-L/16 of width 1024, by default 24 layers of 16 heads, each 64 wide.

    The large models of paper L, table 5, have ``mlp_ratio=2``, the one called original too:
    its printed count of 203.6 M parameters is that of a hidden width of 2048.
    """
    return ViT(**{"embed_dim": 1024, "depth": 24, "heads": 16, "head_dim": 64, **settings})


def deit_base(**settings: Any) -> ViT:
    """Return a DeiT-B/16 without its distillation token, which is a ViT-B/16: ``vit_base``.

    Touvron et al. 2021 (arXiv 2012.12877), section 4: DeiT is ViT trained otherwise, and with the
    token that paper L's counts do not include. Both have one key, so they are one trial.
    """
    return vit_base(**settings)


def deit_large(**settings: Any) -> ViT:
    """Return a DeiT-L/16 without a distillation token: ``vit_large``.

    Paper L, table 5, has one, though DeiT was published up to the base size only.
    """
    return vit_large(**settings)
