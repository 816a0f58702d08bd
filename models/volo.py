"""Vision outlookers (VOLO) through timm, with a head width free of the embedding's."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from torch import nn

from models import counts as count
from models.base import Counts
from models.fields import settle, share, whole_number
from models.shape import PerStage, Stage, check_feed_forward, settle_stages, stages_of

NUM_STAGES: Final = 4
PATCH_SIZES: Final = (4, 8, 16)
OUTLOOK_KERNEL: Final = 3
OUTLOOK_STRIDE: Final = 2
NUM_CLASS_BLOCKS: Final = 2


def _width_or_none(name: str, value: Any) -> int | None:
    return None if value is None else whole_number(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class VOLO:
    """timm's VOLO: a stage of outlook attention on a fine grid, three of attention on a coarse one.

    Yuan et al. 2021 (arXiv 2106.13112), sections 3.1 to 3.3 and table 1: three convolutions and a
    patch embedding; outlookers; a merge of 2 x 2 tokens; positions; transformer blocks; two blocks
    in which only a class token is updated. The logits are those of timm's ``forward``, in training
    too: the class token's, plus half the largest over all other tokens of an auxiliary head, which
    is counted and trained with the rest. (Mixing tokens and labelling them are a training loop's,
    not part of it.) As in timm, stochastic depth leaves the outlookers alone.

    Every attribute that is one "for each stage" may be one value for all four.

    What a given ``head_dim`` widens: an attention of ``heads * head_dim`` between the queries, keys
    and values and its output projection. In an outlooker, whose weights are a linear map of the
    token and no dot product of queries and keys, there are only values to widen. So one number
    widens the three transformer stages alone, which is what gives the decoupled counts of paper L's
    models ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802): 62.134 M for the lean
    VOLO-d3 with heads of 32, 138.587 M for the lean d4 with heads of 48. Four numbers widen the
    outlookers too. The class blocks' heads always share the width, ``embed_dim // heads`` of the
    last stage for each.

    Attributes:
        embed_dim: width of a token, for each stage; the last three are equal.
        depth: number of blocks, for each stage; the class blocks are not among them.
        heads: heads in each block, for each stage; the class blocks have the last stage's.
        head_dim: None for ``embed_dim / heads`` everywhere, or a width for the transformer stages,
            or for each stage a width or None for ``embed_dim / heads``.
        mlp_ratio: hidden width of the feed-forward blocks over ``embed_dim``, for each stage.
        image_size: height and width of an image, in pixels.
        patch_size: height and width of a patch, in pixels: 4, 8 or 16.
        stem_hidden_dim: channels of the three convolutions before the patch embedding.
        in_chans: channels of an image.
        num_classes: classes that are told apart.
        drop_path: stochastic depth's rate in the last transformer block; it rises to it linearly.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, another
            patch size, a rate outside [0, 1), an image size that is not a multiple of
            2 * ``patch_size``, unequal widths where nothing lies between them, or more heads in
            the last stage than ``embed_dim``.
    """

    embed_dim: PerStage[int]
    depth: PerStage[int]
    heads: PerStage[int]
    head_dim: PerStage[int | None] = None
    mlp_ratio: PerStage[float] = 3.0
    image_size: int = 224
    patch_size: int = 8
    stem_hidden_dim: int = 64
    in_chans: int = 3
    num_classes: int = 1000
    drop_path: float = 0.0

    def __post_init__(self) -> None:
        per_stage = isinstance(self.head_dim, tuple | list)
        settle(self, drop_path=share)
        settle_stages(self, NUM_STAGES, head_dim=_width_or_none)
        if isinstance(self.head_dim, tuple):
            widths = self.head_dim if per_stage else (None, *self.head_dim[1:])
            object.__setattr__(self, "head_dim", None if set(widths) == {None} else widths)
        self._check_sizes()
        check_feed_forward(self.stages)

    def _check_sizes(self) -> None:
        if self.patch_size not in PATCH_SIZES:
            raise ValueError(f"patch_size must be one of {PATCH_SIZES}, not {self.patch_size}")
        if self.image_size % (2 * self.patch_size):
            raise ValueError(
                "image_size must be a multiple of 2 * patch_size, since patches are merged two by "
                f"two: {self.image_size} is not a multiple of {2 * self.patch_size}"
            )
        widths, heads = (cast(tuple[int, ...], values) for values in (self.embed_dim, self.heads))
        if len(set(widths[1:])) > 1:
            raise ValueError(
                "embed_dim must be the same in the last three stages, between which tokens keep "
                f"their width, not {widths[1:]}"
            )
        if heads[-1] > widths[-1]:
            raise ValueError(
                "heads of the last stage cannot be more than its embed_dim, which the class "
                f"blocks' heads share: {heads[-1]} is more than {widths[-1]}"
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The four stages, outlookers first; ``seq_len`` counts the grid's tokens."""
        coarse = [self.coarse_grid**2] * (NUM_STAGES - 1)
        return stages_of(self, [self.fine_grid**2, *coarse])

    @property
    def class_stage(self) -> Stage:
        """The class blocks, in which the class token attends to itself and the coarse tokens."""
        last = self.stages[-1]
        return Stage(
            embed_dim=last.embed_dim,
            depth=NUM_CLASS_BLOCKS,
            heads=last.heads,
            head_dim=last.embed_dim // last.heads,
            mlp_ratio=last.mlp_ratio,
            seq_len=last.seq_len + 1,
        )

    @property
    def fine_grid(self) -> int:
        """Tokens along an image's side in the outlook stage."""
        return self.image_size // self.patch_size

    @property
    def coarse_grid(self) -> int:
        """Tokens along an image's side in the transformer stages."""
        return self.fine_grid // 2

    def build(self) -> nn.Module:
        """Return timm's model: (batch, in_chans, height, width) to (batch, num_classes) logits."""
        from models.timm_blocks import (
            TIMM_VOLO,
            GridAttention,
            OutlookAttention,
            VOLOClassAttention,
        )

        stages = self.stages
        model = TIMM_VOLO(
            layers=[stage.depth for stage in stages],
            img_size=self.image_size,
            in_chans=self.in_chans,
            num_classes=self.num_classes,
            patch_size=self.patch_size,
            stem_hidden_dim=self.stem_hidden_dim,
            embed_dims=[stage.embed_dim for stage in stages],
            # All attention is replaced below; timm divides the width by these heads on the way.
            num_heads=[1] * NUM_STAGES,
            mlp_ratio=tuple(stage.mlp_ratio for stage in stages),  # type: ignore[arg-type]
            drop_path_rate=self.drop_path,
        )
        blocks = [part for part in model.network if isinstance(part, nn.Sequential)]
        outlook = partial(OutlookAttention, kernel=OUTLOOK_KERNEL, stride=OUTLOOK_STRIDE)
        attentions: tuple[Callable[[int, int, int], nn.Module], ...]
        attentions = (outlook, GridAttention, GridAttention, GridAttention, VOLOClassAttention)
        assert model.post_network is not None
        for attention, stage, parts in zip(
            attentions,
            (*stages, self.class_stage),
            (*blocks, model.post_network),
            strict=True,
        ):
            for block in parts.children():
                fresh = attention(stage.embed_dim, stage.heads, stage.head_width)
                block.attn = fresh.apply(model._init_weights)
        return model

    def counts(self) -> Counts:
        """Return the model's counts, from its structure."""
        outlook, *transformers = self.stages
        groups = _stem(self)
        tokens, inputs, width = (
            transformers[0].seq_len,
            outlook.embed_dim,
            self.class_stage.embed_dim,
        )
        merge = count.conv2d(tokens, inputs, width, 2, kept=outlook.seq_len * inputs)
        positions_and_class_token = count.Cost(params=(tokens + 1) * width)
        groups["embedding"] += merge + positions_and_class_token
        groups["attention"] = _outlook_attention(outlook) * outlook.depth
        groups["mlp"] = count.Cost()
        for stage in self.stages:
            groups["mlp"] += count.mlp(stage.seq_len, stage) * stage.depth
            groups["norm"] += count.layer_norm(stage.seq_len, stage.embed_dim) * (2 * stage.depth)
        for stage in transformers:
            groups["attention"] += count.self_attention(stage, qkv_bias=False) * stage.depth
        class_blocks = count.pre_norm_blocks(
            self.class_stage, qkv_bias=False, full=0, read_only=NUM_CLASS_BLOCKS
        )
        groups = count.by_group([groups, class_blocks])
        groups["norm"] += count.layer_norm(tokens + 1, width)
        groups["head"] = _heads(tokens, width, self.num_classes)
        return count.total(outputs=self.num_classes, **groups)


