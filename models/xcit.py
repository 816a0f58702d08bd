"""Cross-covariance image transformers (XCiT) through timm, with a head width of one's own."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from torch import nn

from models import counts as count
from models.base import Counts
from models.fields import check_divides, settle, share
from models.shape import Stage, check_feed_forward, stage_of

PATCH_SIZES: Final = (8, 16)
FOURIER_FEATURES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class XCiT:
    """timm's Xcit: attention among channels, convolutions among neighbours, then class attention.

    El-Nouby et al. 2021 (arXiv 2106.09681), sections 3.2 to 3.4. With ``head_dim`` given, the
    width of cross-covariance attention is ``heads * head_dim`` whatever ``embed_dim`` is. The class
    attention at the end always splits ``embed_dim`` among its heads, and is as in timm but for
    what never reaches the class token, which is not computed; the outputs are the same up to
    rounding.

    The parameters of the local patch interaction count as ``mlp``, but for its batch norm, which
    counts as ``norm``; those of a layer scale count with the block they scale.

    Attributes:
        embed_dim: width of a token.
        depth: number of cross-covariance blocks; the class-attention blocks come on top.
        heads: heads in each block of both kinds; divides ``embed_dim`` even if ``head_dim`` is
            given, for the sake of class attention.
        head_dim: width of a head of cross-covariance attention, or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward blocks over ``embed_dim``.
        image_size: height and width of an image, in pixels.
        patch_size: height and width of a patch, in pixels: 8 or 16, since three or four
            convolutions of stride 2 make the patches; divides ``image_size``.
        in_chans: channels of an image.
        num_classes: classes that are told apart.
        drop_path: stochastic depth's rate, the same in every cross-covariance block; class
            attention has none.
        cls_attn_layers: number of class-attention blocks.
        layer_scale: what the learned gain on each block's update starts at (timm's ``eta``).
        tokens_norm: whether class attention normalises every token between its two parts, or
            the class token alone.

    Raises:
        ValueError: an impossible shape, heads that do not divide ``embed_dim``, a size that is not
            a whole number of at least 1, a rate outside [0, 1), another patch size, one that does
            not divide the image size, or an ``embed_dim`` that leaves the first convolution none.
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
    cls_attn_layers: int = 2
    layer_scale: float = 1e-5
    tokens_norm: bool = True

    def __post_init__(self) -> None:
        settle(self, drop_path=share)
        if self.patch_size not in PATCH_SIZES:
            raise ValueError(f"patch_size must be one of {PATCH_SIZES}, not {self.patch_size}")
        check_divides("patch_size", "image_size", self)
        check_feed_forward([self.stage])
        if self.embed_dim % self.heads:
            raise ValueError(
                "heads must divide embed_dim whatever head_dim is, because class attention splits "
                f"the width among them: {self.embed_dim} is not a multiple of {self.heads}"
            )
        if self.stem_widths[0] == 0:
            raise ValueError(
                "embed_dim must leave the first convolution a channel: with patch_size "
                f"{self.patch_size} it has embed_dim // {self.patch_size // 2} of them, and "
                f"embed_dim is {self.embed_dim}"
            )

    @property
    def stage(self) -> Stage:
        """The cross-covariance blocks' shape; ``seq_len`` counts patches and the class token, which
        joins the patches in class attention only."""
        return stage_of(self, self.num_patches + 1)

    @property
    def class_stage(self) -> Stage:
        """The class-attention blocks' shape, whose heads are always coupled."""
        return stage_of(self, self.num_patches + 1, depth=self.cls_attn_layers, head_dim=None)

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def stem_widths(self) -> tuple[int, ...]:
        """Output channels of the convolutions that make the patches, each of stride 2."""
        halvings = range(self.patch_size.bit_length() - 2, -1, -1)
        return tuple(self.embed_dim // 2**times for times in halvings)

    def build(self) -> nn.Module:
        """Return timm's model: (batch, in_chans, height, width) to (batch, num_classes) logits."""
        from models.timm_blocks import (
            CrossCovarianceAttention,
            GridPositions,
            Xcit,
            XCiTClassBlock,
        )

        norm = partial(nn.LayerNorm, eps=1e-6)
        model = Xcit(
            img_size=self.image_size,
            patch_size=self.patch_size,
            in_chans=self.in_chans,
            num_classes=self.num_classes,
            embed_dim=self.embed_dim,
            depth=self.depth,
            num_heads=self.heads,
            mlp_ratio=self.mlp_ratio,
            drop_path_rate=self.drop_path,
            norm_layer=norm,  # type: ignore[arg-type]  # timm only calls it
            cls_attn_layers=self.cls_attn_layers,
            eta=self.layer_scale,
            tokens_norm=self.tokens_norm,
        )
        grid = self.image_size // self.patch_size
        model.pos_embed = GridPositions(model.pos_embed, grid)  # type: ignore[assignment]  # as called
        for block in model.blocks:
            block.attn = CrossCovarianceAttention(self.embed_dim, self.heads, self.stage.head_width)
            block.attn.apply(model._init_weights)
        model.cls_attn_blocks = nn.ModuleList(
            XCiTClassBlock(
                self.embed_dim,
                last=number == self.cls_attn_layers - 1,
                num_heads=self.heads,
                mlp_ratio=self.mlp_ratio,
                qkv_bias=True,
                norm_layer=norm,
                eta=self.layer_scale,
                tokens_norm=self.tokens_norm,
            )
            for number in range(self.cls_attn_layers)
        )
        model.cls_attn_blocks.apply(model._init_weights)
        return model

    def counts(self) -> Counts:
        """Return the model's counts, from its structure."""
        patches, embed = self.num_patches, self.embed_dim
        positions = count.conv2d(patches, FOURIER_FEATURES, embed, 1, kept=0)
        class_token = count.Cost(params=embed)
        ends = {
            "embedding": _stem(self) + positions + class_token,
            "norm": count.layer_norm(1, embed),
            "head": count.linear(1, embed, self.num_classes),
        }
        groups = count.by_group([ends, _cross_covariance_blocks(self), _class_blocks(self)])
        return count.total(outputs=self.num_classes, **groups)


def _stem(config: XCiT) -> count.Cost:
    """Return the cost of the convolutions that make the patches, batch norms included."""
    side, channels, cost = config.image_size, config.in_chans, count.Cost()
    for width in config.stem_widths:
        inputs, side = channels * side**2, side // 2
        cost += count.conv2d(side**2, channels, width, 3, kept=inputs, bias=False)
        cost += count.batch_norm(side**2, width)
        channels = width
        if width != config.stem_widths[-1]:
            cost += count.gelu(side**2 * width)
    return cost


def _layer_scale(rows: int, width: int) -> count.Cost:
    """Return the cost of a learned gain on each channel, which keeps its input."""
    return count.Cost(params=width, kept=rows * width)


def _cross_covariance_attention(stage: Stage, patches: int) -> count.Cost:
    """Return the cost of one cross-covariance attention (El-Nouby et al. 2021, equation 2).

    Each head mixes ``head_width`` channels of its values, by as many weights for each. Kept are
    queries, keys and values, the lengths of the first two, the weights, and twice what the weights
    come from; the weights, and half of what they come from, in float32 under autocast.
    """
    inner = stage.inner_dim
    weights = inner * stage.head_width
    core = count.Cost(
        params=stage.heads,
        flops=4 * patches * weights,
        kept=3 * patches * inner + 2 * inner + 3 * weights,
        kept_float32=2 * inner + 2 * weights,
        passing=3 * patches * inner,
    )
    return (
        count.linear(patches, stage.embed_dim, 3 * inner)
        + core
        + count.linear(patches, inner, stage.embed_dim)
    )


def _cross_covariance_blocks(config: XCiT) -> dict[str, count.Cost]:
    """Return the cost of the blocks among patches, by parameter group."""
    stage, patches, embed = config.stage, config.num_patches, config.embed_dim
    scale = _layer_scale(patches, embed)
    neighbours = count.conv2d(patches, embed, embed, 3, groups=embed, kept=patches * embed)
    interaction = neighbours * 2 + count.gelu(patches * embed) + scale
    norm = count.layer_norm(patches, embed) * 3 + count.batch_norm(patches, embed)
    return {
        "attention": (_cross_covariance_attention(stage, patches) + scale) * stage.depth,
        "mlp": (interaction + count.mlp(patches, stage) + scale) * stage.depth,
        "norm": norm * stage.depth,
    }


def _class_blocks(config: XCiT) -> dict[str, count.Cost]:
    """Return the cost of the class-attention blocks, by parameter group; the last one leaves the
    patches as they are."""
    stage, tokens, embed = config.class_stage, config.num_patches + 1, config.embed_dim
    scale = _layer_scale(1, embed)
    attention = count.class_token_read(stage, tokens=tokens, qkv_bias=True)
    norm = (count.layer_norm(tokens, embed) + count.layer_norm(1, embed)) * stage.depth
    if config.tokens_norm:
        of_patches = count.layer_norm(tokens - 1, embed).kept * (stage.depth - 1)
        norm += count.Cost(kept=of_patches, kept_float32=of_patches)
    return {
        "attention": (attention + scale) * stage.depth,
        "mlp": (count.mlp(1, stage) + scale) * stage.depth,
        "norm": norm,
    }


def xcit_medium(**settings: Any) -> XCiT:
    """Return an XCiT-M24/16 of width 512, by default of 8 heads.

    ``xcit_medium(depth=12, heads=16, head_dim=64)`` is the lean model of paper L ("Leaner
    Transformers: More Heads, Less Depth", arXiv 2505.20802), table 4: there, more heads are as
    wide as before. The ``settings`` are fields of ``XCiT``.
    """
    return XCiT(**{"embed_dim": 512, "depth": 24, "heads": 8, **settings})


def xcit_large(**settings: Any) -> XCiT:
    """Return an XCiT-L24/16 of width 768, by default of 16 heads.

    ``xcit_large(depth=12, heads=24)`` is the lean model of paper L, table 5: there, unlike in
    XCiT-M, more heads are narrower. The ``settings`` are fields of ``XCiT``.
    """
    return XCiT(**{"embed_dim": 768, "depth": 24, "heads": 16, **settings})
