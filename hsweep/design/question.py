"""The questions of a sweep: plain values that the analysis package answers."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from hsweep.design.labels import listed
from hsweep.errors import UserError, check_choice, check_whole, is_number, make_plain, shown

Goal = Literal["min", "max"]
ASKED: Final = "asked for"
"""Why a run is missing that the user asked for."""
Scale = Literal["error", "accuracy", "loss"]
"""How a metric is put on an axis: ``error`` as log10, ``accuracy`` as log10 of 1 - accuracy,
``loss`` (with an irreducible part) in nats, never as a logarithm."""
ALPHA: Final = 0.05
"""Level of every test, unless an analysis is set to another one."""
FEWEST_FOR_A_BREAK: Final = 4
"""Values of the searched axis that the test of abruptness needs."""
FIRST_BREAK: Final = 2
"""Index of the first value of the searched axis at which a drop differs measurably from diminishing
returns: two values lie below it."""
_AMPLE: Final = 6
"""Values of x with room for a drop in their middle."""
_WIDE_MARGIN: Final = 3.0
"""A design is called weak if its margin would have to be larger than this many seed sd."""
_ROUNDING: Final = 1e-6
"""The largest deviation from 1 of a sum of shares."""


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


def margin_problem(margin: float, metric: str, worst: float | None, *, is_share: bool) -> str:
    """Return the rule that the margin of a lean question breaks; empty for none.

    It must be smaller than the metric's range: from a perfect value (1 of a share, or else 0) to
    the ``worst``, which is what a constant predictor scores; None where that is not known.
    """
    reach = 1 - (worst or 0.0) if is_share else worst or math.inf
    if not 0 < reach <= margin:
        return ""
    points = f"; {margin:g} points are {margin / 100:g}" if is_share else ""
    return (
        f"a margin of {margin:g} is no smaller than the range of {metric}, {reach:.3g}, so any "
        f"shape would count as no worse; give it in the metric's own unit{points}"
    )


def outside_scale(value: float, scale: Scale) -> str:
    """Return the rule of a scale that a value breaks; empty for none."""
    if scale == "accuracy" and value > 1 + _ROUNDING:
        return "an accuracy cannot be above 1 (divide percentages by 100)"
    if scale == "accuracy" and value < 0:
        return "an accuracy cannot be below 0"
    if scale == "error" and value < 0:
        return (
            "an error cannot be below 0, and scale 'error' takes a logarithm (use scale 'loss' for "
            "a quantity that can be below 0)"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Transition:
    """At which value of ``x`` does the error collapse, and does its growth with ``by`` vanish?

    Attributes:
        x: the ordered axis that is searched for the critical value (usually ``heads``).
        by: the modulating axis (often ``seq_len``), or None.
        within: an axis (such as ``depth``) at each of whose values the question is asked anew.
        scale: how the metric is transformed; None as the task declares its metric.
        eval_size: evaluation examples, needed by the ``accuracy`` scale to floor the error.
        nuisance: axes that are settings and no part of a cell of ``x``, ``by`` and ``within``, such
            as ``lr``; each cell is taken at its best setting.

    Raises:
        UserError: a field of another kind.
    """

    x: str = "heads"
    by: str | None = None
    scale: Scale | None = None
    eval_size: int | None = None
    nuisance: tuple[str, ...] = ()
    within: str | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        _check_axes("x", self.x)
        for field, axis in (("by", self.by), ("within", self.within)):
            _check_axes(field, *(() if axis is None else (axis,)))
        if len(set(self.cell)) < len(self.cell):
            raise UserError(f"x, by and within must be different axes, not {listed(self.cell)}")
        _check_scale(self.scale)
        if self.eval_size is not None:
            check_whole("eval_size", self.eval_size, 1)
        within = {self.within: "has a transition at each value (within)"}
        roles = {self.x: "is searched (x)", self.by: "modulates (by)"}
        _check_nuisance(self.nuisance, within | roles)

    @property
    def cell(self) -> tuple[str, ...]:
        """The axes that make a cell."""
        return (self.x, *(axis for axis in (self.by, self.within) if axis is not None))

    def needs(self, values: Sequence[int | float], lengths: Sequence[int | float]) -> list[Concern]:
        """Return the concerns about a design with these ascending values of ``x`` and ``by``."""
        x, by, concerns = self.x, self.by, []
        number = "one value" if len(values) == 1 else f"{len(values)} values"
        remedy = f"give {x} {_AMPLE} values or more (--set {x}=...)"
        if all(isinstance(value, int) for value in values) and values[-1] - values[0] < _AMPLE:
            remedy = f"--set {x}={','.join(str(values[0] + k) for k in range(_AMPLE))}"
        if len(values) < FEWEST_FOR_A_BREAK:
            text = (
                f"{x} has {number} ({listed(values)}), and a test that tells a drop from "
                f"diminishing returns needs {FEWEST_FOR_A_BREAK}, two of them below the drop"
            )
            concerns.append(Concern("weak", text, remedy))
        elif len(values) == FEWEST_FOR_A_BREAK:
            text = (
                f"with {x} = {listed(values)} a drop can be established at {x} = "
                f"{listed(values[FIRST_BREAK:], 'or')}, not at {values[1]}: it takes two smaller "
                "values"
            )
            concerns.append(Concern("weak", text, f"{remedy}, or smaller ones"))
        if by is not None and len(lengths) < 2:
            text = f"{by} has one value, {lengths[0]}, so growth with {by} cannot be judged"
            concerns.append(
                Concern("weak", text, f"give {by} two values or more, or leave by= out")
            )
        return concerns


@dataclass(frozen=True, slots=True)
class Lean:
    """Which shapes lie on the front of metric and cost, and which is the leanest good one?

    Attributes:
        costs: columns to save, first one first (``num_params``, ``flops_per_example``,
            ``train_memory_bytes``, ``wall_seconds``, ``latency_seconds``).
        baseline: axis values that name the baseline shape; a dictionary becomes pairs.
        within: an axis at each of whose values the baseline is another shape, for example a family
            of models; shapes are then compared only with the baseline they share it with.
        nuisance: axes that are settings and no part of a shape, such as ``lr``; each shape, the
            baseline too, is taken at its best setting.
        margin: how much worse than the baseline, in the metric's own unit, still counts as equal.
        scale: how the metric is transformed for display; None as the task declares its metric.

    Raises:
        UserError: a margin that is not a positive number, or a field of another kind.
    """

    baseline: tuple[tuple[str, int | float | str], ...]
    margin: float
    costs: tuple[str, ...] = ("num_params",)
    scale: Scale | None = None
    within: str | None = None
    nuisance: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        if not (is_number(self.margin) and self.margin > 0):
            raise UserError(f"margin must be positive, not {shown(self.margin)}")
        baseline: object = self.baseline
        pairs = tuple(baseline.items()) if isinstance(baseline, dict) else baseline
        if not (isinstance(pairs, tuple) and pairs and all(map(_is_axis_and_value, pairs))):
            raise UserError(
                f"baseline must be axes with values, as {{'heads': 12}}, not {shown(baseline)}"
            )
        # As a point has them.
        pairs = sorted((axis, tuple(at) if isinstance(at, list) else at) for axis, at in pairs)
        object.__setattr__(self, "baseline", tuple(pairs))
        costs: object = self.costs
        if not isinstance(costs, tuple) or not costs:
            raise UserError(f"costs must be a tuple of columns, not {shown(costs)}")
        _check_axes("costs", *self.costs)
        _check_axes("within", *(() if self.within is None else (self.within,)))
        _check_scale(self.scale)
        _check_nuisance(
            self.nuisance,
            {
                **dict.fromkeys((axis for axis, _ in self.baseline), "is named by the baseline"),
                self.within: "parts the comparisons (within)",
                **dict.fromkeys(self.costs, "is a cost"),
            },
        )

    def is_baseline(self, point: Mapping[str, Any]) -> bool:
        """Whether a point is the baseline, at any value of the nuisance axes."""
        return all(point.get(axis) == value for axis, value in self.baseline)

    def needs(self, candidates: int, seeds: int, comparisons: int) -> list[Concern]:
        """Return the concerns about a design with this number of seeds of each shape.

        An equal shape passes Holm's first step every second time where the margin is the critical
        t value times the standard error of a difference of two means.

        Args:
            candidates: cheaper shapes of the comparison that has most of them.
            comparisons: among which the error rate is divided.
        """
        from scipy.special import stdtrit

        def margin(seeds: int) -> float:
            level = 1 - ALPHA / comparisons / candidates
            return float(stdtrit(2 * (seeds - 1), level)) * math.sqrt(2 / seeds)

        if seeds < 2 or not candidates or margin(seeds) <= _WIDE_MARGIN:
            return []
        enough = next(number for number in itertools.count(seeds) if margin(number) <= _WIDE_MARGIN)
        text = (
            f"with {seeds} seeds and {candidates} candidates an equal shape is found every second "
            f"time if the margin is {margin(seeds):.1f} times the sd between seeds"
        )
        return [Concern("weak", text, f"--set replicates={enough}")]


Question = Transition | Lean


def _check_scale(scale: object) -> None:
    if scale is not None:
        check_choice("scale", scale, get_args(Scale))


def logarithmic_scale(question: Question | None) -> Scale | None:
    """Return the scale on which a question takes a logarithm of the metric; None for none.

    A lean question compares accuracies and losses in their own unit, whatever it draws.
    """
    if question is None or question.scale == "loss":
        return None
    return question.scale if isinstance(question, Transition) or question.scale == "error" else None


def _check_nuisance(axes: object, roles: Mapping[str | None, str]) -> None:
    """Refuse nuisance axes that are no axis, are named twice or have another role in the question;
    ``roles`` has the roles of the question's other axes, in words."""
    if not isinstance(axes, tuple):
        raise UserError(f"nuisance must be a tuple of axes, as ('lr',), not {shown(axes)}")
    _check_axes("nuisance", *axes)
    for axis in axes:
        if axis in roles:
            raise UserError(
                f"nuisance axis {axis!r} {roles[axis]}; a nuisance axis is a setting of which the "
                "best value is taken, so leave it out of one of the two"
            )
    if len(set(axes)) < len(axes):
        raise UserError(f"nuisance names an axis twice: {shown(axes)}")


