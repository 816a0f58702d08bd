"""Settings of a cell compete by their first seeds, and the others train at the one that won."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_runs import coordinating, outlook_of, planned, run_inline, units_left

from analysis.ask import answer_study
from analysis.compare.fit import compare_studies
from analysis.questions.pareto.result import ParetoSettings
from hsweep import (
    Asha,
    Point,
    Recipe,
    Sweep,
    Transition,
    epochs,
    grid,
    lean,
    optuna_search,
    tuned,
)
from hsweep.design.budget import Budget
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.plan import make_plan
from hsweep.record.journal import JournalReader, TrialRow
from hsweep.record.study import StudyFolder
from hsweep.running.forecast import forecast
from hsweep.running.pace import Outlook

Invoke = Callable[..., Result]
FINISHED, NOT_NEEDED = TrialStatus.FINISHED, TrialStatus.NOT_NEEDED
QUESTION = Transition(x="width", by=None, nuisance=("lr",))
RATES = (0.001, 0.01, 0.1)
WORST, MIDDLE, BEST = RATES
"""The tiny task learns the quicker the higher the rate is, of these."""
SIX = epochs(6)


def recipe(point: Point) -> Recipe:
    return Recipe(lr=point.lr, batch_size=8, schedule="wsd")


def sweep(budget: Budget = SIX, stopping: Asha | None = None, **parts: Any) -> Sweep:
    found = tiny_sweep(
        space=grid(width=[2, 3]) * grid(lr=list(RATES)),
        recipe=recipe,
        budget=budget,
        replicates=3,
        question=QUESTION,
        early_stopping=stopping or Asha(scouts=1, reduction_factor=2),
    )
    return replace(found, **parts)


@dataclass
class Denominators:
    """Of how many runs each was told to be one."""

    outlook: Outlook
    found: set[int] = field(default_factory=set)

    def started(self, *_: object) -> None:
        self.found.add(self.outlook.num_runs)

    def reported(self, *_: object) -> None: ...

    def ended(self, _trial: object, status: TrialStatus, _reason: str) -> None:
        if status is not NOT_NEEDED:
            self.found.add(self.outlook.num_runs)


def run(asked: Sweep, folder: Path, most_reports: int | None = None) -> None:
    with coordinating(asked, folder) as coordinator:
        run_inline(coordinator, most_reports)


def rows(folder: Path) -> list[TrialRow]:
    with JournalReader(folder / "journal") as journal:
        return list(journal.trials())


def ended(folder: Path) -> dict[tuple[int, float, int, int], TrialStatus]:
    """By width, rate, seed and budget."""
    return {
        (row.point["width"], row.point["lr"], row.replicate, row.budget): row.status
        for row in rows(folder)
    }


def test_without_rungs_the_ends_of_the_scouts_choose(tmp_path: Path) -> None:
    run(sweep(), tmp_path)
    for (_, lr, seed, _), status in ended(tmp_path).items():
        # A scout trains to the end, and another seed at the best rate alone.
        assert status is (FINISHED if seed == 0 or lr == BEST else NOT_NEEDED)
    reasons = {row.reason for row in rows(tmp_path) if row.point["lr"] == WORST and row.replicate}
    assert reasons == {"rank 3 of 3 at the end; the best goes on"}
    # What was never started cost nothing.
    assert all(not row.unit for row in rows(tmp_path) if row.status is NOT_NEEDED)


def test_a_rung_that_leaves_one_ends_its_scout_too(tmp_path: Path) -> None:
    stopping = Asha(grace=2, reduction_factor=3, scouts=1, min_survivors=1)
    run(sweep(stopping=stopping), tmp_path)
    found = {(row.point["lr"], row.replicate): row for row in rows(tmp_path)}
    assert {at for at, row in found.items() if row.status is FINISHED} == {(BEST, 1), (BEST, 2)}
    assert found[BEST, 0].unit == 2
    assert found[BEST, 0].reason.startswith("the best of 3 at rung 2")


def test_on_a_ladder_the_shorter_budgets_choose(tmp_path: Path) -> None:
    ladder, stopping = epochs(8, ladder=[2, 4]), Asha(scouts=1, min_survivors=1)
    for grace, first in ((None, 4), (2, 2)):
        folder = tmp_path / str(grace)
        run(sweep(ladder, replace(stopping, grace=grace)), folder)
        for (_, lr, seed, budget), status in ended(folder).items():
            # Three compete at half of the longest budget or at the one that is named, and one goes
            # on: the scouts end there.
            is_trained = budget <= first if seed == 0 else lr == BEST
            assert status is (FINISHED if is_trained else NOT_NEEDED)


def test_the_end_chooses_between_the_two_best(tmp_path: Path) -> None:
    run(sweep(epochs(8, ladder=[4])), tmp_path)
    for (_, lr, seed, budget), status in ended(tmp_path).items():
        is_trained = (lr != WORST or budget == 4) if seed == 0 else lr == BEST
        assert status is (FINISHED if is_trained else NOT_NEEDED)


@pytest.mark.parametrize(
    ("budget", "stopping"),
    [
        (SIX, Asha(scouts=1, reduction_factor=2)),
        (SIX, Asha(scouts=2, grace=2, reduction_factor=3)),
        (epochs(8, ladder=[2, 4]), Asha(scouts=1, reduction_factor=2)),
        (epochs(8, ladder=[2, 4]), Asha(reduction_factor=2, min_survivors=1)),
        (SIX, Asha(grace=2, reduction_factor=2, strata=("width",), compete="points")),
        (SIX, Asha(grace=1, reduction_factor=2, min_survivors=2)),
    ],
)
def test_what_the_plan_says_of_early_stopping_is_what_is_trained(
    tmp_path: Path, home: Home, budget: Budget, stopping: Asha
) -> None:
    asked = sweep(budget, stopping)
    expected = forecast(make_plan(asked, preset="quick", study_seed=0), home)
    with coordinating(asked, tmp_path) as coordinator:
        outlook = outlook_of(coordinator)
        told = Denominators(outlook)
        coordinator.observer = told
        left, runs = units_left(outlook), outlook.num_runs
        run_inline(coordinator)
        assert coordinator.table.units_done == expected.units == left
    assert sum(row.attempt > 0 for row in rows(tmp_path)) == expected.runs == runs
    # What is never started is in no denominator, at no time, and is not called stopped.
    assert told.found == {runs}
    for row in rows(tmp_path):
        assert (row.status is NOT_NEEDED) is (row.attempt == 0)


def test_a_study_that_is_interrupted_between_chooses_the_same(tmp_path: Path) -> None:
    asked = sweep(stopping=Asha(grace=2, reduction_factor=2, scouts=1))
    run(asked, tmp_path / "whole")
    for number in (1, 5, 10):
        folder = tmp_path / str(number)
        run(asked, folder, most_reports=number)
        run(asked, folder)
        assert ended(folder) == ended(tmp_path / "whole")


def test_a_setting_whose_scout_diverged_is_not_confirmed(tmp_path: Path) -> None:
    def diverging(point: Point) -> Recipe:
        return replace(recipe(point), lr=1e30 if point.lr == BEST else point.lr)

    run(sweep(recipe=diverging), tmp_path)
    found = {(row.point["lr"], row.replicate): row for row in rows(tmp_path)}
    assert found[BEST, 0].status is TrialStatus.DIVERGED
    assert found[BEST, 1].status is NOT_NEEDED
    assert found[MIDDLE, 1].status is found[MIDDLE, 2].status is FINISHED


def test_an_axis_to_be_tuned_is_tuned_by_scouts() -> None:
    asked = tiny_sweep(
        space=grid(width=[2, 3]) * grid(lr=tuned(1e-3, 1e-1, per_decade=1)),
        recipe=recipe,
        replicates=3,
        question=Transition(x="width", by=None),
    )
    assert {trial.stratum for trial in planned(asked)} == {"width=2", "width=3"}
    assert asked.with_tuned_axes().early_stopping == Asha(scouts=1, reduction_factor=2)
    shapes = replace(asked, question=lean({"width": 3}, margin=0.1), replicates=4)
    assert shapes.with_tuned_axes().early_stopping == Asha(scouts=2, reduction_factor=2)
    fewer = replace(shapes, replicates=3)
    assert fewer.with_tuned_axes().early_stopping == Asha(scouts=1, reduction_factor=2)
    own = replace(asked, early_stopping=Asha(grace=1, strata=("width",), compete="points"))
    assert own.with_tuned_axes().early_stopping == own.early_stopping
    assert replace(asked, replicates=1).with_tuned_axes().early_stopping is None


SWEEP_FILE = '''"""Which width is enough, each at its own rate?"""
from hsweep import Recipe, Transition, epochs, grid, tuned
from tiny import TinyTask, tiny_sweep

SWEEP = tiny_sweep(
    name="scouted",
    space=grid(width=[1, 2, 3, 4, 5, 6], lr=tuned(0.01, 0.1, per_decade=1)),
    task=TinyTask(dim=4),
    recipe=lambda point: Recipe(lr=point.lr, batch_size=8, schedule="wsd"),
    budget=epochs(20, ladder=[5, 10]),
    replicates=4,
    question=Transition("width", None),
)
'''


def test_seeds_that_chose_do_not_count_in_the_answer_nor_at_any_budget(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP_FILE)
    run = ("run", tmp_path / "sweep.py", "--runner", "inline")
    ran = hsweep(*run, "--study", "tuned")
    assert ran.exit_code == 0
    # Of six widths two rates compete by a scout, to the end; three seeds train at one.
    size = "6 cells x 3 seeds, each at its best of 2 learning rates: 90 runs"
    assert f"study tuned: {size} of 5, 10 or 20 epochs" in ran.output
    assert "[90/90]" in ran.output
    assert "90 runs in " in ran.output
    assert "s: 90 finished\n" in ran.output
    assert not re.search("stopped early|never started|/144", ran.output)
    planned = hsweep("plan", tmp_path / "sweep.py").output
    assert size in planned
    assert "the settings of each cell compete by 1 scout each" in planned
    study = StudyFolder.open(home, "tuned")
    assert study.manifest.scouts == 1
    answer = answer_study(study).to_json()
    assert {each["replicate"] for each in answer["runs"]} == {"1", "2", "3"}
    chosen = [each["setting"] for each in answer["counts"]]
    assert [(each["tried"], each["unstarted"]) for each in chosen] == [(2, 1)] * 6
    told = "The lr of 6 of 6 cells was chosen by seeds of their own, which are not counted."
    assert told in answer["qualifications"]
    # The smallest of two is an edge as well as the largest.
    assert any("is the smallest or largest tried" in each for each in answer["qualifications"])
    sensitivity = answer["sensitivity"]
    assert [(each["budget"], each["runs"]) for each in sensitivity["answers"]] == [
        (5, 18),
        (10, 18),
        (20, 18),
    ]
    assert "stopped early" not in sensitivity["reason"]
    # One rate needs no scouts, and all its seeds count.
    fixed = (*run, "--study", "fixed", "--set", "lr=0.1", "--set", "replicates=2")
    assert hsweep(*fixed, "--set", "epochs=10").exit_code == 0
    other = StudyFolder.open(home, "fixed")
    assert other.manifest.scouts == 0
    # Of both what was trained to 10 epochs, and of the tuned one at the rates that won.
    beside = compare_studies([study, other], settings=ParetoSettings(draws=20))
    assert [(each.budget, each.trials, each.finished) for each in beside.studies] == [
        ("10 epochs", 18, 18),
        ("10 epochs", 12, 12),
    ]
    told = "tuned was trained to 20 epochs too; it is compared at 10 epochs"
    assert [told in each for each in beside.warnings] == [True]
    scouts = "seed 0 of each setting is a scout: only to choose among the settings"
    others = "54 further runs were planned and not needed"
    # On the page, terms are links to their meanings.
    page = re.sub("</?a[^>]*>", "", study.paths.report.read_text())
    for shown in (page, hsweep("show", "tuned").output):
        for text in (size, scouts, others):
            assert text in " ".join(shown.lower().split())
    assert "scout 0" in hsweep("show", "tuned").output


class TestWhatCannotBe:
    @pytest.mark.parametrize(
        ("parts", "why"),
        [
            ({"replicates": 1}, "scouts=1 of 1 replicates leave none that has not helped"),
            ({"question": Transition(x="width", by=None)}, "the question names none"),
            ({"search": optuna_search(4)}, "an optuna search proposes them one by one"),
        ],
    )
    def test_of_a_sweep(self, parts: dict[str, Any], why: str) -> None:
        with pytest.raises(UserError, match=why):
            sweep(**parts)

    def test_of_early_stopping(self) -> None:
        with pytest.raises(UserError, match="scouts=1 goes without strata and decide"):
            Asha(scouts=1, strata=("width",))
        with pytest.raises(UserError, match="scouts=1 goes without strata and decide"):
            Asha(scouts=1, decide="on_arrival")
        with pytest.raises(UserError, match="scouts must be a whole number of at least 1, not 0"):
            Asha(scouts=0)
