"""The result of the transition analysis, as frozen values.

``h`` stands for the searched axis (``x``, usually heads) and ``T`` for the modulating one (``by``,
usually sequence length). All z, drops and slopes are on the y axis of the metric's scale: log10 of
the error, log10 of 1 - accuracy, or nats of a loss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import pandas as pd

from analysis.questions.settings import check_fields
from analysis.questions.transition.cells import Growth, Verdict
from analysis.rounds.design import SearchFilm
from analysis.runs.losses import LOST_WORDS, Losses
from analysis.runs.scale import THRESHOLDS, Thresholds
from analysis.runs.statuses import FULL, NOT_NEEDED
from analysis.runs.tuned import TunedSetting
from analysis.sensitivity import Sensitivity
from analysis.statistics.values import Interval
from analysis.values import AxisValue, Jsonable, Number
from hsweep.design.missing import Missing
from hsweep.design.scales import ALPHA, Goal, Scale

ReadingName = Literal["typical", "attainable"]
_SLOPE: Final = ("slope", "slope_low", "slope_high")
LIMITS: Final = ("max_growth", "min_drop")
"""The settings that default to the thresholds of the metric's scale."""
Place = tuple[Number, Number | None]
"""A cell by its values of x and by."""


class Estimate(NamedTuple):
    """An estimate with its standard error; written to JSON as an array."""

    estimate: float
    se: float


@dataclass(frozen=True, slots=True)
class TransitionSettings(Jsonable):
    """Every choice the transition analysis makes.

    A setting of None takes the default of the metric's scale (`analysis.runs.scale`).

    Attributes:
        max_growth: largest slope of y in log10 T that still counts as "does not grow with T".
        min_drop: smallest drop that counts as a transition.
        B: draws for the confidence set of h*.
        n_mc: declines drawn for the abruptness test, at each scatter of head counts.
        assumed_sd: seed standard deviation of y that the user states for cells that do not measure
            it. With None the scale's own value is used, and no test rests on it.
    """

    alpha: float = ALPHA
    max_growth: float | None = None
    min_drop: float | None = None
    B: int = 1000
    n_mc: int = 499
    rng_seed: int = 0
    assumed_sd: float | None = None

    @property
    def confidence(self) -> float:
        """Of the intervals of slopes."""
        return 1 - self.alpha

    def limits(self, scale: Scale) -> Thresholds:
        """Return the thresholds of a scale, replaced by the settings where these are given.

        The scale keeps its seed sd: a test may rest on the one that the user states, not on this.
        """
        overrides = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return replace(THRESHOLDS[scale], **overrides)

    def __post_init__(self) -> None:
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, "alpha")
        check_fields(self, "be at least 1", lambda value: value >= 1, "B", "n_mc")
        check_fields(self, "be at least 0", lambda value: value >= 0, "rng_seed")
        sizes = (*LIMITS, "assumed_sd")
        check_fields(self, "be a number from 0", lambda v: v is None or 0 <= v < math.inf, *sizes)
        # No sweep is free of seed noise.
        check_fields(self, "be above 0", lambda value: value != 0, "assumed_sd")


def axis_values(x: str, by: str | None, place: Place) -> dict[str, AxisValue]:
    """Return the values of a cell by the names of its axes."""
    pairs = zip((x, by), place, strict=True)
    return {name: value for name, value in pairs if name is not None and value is not None}


@dataclass(frozen=True, slots=True)
class RunValue:
    """One full-budget run: its cell, replicate, metric as recorded and y on the scale."""

    x: Number
    by: Number | None
    replicate: str
    value: float
    y: float


@dataclass(frozen=True, slots=True)
class CellValue:
    """One cell's value z under a reading, from n full-budget runs."""

    x: Number
    by: Number | None
    z: float
    n: int


