"""What shapes cost: the columns that a question saves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from hsweep.design.labels import listed
from hsweep.design.question import Concern, PlannedSweep, check_axes
from hsweep.design.trial import cost_columns
from hsweep.design.user_training import Command
from hsweep.errors import UserError, is_number, shown

if TYPE_CHECKING:
    from hsweep.design.trial import Trial

_NOT_REPORTED: Final = (
    *("flops_per_example", "train_flops_per_example", "train_memory_bytes"),
    "latency_seconds",
)
"""Costs that no report of a user's training can tell."""
_TIMES: Final = ("wall_seconds", "train_seconds", "data_seconds")
_COSTS: Final = ("num_params", *_NOT_REPORTED, *_TIMES)
"""What a trial of this project's loop costs, besides axes and metrics."""


def check_costs(costs: object) -> None:
    """Refuse costs that are no tuple of columns."""
    if not isinstance(costs, tuple) or not costs:
        raise UserError(f"costs must be a tuple of columns, not {shown(costs)}")
    check_axes("costs", *costs)


def require_known(costs: Sequence[str], trials: Sequence["Trial"]) -> None:
    """Refuse to choose runs by costs that only a run can tell."""
    for cost in costs:
        if any(cost not in {**trial.point, **cost_columns(trial)} for trial in trials):
            raise UserError(
                f"an adaptive search compares what shapes cost, and their {cost} is not known "
                "before they are trained; let the sweep's describe= return it (see Cost), ask "
                "for another cost, or leave search= out"
            )


def concerns_of_costs(
    plan: PlannedSweep, costs: Sequence[str], within: str | None
) -> Iterator[Concern]:
    """Yield the costs that no trial has, and those of a user's training that are not known before
    it and may never be."""
    if plan.sweep.train is None:
        metrics = (metric.name for metric in plan.declared_metrics)
        named = (*_COSTS, *plan.sweep.space.axes, *metrics)
        for cost in costs:
            if cost not in named:
                remedy = f"ask for {listed(_COSTS, 'or')}"
                yield Concern("impossible", f"{shown(cost)} is no cost of a trial", remedy)
        return
    train = plan.sweep.train
    known = set.intersection(*({*cost_columns(trial), *trial.point} for trial in plan.trials))
    axes = [
        axis
        for axis in plan.sweep.space.axes
        if axis != within and all(is_number(trial.point.get(axis)) for trial in plan.trials)
    ]
    example = f", as costs=({axes[0]!r},)" if axes else ""
    described = "let the sweep's describe= return it (see Cost), or ask for one that is known"
    for cost in costs:
        if cost in known or cost in _TIMES:
            continue
        can_be_read = cost not in _NOT_REPORTED
        remedy = described + example
        if can_be_read and not (isinstance(train, Command) and not train.metrics.may_have(cost)):
            yield Concern("weak", f"{cost} is known only of trials whose reports have it", remedy)
        else:
            of_line = f", or let the lines that are read name it: (?P<{cost}>...)"
            text = f"no report of this training tells {cost}"
            yield Concern("impossible", text, remedy + of_line * can_be_read)
