"""What the analysis found, as frozen values that pictures, reports and JSON are made from.

``h`` stands for the searched axis (``x``, usually heads) and ``T`` for the modulating one (``by``,
usually sequence length). All z, drops and slopes are on the y axis of the metric's scale: log10 of
the error, log10 of 1 - accuracy, or nats of a loss.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from analysis.findings.jsonable import Jsonable, Number, encode
from analysis.findings.losses import NONE_LOST, Losses
from analysis.findings.pruning_results import Pruning
from analysis.statistics.values import Interval as Interval
from hsweep.design.question import Goal, Scale

Verdict = Literal[
    "transition", "jump_only", "threshold", "plateau", "suggested", "none", "inconclusive"
]
NoneKind = Literal["above_range", "below_range"]
ReadingName = Literal["typical", "attainable"]
CLAIMS: Final[tuple[Verdict, ...]] = ("transition", "jump_only", "threshold")
"""The verdicts that say a collapse is there."""
FrontClass = Literal["on", "off", "undecided"]
LeanVerdict = Literal["found", "excluded", "undecided", "untrained", "no_candidates", "unsupported"]
LeanOutcome = Literal["established", "excluded", "undecided"]
AxisValue = int | float | str
Config = dict[str, AxisValue]
"""One model shape: axis name to value."""


class Estimate(NamedTuple):
    """An estimate with its standard error; written to JSON as an array."""

    estimate: float
    se: float


# --- transition -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransitionSettings(Jsonable):
    """Every choice the transition analysis makes.

    What is left at None takes the default of the metric's scale (`analysis.runs.scale`).

    Attributes:
        alpha: level of every test.
        rho: h* moves up past the largest drop while the next step still drops by this share of it.
        delta_T: largest slope of y in log10 T that still counts as "does not grow with T".
        min_drop: smallest drop that counts as a transition.
        min_excess: smallest part of the drop not explained by the decline before it.
        d_min: smallest next drop that can move h* up.
        threshold_width: most steps that the collapse of a threshold may take.
        B: draws for the confidence set of h*.
        n_mc: draws of the null of the abruptness test.
        rng_seed: seed of every random step.
        set_mass: probability that the confidence set of h* must hold.
        min_cell_share: share of cells that must have a full-budget run.
        head_sd: how much single head counts scatter about a smooth decline for reasons that no seed
            shows; added to the noise of the abruptness test.
        assumed_sd: seed standard deviation of y, stated by the user: what stands in where the
            cells do not measure it. None: the scale's own stands in, and nothing is tested by it.
        stuck_share: share of stuck runs at h >= h* from which the attainable reading leads.
        reading: which reading leads; ``auto`` decides by ``stuck_share``.
    """

    alpha: float = 0.05
    rho: float = 0.25
    delta_T: float | None = None  # noqa: N815
    min_drop: float | None = None
    min_excess: float | None = None
    d_min: float | None = None
    threshold_width: int = 2
    B: int = 1000
    n_mc: int = 999
    rng_seed: int = 0
    set_mass: float = 0.95
    min_cell_share: float = 0.9
    head_sd: float | None = None
    assumed_sd: float | None = None
    stuck_share: float = 0.08
    reading: Literal["auto", "typical", "attainable"] = "auto"

    def __post_init__(self) -> None:
        for name in ("alpha", "set_mass", "min_cell_share"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value!r}")
        for name in ("B", "n_mc", "threshold_width"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        if not 0 <= self.rho <= 1:
            raise ValueError(f"rho must lie from 0 to 1, not {self.rho!r}")
        if self.rng_seed < 0:
            raise ValueError(f"rng_seed must not be negative, not {self.rng_seed!r}")
        for name in ("delta_T", "min_drop", "min_excess", "d_min", "head_sd", "assumed_sd"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0, not {value!r}")
        if self.assumed_sd == 0:
            raise ValueError("assumed_sd must be above 0: no sweep is free of seed noise")


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
    """How the trials of one cell ended; ``started`` is everything but planned.

    ``complete`` counts full-budget runs with a value, the only ones that enter a fit.
    """

    x: Number
    by: Number | None
    started: int
    complete: int
    pruned: int
    failed: int
    diverged: int
    running: int
    planned: int
    too_large: int = 0

    @property
    def losses(self) -> Losses:
        """Its runs without a number."""
        return Losses(self.started, self.diverged, self.failed, self.too_large)


@dataclass(frozen=True, slots=True)
class MissingTrials:
    """A cell that needs this many more full-budget runs before the question can be settled."""

    x: Number
    by: Number | None
    trials: int
    why: str


@dataclass(frozen=True, slots=True)
class DropStep:
    """The fall of y from one head count to the next, median over T of T-matched differences."""

    x_from: Number
    x_to: Number
    drop: float
    per_head: float
    per_by: dict[Number, float]


@dataclass(frozen=True, slots=True)
class LengthIndependence:
    """Smallest h from which y is shown not to grow with T, and the bracket of the true one.

    Attributes:
        point: the same as ``hi``; None when even the largest h is not shown free of growth.
        lo: first h above the last one that surely grows; the true h_T lies in [lo, hi].
        hi: smallest h reached from the largest while the upper bound stays within delta_T.
    """

    point: Number | None
    lo: Number | None
    hi: Number | None


@dataclass(frozen=True, slots=True)
class RetrievalDimension:
    """Effective retrieval dimension in [lo, hi]; hi None is a lower bound only.

    ``conjecture`` marks more than one layer, where layers * h >= D is unproven (paper H, two-layer
    ablation).
    """

    lo: int
    hi: int | None
    layers: int
    conjecture: bool


@dataclass(frozen=True, slots=True)
class TransitionReading(Jsonable):
    """The transition analysis of one reading of the seeds (typical: median, attainable: best of m).

    ``h_star`` is where the collapse would be; only a positive verdict says that there is one.

    Attributes:
        verdict: transition, jump_only or threshold (a collapse is there); plateau (the error falls
            to the second head count and no further, so a collapse cannot be told from diminishing
            returns); suggested (a collapse or plateau that seeds do not test); none; inconclusive.
        reason: the verdict in words with its numbers.
        none_kind: whether h* lies above or below the swept range, when that shows.
        noise_gap: why the seed noise counts as not measured; empty where it is measured or stated.
        reading: which value of a cell's seeds was taken.
        h_star: first head count of the plateau.
        bracket: (last h before it, h_star]; on a coarse grid only the bracket is known.
        h_peak: head count of the largest single drop.
        width: steps that the collapse takes; 1 is sharp.
        h_set: smallest set of head counts that holds ``set_mass`` of ``p_h``; all that were tried
            where the seed noise is not measured.
        p_h: share of draws that locate h* at each head count; empty without measured noise.
        p_abrupt: p value of the test against diminishing returns; descriptive with a noise_gap.
        abrupt_testable: whether the grid allows that test.
        drop: the largest drop.
        excess: the part of it that the earlier decline per head does not explain.
        later_fall: upper one-sided 1 - alpha bound of how much further the error falls at any
            larger head count; None where h_star is the largest.
        drops: every step of the grid.
        gamma: slope of z in log10 T at each h, with its 1 - alpha interval.
        gamma_below: pooled slope for h < h_star.
        gamma_above: pooled slope for h >= h_star.
        h_T: smallest h from which the growth with T is gone.
        law_weights: AICc weights of growth in logT, T and 1/T below h_star (descriptive).
        level: mean z at each h with its standard error.
        seed_sd: seed standard deviation of y at each h.
        phi: over-dispersion of the cells about their lines in log10 T, at least 1.
        cells: z of every cell with a full-budget run.
        success: share of runs below the mid-level of the collapse, Jeffreys interval.
        h_50: first h whose isotonic success rate reaches one half.
        d_eff: effective retrieval dimension.
        per_T: h_star located at each T alone.
    """

    verdict: Verdict
    reason: str
    none_kind: NoneKind | None
    noise_gap: str
    reading: ReadingName
    h_star: Number | None
    bracket: tuple[Number, Number] | None
    h_peak: Number | None
    width: int | None
    h_set: tuple[Number, ...]
    p_h: dict[Number, float]
    p_abrupt: float | None
    abrupt_testable: bool
    drop: float | None
    excess: float | None
    later_fall: float | None
    drops: tuple[DropStep, ...]
    gamma: dict[Number, Interval]
    gamma_below: Interval | None
    gamma_above: Interval | None
    h_T: LengthIndependence  # noqa: N815
    law_weights: dict[str, float]
    level: dict[Number, Estimate]
    seed_sd: dict[Number, float]
    phi: float
    cells: tuple[CellValue, ...]
    success: dict[Number, Interval]
    h_50: Number | None
    d_eff: RetrievalDimension | None
    per_T: dict[Number, Number]  # noqa: N815


@dataclass(frozen=True, slots=True)
class TransitionResult(TransitionReading):
    """The leading reading's fields, both readings in full, and what they rest on.

    Attributes:
        typical: the analysis of cell medians; None when no cell could be read.
        attainable: the analysis of the best of m seeds; None with fewer than two per cell.
        x: name of the searched axis.
        by: name of the modulating axis, or None.
        metric: name of the metric column.
        goal: whether the metric is minimised or maximised.
        scale: how the metric became y.
        runs: every full-budget run.
        counts: how the trials of every cell ended.
        missing: trials that would settle an open verdict.
        n1_assumed_sd: the seed sd that stands in where the cells do not measure one; else None.
        settings: every choice made, thresholds filled in.
        qualifications: the warnings that limit the answer, to be read with it.
        warnings: all that a reader has to know besides.
        pruning: what rung histories say of the runs that were stopped early; None without any.
    """

    typical: TransitionReading | None
    attainable: TransitionReading | None
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    runs: tuple[RunValue, ...]
    counts: tuple[CellCounts, ...]
    missing: tuple[MissingTrials, ...]
    n1_assumed_sd: float | None
    settings: TransitionSettings
    qualifications: tuple[str, ...]
    warnings: tuple[str, ...]
    pruning: Pruning | None = None

    @property
    def stated_sd(self) -> float | None:
        """The seed sd that the user stated and the answer rests on; None where it does not."""
        return self.settings.assumed_sd if self.n1_assumed_sd is not None else None


# --- shapes at their best setting -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TunedSetting:
    """The setting of the nuisance axes that a shape stands at.

    Attributes:
        values: the best setting, by the mean over all seeds.
        tried: settings that were tried.
        set_aside: of these, those that do not compete, as they lack full-budget runs.
        at_edge: axes of numbers of which it is the smallest or largest value tried.
        is_single: no two seeds are common to the settings, so the best run stands for the shape.
    """

    values: Config
    tried: int
    set_aside: int
    at_edge: tuple[str, ...]
    is_single: bool


# --- Pareto front ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParetoSettings(Jsonable):
    """Every choice the Pareto analysis makes.

    Attributes:
        draws: draws of the configuration means.
        rng_seed: seed of the draws.
        on: P_front from which a configuration is called on the front.
        off: P_front up to which it is called off the front.
        epsilon: metric difference that the epsilon front counts as none, in the metric's unit.
        confidence: level of every interval.
        crash_sd: runs this many pooled robust sd below their configuration's median are screened.
    """

    draws: int = 2000
    rng_seed: int = 0
    on: float = 0.95
    off: float = 0.05
    epsilon: float = 0.0
    confidence: float = 0.95
    crash_sd: float = 6.0

    def __post_init__(self) -> None:
        if not 0 <= self.off < self.on <= 1:
            raise ValueError(f"need 0 <= off < on <= 1, not off {self.off!r}, on {self.on!r}")
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, not {self.draws!r}")
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must not be negative, not {self.epsilon!r}")


@dataclass(frozen=True, slots=True)
class ParetoRow:
    """One configuration on or off the front.

    Attributes:
        config: axis values.
        label: the same in words, unique within the result.
        mean: mean metric over screened full-budget runs, in the metric's unit.
        se_eb: its standard error with the empirical-Bayes seed sd.
        ci: interval of the mean.
        n: runs behind the mean.
        values: those runs.
        crash_share: screened, failed, diverged and too large runs among all that ended.
        costs: each cost's mean over the runs.
        p_front: share of draws in which nothing dominates it.
        class_: on, off or undecided.
        dominated_by: labels of the configurations whose means dominate it; of more than 1,000
            configurations only those on the front of the means are named.
        p_epsilon: p_front when a metric within epsilon counts as equal.
        epsilon_class: its class on the epsilon front.
        lost: its runs that are in no mean; it is that of those left.
        setting: its best setting of the nuisance axes; None without such axes.
    """

    config: Config
    label: str
    mean: float
    se_eb: float
    ci: Interval
    n: int
    values: tuple[float, ...]
    crash_share: float
    costs: dict[str, float]
    p_front: float
    class_: FrontClass
    dominated_by: tuple[str, ...]
    p_epsilon: float
    epsilon_class: FrontClass
    lost: Losses = NONE_LOST
    setting: TunedSetting | None = None


@dataclass(frozen=True, slots=True)
class AttainmentSurface:
    """What at least a share of the single-seed fronts attains: a picture of spread.

    Attributes:
        share: of the seeds; the smallest is 1 / seeds (the best of all), 1 is attained by each.
        points: corners as (metric, costs...), by cost.
    """

    share: float
    points: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ParetoResult(Jsonable):
    """The front of metric against costs, with what the seeds can and cannot tell.

    Attributes:
        table: one row a configuration, cheapest first.
        hv: hypervolume of the front of seed means, with the interval over draws; each objective is
            scaled to [0, 1] over the configurations' means.
        hv_note: how it was computed, or why it was not.
        epsilon: the epsilon of the epsilon front.
        metric: name of the metric column.
        goal: whether it is minimised or maximised.
        costs: names of the cost columns.
        prior_sd: empirical-Bayes prior seed sd s0, or None when no variance could be estimated.
        prior_df: its degrees of freedom d0 (null in JSON when infinite).
        settings: every choice made.
        warnings: what a reader has to know besides.
        attainment: how far single runs scatter (see ``statistics.attainment``); no estimate.
        attainment_note: what it is, or why there is none.
        nuisance: axes of whose settings every shape stands at its best.
    """

    table: tuple[ParetoRow, ...]
    hv: Interval | None
    hv_note: str
    epsilon: float
    metric: str
    goal: Goal
    costs: tuple[str, ...]
    prior_sd: float | None
    prior_df: float | None
    settings: ParetoSettings
    warnings: tuple[str, ...]
    attainment: tuple[AttainmentSurface, ...] = ()
    attainment_note: str = ""
    nuisance: tuple[str, ...] = ()

    @property
    def p_front(self) -> dict[str, float]:
        """P_front of each configuration by its label."""
        return {row.label: row.p_front for row in self.table}

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and ``p_front`` by label."""
        return Jsonable.to_json(self) | {"p_front": encode(self.p_front)}


