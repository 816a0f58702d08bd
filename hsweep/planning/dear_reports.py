"""How much of a trial's computing goes into its reports."""

import math
from dataclasses import replace
from typing import Final

from hsweep.design.budget import unit_word
from hsweep.design.trial import Trial
from tasks.base import TaskData

_MOST: Final = 0.05
"""A share of a trial that nobody minds."""


def dear_reports(trial: Trial, data: TaskData) -> str:
    """Return what to say where evaluation takes more than a twentieth of a trial's operations;
    empty where it does not, or where that is not known.

    The model's size makes no difference: both are passes of it.
    """
    budget, counts = trial.budget, trial.counts
    size = getattr(data, "eval_size", None)
    if budget.unit == "seconds" or counts is None or not isinstance(size, int) or size < 1:
        return ""
    steps = budget.amount * (data.steps_per_epoch if budget.unit == "epochs" else 1)
    trained = steps * trial.recipe.batch_size * counts.train_flops
    evaluated = size * counts.forward_flops
    if not trained * evaluated:
        return ""

    def share(every: int) -> float:
        spent = len(replace(budget, report_every=every).report_units()) * evaluated
        return spent / (spent + trained)

    affordable = _MOST / (1 - _MOST) * trained / evaluated
    every = math.ceil(budget.amount / max(1.0, affordable))
    now, then = share(budget.report_every), share(every)
    if now <= _MOST or every <= budget.report_every:
        return ""
    number, unit = budget.report_every, budget.unit
    interval = unit_word(unit, 1) if number == 1 else f"{number} {unit}"
    return (
        f"evaluation takes about {now:.0%} of a trial's computing: {size:,} examples every "
        f"{interval}; --set report_every={every} would make it {then:.0%}"
    )
