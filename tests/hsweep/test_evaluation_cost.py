"""What is said of trials of which evaluation takes a large part."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import TinyTask, tiny_sweep
from tiny_runs import planned

from hsweep import Recipe, epochs, grid, seconds, steps
from hsweep.design.trial import Trial
from hsweep.planning.checking import check_trials, evaluation_cost


def trial_of(budget: Any, batch_size: int = 8) -> Trial:
    sweep = tiny_sweep(
        space=grid(width=[2]), budget=budget, recipe=Recipe(lr=0.05, batch_size=batch_size)
    )
    return planned(sweep)[0]


def data_of(eval_size: Any, steps_per_epoch: int = 4) -> Any:
    return cast(Any, SimpleNamespace(eval_size=eval_size, steps_per_epoch=steps_per_epoch))


def test_it_says_how_much_and_what_would_make_it_little() -> None:
    # 32 examples trained, three passes each, for 32 evaluated: a quarter.
    assert evaluation_cost(trial_of(epochs(40)), data_of(32)) == (
        "evaluation takes about 25% of a trial's computing: 32 examples every epoch; "
        "--set report_every=7 would make it 5%"
    )
    assert "400 examples every 5 steps" in evaluation_cost(
        trial_of(steps(1000, report_every=5)), data_of(400)
    )


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 5000), st.integers(1, 64))
def test_what_it_advises_is_little_or_as_seldom_as_can_be(
    amount: int, every: int, size: int, batch: int
) -> None:
    every = min(every, amount)
    trial, data = trial_of(steps(amount, report_every=every), batch), data_of(size)
    said = evaluation_cost(trial, data)
    trained = 3 * amount * batch
    if not said:
        # Little, or as much as at fewer reports: the last one is always made.
        least = math.ceil(amount / max(1, 0.05 / 0.95 * trained / size))
        reports = len(trial.budget.report_units())
        assert reports * size <= 0.0501 / 0.95 * trained or every >= least
        return
    advised = int(said.partition("report_every=")[2].split()[0])
    assert every < advised <= amount
    again = replace(trial, budget=replace(trial.budget, report_every=advised))
    assert evaluation_cost(again, data) == ""


@pytest.mark.parametrize("size", [None, 0, "many"])
def test_nothing_is_said_where_it_is_not_known(size: object) -> None:
    assert evaluation_cost(trial_of(epochs(40)), data_of(size)) == ""


def test_nothing_is_said_of_a_budget_of_seconds() -> None:
    assert evaluation_cost(trial_of(seconds(60, report_every=1)), data_of(10**9)) == ""


def test_it_is_said_before_the_start() -> None:
    trials = planned(tiny_sweep(task=TinyTask(num_val=320), budget=epochs(40)))
    (line,) = check_trials(trials).lines()
    assert line.startswith("evaluation takes about 77% of a trial's computing: 320 examples")