# --- lean equivalents -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeanSettings(Jsonable):
    """Every choice the lean analysis makes.

    Attributes:
        alpha: family-wise error rate over all candidates tried.
        confidence: level of the two-sided intervals.
        crash_sd: runs this many pooled robust sd below their configuration's median are screened.
        max_prior_df: most degrees of freedom believed of the seed sd that the configurations share
            (see `analysis.statistics.moderated`); fewer keep the error rate where their sd differ.
        chance: what the best constant predictor scores, in the metric's unit; None where it is not
            known. A baseline that is not shown to be better has learned nothing.
        power: that undecided candidates should have had, if they equalled the baseline.
        looks: how many times the runs have been looked at, seeds being added between.
    """

    alpha: float = 0.05
    confidence: float = 0.95
    crash_sd: float = 6.0
    max_prior_df: float = 8.0
    chance: float | None = None
    power: float = 0.8
    looks: int = 1

    def __post_init__(self) -> None:
        for name in ("alpha", "confidence", "power"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value!r}")
        if not self.max_prior_df > 0:
            raise ValueError(f"max_prior_df must be above 0, not {self.max_prior_df!r}")
        if not 1 <= self.looks <= 20:
            raise ValueError(f"looks must lie from 1 to 20, not {self.looks!r}")
        if self.chance is not None and not math.isfinite(self.chance):
            raise ValueError(f"chance must be a finite number, not {self.chance!r}")

    @property
    def level(self) -> float:
        """The error rate of this look: each one halves it, so that all later ones together add no
        more than the first had."""
        return self.alpha * 0.5 ** (self.looks - 1)