def _is_axis_and_value(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _check_axes(field: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise UserError(f"{field} must name an axis or a column, not {shown(value)}")


def lean(
    baseline: dict[str, int | float | str],
    margin: float,
    costs: tuple[str, ...] = ("num_params",),
    scale: Scale | None = None,
    within: str | None = None,
    nuisance: tuple[str, ...] = (),
) -> Lean:
    """Return the lean question with its baseline as a dictionary of axis values."""
    return Lean(baseline, margin, costs, scale, within, nuisance)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Missing:
    """Runs that an answer lacks in one cell or of one shape.

    Attributes:
        at: the axis values of the cell or shape.
        seeds: how many runs.
        why: what the answer lacks.
        budget: an amount other than the sweep's budget, to which ``seeds`` finished seeds are
            trained; None for runs with the sweep's budget.
        trials: how many trials ``hsweep run --only-missing`` trains for it, of every budget and
            setting, as the study worked out when it last ended; None where it has not.
    """

    at: Mapping[str, Any]
    seeds: int
    why: str
    budget: int | None = None
    trials: int | None = None

    @property
    def name(self) -> str:
        """What these runs are called on record."""
        return f"{self.label} seeds={self.seeds} budget={self.budget}"

    @property
    def label(self) -> str:
        """The cell or shape in words."""
        return " ".join(
            f"{axis}={f'{value:g}' if isinstance(value, float) else value}"
            for axis, value in self.at.items()
        )
