"""The question of a sweep: an object that knows what it checks, asks for and needs.

A kind of question is a frozen dataclass in a folder of the analysis package, beside its estimator
and its words; one of the user's stands in a sweep file and says its answer itself. Whoever plans,
schedules or shows a study asks the question, and knows none by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from hsweep.design.point import Point
from hsweep.design.scales import Goal, Scale
from hsweep.errors import UserError, shown

if TYPE_CHECKING:
    from hsweep.design.space import Space
    from hsweep.design.sweep import Sweep
    from hsweep.design.trial import Trial
    from tasks.base import Metric


@dataclass(frozen=True, slots=True)
class Concern:
    """A reason why a planned question can be answered only weakly or not at all.

    Attributes:
        kind: ``impossible``: no results can answer the question; ``weak``: any answer will be weak.
        text: the rule and the values.
        remedy: the smallest change that helps.
    """

    kind: Literal["impossible", "weak"]
    text: str
    remedy: str

    @property
    def line(self) -> str:
        """The concern in one sentence."""
        verdict = (
            "cannot be answered" if self.kind == "impossible" else "can be answered only weakly"
        )
        return f"the question {verdict}: {self.text}; {self.remedy}"


class PlannedSweep(Protocol):
    """What a question is asked about: a sweep with the trials of its plan."""

    @property
    def sweep(self) -> "Sweep": ...
    @property
    def trials(self) -> "Sequence[Trial]": ...
    @property
    def skipped(self) -> Mapping[Point, str]:
        """Impossible points and those outside the limits, each with the reason."""

    @property
    def declared_metrics(self) -> "Sequence[Metric]":
        """The metrics that the task, or a user's training, declares; none where that depends on
        data that are not there."""

    @property
    def is_adaptive(self) -> bool:
        """Whether points are proposed during the run, so that the trials are only examples."""


class RoundDesign(Protocol):
    """Chooses trials, by their keys.

    Attributes:
        why_not: why a trial was not needed.
        line: the present round in words: its number, its cells and why.
        most_trials: that it may ask for.
    """

    why_not: str
    line: str

    @property
    def most_trials(self) -> int: ...

    def next_round(self, values: Mapping[str, float | None]) -> frozenset[str]:
        """Return the trials to train next, given the values of those that have ended (None for one
        that ended without a value); an empty set at the end."""

    def rehearsals(self) -> Sequence[frozenset[str]]:
        """Return the trials that it asks for in studies with made-up values, fewest first."""


class Question(ABC):
    """What a sweep asks. A kind of question is a frozen dataclass; what it does not say is as here.

    Attributes:
        scale: how the metric is transformed; None as the task declares its metric.
        nuisance: axes that are settings and no part of a place, such as ``lr``; each place is
            taken at its best setting.
        within: an axis at each of whose values the question is asked anew, or None.
        place: what the answer compares, in a word.
        is_by_scale: the answer is one of the metric as its scale transforms it, so that it can only
            be given on the scale that the metric has.
        seeds: of each place, that may count where the question itself chooses the runs (see
            ``design``); None where it cannot.
    """

    __slots__ = ()
    scale: Scale | None = None
    nuisance: tuple[str, ...] = ()
    within: str | None = None
    place: ClassVar[str] = "point"
    is_by_scale: ClassVar[bool] = False
    seeds: ClassVar[int | None] = None

    @property
    @abstractmethod
    def axes(self) -> Mapping[str, Sequence[str]]:
        """The axes that it names, besides nuisance axes, by what an error calls them."""

    def concerns(self, plan: PlannedSweep) -> Iterable[Concern]:
        """Yield the reasons why a plan cannot answer it, or only weakly."""
        return ()

    def protects(self, point: Mapping[str, Any]) -> bool:
        """Whether early stopping leaves the trials of a point alone."""
        return False

    def selection_seeds(self, seeds: int) -> int:
        """Return how many of so many seeds choose the setting of the nuisance axes, unless the
        sweep says so."""
        return 1

    def proposals(self, space: "Space") -> list[Point]:
        """Return the points that a search which proposes its points begins with."""
        return []

    def further_runs(self, trials: "Sequence[Trial]") -> tuple[Iterable[Point], int]:
        """Return which of the planned points its design may give more seeds than ``seeds``, and how
        many more.

        Raises:
            UserError: the design needs what is not known of these trials.
        """
        return (), 0

    def design(self, rows: Sequence[Any], goal: Goal, budget: int, scouts: int) -> RoundDesign:
        """Return what chooses among the planned trials of a study.

        Args:
            rows: the study's trials, as recorded.
            budget: at which a run has its value; those of shorter budgets come before it.
            scouts: replicates that only choose a setting, all before the run itself.
        """
        raise NotImplementedError

    @property
    def answers(self) -> tuple[str, ...]:
        """The axes of which the answer speaks by themselves."""
        return ()

    def answer(self, study: Any) -> Any:
        """Return what a study says to a question of the user's own: a ``Finding`` of
        ``StudyRuns`` (both in ``analysis.questions.base``). A question of this project is answered
        by the kind of its name."""
        raise NotImplementedError

    @property
    def is_own(self) -> bool:
        """Whether it is of the user's own."""
        return type(self).__module__.split(".")[0] != "analysis"

    @property
    def record(self) -> dict[str, Any]:
        """What readers of a study need to know of its question beside its fields."""
        return {
            "place": self.place,
            "is_by_scale": self.is_by_scale,
            "answers": list(self.answers),
            "module": type(self).__module__,
        }

    @property
    def logarithmic_scale(self) -> Scale | None:
        """The scale on which the question takes a logarithm of the metric; None for none."""
        if self.scale is None or self.scale == "loss":
            return None
        return self.scale if self.is_by_scale or self.scale == "error" else None

    def part_of(self, point: Mapping[str, Any]) -> Any:
        """Return which of its answers a point belongs to: its value of ``within``, None without."""
        return None if self.within is None else point.get(self.within)

    def place_of(self, point: Mapping[str, Any]) -> Point:
        """Return the place of a point: its axes but the nuisance axes."""
        return Point({axis: value for axis, value in point.items() if axis not in self.nuisance})

    def with_fields(self, **changes: Any) -> Self:
        """Return the question with other values of those of these fields that it has."""
        asked: Any = self  # a kind of question is a dataclass
        names = {field.name for field in fields(asked)}
        changed: Self = replace(asked, **{k: new for k, new in changes.items() if k in names})
        return changed

    @classmethod
    def recorded(cls, content: Mapping[str, Any]) -> Self:
        """Return a question from its record; what it does not know is left out."""
        kind: Any = cls
        names = {field.name for field in fields(kind)}
        return cls(**{name: _tuples(value) for name, value in content.items() if name in names})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def check_axes(field: str, *values: object) -> None:
    """Refuse what names no axis and no column."""
    for value in values:
        if not isinstance(value, str):
            raise UserError(f"{field} must name an axis or a column, not {shown(value)}")


def check_nuisance(axes: object, roles: Mapping[str | None, str]) -> None:
    """Refuse nuisance axes that are no axis, are named twice or have another role in the question;
    ``roles`` has the roles of the question's other axes, in words."""
    if not isinstance(axes, tuple):
        raise UserError(f"nuisance must be a tuple of axes, as ('lr',), not {shown(axes)}")
    check_axes("nuisance", *axes)
    for axis in axes:
        if axis in roles:
            raise UserError(
                f"nuisance axis {axis!r} {roles[axis]}; a nuisance axis is a setting of which the "
                "best value is taken, so leave it out of one of the two"
            )
    if len(set(axes)) < len(axes):
        raise UserError(f"nuisance names an axis twice: {shown(axes)}")