@dataclass(frozen=True, slots=True)
class LeanRow:
    """One configuration cheaper than the baseline, tested for being no worse than the margin.

    Attributes:
        config: axis values.
        label: the same in words, unique within the result.
        mean: mean metric over full-budget runs, in the metric's unit.
        n: runs behind it.
        values: those runs.
        sd_eb: empirical-Bayes seed sd.
        diff: how much better than the baseline (positive is better, whatever the goal).
        ci: interval of diff.
        df: Satterthwaite degrees of freedom; None without a variance.
        p_raw: one-sided p value of "worse by the margin or more"; None without a variance.
        p_holm: the same after Holm over all candidates.
        p_worse: one-sided p value of "worse by no more than the margin", after Holm over all
            candidates compared; None without a variance.
        outcome: established as no worse than the margin (p_holm <= alpha), excluded as worse by
            more (p_worse <= alpha), or undecided.
        seeds_needed: of an undecided candidate, the seeds of it and of the baseline that would
            establish it with the power asked for if the two were equal; None if over 50, or without
            a variance.
        costs: each cost's mean.
        saving: share of the baseline's cost saved, per cost (0.25 is a quarter less).
        crash_share: screened, failed, diverged and too large runs among all that ended.
        lost: its runs that are in no mean; it is that of those left.
        setting: its best setting of the nuisance axes; None without such axes.
    """

    config: Config
    label: str
    mean: float
    n: int
    values: tuple[float, ...]
    sd_eb: float
    diff: float
    ci: Interval
    df: float | None
    p_raw: float | None
    p_holm: float | None
    p_worse: float | None
    outcome: LeanOutcome
    seeds_needed: int | None
    costs: dict[str, float]
    saving: dict[str, float]
    crash_share: float
    lost: Losses = NONE_LOST
    setting: TunedSetting | None = None

    @property
    def accepted(self) -> bool:
        """Whether the candidate is established as no worse than the margin."""
        return self.outcome == "established"


