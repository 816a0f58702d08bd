"""What the analysis of conditioning found, as frozen values."""

from dataclasses import dataclass
from typing import Final, Literal

from analysis.questions.settings import check_fields
from analysis.runs.losses import NONE_LOST, Losses
from analysis.statistics.permutation import RankTest
from analysis.values import Config, Jsonable, Number
from hsweep.design.scales import Goal, Scale

ConditioningVerdict = Literal["supported", "contradicted", "undecided"]
Leading = Literal["raw", "size_controlled"]

HEAD_DIM: Final = "head_dim"
COUPLED: Final = "coupled"
"""The series of heads that share the width of a token."""


@dataclass(frozen=True, slots=True)
class ConditioningSettings(Jsonable):
    """Every choice the analysis of conditioning makes.

    Attributes:
        alpha: level of every two-sided test; each direction gets half of it.
        draws: arrangements drawn where they are too many to look at all.
    """

    alpha: float = 0.05
    draws: int = 9999

    def __post_init__(self) -> None:
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, "alpha")
        check_fields(self, "be at least 1", lambda value: value >= 1, "draws")


@dataclass(frozen=True, slots=True)
class ConditionedShape:
    """One shape, its seeds averaged.

    Attributes:
        series: the curve it is a point of (coupled, head_dim = 64).
        x: its number of heads; None where the table has no such axis.
        n: full-budget runs behind it.
        metric: mean metric in its own unit; the geometric mean of errors.
        condition: geometric mean of the condition number.
        prediction: what the theory says; None without the column.
        size: its cost that confounds both; None without the column.
        lost: its runs without a number; the means are those of the runs left.
    """

    config: Config
    label: str
    series: str
    x: Number | None
    n: int
    metric: float
    metric_values: tuple[float, ...]
    condition: float
    condition_values: tuple[float, ...]
    prediction: float | None
    size: float | None
    lost: Losses = NONE_LOST


@dataclass(frozen=True, slots=True)
class HeadsTrend:
    """How the condition number goes with heads along one series, all else held.

    Attributes:
        series: its name; empty where there is but one.
        x: numbers of heads, ascending.
        measured, predicted: geometric mean over the shapes at each, and the theory's values; empty
            without them.
        test: correlation of heads and condition number among shapes that differ in heads alone.
    """

    series: str
    x: tuple[Number, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]
    test: RankTest | None


@dataclass(frozen=True, slots=True)
class ConditioningResult(Jsonable):
    """Whether better conditioned attention goes with better results, over shapes.

    All correlations are between the logarithm of the condition number and how good the metric is,
    whatever its goal: the paper's story (better conditioned, therefore better) makes them negative.

    Attributes:
        leading: the test that decides the verdict.
        raw: over all shapes.
        size_controlled: given the shapes' sizes; None where they are unknown or all alike.
        same_heads: among shapes of equally many heads. Heads move both, so what is left here is
            what the condition number tells beyond them.
        size_share: share of the variance of the ranks that size accounts for, of the condition
            number's and of the metric's; None where sizes are unknown or all alike.
        size: column of the table that stands for it.
        x: name of the axis of heads.
        scale: how seeds of the metric are averaged.
    """

    shapes: tuple[ConditionedShape, ...]
    trends: tuple[HeadsTrend, ...]
    x: str
    metric: str
    goal: Goal
    scale: Scale
    size: str | None
    settings: ConditioningSettings
    warnings: tuple[str, ...]
    raw: RankTest | None
    same_heads: RankTest | None = None
    size_controlled: RankTest | None = None
    size_share: tuple[float, float] | None = None
    verdict: ConditioningVerdict = "undecided"
    leading: Leading | None = None
    reason: str = ""
