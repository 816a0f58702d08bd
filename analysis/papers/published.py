"""The parameter counts that the lean paper prints, row by row, with the shapes behind them.

"Leaner Transformers: More Heads, Less Depth" (Saratchandran, Teney and Lucey 2025, arXiv
2505.20802), tables 1 to 5 and the text beside figure 3. Each row names the shape whose count is the
printed one; where the paper prints another shape beside that count, or no shape reaches the count,
the row's note says so. The paper uses both meanings of "more heads" without a word: ``head_dim`` is
given where the heads keep their width (decoupled), and None where they share the embedding's
(coupled).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

_UNITS: Final = {"k": 10**3, "M": 10**6}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One model of a table.

    Attributes:
        table: ``T1`` to ``T5``, or ``Fig3`` for the text beside figure 3.
        row: the model and its (depth, heads), as a reader finds it in the table.
        model: the preset function of ``models`` that builds its family.
        settings: what to pass to it.
        printed: the parameter count as printed.
        batch_size: examples a device holds at once in the paper's set-up.
        memory: training memory as printed; None where it is not at hand.
        metric: what ``score`` is, by the name it has here.
        score: the printed result, accuracies as shares; None where it is not at hand.
        score_source: where the score was read, if not in the table itself.
        note: why the print cannot be right, or what it leaves unsaid; empty if it is plain.
    """

    table: str
    row: str
    model: str
    settings: Mapping[str, Any]
    printed: str
    batch_size: int
    memory: str | None = None
    metric: str | None = None
    score: float | None = None
    score_source: str = ""
    note: str = ""
    source: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))
        place = "figure 3, text" if self.table == "Fig3" else f"table {self.table[1:]}"
        object.__setattr__(self, "source", f"arXiv 2505.20802, {place}")

    @property
    def printed_params(self) -> int:
        """The printed count in parameters: 86,600,000 for ``86.6M``."""
        return int(Decimal(self.printed[:-1]) * _UNITS[self.printed[-1]])


_SAME_AS_VIT: Final = "without its distillation token DeiT is a ViT: one model with the ViT row"
_HALVED: Final = (
    "the printed MLP width 4096 would give 304.3M, the usual ViT-L; the printed count is that of "
    "2048: a ViT-L with half its MLP"
)
_VOLO_PRINTED_RATIO_4: Final = "the printed MLP widths are {}; the count is that of ratio 3"
_SECOND_HAND: Final = "a reader's notes on the table, not the table itself"


def _image_row(
    table: str,
    row: str,
    model: str,
    printed: str,
    depth: int | tuple[int, ...],
    heads: int | tuple[int, ...],
    head_dim: int | None,
    mlp_ratio: float,
    *,
    top1: float | None = None,
    note: str = "",
) -> PublishedRow:
    """A row of tables 4 and 5 (figure 3): ImageNet-1k, 8 GPUs, batches of 1024 and 512."""
    return PublishedRow(
        table=table,
        row=row,
        model=model,
        settings={"depth": depth, "heads": heads, "head_dim": head_dim, "mlp_ratio": mlp_ratio},
        printed=printed,
        batch_size=64 if table == "T5" else 128,
        metric="top1",
        score=top1,
        score_source="" if top1 is None else _SECOND_HAND,
        note=note,
    )


