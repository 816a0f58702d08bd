"""Several studies side by side, as frozen values."""

from dataclasses import dataclass

from analysis.questions.lean.result import LeanGroups, LeanResult
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.transition.result import RetrievalDimension, TransitionResult
from analysis.statistics.values import Interval
from analysis.values import Jsonable
from hsweep.design.question import Goal


@dataclass(frozen=True, slots=True)
class CompareSettings(Jsonable):
    """Every choice the comparison makes.

    Attributes:
        draws, rng_seed: draws of the fronts, and their seed.
        confidence: level of every interval.
        crash_sd: runs this many pooled robust sd below their shape's median are screened.
    """

    draws: int = 2000
    confidence: float = 0.95
    crash_sd: float = 6.0
    rng_seed: int = 0


@dataclass(frozen=True, slots=True)
class StudySide(Jsonable):
    """One of the studies.

    Attributes:
        label: its name, made unique among those compared.
        trials: that its answer rests on, at the budget that it is compared at.
        finished: how many of them ran to their end.
        budget: that it is compared at, in words.
        answer, problem: its own answer in a sentence, or why it has none.
        pareto: its front, over the costs that are compared.
        hv: the hypervolume of that front, scaled and bounded as all of them are; None without one.
    """

    label: str
    folder: str
    sweep: str
    preset: str
    trials: int
    finished: int
    budget: str
    answer: str
    problem: str | None
    transition: TransitionResult | None
    lean: LeanResult | None
    lean_groups: LeanGroups | None
    pareto: ParetoResult | None
    hv: Interval | None


@dataclass(frozen=True, slots=True)
class TransitionPair(Jsonable):
    """Where two studies place the collapse.

    Attributes:
        common_set: head counts in the confidence sets of both.
        p_lower, p_equal, p_higher: share of pairs of draws in which the first study's h* is lower
            than, equal to, higher than the second's.
        common_dimension: intersection of their retrieval dimensions, where both have one.
        dimensions_disagree: both have one, and these do not meet.
    """

    first: str
    second: str
    both_claim: bool
    common_set: tuple[float, ...]
    p_lower: float
    p_equal: float
    p_higher: float
    common_dimension: RetrievalDimension | None
    dimensions_disagree: bool


@dataclass(frozen=True, slots=True)
class VolumePair(Jsonable):
    """The hypervolume of one front minus that of another.

    Attributes:
        difference: first minus second, with its interval over paired draws; above 0 where the
            first is better.
        p_better: share of draws in which the first is larger; None without seeds to tell.
    """

    first: str
    second: str
    difference: Interval
    p_better: float | None


@dataclass(frozen=True, slots=True)
class SharedTrials(Jsonable):
    """What two studies have in common.

    Attributes:
        same: trials of both: same model, task, data, recipe, budget, seeds and code.
        changed: points and seeds of both whose trials differ in one of these.
    """

    first: str
    second: str
    same: int
    changed: int


@dataclass(frozen=True, slots=True)
class Difference(Jsonable):
    """One thing that is not the same in all the studies; a value a study, in their order."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison(Jsonable):
    """Two or more studies side by side.

    Attributes:
        metric, goal, costs: what the fronts are made of; empty where there are none.
        hv_note: how the hypervolumes were computed, or why they were not.
        transitions, volumes, shared: every pair of studies that ask along one axis, that have a
            front, and that there is.
        source_diff: how each study's sweep file differs from the first one's, as a unified diff.
        apart: that the studies learn from other data, and how: then nothing is ranked and there are
            no pairs. Empty where they learn the same.
    """

    studies: tuple[StudySide, ...]
    metric: str
    goal: Goal | None
    costs: tuple[str, ...]
    hv_note: str
    transitions: tuple[TransitionPair, ...]
    volumes: tuple[VolumePair, ...]
    shared: tuple[SharedTrials, ...]
    differences: tuple[Difference, ...]
    source_diff: str
    settings: CompareSettings
    warnings: tuple[str, ...]
    apart: str = ""
