"""Dual attention vision transformers (DaViT) through timm, with a head width free of the
embedding's."""

from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from models import counts as count
from models.attention import MultiHeadAttention
from models.base import Counts
from models.fields import settle, share
from models.shape import PerStage, Stage, check_feed_forward, settle_stages, stages_of

NUM_STAGES: Final = 4
STEM_STRIDE: Final = 4
STEM_KERNEL: Final = 7
POSITION_KERNEL: Final = 3
_LAST_STRIDE: Final = STEM_STRIDE * 2 ** (NUM_STAGES - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaViT:
    """timm's DaVit: blocks in pairs, one that attends within windows, one that attends to channels.

    Ding et al. 2022 (arXiv 2204.03645), sections 3.1 to 3.3 and table 1: an overlapping patch
    embedding, four stages with a merge of 2 x 2 tokens between them, two depth-wise convolutions in
    each block in place of positions, biases throughout, and the mean over all tokens read. Windows
    that reach beyond the grid are padded with zeros, as timm does; padding takes operations and
    memory, and both are counted.

    With ``head_dim`` given, both kinds of attention are ``heads * head_dim`` wide. In a channel
    block a head's channels attend to each other, so that ``head_dim`` is the number of what
    attends and the tokens are what it is compared by. The decoupled counts of paper L's models
    ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802) follow: 73.155 M for the lean
    DaViT-B and 163.602 M for the lean DaViT-L, with heads of 32 in all stages.

    Every attribute that is one "for each stage" may be one value for all four.

    Attributes:
        embed_dim: width of a token, for each stage.
        depth: number of pairs of blocks, for each stage.
        heads: heads in each block, for each stage.
        head_dim: width of a head, for each stage, or None for ``embed_dim / heads`` everywhere.
        mlp_ratio: hidden width of the feed-forward blocks over ``embed_dim``, for each stage.
        image_size: height and width of an image, in pixels; a multiple of 32.
        window_size: height and width of a window, in tokens.
        in_chans: channels of an image.
        num_classes: classes that are told apart.
        drop_path: stochastic depth's rate in the last pair; it rises to it linearly from 0.
        scale_by_tokens: whether channel attention is timm's second version, in which queries meet
            keys and are divided by the square root of the number of tokens, rather than the first,
            in which keys meet values and are divided by that of ``head_dim``.

    Raises:
        ValueError: an impossible shape, a size that is not a whole number of at least 1, a rate
            outside [0, 1), or an image size that the last stage's stride does not divide.
    """

    embed_dim: PerStage[int]
    depth: PerStage[int]
    heads: PerStage[int]
    head_dim: PerStage[int] | None = None
    mlp_ratio: PerStage[float] = 4.0
    image_size: int = 224
    window_size: int = 7
    in_chans: int = 3
    num_classes: int = 1000
    drop_path: float = 0.0
    scale_by_tokens: bool = False

    def __post_init__(self) -> None:
        settle(self, drop_path=share)
        if self.image_size % _LAST_STRIDE:
            raise ValueError(
                f"image_size must be a multiple of {_LAST_STRIDE}, the stride of the last stage, "
                f"not {self.image_size}"
            )
        settle_stages(self, NUM_STAGES)
        check_feed_forward(self.stages)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The four stages, from the image on; ``depth`` counts pairs of blocks, ``seq_len`` the
        grid's tokens without padding."""
        return stages_of(self, [grid**2 for grid in self.grids])

    @property
    def grids(self) -> tuple[int, ...]:
        """Tokens along an image's side, for each stage."""
        return tuple(self.image_size // (STEM_STRIDE * 2**number) for number in range(NUM_STAGES))

    def build(self) -> nn.Module:
        """Return timm's model: (batch, in_chans, height, width) to (batch, num_classes) logits."""
        from models.timm_blocks import ChannelAttention, DaVit, Mlp

        stages = self.stages
        model = DaVit(
            in_chans=self.in_chans,
            depths=tuple(stage.depth for stage in stages),
            embed_dims=tuple(stage.embed_dim for stage in stages),
            # All attention is replaced below; timm divides the width by these heads on the way.
            num_heads=(1,) * len(stages),
            window_size=self.window_size,
            mlp_ratio=stages[0].mlp_ratio,
            drop_path_rate=self.drop_path,
            num_classes=self.num_classes,
        )

        def fresh(module: nn.Module) -> nn.Module:
            return module.apply(model._init_weights)

        for stage, timm_stage in zip(stages, model.stages, strict=True):
            width = (stage.embed_dim, stage.heads, stage.head_width)
            for pair in timm_stage.get_submodule("blocks").children():
                windows, channels = pair.children()
                windows.attn = fresh(MultiHeadAttention(*width, bias=True))
                channels.attn = fresh(
                    ChannelAttention(*width, scale_by_tokens=self.scale_by_tokens)
                )
                if stage.mlp_ratio != stages[0].mlp_ratio:  # timm has one ratio for all stages
                    windows.mlp = fresh(Mlp(stage.embed_dim, stage.mlp_dim))
                    channels.mlp = fresh(Mlp(stage.embed_dim, stage.mlp_dim))
        return model

    def counts(self) -> Counts:
        """Return the model's counts, from its structure."""
        first, last = self.stages[0], self.stages[-1]
        pixels = self.in_chans * self.image_size**2
        embedding = count.conv2d(
            first.seq_len, self.in_chans, first.embed_dim, STEM_KERNEL, kept=pixels
        )
        norm = count.layer_norm(first.seq_len, first.embed_dim)
        for finer, coarser in zip(self.stages, self.stages[1:], strict=False):
            norm += count.layer_norm(finer.seq_len, finer.embed_dim)
            embedding += count.conv2d(
                coarser.seq_len,
                finer.embed_dim,
                coarser.embed_dim,
                2,
                kept=finer.seq_len * finer.embed_dim,
            )
        attention = mlp = count.Cost()
        for stage, grid in zip(self.stages, self.grids, strict=True):
            tokens, embed, blocks = stage.seq_len, stage.embed_dim, 2 * stage.depth
            positions = count.conv2d(
                tokens, embed, embed, POSITION_KERNEL, kept=tokens * embed, groups=embed
            )
            embedding += positions * (2 * blocks)
            norm += count.layer_norm(tokens, embed) * (2 * blocks)
            mlp += count.mlp(tokens, stage) * blocks
            windows = _window_attention(stage, grid, self.window_size)
            attention += (windows + _channel_attention(stage)) * stage.depth
        return count.total(
            embedding=embedding,
            attention=attention,
            mlp=mlp,
            norm=norm + count.layer_norm(1, last.embed_dim),
            head=count.linear(1, last.embed_dim, self.num_classes),
            outputs=self.num_classes,
        )


def _window_attention(stage: Stage, grid: int, window_size: int) -> count.Cost:
    """Return the cost of attention within windows, over padded tokens too (Ding et al. 2022,
    section 3.1, equation 2)."""
    windows, in_window = (-(-grid // window_size)) ** 2, window_size**2
    tokens = windows * in_window
    core = count.attention_core(stage.heads, stage.head_width, queries=in_window, keys=in_window)
    return (
        count.linear(tokens, stage.embed_dim, 3 * stage.inner_dim)
        + core * windows
        + count.Cost(passing=windows * core.passing)
        + count.linear(tokens, stage.inner_dim, stage.embed_dim, keeps_input=False)
    )


def _channel_attention(stage: Stage) -> count.Cost:
    """Return the cost of attention among a head's channels (Ding et al. 2022, section 3.2,
    equation 3).

    Kept are the tokens, their queries, keys and values, the weights, and what is projected.
    """
    tokens, inner = stage.seq_len, stage.inner_dim
    core = count.Cost(
        flops=4 * tokens * inner * stage.head_width,
        kept=3 * tokens * inner + inner * stage.head_width,
        passing=3 * tokens * inner,
    )
    return (
        count.linear(tokens, stage.embed_dim, 3 * inner)
        + core
        + count.linear(tokens, inner, stage.embed_dim)
    )


def davit_base(**settings: Any) -> DaViT:
    """Return a DaViT-B, of width 128 to 1024, its heads coupled to the width.

    ``davit_base(depth=(1, 1, 5, 1), heads=(4, 8, 32, 32))`` is the lean model of paper L, table 4,
    which has 62.653 M parameters; 62.0 M is printed. The ``settings`` are fields of ``DaViT``.
    """
    shape = {"embed_dim": (128, 256, 512, 1024), "depth": (1, 1, 9, 1), "heads": (4, 8, 16, 32)}
    return DaViT(**{**shape, **settings})


def davit_large(**settings: Any) -> DaViT:
    """Return a DaViT-L, of width 192 to 1536, its heads coupled to the width.

    ``davit_large(depth=(1, 1, 5, 1), heads=(6, 12, 48, 48))`` is the lean model of paper L,
    table 5. The ``settings`` are fields of ``DaViT``.
    """
    shape = {"embed_dim": (192, 384, 768, 1536), "depth": (1, 1, 9, 1), "heads": (6, 12, 24, 48)}
    return DaViT(**{**shape, **settings})
