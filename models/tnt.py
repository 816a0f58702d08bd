"""Transformers in transformers (TNT) through timm, with a head width of one's own."""

from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from models import counts as count
from models.base import Counts
from models.fields import check_divides, settle, share
from models.shape import Stage, check_feed_forward, stage_of

PIXEL_KERNEL: Final = 7
INNER_MLP_RATIO: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TNT:
    """timm's TNT: in each block, attention within every patch and then attention among patches.

    Han et al. 2021 (arXiv 2103.00112), section 2.2; the inner transformer's tokens are timm's
    "pixels", each of ``inner_stride`` x ``inner_stride`` pixels of the image. The shape is that of
    the outer transformer: with ``head_dim`` given, queries, keys and values among patches are
    ``heads * head_dim`` wide whatever ``embed_dim`` is. The inner one is coupled, its hidden width
    four times ``inner_dim``. Queries, keys and values have no biases.

    The parameters of a block's linear map from pixels to patches count as ``mlp``, those of the
    first such map as ``embedding``; the norms around them as ``norm``.

    Attributes:
        embed_dim: width of a patch's token.
        depth: number of blocks.
        heads: heads of a block's attention among patches.
        head_dim: width of such a head, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the patches' feed-forward blocks over ``embed_dim``.
        image_size: height and width of an image, in pixels.
        patch_size: height and width of a patch, in pixels; divides ``image_size``.
        inner_dim: width of a pixel's token.
        inner_heads: heads of a block's attention within a patch; divides ``inner_dim``.
        inner_stride: pixels of the image from one pixel's token to the next.
        in_chans: channels of an image.
        num_classes: classes that are told apart.
        drop_path: stochastic depth's rate in the last block; it rises to it linearly from 0.
        skip_unread_tokens: whether the last block leaves out what never reaches the class token,
            the only one that is read. The outputs are the same up to rounding and the parameters
            are the same; the last block's other patches do not exist then, which matters to a probe
            of its attention (set it to False for one).

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a rate
            outside [0, 1), a patch size that does not divide the image size, or inner heads that
            do not divide the inner width.
    """

    embed_dim: int
    depth: int
    heads: int
    head_dim: int | None = None
    mlp_ratio: float = 4.0
    image_size: int = 224
    patch_size: int = 16
    inner_dim: int = 40
    inner_heads: int = 4
    inner_stride: int = 4
    in_chans: int = 3
    num_classes: int = 1000
    drop_path: float = 0.0
    skip_unread_tokens: bool = True

    def __post_init__(self) -> None:
        settle(self, drop_path=share)
        check_divides("patch_size", "image_size", self)
        check_divides("inner_heads", "inner_dim", self)
        check_feed_forward([self.stage])

    @property
    def stage(self) -> Stage:
        """The outer transformer's shape; ``seq_len`` counts patches and the class token."""
        return stage_of(self, self.num_patches + 1)

    @property
    def inner_stage(self) -> Stage:
        """The inner transformer's shape; ``seq_len`` counts the pixels of one patch."""
        return Stage(
            embed_dim=self.inner_dim,
            depth=self.depth,
            heads=self.inner_heads,
            mlp_ratio=INNER_MLP_RATIO,
            seq_len=self.num_pixels,
        )

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_pixels(self) -> int:
        """Tokens of the inner transformer in each patch."""
        return (-(-self.patch_size // self.inner_stride)) ** 2

    def build(self) -> nn.Module:
        """Return timm's model: (batch, in_chans, height, width) to (batch, num_classes) logits."""
        from models.timm_blocks import TIMM_TNT, TNTAttention, TNTReadAttention, TNTReadBlock

        outer, inner = self.stage, self.inner_stage
        model = TIMM_TNT(
            img_size=self.image_size,
            patch_size=self.patch_size,
            in_chans=self.in_chans,
            num_classes=self.num_classes,
            embed_dim=self.embed_dim,
            inner_dim=self.inner_dim,
            depth=self.depth,
            # All attention is replaced below; timm divides the widths by these heads on the way.
            num_heads_inner=1,
            num_heads_outer=1,
            mlp_ratio=self.mlp_ratio,
            drop_path_rate=self.drop_path,
            first_stride=self.inner_stride,
        )
        if self.skip_unread_tokens:
            model.blocks[-1] = TNTReadBlock(
                dim=self.inner_dim,
                dim_out=self.embed_dim,
                num_pixel=self.num_pixels,
                num_heads_in=1,
                num_heads_out=1,
                mlp_ratio=self.mlp_ratio,
                # Not drop_path: timm rounds rates to float32, and the first block has none.
                drop_path=getattr(model.blocks[-1].drop_path, "drop_prob", 0.0),
            )
            model.blocks[-1].apply(model._init_weights)
        for block in model.blocks:
            reads_one_token = isinstance(block, TNTReadBlock)
            among_patches = TNTReadAttention if reads_one_token else TNTAttention
            block.attn_in = TNTAttention(inner.embed_dim, inner.heads, inner.head_width)
            block.attn_out = among_patches(outer.embed_dim, outer.heads, outer.head_width)
            for attention in (block.attn_in, block.attn_out):
                attention.apply(model._init_weights)
        return model

    def counts(self) -> Counts:
        """Return the model's counts, from its structure."""
        read_only = int(self.skip_unread_tokens)
        outer = count.pre_norm_blocks(
            self.stage, qkv_bias=False, full=self.depth - read_only, read_only=read_only
        )
        groups = count.by_group([_first_tokens(self), _inner_blocks(self), outer])
        # The head's input is one row of all normalised tokens, and keeps every one alive.
        rows = 1 if self.skip_unread_tokens else self.stage.seq_len
        groups["norm"] += count.layer_norm(rows, self.embed_dim)
        groups["head"] = count.linear(1, self.embed_dim, self.num_classes, keeps_input=False)
        groups["head"] += count.Cost(kept=rows * self.embed_dim)
        return count.total(outputs=self.num_classes, **groups)


def _pixels_to_patches(config: TNT, *, bias: bool) -> dict[str, count.Cost]:
    """Return the cost of the map from a patch's pixels to its token, and of the norms around it."""
    patches, inputs = config.num_patches, config.num_pixels * config.inner_dim
    norm = count.layer_norm(patches, inputs) + count.layer_norm(patches, config.embed_dim)
    return {"map": count.linear(patches, inputs, config.embed_dim, bias=bias), "norm": norm}


def _first_tokens(config: TNT) -> dict[str, count.Cost]:
    """Return the cost of pixels and patches before the first block, by parameter group."""
    patches, pixels, inner = config.num_patches, config.num_pixels, config.inner_dim
    image = config.in_chans * config.image_size**2
    convolution = count.conv2d(patches * pixels, config.in_chans, inner, PIXEL_KERNEL, kept=image)
    class_token_and_positions = (patches + 2) * config.embed_dim + pixels * inner
    to_patches = _pixels_to_patches(config, bias=True)
    return {
        "embedding": convolution + to_patches["map"] + count.Cost(params=class_token_and_positions),
        "norm": to_patches["norm"],
    }


def _inner_blocks(config: TNT) -> dict[str, count.Cost]:
    """Return the cost of what the blocks do within patches, by parameter group.

    A block's pixels are kept once for the map to patches and the next block's first norm, but the
    last block's for the map alone.
    """
    stage, patches = config.inner_stage, config.num_patches
    pixels = patches * stage.seq_len
    attention = count.self_attention(stage, qkv_bias=False).of_parts(patches)
    to_patches = _pixels_to_patches(config, bias=False)
    kept_twice = -pixels * stage.embed_dim * (config.depth - 1)
    norm = count.layer_norm(pixels, stage.embed_dim) * 2 + to_patches["norm"]
    return {
        "attention": attention * config.depth,
        "mlp": (count.mlp(pixels, stage) + to_patches["map"]) * config.depth,
        "norm": norm * config.depth + count.Cost(kept=kept_twice, kept_float32=kept_twice),
    }


def tnt_base(**settings: Any) -> TNT:
    """Return a TNT-B/16 of width 640, by default 12 layers of 10 heads, its pixels 40 wide.

    ``tnt_base(depth=8, heads=16, mlp_ratio=2)`` is the lean model of paper L ("Leaner
    Transformers: More Heads, Less Depth", arXiv 2505.20802), table 4: the hidden width printed
    there, 2560, is four times ``embed_dim``, but the printed count is that of half as much. The
    ``settings`` are fields of ``TNT``.
    """
    return TNT(**{"embed_dim": 640, "depth": 12, "heads": 10, **settings})
