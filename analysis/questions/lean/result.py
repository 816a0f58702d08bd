"""The result of the lean analysis, as frozen values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from analysis.questions.lean.design import Outcome
from analysis.questions.pareto.result import ShapeRow
from analysis.questions.settings import check_fields
from analysis.rounds.design import SearchFilm
from analysis.runs.losses import NONE_LOST, Losses
from analysis.runs.tuned import TunedSetting
from analysis.sensitivity import Sensitivity
from analysis.statistics.noninferiority import confirming_seeds
from analysis.statistics.values import Interval
from analysis.values import AxisValue, Config, Jsonable
from hsweep.design.missing import Missing
from hsweep.design.scales import ALPHA, Goal

LeanVerdict = Literal[
    "found", "excluded", "ahead so far", "undecided", "untrained", "no_candidates", "unsupported"
]
RowOutcome = Outcome | Literal["ahead so far", "behind so far"]
RACING: Final = "the race of the shapes has not ended"
"""Why a study that is not at its end has no verdict."""


@dataclass(frozen=True, slots=True)
class LeanSettings(Jsonable):
    """Every choice the lean analysis makes.

    Attributes:
        alpha: family-wise error rate over all candidates tried.
        confidence: level of the two-sided intervals.
        chance: the best constant predictor's score, in the metric's unit; None where it is not
            known. A baseline that is not shown to be better has learned nothing.
        power: the chance to establish a candidate that equals the baseline, by which the seeds that
            undecided candidates need are counted.
        looks: how many times the answer has been looked at; seeds were added between the looks.
    """

    alpha: float = ALPHA
    confidence: float = 0.95
    chance: float | None = None
    power: float = 0.8
    looks: int = 1

    def __post_init__(self) -> None:
        shares = ("alpha", "confidence", "power")
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, *shares)
        check_fields(self, "lie from 1 to 20", lambda value: 1 <= value <= 20, "looks")
        check_fields(self, "be a finite number", lambda v: v is None or math.isfinite(v), "chance")

    @property
    def level(self) -> float:
        """The error rate of this look.

        Each look has half the rate of the one before, so that all later looks together add no more
        than the first.
        """
        return self.alpha * 0.5 ** (self.looks - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanRow(ShapeRow):
    """One configuration cheaper than the baseline, tested for being no worse than the margin.

    Attributes:
        sd: seed standard deviation; that of the other shapes where its own seeds agree exactly, or
            it has a single run.
        diff: how much better than the baseline it is (positive is better, whatever the goal).
        df: Satterthwaite degrees of freedom; None without a variance.
        p_raw: one-sided p value of "worse by the margin or more"; None without a variance.
        p_holm: ``p_raw`` after Holm's correction over all candidates.
        p_worse: one-sided p value of "worse by no more than the margin", after Holm over all
            candidates compared; None without a variance.
        outcome: established as no worse than the margin (p_holm <= alpha), excluded as worse by
            more (p_worse <= alpha), or undecided; in a race also where else the shape has come to
            (see `Standing` of its design), whose p values are those after all looks; ahead or
            behind so far while runs of the study have not ended.
        seeds_needed: seeds of an undecided candidate and of the baseline that would establish it
            with the power of the settings if the two were equal; None if over 50, or without a
            variance.
        saving: share of the baseline's cost saved, per cost (0.25 is a quarter less).
    """

    sd: float
    diff: float
    ci: Interval
    df: float | None
    p_raw: float | None
    p_holm: float | None = None
    p_worse: float | None
    outcome: RowOutcome = "undecided"
    seeds_needed: int | None = None
    saving: dict[str, float]

    @property
    def accepted(self) -> bool:
        """Whether the candidate is established as no worse than the margin."""
        return self.outcome == "established"


@dataclass(frozen=True, slots=True)
class LeanResult(Jsonable):
    """Which cheaper configurations are established as no worse than the baseline by the margin.

    Attributes:
        at: the axis value that distinguishes this comparison from the others of a study; empty
            where it is the only one.
        verdict: found; excluded (every cheaper configuration is shown to be worse by more than the
            margin); ahead so far (would be found, but runs have not ended); undecided; untrained
            (the baseline is not shown to have learned more than a constant predictor, or more than
            the margin beyond it); no_candidates (none is cheaper); unsupported (a single run a
            configuration proves nothing).
        reason: why there is no answer; empty where there is one.
        baseline_lost: the baseline's runs that do not enter its mean.
        margin: in the metric's unit.
        sd: the baseline's seed sd; None where it is not measured.
        stopped: labels of the cheaper configurations that early stopping dropped.
        untried: labels of those that the race has not begun.
        missing: runs that would settle undecided candidates, where their number is known.
        choice: label of the cheapest accepted candidate.
        costs: names of the cost columns; the first one orders the table.
        nuisance: axes whose settings compete; every configuration has its best setting.
        baseline_setting: the baseline's best setting; None without nuisance axes.
        doubt: why it is not known whether the baseline has learned anything; empty where it has.
        fixed_rate: the one learning rate of all runs, which was not tuned; None where the rate was
            tuned or is not known.
        sensitivity: whether the answer would survive more training; None where that was not
            examined.
        film: of the race, where this is the only comparison; None without one.
        seeds_planned: of each shape, while runs of the study have not ended; None at the end.
        is_share: the metric is a share of 1, so that differences are told in points.
    """

    verdict: LeanVerdict
    reason: str
    baseline: Config
    baseline_label: str
    baseline_mean: float
    baseline_n: int
    margin: float
    sd: float | None
    table: tuple[LeanRow, ...]
    stopped: tuple[str, ...]
    missing: tuple[Missing, ...]
    choice: str | None
    metric: str
    goal: Goal
    costs: tuple[str, ...]
    settings: LeanSettings
    warnings: tuple[str, ...] = field(default=())
    baseline_lost: Losses = NONE_LOST
    nuisance: tuple[str, ...] = ()
    baseline_setting: TunedSetting | None = None
    doubt: str = ""
    fixed_rate: float | None = None
    sensitivity: Sensitivity | None = None
    at: dict[str, AxisValue] = field(default_factory=dict)
    film: SearchFilm | None = None
    untried: tuple[str, ...] = ()
    seeds_planned: int | None = None
    is_share: bool = False

    @property
    def num_candidates(self) -> int:
        """How many cheaper configurations the error rate is shared by."""
        return len(self.table) + len(self.stopped) + len(self.untried)

    @property
    def heading(self) -> str:
        """The comparison in words; empty where it is the only one."""
        return ", ".join(f"{axis} = {value}" for axis, value in self.at.items())

    @property
    def margin_over_sd(self) -> float | None:
        """The margin in seed sd of the baseline; None where the sd is not measured."""
        return self.margin / self.sd if self.sd else None

    @property
    def decides(self) -> bool:
        """Whether a shape is chosen, or every cheaper shape is shown to be worse."""
        return self.verdict in ("found", "excluded")

    @property
    def chosen(self) -> LeanRow | None:
        """The cheapest accepted candidate, or the one that is ahead so far."""
        return next((row for row in self.table if row.label == self.choice), None)

    @property
    def saving(self) -> float | None:
        """Share of the first cost that the chosen shape saves; None without a choice."""
        return None if self.chosen is None else self.chosen.saving[self.costs[0]]

    @property
    def undecided(self) -> tuple[LeanRow, ...]:
        return tuple(row for row in self.table if row.outcome == "undecided")


def confirming_runs(compared: Sequence[LeanResult]) -> tuple[Missing, ...]:
    """Return the runs that confirm the shapes that a study chose in its comparisons.

    The chosen shape was the cheapest of several that passed, which inflates its estimate; fresh
    seeds show whether the result holds. Every chosen shape and its baseline is run with as many
    seeds as find an equal shape nine times in ten (the largest number over the comparisons).
    """
    usable = [
        (lean, lean.chosen, lean.margin_over_sd)
        for lean in compared
        if lean.chosen is not None
        and lean.decides
        and lean.margin_over_sd is not None
        and lean.num_candidates > 1
    ]
    if not usable:
        return ()
    # A confirmation is tested at the error rate of the whole study, not of one comparison.
    alpha = ALPHA if usable[0][0].at else usable[0][0].settings.alpha
    seeds = max(confirming_seeds(ratio, alpha / len(usable)) for _, _, ratio in usable)
    why = "confirms the choice with fresh seeds"
    return tuple(
        # The shape is confirmed at its best setting.
        Missing({**lean.at, **config, **(setting.values if setting else {})}, seeds, why)
        for lean, row, _ in usable
        for config, setting in (
            (lean.baseline, lean.baseline_setting),
            (row.config, row.setting),
        )
    )