_BASE_ROWS: Final = (
    _image_row("T4", "ViT-B (12,12)", "vit_base", "86.6M", 12, 12, 64, 4),
    _image_row("T4", "ViT-B (7,16)", "vit_base", "40.1M", 7, 16, 64, 2),
    _image_row("T4", "DeiT-B (12,12)", "deit_base", "86.6M", 12, 12, 64, 4, note=_SAME_AS_VIT),
    _image_row("T4", "DeiT-B (7,16)", "deit_base", "40.1M", 7, 16, 64, 2, note=_SAME_AS_VIT),
    _image_row("T4", "XCiT-M (24,8)", "xcit_medium", "84.4M", 24, 8, 64, 4, top1=0.814),
    _image_row(
        *("T4", "XCiT-M (12,16)", "xcit_medium", "59.0M", 12, 16, 64, 4),
        top1=0.817,
        note="heads keep their width of 64, while class attention keeps its 512; with narrower "
        "heads it would be 46.4M",
    ),
    _image_row("T4", "TNT-B (12,10)", "tnt_base", "65.4M", 12, 10, None, 4, top1=0.823),
    _image_row(
        *("T4", "TNT-B (8,16)", "tnt_base", "30.9M", 8, 16, None, 2),
        top1=0.823,
        note="the printed MLP width 2560 would give 44.0M; the count is that of 1280",
    ),
    _image_row(
        *("T4", "VOLO-d3 ([8,8,16,4],[8,16,16,16])", "volo_d3", "86M"),
        *((8, 8, 16, 4), (8, 16, 16, 16), None, 3),
        note=_VOLO_PRINTED_RATIO_4.format("ratio 4"),
    ),
    _image_row(
        *("T4", "VOLO-d3 ([4,4,8,2],[16,32,32,32])", "volo_d3", "47.5M"),
        *((4, 4, 8, 2), (16, 32, 32, 32), None, 3),
    ),
    _image_row(
        *("T4", "DaViT-B ([1,1,9,1],[4,8,16,32])", "davit_base", "88.0M"),
        *((1, 1, 9, 1), (4, 8, 16, 32), None, 4),
        top1=0.833,
    ),
    _image_row(
        *("T4", "DaViT-B ([1,1,5,1],[4,8,32,32])", "davit_base", "62.0M"),
        *((1, 1, 5, 1), (4, 8, 32, 32), None, 4),
        top1=0.835,
        note="no natural variant has 62.0M; the printed shape has 62.65M, so the print may be a "
        "truncation or a slip",
    ),
)

_LARGE_ROWS: Final = (
    _image_row("T5", "ViT-L (24,16)", "vit_large", "203.6M", 24, 16, 64, 2, note=_HALVED),
    _image_row("T5", "ViT-L (8,30)", "vit_large", "98.6M", 8, 30, 64, 2),
    _image_row(
        *("T5", "DeiT-L (24,16)", "deit_large", "203.6M", 24, 16, 64, 2),
        note=f"{_SAME_AS_VIT}, with half its MLP",
    ),
    _image_row("T5", "DeiT-L (8,30)", "deit_large", "98.6M", 8, 30, 64, 2, note=_SAME_AS_VIT),
    _image_row("T5", "XCiT-L (24,16)", "xcit_large", "189.1M", 24, 16, None, 4, top1=0.821),
    _image_row(
        *("T5", "XCiT-L (12,24)", "xcit_large", "103.8M", 12, 24, None, 4),
        top1=0.824,
        note="heads are narrowed to 32, unlike XCiT-M's; of width 48 they would give 118.0M",
    ),
    _image_row(
        *("T5", "VOLO-d4 ([8,8,16,4],[12,16,16,16])", "volo_d4", "193.0M"),
        *((8, 8, 16, 4), (12, 16, 16, 16), None, 3),
        note=_VOLO_PRINTED_RATIO_4.format("ratio 4"),
    ),
    _image_row(
        *("T5", "VOLO-d4 ([4,4,8,2],[24,32,32,32])", "volo_d4", "105.6M"),
        *((4, 4, 8, 2), (24, 32, 32, 32), None, 3),
        note=_VOLO_PRINTED_RATIO_4.format("ratio 2, which would give 85.5M"),
    ),
    _image_row(
        *("T5", "DaViT-L ([1,1,9,1],[6,12,24,48])", "davit_large", "196.8M"),
        *((1, 1, 9, 1), (6, 12, 24, 48), None, 4),
        top1=0.836,
    ),
    _image_row(
        *("T5", "DaViT-L ([1,1,5,1],[6,12,48,48])", "davit_large", "140.0M"),
        *((1, 1, 5, 1), (6, 12, 48, 48), None, 4),
        top1=0.836,
    ),
)

