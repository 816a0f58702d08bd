"""What the papers measured, as rows a study's own results can be laid beside.

H is "The Effect of Attention Head Count on Transformer Approximation" (Yu et al., ICLR 2026, arXiv
2510.06662), Q "Quality over Quantity in Attention Layers: When Adding More Heads Hurts" (Amsel,
Yehudai and Bruna, ICLR 2025), L "Leaner Transformers: More Heads, Less Depth" (Saratchandran et
al. 2025, arXiv 2505.20802), N "Nyströmformer" (Xiong et al., AAAI 2021), whose code L's long-range
rows build on. Settings bear the names of a sweep's axes, metrics those of this project's tasks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from analysis.papers.published import PUBLISHED_ROWS

Reading = Literal["printed", "digitised", "approximate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResult:
    """One measured value of a paper.

    Attributes:
        paper: ``H``, ``Q``, ``L`` or ``N``.
        source: table, figure or passage.
        task: what was learned.
        settings: the shape and whatever else distinguishes the run.
        metric: name of the measured quantity.
        value: the value, or the lower end of a range; accuracies are shares.
        upper: the upper end of a range; None for a single value.
        reading: ``printed``, read off a figure (``digitised``, 1 to 2 % off), or ``approximate``:
            an order of magnitude, or a marker that another one hides.
        note: what to know before comparing; may be empty.
    """

    paper: Literal["H", "Q", "L", "N"]
    source: str
    task: str
    settings: Mapping[str, Any]
    metric: str
    value: float
    upper: float | None = None
    reading: Reading = "printed"
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def is_exact(self) -> bool:
        """Whether the paper prints this very number."""
        return self.reading == "printed" and self.upper is None


_BEST_SEED: Final = "the best of several seeds; a mean over seeds is larger"


def _retrieval(
    source: str,
    value: float,
    reading: Reading = "printed",
    note: str = _BEST_SEED,
    **settings: Any,
) -> PublishedResult:
    setting = {"dim": 4, "depth": 1, **settings}
    return PublishedResult(
        paper="H",
        source=source,
        task="retrieval",
        settings=setting,
        metric="nmse",
        value=value,
        reading=reading,
        note=note,
    )


_FIGURE_1 = "synthetic example"
_ABLATION = "ablation on the synthetic example"
_ANY_LENGTH = f"an order of magnitude over lengths 8 to 128, growing with the length; {_BEST_SEED}"

RETRIEVAL: Final = (
    _retrieval(_FIGURE_1, 7.01e-2, heads=1, seq_len=8),
    _retrieval(_FIGURE_1, 1.45e-1, heads=1, seq_len=128),
    _retrieval(_FIGURE_1, 1e-2, "approximate", _ANY_LENGTH, heads=2),
    _retrieval(_FIGURE_1, 1e-3, "approximate", _ANY_LENGTH, heads=3),
    _retrieval(_FIGURE_1, 1.58e-3, heads=3, seq_len=128),
    _retrieval(_FIGURE_1, 6.10e-5, heads=4, seq_len=8),
    _retrieval(_FIGURE_1, 5.23e-6, heads=4, seq_len=128),
    _retrieval(_ABLATION, 4.77e-4, heads=3, seq_len=128, embed_dim=32),
    _retrieval(_ABLATION, 5.70e-7, heads=4, seq_len=128, embed_dim=32),
    _retrieval(_ABLATION, 1.11e-3, heads=2, seq_len=128, dim=3),
    _retrieval(_ABLATION, 2.11e-7, heads=3, seq_len=128, dim=3),
    _retrieval(_ABLATION, 4.28e-4, heads=1, seq_len=128, depth=2),
    _retrieval(_ABLATION, 3.83e-6, heads=2, seq_len=128, depth=2),
)
"""H: the sum of D maxima over T vectors; one layer read at a class token, unless ``depth`` says
otherwise."""

_TRAINING: Final = "accuracy on the training set; on validation it falls with length or heads"


def _real_data(
    task: str, metric: str, value: float, upper: float | None = None, **settings: Any
) -> PublishedResult:
    return PublishedResult(
        paper="H",
        source="section on real data, text and figure",
        task=task,
        settings=settings,
        metric=metric,
        value=value,
        upper=upper,
        reading="approximate" if metric == "critical_heads" else "printed",
        note="where the transition is seen" if metric == "critical_heads" else _TRAINING,
    )


REAL_DATA: Final = (
    _real_data("passages", "train_top1", 0.932, heads=8, seq_len=64, depth=2),
    _real_data("passages", "train_top1", 0.991, heads=12, seq_len=64, depth=2),
    _real_data("passages", "critical_heads", 12, depth=2),
    _real_data("cifar10", "train_top1", 0.90, 0.95, heads=8, head_dim=16, depth=4),
    _real_data("cifar10", "train_top1", 0.96, 0.98, heads=10, head_dim=16, depth=4),
    _real_data("cifar10", "critical_heads", 10, head_dim=16, depth=4),
)
"""H: MS MARCO candidates, and CIFAR-10 with longer sequences; ``critical_heads`` is where the paper
sees the transition."""

_REPLAYED: Final = (
    "least mean training loss of an epoch, then least of five seeds; the published code replays "
    "the same 100 batches, so this is an error on training data"
)

_DIM: Final = 64
# Paper Q, figure 1: depth and number of attention modules that are averaged, to the error at each
# rank, which is the width of a head; ~ marks a marker that another curve hides.
_RANKS: Final = (1, 2, 4, 8, 16, 32, 64)
_RANK_FIGURE: Final = {
    (1, 1): "~.87 ~.86 ~.86 ~.84 .80 .70 .0153",
    (1, 8): ".83 .82 .79 .73 .62 .43 .0069",
    (1, 64): ".65 .62 .59 .57 .46 .31 .0019",
    (3, 1): ".80 .80 .41 .22 .126 ~.051 .0032",
    (3, 8): "~.58 ~.38 .22 .108 .068 .036 .0070",
    (3, 64): ".52 .38 .055 .042 .053 .056 .0008",
    (5, 1): ".90 .88 .85 .78 .91 .69 .60",
    (5, 8): "~.41 .144 ~.064 .062 .045 .019 .0065",
    (5, 64): ".42 .116 .061 .026 .022 .014 .0020",
}
_LENGTH_RANKS: Final = (1, 8, 16, 32, 64)
_LENGTH_FIGURE: Final = {
    256: "1.17 .81 .72 .54 ~.04",
    64: ".81 .69 .60 .43 ~.01",
    16: ".63 .42 .33 .23 ~.007",
    4: ".023 .013 .004 .006 .006",
}
_POSITION_FIGURE: Final = {
    "concatenated": ".13 .070 .0049 .0022 .0011 .00012 .00011",
    "added": ".48 .36 .22 .094 .065 .061 .0086",
}


def _curve(
    source: str, ranks: tuple[int, ...], values: str, *, averaged: int, **settings: Any
) -> Iterator[PublishedResult]:
    # Concatenated positions are as many numbers as the points have.
    width = _DIM * (2 if settings.get("positions") == "concatenated" else 1)
    for rank, text in zip(ranks, values.split(), strict=True):
        yield PublishedResult(
            paper="Q",
            source=source,
            task="nearest_neighbor",
            settings={
                "dim": _DIM,
                **settings,
                "heads": averaged * width // rank,
                "head_dim": rank,
            },
            metric="train_squared_error",
            value=float(text.removeprefix("~")),
            reading="approximate" if text.startswith("~") else "digitised",
            note=_REPLAYED,
        )


NEAREST_NEIGHBOR: Final = (
    *(
        result
        for (depth, averaged), values in _RANK_FIGURE.items()
        for result in _curve("figure 1", _RANKS, values, averaged=averaged, seq_len=16, depth=depth)
    ),
    *(
        result
        for seq_len, values in _LENGTH_FIGURE.items()
        for result in _curve(
            "figure on sequence length",
            _LENGTH_RANKS,
            values,
            averaged=64,
            seq_len=seq_len,
            depth=2,
        )
    ),
    *(
        result
        for positions, values in _POSITION_FIGURE.items()
        for result in _curve(
            "figure on positions",
            _RANKS,
            values,
            averaged=8,
            seq_len=16,
            depth=3,
            positions=positions,
        )
    ),
)
"""Q: every token is to become the point that lies farthest from it; 1 is the error of predicting 0.
A layer averages W attentions of 64 / ``head_dim`` heads each, so its ``heads`` are W times that."""

_TASKS: Final = {"T1": "glue", "T2": "stories", "T3": "lra", "T4": "imagenet", "T5": "imagenet"}

LEAN: Final = tuple(
    PublishedResult(
        paper="L",
        source=row.source,
        task=_TASKS[row.table],
        settings={"model": row.model, **row.settings},
        metric=row.metric,
        value=row.score,
        note=row.score_source or "apparently one run",
    )
    for row in PUBLISHED_ROWS
    if row.metric is not None and row.score is not None
)
"""L: the scores of tables 1 to 5 that are at hand."""

_NYSTROM: Final = {
    "listops": (0.3715, 0.3710),
    "text": (0.6552, 0.6502),
    "retrieval": (0.7956, 0.7935),
    "image": (0.4158, 0.3820),
    "pathfinder": (0.7094, 0.7416),
}

NYSTROMFORMER: Final = tuple(
    PublishedResult(
        paper="N",
        source="the published repository's long-range arena results",
        task="lra",
        settings={"model": "lra", "task": task, "depth": 2, "heads": 2, "head_dim": 32}
        | {"attention": attention},
        metric="test_accuracy",
        value=value,
        note="L's (2,2) row repeats this and lies below it" if attention == "nystrom" else "",
    )
    for task, values in _NYSTROM.items()
    for attention, value in zip(("nystrom", "softmax"), values, strict=True)
)
"""N: the two-layer, two-head models as first published, and with softmax attention."""

PUBLISHED_RESULTS: Final = (*RETRIEVAL, *REAL_DATA, *NEAREST_NEIGHBOR, *LEAN, *NYSTROMFORMER)
"""Every result, paper by paper."""