@dataclass(frozen=True, slots=True)
class CellCounts:
    """How the trials of one cell ended, at all settings of its nuisance axes.

    Attributes:
        ended: how many ended with each status (`analysis.runs.statuses`).
        read: number of full-budget runs that represent the cell: one a seed where settings compete.
        setting: the cell's setting of the nuisance axes; None without such axes.
    """

    x: Number
    by: Number | None
    ended: dict[str, int]
    read: int
    setting: TunedSetting | None = None

    def count(self, *statuses: str) -> int:
        """Return how many trials have one of these statuses."""
        return sum(self.ended.get(status, 0) for status in statuses)

    def label(self, x: str, by: str | None) -> str:
        """Return the cell in words: ``heads=4, seq_len=8``."""
        return f"{x}={self.x:g}{'' if self.by is None else f', {by}={self.by:g}'}"

    @property
    def started(self) -> int:
        return sum(self.ended.values()) - self.count("planned", NOT_NEEDED)

    @property
    def complete(self) -> int:
        """Number of full-budget runs with a value; only these enter a fit."""
        return self.count(*FULL)

    @property
    def dropped(self) -> int:
        """Number of runs that early stopping left without their full budget.

        Runs that never started because their setting had lost are not counted.
        """
        has_lost = self.setting is not None and self.setting.unstarted
        return self.count("stopped_early", *(() if has_lost else (NOT_NEEDED,)))

    @property
    def is_whole(self) -> bool:
        """Whether lost runs do not matter: settings that lost runs do not compete."""
        return self.setting is not None and self.setting.competed

    @property
    def losses(self) -> Losses:
        """The runs that are missing from the cell's value."""
        lost = {} if self.is_whole else {status: self.count(status) for status in LOST_WORDS}
        return Losses(self.started, **lost)


@dataclass(frozen=True, slots=True)
class DropStep:
    """The fall of y from one head count to the next, median over T of T-matched differences.

    ``beyond`` is what of it exceeds the decline behind it; ``points`` the fall of an accuracy's
    error in hundredths, None on other scales.
    """

    x_from: Number
    x_to: Number
    drop: float
    points: float | None = None
    beyond: float = 0.0


