"""What Optuna proposes and is told, across stops, divergence and interruptions."""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from optuna.samplers import GridSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from runner_contract import StopAt
from tiny import TinyTask
from tiny_runs import histories, outlook_of, statuses, units_left
from tiny_searches import SPACE, adaptive, searching

from hsweep import Asha, Recipe, Sweep, choice, epochs, grid, int_range, lean, optuna_search
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.coordination.search import OptunaProposer
from hsweep.design.trial import Report, TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.plan import Plan, Planner, make_plan
from hsweep.record.journal import Journal, JournalReader
from hsweep.record.summary import SEARCH_END
from models.conditioning import Conditioning


def told(coordinator: Coordinator) -> list[FrozenTrial]:
    proposer = coordinator.proposer
    assert isinstance(proposer, OptunaProposer)
    trials: list[FrozenTrial] = proposer.study.trials
    return trials


def points(folder: Path) -> list[Any]:
    with JournalReader(folder / "journal") as journal:
        return [(dict(row.point), row.replicate) for row in journal.trials()]


def test_exactly_so_many_points_are_proposed_recorded_and_told(tmp_path: Path) -> None:
    with searching(adaptive(6), tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert coordinator.stop_reason is None
        optuna_trials = told(coordinator)
        rows = coordinator.journal.trials()
        recorded = coordinator.journal.metas("proposal:")
    assert len(rows) == len(recorded) == 6
    assert {row.status for row in rows} == {TrialStatus.FINISHED}
    complete = [trial for trial in optuna_trials if trial.state is TrialState.COMPLETE]
    assert [trial.value for trial in complete] == [row.metrics.get("nmse") for row in rows]
    assert [trial.params["width"] for trial in complete] == [row.point["width"] for row in rows]
    assert not [trial for trial in optuna_trials if trial.state is TrialState.RUNNING]


def test_a_point_is_told_once_by_the_mean_over_its_replicates(tmp_path: Path) -> None:
    with searching(adaptive(3, replicates=3), tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        complete = [t for t in told(coordinator) if t.state is TrialState.COMPLETE]
        rows = coordinator.journal.trials()
    assert [row.replicate for row in rows] == [0, 1, 2] * 3
    values = [row.metrics.get("nmse") for row in rows if row.metrics.get("nmse") is not None]
    assert [trial.value for trial in complete] == pytest.approx(
        [statistics.fmean(values[i : i + 3]) for i in (0, 3, 6)], rel=1e-12
    )


def test_a_trial_stopped_early_is_told_as_pruned_at_its_rung(tmp_path: Path) -> None:
    sweep = adaptive(
        12, budget=epochs(6), early_stopping=Asha(grace=2, reduction_factor=2, min_survivors=1)
    )
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        states = [trial for trial in told(coordinator) if trial.state is not TrialState.FAIL]
        rows = coordinator.journal.trials()
    assert len(states) == len(rows) == 12
    stopped = [row.status is TrialStatus.STOPPED_EARLY for row in rows]
    assert any(stopped)
    assert not all(stopped)
    for trial, row in zip(states, rows, strict=True):
        if row.status is TrialStatus.STOPPED_EARLY:
            assert trial.state is TrialState.PRUNED
            assert trial.intermediate_values == {row.unit: row.metrics.get("nmse")}
        else:
            assert trial.state is TrialState.COMPLETE


def test_a_diverged_trial_is_told_as_failed_and_none_is_left_running(tmp_path: Path) -> None:
    sweep = adaptive(
        6, task=lambda point: TinyTask(diverges_at=6 if point.width % 2 else None), replicates=2
    )
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        states = told(coordinator)
        rows = coordinator.journal.trials()
    odd = [row for row in rows if row.point["width"] % 2]
    assert 0 < len(odd) < len(rows)
    assert {row.status for row in odd} == {TrialStatus.DIVERGED}
    assert len(rows) == 12
    for trial in states:
        expected = TrialState.FAIL if trial.params["width"] % 2 else TrialState.COMPLETE
        assert trial.state is expected
        assert trial.value is None or math.isfinite(trial.value)


def test_an_objective_that_was_not_measured_is_told_as_failed(tmp_path: Path) -> None:
    # The tiny models have no attention, so a probe finds nothing to measure.
    sweep = adaptive(2, also=(("condition_number", "min"),), probe=Conditioning())
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert not coordinator.is_in_trouble
        states = [trial.state for trial in told(coordinator)]
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
    assert states == [TrialState.FAIL] * 2


def test_a_space_without_further_points_ends_the_search_and_the_record_says_why(
    tmp_path: Path,
) -> None:
    space = int_range(width=(1, 9)).where(lambda point: point.width != 2)
    sweep = adaptive(30, space=space, recipe=Recipe(), replicates=2)
    with searching(sweep, tmp_path) as coordinator:
        assert coordinator.num_to_come == 60
        assert units_left(outlook_of(coordinator)) == 60 * 3
        InlineRunner().run(coordinator)
        assert coordinator.stop_reason is None
        assert len(coordinator.journal.trials()) == 16
        assert coordinator.num_to_come == units_left(outlook_of(coordinator)) == 0
        said = coordinator.journal.meta(SEARCH_END) or ""
    assert said == (
        "the search ended with 8 of 30 points: no other was found; widen the space, or lower "
        "num_points"
    )
    # A longer search over a wider space goes on.
    with searching(replace(sweep, search=optuna_search(8)), tmp_path) as coordinator:
        assert coordinator.journal.meta(SEARCH_END) is None


def test_the_end_of_a_search_is_said_wherever_outcomes_are(
    hsweep: Callable[..., Result], home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "question.py"
    path.write_text(
        "from tiny import tiny_sweep\nfrom hsweep import int_range, optuna_search\n"
        "SWEEP = tiny_sweep(space=int_range(width=(1, 2)), search=optuna_search(5))\n"
    )
    end = "the search ended with 2 of 5 points: no other was found"
    ended = hsweep("run", path, "--runner", "inline")
    assert ended.exit_code == 0, ended.output
    assert "[1/5]" in ended.stdout
    assert end in ended.stdout
    assert end in hsweep("show", "tiny-quick").stdout
    assert json.loads(hsweep("show", "tiny-quick", "--json").stdout)["search_end"].startswith(end)
    assert end in home.study("tiny-quick").report.read_text()


def test_impossible_points_are_told_as_failed_and_do_not_count(tmp_path: Path) -> None:
    sweep = adaptive(5, space=SPACE * choice(heads=[1, 4]))
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        failed = [trial for trial in told(coordinator) if trial.state is TrialState.FAIL]
        assert len(coordinator.journal.trials()) == 5
    assert failed
    for trial in failed:
        assert trial.params["width"] % 4


def test_a_space_smaller_than_the_search_ends_when_it_is_used_up(tmp_path: Path) -> None:
    sweep = adaptive(9, space=int_range(width=(1, 3)), recipe=Recipe(lr=0.05, batch_size=8))
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert coordinator.stop_reason is None
    assert sorted(point["width"] for point, _ in points(tmp_path)) == [1, 2, 3]


@pytest.mark.parametrize("num_reports", [1, 2, 5, 8])
def test_a_resumed_search_knows_the_earlier_points_and_proposes_so_many_in_all(
    tmp_path: Path, num_reports: int
) -> None:
    sweep = adaptive(5, replicates=2)
    stop = StopAt(num_reports)
    with searching(sweep, tmp_path, observer=stop) as coordinator:
        stop.coordinator = coordinator
        InlineRunner().run(coordinator)
    before = points(tmp_path)
    finished = {key for key, status in statuses(tmp_path).items() if status.is_final}
    with searching(sweep, tmp_path) as coordinator:
        known = told(coordinator)
        assert len(known) == len(before) // 2
        assert [trial.params["width"] for trial in known] == [
            point["width"] for point, replicate in before if replicate == 0
        ]
        # A point whose two replicates have ended is known with its value, others are open.
        assert sum(trial.state is TrialState.COMPLETE for trial in known) == len(finished) // 2
        InlineRunner().run(coordinator)
        assert sum(trial.state is TrialState.COMPLETE for trial in told(coordinator)) == 5
    after = points(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == 10
    assert len({repr(each) for each in after}) == 10
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
    for history in histories(tmp_path).values():
        assert [unit for unit, _, _ in history] == [1, 2, 3]


@pytest.mark.parametrize("num_reports", [1, 4])
def test_a_search_proposes_the_baseline_of_a_lean_question_first_and_once(
    tmp_path: Path, num_reports: int
) -> None:
    sweep = adaptive(
        4,
        space=int_range(width=(1, 40)),
        recipe=Recipe(lr=0.05, batch_size=8),
        question=lean({"width": 40}, margin=0.1),
    )
    stop = StopAt(num_reports)
    with searching(sweep, tmp_path, observer=stop) as coordinator:
        stop.coordinator = coordinator
        InlineRunner().run(coordinator)
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        proposed = [trial.params["width"] for trial in told(coordinator)]
    widths = [point["width"] for point, _ in points(tmp_path)]
    assert (len(widths), widths[0], proposed[0], proposed.count(40)) == (4, 40, 40, 1)


def test_a_driver_killed_between_proposal_and_start_does_not_lose_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = adaptive(3)
    with searching(sweep, tmp_path) as coordinator, monkeypatch.context() as patch:
        # The driver dies before the proposal's trials are on record.
        patch.setattr("hsweep.coordination.search.record_trials", lambda *_: None)
        assert coordinator.proposer is not None
        (proposed,) = coordinator.proposer.propose()
    assert points(tmp_path) == []
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert proposed.key in {row.key for row in coordinator.journal.trials()}
        assert len(coordinator.journal.trials()) == 3


def test_several_objectives_are_told_together(tmp_path: Path) -> None:
    sweep = adaptive(5, also=(("num_params", "min"), ("fit", "max")), replicates=2)
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert coordinator.stop_reason is None
        complete = [t for t in told(coordinator) if t.state is TrialState.COMPLETE]
        rows = coordinator.journal.trials()
    assert len(complete) == 5
    for number, trial in enumerate(complete):
        nmse, params, fit = trial.values
        pair = rows[2 * number : 2 * number + 2]
        assert nmse == pytest.approx(
            statistics.fmean(row.metrics.get("nmse") or 0.0 for row in pair)
        )
        assert params == pair[0].counts["num_params"]
        assert fit == pytest.approx(
            statistics.fmean(histories(tmp_path)[row.key][-1][2]["fit"] or 0.0 for row in pair)
        )


def test_several_objectives_and_early_stopping_do_not_go_together() -> None:
    with pytest.raises(UserError, match="several objectives cannot stop trials early"):
        adaptive(5, also=(("num_params", "min"),), early_stopping=Asha(grace=1))


OF_USER = TPESampler(seed=3, multivariate=False, n_startup_trials=4)
BOUND = ("num_params", "<=", 130)


def bounded(num_points: int = 40, **search: Any) -> Sweep:
    """A search of which the bound excludes the wider half of the points."""
    found = optuna_search(num_points, constraint=BOUND, **search)
    return adaptive(search=found, budget=epochs(1))


def end(coordinator: Coordinator, assignment: Any) -> None:
    point = assignment.trial.point
    value = (point["width"] - 30) ** 2 / 100 + (math.log10(point["lr"]) + 2) ** 2
    metrics = {"nmse": value, "fit": 1 - value}
    coordinator.report(assignment, Report(1, 1, metrics, 0.1, is_last=True))


def train_by_two(coordinator: Coordinator, num_points: int) -> None:
    """Train points, two at once, of which the later one ends first."""
    for _ in range(num_points // 2):
        pair = [coordinator.next_assignment(), coordinator.next_assignment()]
        for assignment in reversed(pair):
            end(coordinator, assignment)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gp", marks=pytest.mark.slow),
        pytest.param("cmaes", marks=pytest.mark.skipif(not find_spec("cmaes"), reason="no cmaes")),
        *("tpe", "nsga2", "object"),
    ],
)
def test_a_search_that_was_killed_goes_on_with_the_proposals_of_one_that_was_not(
    tmp_path: Path, name: str
) -> None:
    sweep = bounded(sampler=OF_USER if name == "object" else name)
    with searching(sweep, tmp_path / "whole") as coordinator:
        train_by_two(coordinator, 16)
    with searching(sweep, tmp_path / "killed") as coordinator:
        train_by_two(coordinator, 12)
        coordinator.next_assignment()
        end(coordinator, coordinator.next_assignment())
    with searching(sweep, tmp_path / "killed") as coordinator:
        end(coordinator, coordinator.next_assignment())
        train_by_two(coordinator, 2)
    assert points(tmp_path / "killed") == points(tmp_path / "whole")


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_what_lies_beyond_the_constraint_is_not_trained_and_told_with_its_excess(
    tmp_path: Path, name: str
) -> None:
    with searching(bounded(sampler=name), tmp_path) as coordinator:
        train_by_two(coordinator, 10)
        rows, trials = coordinator.journal.trials(), told(coordinator)
    assert max(row.counts["num_params"] for row in rows) <= BOUND[2]
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    excesses = {trial.params["width"]: trial.constraints["excess"] for trial in trials}
    assert max(excesses.values()) > 0
    assert {width: excess + BOUND[2] for width, excess in excesses.items()} == {
        width: width * (rows[0].counts["num_params"] / rows[0].point["width"]) for width in excesses
    }


def test_a_search_starts_from_what_another_study_has_finished(
    hsweep: Callable[..., Result], home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "question.py"

    def write(search: str, **changes: str) -> None:
        values = {"space": "grid(width=[1, 2, 4, 8])", "replicates": "2", **changes}
        path.write_text(
            "from tiny import tiny_sweep\nfrom hsweep import epochs, grid, optuna_search\n"
            f"SWEEP = tiny_sweep(search={search}, "
            + ", ".join(f"{name}={value}" for name, value in values.items())
            + ")\n"
        )

    def run(name: str) -> Result:
        return hsweep("run", path, "--runner", "inline", "--study", name)

    write("optuna_search(4)")
    assert run("first").exit_code == 0
    started = "optuna_search(1, start_from='first')"
    for changes, says in (
        ({"budget": "epochs(2)"}, "none of its finished trials has the budget 2 epochs"),
        ({"space": "grid(width=[3, 5])"}, "lies in its space"),
        ({"metric": "'fit'", "goal": "'max'"}, "here they are fit, max and epochs"),
    ):
        write(started, **changes)
        refused = run("second")
        assert refused.exit_code == 2
        assert says in refused.output
        assert not home.study("second").root.exists()
    write(started, space="grid(width=[2, 4, 16])")
    assert run("second").exit_code == 0
    with JournalReader(home.study("second").journal) as journal:
        known = json.loads(journal.meta("earlier:first") or "")
    with JournalReader(home.study("first").journal) as journal:
        values = {
            width: statistics.fmean(
                row.metrics["nmse"] or 0.0
                for row in journal.trials()
                if row.point["width"] == width
            )
            for width in (2, 4)
        }
    assert {each["point"]["width"]: each["values"] for each in known} == {
        width: [value] for width, value in values.items()
    }


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_a_sampler_is_told_of_earlier_results_as_completed(tmp_path: Path, name: str) -> None:
    sweep = bounded(sampler=name, start_from="first")
    results = [
        {"point": {"width": width, "lr": 0.01}, "values": [float(width)], "excess": width - 20.0}
        for width in (10, 30)
    ]
    with Journal(tmp_path / "journal", create=True) as journal:
        journal.set_meta("earlier:first", json.dumps(results))
        planner = Planner(Plan(sweep, "base", 0))
        proposer = OptunaProposer(sweep, planner, journal, seed=0, home=Home(tmp_path))
    assert [
        (t.state, t.params["width"], t.value, t.constraints) for t in proposer.study.trials
    ] == [
        (TrialState.COMPLETE, 10, 10.0, {"excess": -10.0}),
        (TrialState.COMPLETE, 30, 30.0, {"excess": 10.0}),
    ]


@pytest.mark.parametrize(
    ("search", "says"),
    [
        ({"sampler": "bayes"}, "sampler must be 'tpe', 'gp', 'nsga2', 'cmaes' or one of Optuna's"),
        ({"sampler": RandomSampler()}, "RandomSampler proposes other points each time"),
        ({"sampler": GridSampler({"x": [1]}, seed=0)}, "Optuna cannot search this space: "),
        ({"sampler": "cmaes"}, r"needs a package: pip install cmaes"),
        ({"constraint": ("params", "<=", 3)}, "constraint must be one of num_params, "),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_when_it_is_planned(
    search: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks_package(seed: int) -> None:
        raise ImportError("No module named 'cmaes'")

    monkeypatch.setattr("optuna.samplers.CmaEsSampler", lacks_package)
    with pytest.raises(UserError, match=says):
        make_plan(adaptive(search=optuna_search(3, **search)), preset="quick", study_seed=0)


def test_where_the_sampler_finds_nothing_new_points_are_drawn(tmp_path: Path) -> None:
    space = grid(width=list(range(1, 31)))
    always_one = GridSampler({"width": [0]}, seed=0)
    sweep = adaptive(space=space, recipe=Recipe(), search=optuna_search(30, sampler=always_one))
    with searching(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
    assert sorted(point["width"] for point, _ in points(tmp_path)) == list(range(1, 31))