def _stem(config: VOLO) -> dict[str, count.Cost]:
    """Return the convolutions' and the patch embedding's cost. A ReLU's output, which it computes
    in place, is the next convolution's input."""
    side, hidden = config.image_size // 2, config.stem_hidden_dim
    pixels = config.in_chans * config.image_size**2
    features = hidden * side**2
    convolutions = count.conv2d(side**2, config.in_chans, hidden, 7, kept=pixels, bias=False)
    convolutions += count.conv2d(side**2, hidden, hidden, 3, kept=features, bias=False) * 2
    patches, width = config.fine_grid**2, config.stages[0].embed_dim
    convolutions += count.conv2d(patches, hidden, width, config.patch_size // 2, kept=features)
    return {"embedding": convolutions, "norm": count.batch_norm(side**2, hidden) * 3}


def _outlook_attention(stage: Stage) -> count.Cost:
    """Return the cost of one outlook attention (Yuan et al. 2021, section 3.1, equations 3 to 6).

    Each window's centre makes K^2 x K^2 weights a head, which mix the K^2 values in the window.
    Kept are the tokens, each window's mean token, the weights, the windows' values, and what is
    projected.
    """
    windows, cells = stage.seq_len // OUTLOOK_STRIDE**2, OUTLOOK_KERNEL**2
    weights = cells**2 * stage.heads
    values = cells * stage.inner_dim
    mixing = count.Cost(
        flops=2 * windows * cells**2 * stage.inner_dim,
        kept=windows * (weights + values),
        passing=windows * (weights + 2 * values),
    )
    return (
        count.linear(stage.seq_len, stage.embed_dim, stage.inner_dim, bias=False)
        + count.linear(windows, stage.embed_dim, weights)
        + mixing
        + count.linear(stage.seq_len, stage.inner_dim, stage.embed_dim)
    )


def _heads(tokens: int, width: int, num_classes: int) -> count.Cost:
    """Return the cost of the class token's head and of all other tokens' auxiliary one.

    The first keeps the normalised tokens, of which it reads one; the second a copy of the others,
    and of the largest logits which tokens they are, in 64 bits.
    """
    largest = 2 * num_classes
    return (
        count.linear(1, width, num_classes, keeps_input=False)
        + count.Cost(kept=(tokens + 1) * width)
        + count.linear(tokens, width, num_classes)
        + count.Cost(kept=largest, kept_float32=largest, passing=tokens * num_classes)
    )


def volo_d3(**settings: Any) -> VOLO:
    """Return a VOLO-d3, of width 256 and then 512, its heads coupled to the width.

    ``volo_d3(depth=(4, 4, 8, 2), heads=(16, 32, 32, 32))`` is the lean model of paper L, table 4.
    The hidden widths printed there, four times the width, are not those of the printed counts,
    which have three times. The ``settings`` are fields of ``VOLO``.
    """
    shape = {"embed_dim": (256, 512, 512, 512), "depth": (8, 8, 16, 4), "heads": (8, 16, 16, 16)}
    return VOLO(**{**shape, **settings})


def volo_d4(**settings: Any) -> VOLO:
    """Return a VOLO-d4, of width 384 and then 768, its heads coupled to the width.

    ``volo_d4(depth=(4, 4, 8, 2), heads=(24, 32, 32, 32))`` is the lean model of paper L, table 5;
    of its hidden widths the same is to be said as of ``volo_d3``'s.
    """
    shape = {"embed_dim": (384, 768, 768, 768), "depth": (8, 8, 16, 4), "heads": (12, 16, 16, 16)}
    return VOLO(**{**shape, **settings})
