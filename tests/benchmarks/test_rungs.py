"""The benchmark of rungs: what it says of a record whose order of settings is known."""

import pytest
from click.testing import CliRunner
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from benchmarks.__main__ import main
from benchmarks.rungs import curves_of_study, halving, skill
from hsweep import Recipe, Sweep, Transition, epochs, grid
from hsweep.paths import Home
from hsweep.record.study import Study

RATES = [0.01, 0.02, 0.03, 0.04]
ERRORS = {
    5: [1e-2, 2e-2, 3e-2, 4e-2],
    10: [2e-3, 1e-3, 3e-3, 4e-3],
    20: [1e-3, 1e-4, 1e-2, 1e-1],
}
"""By rate, at each budget: the second is the best from 10 epochs on."""


def sweep() -> Sweep:
    return tiny_sweep(
        space=grid(width=[1, 2], lr=RATES),
        recipe=lambda point: Recipe(lr=point.lr, batch_size=8, schedule="wsd"),
        budget=epochs(20, ladder=[5, 10, 20]),
        replicates=2,
        question=Transition(x="width", by=None, nuisance=("lr",)),
    )


def recorded(home: Home, *, whole: bool = True) -> Study:
    """Both widths have the errors of `ERRORS`, the second seed's ten times as large; if not
    ``whole``, the last trial has not run."""
    study = new_study(home, "known", sweep())
    with recording(study, sweep()) as (journal, trials):
        for trial in trials if whole else trials[:-1]:
            error = ERRORS[trial.budget.amount][RATES.index(trial.point.lr)]
            finish(journal, trial, error * 10**trial.replicate)
    return study


def test_a_rung_is_judged_by_what_its_best_come_to_at_the_end(home: Home) -> None:
    curves = curves_of_study(recorded(home))
    assert curves.values.shape == (2, 4, 2, 3)
    assert curves.unit == "decades"
    assert curves.seed_sd == pytest.approx(0.5**0.5)
    early, late = skill(curves, 0), skill(curves, 1)
    assert (early.budget, early.same, early.in_half, early.in_third) == (5, 0, 1, 0)
    assert (late.budget, late.same, late.in_half, late.in_third) == (10, 1, 1, 1)
    # Of four, two go on to 10 epochs from where the rate of 5 began to fall, and one is left.
    two = halving(curves, (0, 1), 2)
    assert (two.same, two.regret) == (1, pytest.approx(0))
    assert two.cost == pytest.approx(4 * 5 / 20 + 2 * (10 - 0.8 * 5) / 20)
    three = halving(curves, (0,), 3)
    assert (three.same, three.cost) == (0, pytest.approx(1))
    assert (three.regret, three.worst) == (pytest.approx(1), pytest.approx(1))
    assert halving(curves, (), 2).cost == pytest.approx(4)


def test_it_prints_what_each_rung_and_each_ladder_come_to(home: Home) -> None:
    recorded(home)
    asked = ["rungs", "known", "--home", str(home.root)]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.output
    assert "| known | 1/2 | 100% | 100% | 100% |" in shown.output
    assert "| known | 1/4, 1/2 | 2 | 1.60 | 100% | 0 decades | 0.00 | 0.0 |" in shown.output


def test_trials_that_have_not_run_are_told_and_not_left_out(home: Home) -> None:
    recorded(home, whole=False)
    shown = CliRunner().invoke(main, ["rungs", "known", "--home", str(home.root)])
    assert shown.exit_code == 1
    assert "have not run" in shown.output
