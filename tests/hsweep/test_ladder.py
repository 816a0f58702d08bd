"""A ladder of budgets: each rung is the trial that a plain budget would train, to the bit, and what
they have in common is trained once."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import TinyTask, tiny_sweep
from tiny_runs import coordinating, histories, outlook_of, planned, run_inline, units_left
from tiny_studies import manifest

from hsweep import Asha, Recipe, Sweep, epochs, grid, optuna_search, seconds, steps
from hsweep.design.budget import Budget
from hsweep.design.missing import Missing
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.extension import carried_over, plan_extension
from hsweep.planning.identity import describe
from hsweep.planning.plan import make_plan
from hsweep.record.journal import TrialRow
from hsweep.record.study import StudyFolder
from hsweep.record.summary import budgets_in_words
from hsweep.record.weights import WeightsFolder, WeightsKeeper
from hsweep.training.checkpoints import CheckpointStore

RECIPE = Recipe(lr=0.05, batch_size=8, schedule="wsd", warmup_steps=3)
LADDER = epochs(20, ladder=[5, 10])
"""Trunks of 4, 8 and 16 epochs; an epoch has 4 updates."""

SWEEP = '''"""A tiny question."""
from hsweep import Recipe, epochs, grid
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    space=grid(width=[2]),
    recipe=Recipe(lr=0.05, batch_size=8, schedule="wsd"),
    budget=epochs(5),
)
'''


@dataclass(frozen=True)
class CountingTask(TinyTask):
    """Leaves a line for every update."""

    def before_update(self, number: int) -> None:
        if torch.is_grad_enabled():  # a latency is measured too
            with (self._traces() / "updates").open("a") as file:
                file.write(f"{number}\n")
        super().before_update(number)

    def num_updates(self) -> int:
        """Return how many there were since the last time."""
        file = self._traces() / "updates"
        number = len(file.read_text().split())
        file.unlink()
        return number


def ladder(**changes: Any) -> Sweep:
    return tiny_sweep(**{"space": grid(width=[2]), "recipe": RECIPE, "budget": LADDER} | changes)


def run(sweep: Sweep, folder: Path, most: int | None = None, **parts: Any) -> list[TrialRow]:
    """Train a sweep in a folder, or so many reports more of it; return its trials."""
    with coordinating(sweep, folder, **parts) as coordinator:
        run_inline(coordinator, most)
        return coordinator.journal.trials()


def ends(rows: list[TrialRow]) -> list[tuple[int, str, int]]:
    """Budget, status and last unit of each trial."""
    return [(row.budget, str(row.status), row.unit) for row in rows]


def remarks(folder: Path) -> list[tuple[int, str]]:
    """The notes of reports, with the budgets of their trials."""
    with coordinating(ladder(), folder) as coordinator:
        budgets = {row.key: row.budget for row in coordinator.journal.trials(orphaned=True)}
        reports = coordinator.journal.noted_reports()
        return [(budgets[each.key], each.payload["note"]) for each in reports]


def test_each_rung_is_a_plain_run_to_the_bit_and_what_they_share_is_trained_once(
    tmp_path: Path,
) -> None:
    task = CountingTask(folder=str(tmp_path))
    sweep = ladder(space=grid(width=[2], dropout=[0.3]), task=task, keep="last")
    seen, updates = {}, {}
    for name, budgets in (("ladder", (LADDER,)), ("plain", LADDER.rungs)):
        root = tmp_path / name
        for budget in budgets:
            asked = replace(sweep, budget=budget)
            keeper = WeightsKeeper(
                manifest("m", asked, keep="last"), WeightsFolder(str(root / "weights"))
            )
            run(asked, root, keeper=keeper)
        weights = {each.name: load_file(each) for each in (root / "weights").iterdir()}
        seen[name], updates[name] = (histories(root), weights), task.num_updates()
    (reports, weights), (plain_reports, plain_weights) = seen["ladder"], seen["plain"]
    assert reports == plain_reports
    assert len(weights) == 3
    for name, tensors in weights.items():
        assert all(torch.equal(each, plain_weights[name][at]) for at, each in tensors.items())
    # 1 + 0.2 * (1/4 + 1/2) times the longest, instead of 1.75 times.
    assert updates == {"ladder": 4 * 23, "plain": 4 * 35}


def test_trunks_that_end_at_one_report_are_handed_on(tmp_path: Path) -> None:
    task = CountingTask(folder=str(tmp_path))
    sweep = ladder(task=task, budget=epochs(20, report_every=4, ladder=[6, 7, 8]))
    assert [trial.branch_point for trial in planned(sweep)] == [4, 4, 4, 16]
    rows = run(sweep, tmp_path / "study")
    assert [row.unit for row in rows] == [6, 7, 8, 20]
    assert task.num_updates() == 4 * (6 + 3 + 4 + 16)


def test_what_was_counted_beforehand_is_what_is_trained(tmp_path: Path) -> None:
    sweep = ladder(space=grid(width=[2, 3]), replicates=2)
    plan = make_plan(sweep, preset="quick", study_seed=0)
    assert plan.totals()["budget"] == 4 * 23
    with coordinating(sweep, tmp_path) as coordinator:
        assert units_left(outlook_of(coordinator)) == 4 * 23
        run_inline(coordinator)
        assert coordinator.table.units_done == 4 * 23
    assert plan.why_not_shared == ""
    falling = make_plan(replace(sweep, recipe=Recipe()), preset="quick", study_seed=0)
    assert falling.totals()["budget"] == 4 * (5 + 10 + 20)
    assert falling.why_not_shared.startswith("the cosine")


def test_interrupted_in_trunk_or_decay_it_goes_on_to_the_same(tmp_path: Path) -> None:
    task = CountingTask(folder=str(tmp_path))
    sweep = ladder(task=task, checkpoint_seconds=1e9)
    run(sweep, tmp_path / "calm")
    assert task.num_updates() == 4 * 23
    # In the shortest's trunk and decay, and twice in a decay of those that go on from it.
    for most in (3, 2, 9, 15):
        run(sweep, tmp_path / "cut", most)
    rows = run(sweep, tmp_path / "cut")
    assert histories(tmp_path / "cut") == histories(tmp_path / "calm")
    assert task.num_updates() == 4 * 23
    assert sum(row.attempt for row in rows) == 3 + 3
    assert [bool(row.continues) for row in rows] == [False, True, True]


@pytest.mark.parametrize(
    ("diverges_at", "expected"),
    [
        # Update 13 is in the fourth epoch, within what all have in common.
        (13, [(5, "diverged", 4), (10, "diverged", 4), (20, "diverged", 4)]),
        (18, [(5, "diverged", 5), (10, "diverged", 5), (20, "diverged", 5)]),
    ],
)
def test_what_diverges_does_so_at_every_budget(
    tmp_path: Path, diverges_at: int, expected: list[tuple[int, str, int]]
) -> None:
    task = TinyTask(diverges_at=diverges_at)
    assert ends(run(ladder(task=task), tmp_path / "ladder")) == expected
    for budget in LADDER.rungs:
        run(ladder(task=task, budget=budget), tmp_path / "plain")
    assert histories(tmp_path / "ladder") == histories(tmp_path / "plain")


def test_without_the_shorter_ones_checkpoint_it_trains_from_the_start_and_says_so(
    tmp_path: Path,
) -> None:
    run(ladder(), tmp_path / "calm")
    short, *_ = planned(ladder())
    run(ladder(), tmp_path, most=5)
    store = CheckpointStore(str(tmp_path / "checkpoints"), short.key, 9)
    assert short.branch_point == 4 in store.units()
    store.remove()
    run(ladder(), tmp_path)
    assert histories(tmp_path) == histories(tmp_path / "calm")
    # The longest has the report that says so in common with the trial that it is about.
    what = "no checkpoint of the shorter training is left: it starts again from the beginning"
    assert remarks(tmp_path) == [(10, what), (20, what)]


def test_early_stopping_takes_the_ends_of_the_shorter_budgets_for_rungs(tmp_path: Path) -> None:
    sweep = ladder(
        space=grid(width=[1, 2, 3, 4, 5]),
        early_stopping=Asha(reduction_factor=2, min_survivors=1),
    )
    rows = run(sweep, tmp_path / "whole")
    by_width = {
        width: [row for row in rows if row.point["width"] == width] for width in range(1, 6)
    }
    reached = {width: ends(found) for width, found in by_width.items()}
    gone = [(10, "not_needed", 0), (20, "not_needed", 0)]
    at_5 = {width: found[0].metrics.get("nmse") or 0 for width, found in by_width.items()}
    second, first = sorted(at_5, key=lambda width: at_5[width])[:2][::-1]
    for width, found in reached.items():
        assert found[0] == (5, "finished", 5)
        assert (found[1:] == gone) is (width not in (first, second))
    kept = {width: by_width[width][1].metrics.get("nmse") or 0 for width in (first, second)}
    best, other = sorted(kept, key=lambda width: kept[width])
    assert reached[best][1:] == [(10, "finished", 10), (20, "finished", 20)]
    assert reached[other][1:] == [(10, "finished", 10), (20, "not_needed", 0)]
    worst = max(at_5, key=lambda width: at_5[width])
    expected = "rank 5 of 5 at 5 epochs of stratum [all]; the best 2 go on"
    assert {row.reason for row in by_width[worst][1:]} == {expected}
    # Whenever it is interrupted, the same are stopped.
    for most in (12, 16, 9):
        run(sweep, tmp_path / "cut", most)
    assert ends(run(sweep, tmp_path / "cut")) == ends(rows)
    assert histories(tmp_path / "cut") == histories(tmp_path / "whole")


def test_shapes_compete_with_all_their_seeds_and_asked_for_trials_go_on(tmp_path: Path) -> None:
    sweep = ladder(
        space=grid(width=[1, 3]),
        replicates=2,
        early_stopping=Asha(reduction_factor=2, min_survivors=1, compete="points"),
    )
    trials = planned(sweep)
    exempt = trials[5]
    assert (exempt.point["width"], exempt.replicate, exempt.budget) == (1, 1, epochs(20))
    rows = run(sweep, tmp_path)
    assert [row.unit for row in rows] == [5, 0, 0, 5, 0, 0, 5, 10, 20, 5, 10, 20]
    with coordinating(sweep, tmp_path) as coordinator:
        coordinator.journal.append(
            coordinator.journal.reopening_entries([exempt.key], "asked for at its full budget")
        )
    rows = run(sweep, tmp_path, exempt=frozenset({exempt.key}))
    assert [row.unit for row in rows] == [5, 0, 0, 5, 0, 20, 5, 10, 20, 5, 10, 20]
    # It goes on from the trunk of the longest there is.
    assert rows[5].continues == rows[3].key


def test_a_cell_that_lacks_seeds_is_given_whole_ladders(tmp_path: Path) -> None:
    sweep = ladder(early_stopping=Asha(reduction_factor=2, min_survivors=1), replicates=2)
    plan = make_plan(sweep, preset="quick", study_seed=0)
    rows = run(sweep, tmp_path)
    assert sorted(row.unit for row in rows) == [0, 0, 5, 5, 10, 20]
    lost = rows[1].replicate if rows[1].unit == 0 else rows[4].replicate
    extension = plan_extension(plan, rows, [Missing({"width": 2}, 2, "too few seeds")])
    added = [
        (trial.replicate, trial.budget.amount, trial in plan.trials) for trial in extension.trials
    ]
    assert added == [
        (lost, 20, True), (lost, 10, True), (2, 5, False), (2, 10, False), (2, 20, False),
    ]  # fmt: skip
    again, _ = carried_over([extension.to_json()], plan, describe(sweep.budget))
    assert [trial.key for trial in again.trials] == [trial.key for trial in extension.plan.trials]
    with coordinating(sweep, tmp_path) as coordinator:
        journal = coordinator.journal
        lost = [row.key for row in rows if not row.unit]
        journal.append(journal.reopening_entries(lost, "asked for"))
    keys = frozenset(trial.key for trial in extension.trials)
    done = run(sweep, tmp_path, trials=extension.plan.trials, only=keys, exempt=keys)
    assert [row.unit for row in done] == [5, 10, 20] * 3


def test_seeds_are_trained_to_another_budget_once_from_the_trunk_there_is(tmp_path: Path) -> None:
    task = CountingTask(folder=str(tmp_path))
    # Early stopping knows nothing of what was asked for later.
    sweep = ladder(
        task=task, budget=epochs(20), replicates=3, early_stopping=Asha(grace=5, min_survivors=1)
    )
    plan = make_plan(sweep, preset="quick", study_seed=0)
    study = tmp_path / "study"
    rows = run(sweep, study)
    whole = [row.replicate for row in rows if row.status is TrialStatus.FINISHED]
    task.num_updates()
    entries = []

    def ask(trials: int, budget: int | None) -> tuple[float, int]:
        """Run what a cell is asked for; return what it cost, as foretold and in updates."""
        nonlocal rows, plan
        extension = plan_extension(plan, rows, [Missing({"width": 2}, trials, "", budget)])
        entries.append(extension.to_json())
        keys, plan = frozenset(trial.key for trial in extension.trials), extension.plan
        if not keys:
            return 0.0, 0
        rows = run(sweep, study, trials=plan.trials, only=keys, exempt=keys)
        return extension.cost, task.num_updates()

    # The trunk of 20 epochs ends at 16; that of 40 at 32. A shorter one begins at its start.
    assert ask(len(whole), 40) == (len(whole) * 24 / 20, 4 * 24 * len(whole))
    assert ask(1, 80) == (48 / 20, 4 * 48)
    assert ask(1, 10) == (10 / 20, 4 * 10)
    assert ask(1, 40) == (0.0, 0)
    by_budget = {row.budget: row for row in rows if row.replicate == whole[0]}
    assert by_budget[80].continues == by_budget[40].key
    assert by_budget[40].continues == by_budget[20].key
    for amount in (10, 40, 80):
        run(ladder(task=task, budget=epochs(amount), replicates=3), tmp_path / "plain")
    plain = histories(tmp_path / "plain")
    for amount in (10, 40, 80):
        assert histories(study)[by_budget[amount].key] == plain[by_budget[amount].key]
    # A further seed has every budget that others of its cell have.
    task.num_updates()
    ask(1 + sum(row.status is TrialStatus.STOPPED_EARLY for row in rows), None)
    assert sorted(row.budget for row in rows if row.replicate == 3) == [10, 20, 40, 80]
    plain_plan = make_plan(sweep, preset="quick", study_seed=0)
    again, _ = carried_over(entries, plain_plan, describe(sweep.budget))
    assert [trial.key for trial in again.trials] == [trial.key for trial in plan.trials]
    # An edited sweep keeps budgets that were asked for, and those of its own become its own of now.
    longer = make_plan(replace(sweep, budget=epochs(30)), preset="quick", study_seed=0)
    before = {"amount": 20, "unit": "epochs", "ladder": []}
    grown, carried = carried_over(entries, longer, before)
    amounts = {trial.budget.amount for trial in grown.trials}
    assert amounts == {10, 30, 40, 80}
    assert {each["budget"] for entry in carried for each in entry["trials"]} == amounts
    by_steps, _ = carried_over(
        entries, make_plan(replace(sweep, budget=steps(80)), preset="quick", study_seed=0), before
    )
    assert {trial.budget.amount for trial in by_steps.trials} == {80}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"early_stopping": Asha(decide="on_arrival")}, "rungs of a ladder are decided together"),
        ({"budget": epochs(9), "early_stopping": Asha()}, "early stopping needs rungs"),
        ({"search": optuna_search(num_points=3)}, "learns from one budget, and the ladder has 5, "),
    ],
)
def test_what_does_not_go_with_a_ladder_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ladder(**changes)


def test_a_setting_with_several_numbers_is_a_ladder() -> None:
    sweep = ladder(budget=epochs(3))
    assert sweep.with_settings([("epochs", [5, 10, 20])]).budget == LADDER
    assert ladder().with_settings([("epochs", [40])]).budget == epochs(40)
    by_steps = ladder(budget=steps(400)).with_settings([("steps", [50, 200])]).budget
    assert by_steps == Budget(200, "steps", 50, (50, 200))
    with pytest.raises(UserError, match="ladder ascends"):
        sweep.with_settings([("epochs", [10, 5])])
    with pytest.raises(UserError, match="ladder counts epochs or steps"):
        ladder(budget=seconds(60)).with_settings([("seconds", [5, 10])])


def test_a_finished_study_grows_into_a_ladder_and_others_take_its_rungs(
    tmp_path: Path, hsweep: Any, home: Home
) -> None:
    file = tmp_path / "sweep.py"
    file.write_text(SWEEP)
    rungs, quiet = ("--set", "epochs=5,10,20"), ("--runner", "inline", "--no-check")
    shown = hsweep("plan", file, *rungs)
    assert shown.exit_code == 0, shown.output
    assert " runs of 5, 10 or 20 epochs" in shown.output
    for command in (
        ("run", file, "--study", "grown"),
        ("run", file, "--study", "grown", *rungs),
        ("run", file, "--study", "whole", *rungs, "--no-reuse"),
        ("run", file, "--study", "taken", "--set", "epochs=10"),
    ):
        ran = hsweep(*command, *quiet)
        assert ran.exit_code == 0, ran.output
        assert "from the start" not in ran.output
    assert "1 of 1 trials taken from study" in ran.output
    grown, whole, taken = (histories(home.study(each).root) for each in ("grown", "whole", "taken"))
    assert grown == whole
    assert taken.items() <= whole.items()
    study = StudyFolder.open(home, "whole")
    # What a longer budget yet can go on from is all that is left.
    left = {
        path.parent.name: int(path.name[:9]) for path in Path(study.checkpoints()).rglob("*.pt")
    }
    trials, _ = study.tables()
    assert trials.column("budget").to_pylist() == [5, 10, 20]
    assert [left[key] for key in trials.column("key").to_pylist()] == [4, 8, 16]
    assert hsweep("show", "whole", "width=2 #0 at 10").exit_code == 0


def test_one_unit_is_called_by_one() -> None:
    assert [str(epochs(1)), str(epochs(2, ladder=[1, 2]))] == ["1 epoch", "1 and 2 epochs"]
    assert budgets_in_words([1, 1], "epochs") == "of 1 epoch"
    assert budgets_in_words([2, 1], "steps") == "of 1 or 2 steps"