@dataclass(frozen=True, slots=True)
class RetrievalDimension:
    """Effective retrieval dimension in [lo, hi].

    ``conjecture`` marks more than one layer, where layers * h >= D is unproven (paper H, two-layer
    ablation).
    """

    lo: int
    hi: int
    layers: int
    conjecture: bool

    @classmethod
    def of(
        cls, x: str, heads: Sequence[float], first: int, last: int, layers: int
    ) -> "RetrievalDimension | None":
        """Return D in (L h_before, L h_last] where h* is one of the head counts from index
        ``first`` to ``last``; None for values of x that are no numbers of heads.

        One layer needs h >= D (paper H); for more layers L h >= D is a conjecture from its
        ablation.
        """
        if "head" not in x or any(not float(head).is_integer() for head in heads):
            return None
        before = int(heads[first - 1]) if first else 0
        return cls(before * layers + 1, int(heads[last]) * layers, layers, layers > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionResult(Jsonable):
    """At which value of an axis the error collapses.

    ``h_star`` is the best place of a collapse; only the verdict collapse says that there is one.

    Attributes:
        verdict: collapse (at ``h_star``, by its set ``h_set``); none (no collapse is established);
            open (these runs cannot tell).
        reason: why the verdict is none or open, in words.
        shown_by: what establishes a collapse: it is more abrupt than diminishing returns, or growth
            with T ends there.
        growth: growth with T from h* on (gone, stays, open); None without a modulating axis or
            where growth is not known.
        suggested: the answer is open, and would be a collapse if the seed noise were as small as
            assumed.
        noise_gap: why the seed noise counts as not measured; empty where it is measured or stated.
        reading: the value that represents a cell's seeds: the median (typical) or the expected
            best (attainable).
        bracket: (last h before it, h_star]; on a coarse grid only the bracket is known.
        h_set: smallest set of head counts that holds 95 % of ``p_h``, and what is about as good;
            all that were tried where the seed noise is not measured.
        p_h: share of draws that locate h* at each head count; empty without measured noise.
        h_peak: head count of the largest single drop.
        drop: size of the largest drop.
        excess: the part of ``drop`` that the earlier decline per head does not explain.
        p: share of declines without a collapse that look as abrupt; None where that is not tested.
        scatter: sd of single head counts about a smooth decline that the test assumes.
        survives: the largest scatter tried up to which p stays below alpha.
        later_rise: the largest rise of the level after h*, where it is more than noise: (h, rise).
        drops: the drop from each head count to the next.
        gamma: slope of z in log10 T at each h, with its 1 - alpha interval.
        gamma_below: pooled slope for h < h_star.
        gamma_above: pooled slope for h >= h_star.
        level: mean z at each h with its standard error.
        seed_sd: seed standard deviation of y at each h.
        phi: over-dispersion of the cells about their lines in log10 T, at least 1.
        cells: z of every cell with a full-budget run.
        d_eff: the retrieval dimensions that ``h_set`` allows; None without a collapse.
        n1_assumed_sd: the seed sd that is assumed where the cells do not measure it; else None.
        missing: the runs that would settle an open answer.
        qualifications: notes that limit the answer, to be read with it.
        warnings: further notes on the table.
        nuisance: axes whose settings compete; every cell has its best setting.
        fixed_rate: the one learning rate of all runs, which was not tuned; None where the rate was
            tuned or is not known.
        sensitivity: whether the answer would survive more training; None where that was not
            examined.
        film: of a study that searched for its transition; the numbers are then those of the runs
            that its tests had, and p and p_h are none of them.
    """

    verdict: Verdict = "open"
    reason: str = ""
    shown_by: Literal["abruptness", "growth"] | None = None
    growth: Growth | None = None
    suggested: bool = False
    noise_gap: str
    reading: ReadingName
    h_star: Number | None = None
    bracket: tuple[Number, Number] | None = None
    h_set: tuple[Number, ...]
    p_h: dict[Number, float] = field(default_factory=dict)
    h_peak: Number | None = None
    drop: float | None = None
    excess: float | None = None
    p: float | None = None
    scatter: float | None = None
    survives: float | None = None
    later_rise: tuple[Number, float] | None = None
    drops: tuple[DropStep, ...] = ()
    gamma: dict[Number, Interval] = field(default_factory=dict)
    gamma_below: Interval | None = None
    gamma_above: Interval | None = None
    level: dict[Number, Estimate] = field(default_factory=dict)
    seed_sd: dict[Number, float]
    phi: float = 1.0
    cells: tuple[CellValue, ...]
    d_eff: RetrievalDimension | None = None
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    runs: tuple[RunValue, ...]
    counts: tuple[CellCounts, ...]
    missing: tuple[Missing, ...]
    n1_assumed_sd: float | None
    settings: TransitionSettings
    qualifications: tuple[str, ...]
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
    fixed_rate: float | None = None
    sensitivity: Sensitivity | None = None
    film: SearchFilm | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether a collapse is established."""
        return self.verdict == "collapse"

    @property
    def further_drops(self) -> tuple[DropStep, ...]:
        """The other steps that fall by what counts; those from the largest to h* belong to it."""
        if self.h_peak is None or self.h_star is None:
            return ()
        far = [step for step in self.drops if not self.h_peak <= step.x_to <= self.h_star]
        return tuple(step for step in far if step.beyond >= self.limits.min_drop)

    @property
    def drop_points(self) -> float | None:
        """The drop in points of an accuracy; None on another scale."""
        return next((step.points for step in self.drops if step.x_to == self.h_peak), None)

    @property
    def limits(self) -> Thresholds:
        return self.settings.limits(self.scale)

    @property
    def stated_sd(self) -> float | None:
        """The seed sd that the user stated and the answer rests on; None where it does not."""
        return self.settings.assumed_sd if self.n1_assumed_sd is not None else None

    def rows(self) -> pd.DataFrame:
        """Return one row a value of the searched axis."""
        drops = {step.x_to: step.drop for step in self.drops}
        unknown = (None, None, None)
        return pd.DataFrame(
            {
                self.x: head,
                "level": level.estimate,
                "level_se": level.se,
                "drop": drops.get(head),
                "p_h": self.p_h.get(head),
                **dict(zip(_SLOPE, self.gamma.get(head, unknown), strict=True)),
                "seed_sd": self.seed_sd.get(head),
                "is_h_star": head == self.h_star,
            }
            for head, level in self.level.items()
        )