@dataclass(frozen=True, slots=True)
class MissingRuns:
    """A shape that needs this many more full-budget runs before a lean question can be settled."""

    config: Config
    label: str
    trials: int
    why: str


@dataclass(frozen=True, slots=True)
class LeanResult(Jsonable):
    """Which cheaper configurations are established as no worse than the baseline by the margin.

    Attributes:
        verdict: found; excluded (every cheaper configuration is shown to be worse by more than the
            margin); undecided; untrained (the baseline has learned no more than a constant
            predictor, or no more than the margin beyond it); no_candidates (none is cheaper);
            unsupported (a single run a configuration proves nothing).
        reason: the verdict in words.
        baseline: axis values of the baseline.
        baseline_label: the same in words.
        baseline_mean: its mean metric.
        baseline_values: its full-budget runs.
        baseline_n: their number.
        baseline_costs: its costs.
        baseline_lost: its runs that are in no mean.
        margin: the margin in the metric's unit, as the user stated it.
        sd: the baseline's seed sd (empirical Bayes); None with one run.
        margin_over_sd: margin / sd.
        table: one row a candidate, cheapest first.
        stopped: labels of the cheaper configurations that early stopping dropped.
        missing: runs that would settle what is undecided, as far as they can be counted.
        choice: label of the cheapest accepted candidate.
        choice_config: its axis values.
        power_note: what this number of seeds could have found.
        confirm: what to run to confirm the choice; empty where only one candidate was tried.
        metric: name of the metric column.
        goal: whether it is minimised or maximised.
        costs: names of the cost columns, the first one orders the table.
        settings: every choice made.
        warnings: what a reader has to know besides.
        nuisance: axes of whose settings every configuration stands at its best.
        baseline_setting: that of the baseline; None without such axes.
        doubt: why it is not known whether the baseline has learned anything; empty where it has.
    """

    verdict: LeanVerdict
    reason: str
    baseline: Config
    baseline_label: str
    baseline_mean: float
    baseline_values: tuple[float, ...]
    baseline_n: int
    baseline_costs: dict[str, float]
    margin: float
    sd: float | None
    margin_over_sd: float | None
    table: tuple[LeanRow, ...]
    stopped: tuple[str, ...]
    missing: tuple[MissingRuns, ...]
    choice: str | None
    choice_config: Config | None
    power_note: str
    confirm: str
    metric: str
    goal: Goal
    costs: tuple[str, ...]
    settings: LeanSettings
    warnings: tuple[str, ...] = field(default=())
    baseline_lost: Losses = NONE_LOST
    nuisance: tuple[str, ...] = ()
    baseline_setting: TunedSetting | None = None
    doubt: str = ""

    @property
    def undecided(self) -> tuple[LeanRow, ...]:
        """The candidates that are neither established nor excluded, cheapest first."""
        return tuple(row for row in self.table if row.outcome == "undecided")

    @property
    def accepted(self) -> tuple[str, ...]:
        """Labels of the accepted candidates, cheapest first."""
        return tuple(row.label for row in self.table if row.accepted)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and ``accepted`` by label."""
        return Jsonable.to_json(self) | {"accepted": list(self.accepted)}
