"""Several studies side by side, as frozen values."""

from dataclasses import dataclass
from typing import Final

from analysis.questions.lean.result import LeanResult
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.transition.result import TransitionResult
from analysis.statistics.values import Interval
from analysis.values import Jsonable, Number

STUDY: Final = "study"
"""The axis that tells the studies' shapes apart."""


@dataclass(frozen=True, slots=True)
class StudySide(Jsonable):
    """One of the studies.

    Attributes:
        label: its name, made unique among those compared.
        trials: that its answer rests on, at the budget that it is compared at.
        finished: how many of them ran to their end.
        budget: that it is compared at, in words.
        answer: its own answer with what qualifies it.
        problem: why it has none.
        lean: its lean comparisons, by the value that tells each from the others.
        hv: the hypervolume of its front, in the frame of all fronts; None without one.
    """

    label: str
    folder: str
    sweep: str
    preset: str
    trials: int
    finished: int
    budget: str
    answer: tuple[str, ...]
    problem: str | None
    transition: TransitionResult | None
    lean: dict[str, LeanResult]
    hv: Interval | None


@dataclass(frozen=True, slots=True)
class Pair(Jsonable):
    """Two of the studies.

    Attributes:
        same: trials of both: same model, task, data, recipe, budget, seeds and code.
        common_set: places of a collapse in the 95 % sets of both; None unless both look for one
            along the same axis.
        volume: the hypervolume of the first front minus that of the second, over paired draws;
            None unless both have one.
    """

    first: str
    second: str
    same: int
    common_set: tuple[Number, ...] | None
    volume: Interval | None


@dataclass(frozen=True, slots=True)
class Comparison(Jsonable):
    """Two or more studies side by side.

    Attributes:
        front: of the shapes of all studies together, the study being one more axis; None where
            none is drawn.
        front_note: how hypervolumes were computed, or why there is no front.
        differences: what is on record and not the same in all the studies, with a value a study.
        settings: of the fronts.
        apart: that the studies learn from other data, and how: then nothing is ranked. Empty where
            they learn the same.
    """

    studies: tuple[StudySide, ...]
    front: ParetoResult | None
    front_note: str
    pairs: tuple[Pair, ...]
    differences: dict[str, tuple[str, ...]]
    settings: ParetoSettings
    warnings: tuple[str, ...]
    apart: str = ""
