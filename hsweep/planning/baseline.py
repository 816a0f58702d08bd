"""The shapes and the baseline that a lean question compares, and the points of a search that stand
for the baseline."""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hsweep.design.domain import AxisValue, Domain, ValueList
from hsweep.design.question import Lean
from hsweep.design.space import Point, num_values
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, cost_columns

_MOST: Final = 10_000
"""Combinations that are looked at, and values of one axis."""


def baseline_proposals(sweep: Sweep) -> list[tuple[Point, dict[str, Any]]]:
    """Return the points that a sampling search begins with, the baseline of a lean question, each
    with the parameters that stand for it (see ``Space.parameters``).

    One at each value of ``within`` and of the nuisance axes. None where the baseline does not
    determine its point: where another axis has several values, or one of these has infinitely many.
    """
    question = sweep.question
    if not isinstance(question, Lean) or sweep.search.method == "grid":
        return []
    baseline = dict(question.baseline)
    domains = sweep.space.parameters()
    candidates = (_choices(name, domain, baseline) for name, domain in domains.items())
    choices = [values for values in candidates if values is not None]
    if len(choices) < len(domains) or math.prod(map(len, choices)) > _MOST:
        return []
    proposals: dict[Point, dict[str, Any]] = {}
    for values in itertools.product(*choices):
        parameters = dict(zip(domains, values, strict=True))
        decoded = sweep.space.decode(parameters)
        if decoded is not None and question.is_baseline(point := Point(decoded)):
            proposals.setdefault(point, parameters)
    shapes = {shape_of(question, point) for point in proposals}
    comparisons = {comparison_of(question, point) for point in proposals}
    return list(proposals.items()) if len(shapes) == len(comparisons) else []


def shape_of(question: Lean, point: Mapping[str, Any]) -> Point:
    """Return the axes of a point that make its shape: all but the nuisance axes."""
    return Point({axis: value for axis, value in point.items() if axis not in question.nuisance})


def comparison_of(question: Lean, point: Mapping[str, Any]) -> Any:
    """Return the comparison of a point: its value of ``within``, None without such an axis."""
    return None if question.within is None else point.get(question.within)


def comparisons(question: Lean, trials: Iterable[Trial]) -> dict[Any, dict[Point, Trial]]:
    """Return a trial of each shape, by the comparisons that the shapes belong to."""
    shapes: dict[Any, dict[Point, Trial]] = {}
    for trial in trials:
        group = shapes.setdefault(comparison_of(question, trial.point), {})
        group.setdefault(shape_of(question, trial.point), trial)
    return shapes


def num_cheaper(question: Lean, shapes: Mapping[Point, Trial]) -> int:
    """Return the number of shapes of a comparison that cost less than its baseline.

    Where only a run can tell the cost, all shapes but the baseline count.
    """
    costs = {trial.point: cost_columns(trial).get(question.costs[0]) for trial in shapes.values()}
    limits = [cost for point, cost in costs.items() if question.is_baseline(point)]
    if not limits or limits[0] is None:
        return len(costs) - len(limits)
    return sum(cost is None or cost < limits[0] for cost in costs.values())


def _choices(
    name: str, domain: Domain, baseline: Mapping[str, AxisValue]
) -> tuple[AxisValue, ...] | None:
    """Return the values of a parameter that may make a baseline; None for too many."""
    axis = name.rpartition(".")[2]
    if axis not in baseline:
        return domain.finite() if num_values(domain) <= _MOST else None
    # A value that the baseline cannot have matters on the other side of a union alone.
    other = domain.values[0] if isinstance(domain, ValueList) else domain.low
    return (baseline[axis] if baseline[axis] in domain else other,)