_FIGURE_ROWS: Final = tuple(
    _image_row(
        *("Fig3", f"ViT-B (8,{heads})", "vit_base", printed, 8, heads, 64, 4),
        note="the text gives the ends of a range over more than 12 heads; the nearest shapes are "
        "0.3 and 0.4 % above",
    )
    for heads, printed in ((14, "61.2M"), (18, "67.4M"))
)

_LANGUAGE_ROWS: Final = (
    PublishedRow(
        table="T1",
        row="Crammed BERT (16,12)",
        model="crammed_bert",
        settings={"depth": 16, "heads": 12},
        printed="119M",
        batch_size=512,
        metric="glue_average",
        score=0.786,
        note="119.59M, truncated rather than rounded",
    ),
    PublishedRow(
        table="T1",
        row="Crammed BERT (10,24)",
        model="crammed_bert",
        settings={"depth": 10, "heads": 24},
        printed="84M",
        batch_size=512,
        metric="glue_average",
        score=0.786,
    ),
    PublishedRow(
        table="T2",
        row="GPT-2 (12,12)",
        model="gpt2_tiny_stories",
        settings={"depth": 12, "heads": 12, "head_dim": 42},
        printed="89M",
        batch_size=128,
        metric="validation_loss",
        score=2.47,
        note="512 is no multiple of 12: the heads are 42 wide, and their 504 projected back to 512",
    ),
    PublishedRow(
        table="T2",
        row="GPT-2 (4,16)",
        model="gpt2_tiny_stories",
        settings={"depth": 4, "heads": 16, "head_dim": 32},
        printed="64M",
        batch_size=128,
        metric="validation_loss",
        score=2.41,
    ),
)


def _arena_row(
    task: str, depth: int, heads: int, printed: str, score: float, note: str = ""
) -> PublishedRow:
    """A row of table 3: a Nyströmformer on a task of the Long Range Arena."""
    return PublishedRow(
        table="T3",
        row=f"{task} ({depth},{heads})",
        model="lra",
        settings={"task": task, "depth": depth, "heads": heads, "head_dim": 32},
        printed=printed,
        batch_size=256 if task in ("image", "pathfinder") else 32,
        metric="test_accuracy",
        score=score,
        note=note,
    )


_NO_TEXT_VARIANT: Final = "no natural variant has both printed counts of this task; within 0.2 %"
_WIDER_HEADS: Final = (
    "the printed count is that of one layer of 4 heads 64 wide, twice the width stated"
)

_ARENA_ROWS: Final = (
    _arena_row(
        *("listops", 2, 2, "209.8k", 0.3679),
        note="the count is that without the depth-wise convolution, which would add 140",
    ),
    _arena_row("listops", 1, 4, "192.9k", 0.3713, "without the depth-wise convolution, as above"),
    _arena_row("text", 2, 2, "371.2k", 0.6295, _NO_TEXT_VARIANT),
    _arena_row("text", 1, 4, "354.0k", 0.6382, _NO_TEXT_VARIANT),
    _arena_row("retrieval", 2, 2, "394.8k", 0.793),
    _arena_row(
        *("retrieval", 1, 4, "394.8k", 0.795),
        note="printed as large as the two-layer model; this shape has 378.2k, and only an MLP 256 "
        "or heads 48 wide would reach the print",
    ),
    _arena_row(
        *("image", 2, 2, "191.2k", 0.372),
        note=f"{_WIDER_HEADS}; no variant of two layers reaches it",
    ),
    _arena_row("image", 1, 4, "191.2k", 0.382, note=_WIDER_HEADS),
    _arena_row(
        *("pathfinder", 2, 2, "190.2k", 0.698),
        note=f"{_WIDER_HEADS}; no variant of two layers reaches it",
    ),
    _arena_row("pathfinder", 1, 4, "190.2k", 0.699, note=_WIDER_HEADS),
)

PUBLISHED_ROWS: Final = (
    *_BASE_ROWS,
    *_LARGE_ROWS,
    *_FIGURE_ROWS,
    *_LANGUAGE_ROWS,
    *_ARENA_ROWS,
)
"""Every row, table 4 first."""

TABLES: Final = tuple(dict.fromkeys(row.table for row in PUBLISHED_ROWS))
"""The tables, in that order."""
