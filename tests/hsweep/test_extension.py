"""What an inconclusive study lacks is run within its record: exactly that, and nothing twice."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_runs import status_log
from tiny_studies import finish, new_study, recording

from hsweep import grid, zipped
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import planned_row, record_trials
from hsweep.coordination.runner import InlineRunner
from hsweep.design.early_stopping import Asha
from hsweep.design.missing import Missing
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.extension import carried_over, plan_extension
from hsweep.planning.identity import describe
from hsweep.planning.plan import Plan, make_plan
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.study import StudyFolder

PRUNED = '''"""Does the error collapse?"""
from hsweep import Asha, Transition, epochs, grid
from tiny import TinyTask, tiny_sweep

SWEEP = tiny_sweep(
    name="pruned",
    space=grid(width=[1, 2, 3, 4, 5]),
    budget=epochs(9),
    replicates=3,
    early_stopping=Asha(grace=1, strata=(), min_survivors=2),
    question=Transition(x="width", by=None),
)
'''
"""One stratum for all widths: narrow ones lose although their errors are the measurement."""

DECIDED = '''"""Does the error collapse?"""
from hsweep import Recipe, Transition, epochs, grid
from tiny import tiny_sweep

SWEEP = tiny_sweep(
    name="decided",
    space=grid(width=[1, 2, 3, 4, 5]),
    recipe=Recipe(lr=0.02, batch_size=8, schedule="wsd"),
    budget=epochs(20, ladder=[10]),
    replicates=3,
    question=Transition(x="width", by=None),
)
'''

FAILING = '''"""Does the error collapse?"""
from pathlib import Path

from hsweep import Transition, grid
from tiny import TinyTask, tiny_sweep

FOLDER = {folder!r}
SWEEP = tiny_sweep(
    name="failing",
    space=grid(width=[1, 2, 3, 4]),
    task=lambda p: TinyTask(raises_at=2, raises=1, folder=FOLDER) if p.width == 2 else TinyTask(),
    max_failures=0,
    question=Transition(x="width", by=None),
)
'''

Invoke = Callable[..., Result]


def written(folder: Path, source: str) -> Path:
    path = folder / "question.py"
    path.write_text(source)
    return path


def rows_of(study: StudyFolder) -> dict[str, TrialRow]:
    with study.journal() as journal:
        return {row.key: row for row in journal.trials()}


def added(home: Home) -> Sequence[Mapping[str, Any]]:
    return StudyFolder.open(home, "mine").manifest.extensions


def reports_of(study: StudyFolder) -> dict[str, list[tuple[int | None, str]]]:
    with study.journal() as journal:
        found: dict[str, list[tuple[int | None, str]]] = {}
        for entry in journal.reports():
            found.setdefault(entry.key, []).append((entry.unit, json.dumps(entry.payload)))
        return found


class TestFromTheCommandLine:
    def test_a_study_pruned_across_widths_becomes_conclusive(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        # With its question the sweep would not be begun; asked later, its answer lacks cells.
        path = written(tmp_path, PRUNED.replace('Transition(x="width", by=None)', "None"))
        run = ("run", path, "--study", "mine", "--runner", "inline")
        assert hsweep(*run).exit_code == 0
        written(tmp_path, PRUNED)
        asked = hsweep(*run)
        assert "is open: only 2 of 5 cells" in asked.output
        study = StudyFolder.open(home, "mine")
        before, reports = rows_of(study), reports_of(study)
        done = {key for key, row in before.items() if row.status is TrialStatus.FINISHED}
        stopped = {key for key, row in before.items() if row.status is TrialStatus.STOPPED_EARLY}
        # Three seeds of every width: with one of each no seed noise would be measured.
        wanted = before.keys() - done
        assert len(done) == 2
        assert wanted == stopped

        result = hsweep(*run, "--only-missing")
        assert result.exit_code == 0, result.output
        assert "13 runs will be trained in mine" in result.output
        assert "width=2: 3 stopped early, now run to the end (too few seeds" in result.output
        assert "No collapse in width is established" in result.output
        after = rows_of(study)
        assert after.keys() == before.keys()
        assert {key for key in after if after[key].status is TrialStatus.FINISHED} == done | wanted
        for key in before.keys() - wanted:
            assert after[key] == before[key]
        for key, recorded in reports.items():
            assert reports_of(study)[key][: len(recorded)] == recorded
        for key in wanted:
            assert [unit for unit, _ in reports_of(study)[key]] == list(range(1, 10))
            assert status_log(study.paths.root, key).count("finished") == 1

        (extension,) = added(home)
        assert {entry["key"] for entry in extension["trials"]} == wanted
        assert "commit" in json.dumps(extension["provenance"])

        # Answered, it is asked whether it would survive: by a second budget of every cell.
        assert "(--only-missing trains 15 runs of 4 epochs; two budgets show how" in " ".join(
            result.output.split()
        )
        again = hsweep(*run, "--only-missing")
        assert again.exit_code == 0
        assert "together as much training as 6.67 of 9 epochs" in again.output
        assert {entry["budget"] for entry in added(home)[1]["trials"]} == {4}
        shown = hsweep("resume", "mine", "--runner", "inline", "--json")
        assert shown.exit_code == 0, shown.output
        resumed = json.loads(shown.stdout)
        assert resumed["finished"] == 30
        assert [each["budget"] for each in resumed["sensitivity"]["answers"]] == [4, 9]

    def test_the_cells_that_decide_are_trained_longer_and_no_other_cell_is(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        path = written(tmp_path, DECIDED)
        run = ("run", path, "--study", "mine", "--runner", "inline")
        first = json.loads(hsweep(*run, "--json").stdout)
        lacking = first["missing"]
        assert first["sensitivity"]["verdict"] in ("moving", "unknown")
        assert any("only-missing" in text for text in first["qualifications"])
        shown = json.loads(hsweep(*run, "--only-missing", "--dry-run", "--json").stdout)
        assert added(home) == []
        before = rows_of(StudyFolder.open(home, "mine"))

        result = hsweep(*run, "--only-missing", "--json")
        assert result.exit_code == 0, result.output
        second = json.loads(result.stdout)
        new = rows_of(StudyFolder.open(home, "mine"))
        assert {key: new.pop(key) for key in before} == before
        assert [each["key"] for each in shown["added"]["trials"]] == list(new)
        widths = {row.point["width"] for row in new.values()}
        assert widths == {each["at"]["width"] for each in lacking} < {1, 2, 3, 4, 5}
        for row in new.values():
            assert (row.budget, row.status) == (40, TrialStatus.FINISHED)
            assert (before[row.continues].budget, before[row.continues].replicate) == (
                20,
                row.replicate,
            )
        assert shown["added"]["cost"] == len(new) * (40 - 16) / 20
        # The answer rests on the same runs, and the longer ones say whether it would survive.
        for name in ("h_star", "drop", "runs"):
            assert second[name] == first[name]
        sensitivity = second["sensitivity"]
        assert sensitivity["answers"] == first["sensitivity"]["answers"]
        assert sensitivity["same"] != first["sensitivity"]["same"]
        assert second["finished"] == 30 + len(new)

    def test_failed_cells_are_tried_again(self, hsweep: Invoke, home: Home, tmp_path: Path) -> None:
        path = written(tmp_path, FAILING.format(folder=str(tmp_path)))
        run = ("run", path, "--study", "mine", "--runner", "inline")
        assert "is open: only 3 of 4 cells" in hsweep(*run).output
        result = hsweep(*run, "--only-missing", "--json")
        assert result.exit_code == 0, result.output
        content = json.loads(result.stdout)
        assert (content["finished"], content["failed"]) == (12, 0)
        assert content["verdict"] != "open"
        again, *new = content["added"]["trials"][2:5]
        assert (again["point"], again["how"]) == ({"width": 2}, "failed, tried again")
        assert {entry["how"] for entry in new} == {"with a new seed"}

    def test_one_seed_a_cell_leaves_it_open_and_names_the_command_that_tests(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        path = written(tmp_path, PRUNED.replace("    early_stopping=", "    # early_stopping="))
        run = ("run", path, "--study", "mine", "--runner", "inline", "--set", "replicates=1")
        first = hsweep(*run, "--json")
        content = json.loads(first.stdout)
        assert content["verdict"] == "open"
        assert "one seed a cell, so the noise between seeds is not measured" in content["answer"]
        assert content["settle_command"] in first.stderr
        words = shlex.split(content["settle_command"])
        assert words[:2] == ["hsweep", "run"]
        second = hsweep(*words[1:], "--runner", "inline", "--json")
        assert second.exit_code == 0, second.output
        tested = json.loads(second.stdout)
        # Three seeds in every cell decide it.
        assert (tested["verdict"], tested["finished"]) == ("none", 15)
        assert "trains 15 runs of 4 epochs" in " ".join(tested["qualifications"])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--study", "nowhere"], "no study called 'nowhere'"),
            (["--study", "mine", "--set", "width=1,2"], "was started with settings=[]"),
            (["--study", "mine", "--preset", "other"], "was started with preset='quick'"),
            (["--study", "mine", "--seed", "5"], "was started with seed=0, not 5"),
            (["--study", "mine", "--point", "width=1"], "was started with points=[]"),
            (["--study", "mine", "--storage", "/tmp/x"], "for a study that begins"),
        ],
    )
    def test_another_request_than_the_study_s_is_refused(
        self, hsweep: Invoke, home: Home, tmp_path: Path, arguments: list[str], message: str
    ) -> None:
        home.create()
        new_study(home)
        path = written(tmp_path, "from tiny import tiny_sweep\nSWEEP = tiny_sweep()\n")
        result = hsweep("run", path, "--only-missing", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr

    def test_points_that_are_named_get_more_seeds_and_no_others_do(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        path = written(tmp_path, "from tiny import tiny_sweep\nSWEEP = tiny_sweep()\n")
        name = json.loads(hsweep("run", path, "--runner", "inline", "--json").stdout)["study"]
        more = ("run", path, "--study", name, "--more-seeds", "2")
        refused = hsweep(*more)
        assert refused.exit_code == 2
        assert "--more-seeds needs the points that get them" in refused.stderr
        before = rows_of(StudyFolder.open(home, name))
        result = hsweep(*more, "--point", "width=2", "--runner", "inline", "--json")
        assert result.exit_code == 0, result.output
        new = [
            row for key, row in rows_of(StudyFolder.open(home, name)).items() if key not in before
        ]
        assert [(row.point["width"], row.status) for row in new] == [(2, TrialStatus.FINISHED)] * 2
        (extension,) = StudyFolder.open(home, name).manifest.extensions
        assert {each["how"] for each in extension["trials"]} == {"with a new seed"}

    def test_a_study_without_such_a_question_lacks_nothing(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        home.create()
        study = new_study(home)
        with recording(study) as (journal, trials):
            finish(journal, trials[0], 0.5)
        path = written(tmp_path, "from tiny import tiny_sweep\nSWEEP = tiny_sweep()\n")
        result = hsweep("run", path, "--only-missing", "--study", "mine", "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["added"] is None
        assert json.loads(result.stdout)["planned"] == 2


# --- which trials are chosen ----------------------------------------------------------------------


def planned(**changes: Any) -> Plan:
    settings: dict[str, Any] = {"space": grid(width=[1, 2, 3]), "replicates": 3} | changes
    return make_plan(tiny_sweep(**settings), preset="quick", study_seed=0)


def recorded(plan: Plan, **statuses: str) -> list[TrialRow]:
    """The record of a plan whose trials all finished, but for those named ``w1r0="failed"``."""
    return [
        replace(
            planned_row(trial),
            status=TrialStatus(statuses.get(f"w{trial.point.width}r{trial.replicate}", "finished")),
        )
        for trial in plan.trials
    ]


def chosen(plan: Plan, rows: list[TrialRow], *wanted: Missing) -> list[tuple[int, int, str]]:
    extension = plan_extension(plan, rows, wanted)
    return [
        (trial.point.width, trial.replicate, how.split(",")[0])
        for _, trial, how in extension.additions
    ]


def cell(width: float, trials: int = 2) -> Missing:
    return Missing({"width": width}, trials, "no full-budget run")


def test_interrupted_trials_come_first_then_stopped_then_failed_then_new_seeds() -> None:
    plan = planned(replicates=4)
    rows = recorded(plan, w1r0="diverged", w1r1="failed", w1r2="stopped_early", w1r3="planned")
    assert chosen(plan, rows, cell(1, 5)) == [
        (1, 3, "started"), (1, 2, "stopped early"), (1, 1, "failed"),
        (1, 4, "with a new seed"), (1, 5, "with a new seed"),
    ]  # fmt: skip


def test_the_choice_follows_the_replicates_not_the_values() -> None:
    plan = planned()
    rows = recorded(plan, w2r0="stopped_early", w2r1="stopped_early", w2r2="stopped_early")
    assert [replicate for _, replicate, _ in chosen(plan, rows, cell(2))] == [0, 1]


def test_new_values_of_an_axis_are_planned_beyond_the_space() -> None:
    plan = planned()
    extension = plan_extension(plan, recorded(plan), [cell(4), cell(5)])
    assert [(trial.point.width, how) for _, trial, how in extension.additions] == [
        (4, "new"), (4, "new"), (5, "new"), (5, "new"),
    ]  # fmt: skip
    keys = [trial.key for trial in extension.plan.trials]
    assert len(set(keys)) == len(keys) == 13
    ordinals = [trial.ordinal for trial in extension.plan.trials]
    assert ordinals == list(range(13))


def test_every_setting_that_competes_in_a_cell_gets_its_runs() -> None:
    plan = planned(space=grid(width=[1, 2], dropout=[0.0, 0.5]), replicates=2)
    rows = [
        row if row.point["width"] == 2 else replace(row, status=TrialStatus.FAILED)
        for row in recorded(plan)
    ]
    extension = plan_extension(plan, rows, [cell(1, 1)])
    assert {trial.point["dropout"] for trial in extension.trials} == {0.0, 0.5}


@pytest.mark.parametrize(
    ("space", "limits", "wanted", "message"),
    [
        (
            zipped(width=[1, 2, 3], dropout=[0.0, 0.1, 0.2]),
            {},
            cell(4),
            "has 3 points there, more than any cell",
        ),
        (
            grid(width=[1, 2, 3]).where(lambda p: p.width < 4),
            {},
            cell(4),
            "has no point there",
        ),
        (grid(width=[1, 2, 3]), {"max_params": 20}, cell(8), "num_params 48 is above"),
        (
            grid(half=[1, 2]).derive(width=lambda p: 2 * p.half),
            {},
            cell(6),
            "axis 'width' is derived from half",
        ),
    ],
)
def test_what_cannot_be_run_says_why(
    space: Any, limits: dict[str, int | None], wanted: Missing, message: str
) -> None:
    plan = planned(space=space)
    extension = plan_extension(replace(plan, limits=limits), recorded(plan), [wanted])
    assert extension.additions == ()
    assert message in extension.problems[0]


def test_an_adaptive_search_cannot_be_filled() -> None:
    from hsweep.design.search import optuna_search

    plan = planned(search=optuna_search(4))
    with pytest.raises(UserError, match="proposed one by one"):
        plan_extension(plan, [], [cell(1)])


def test_a_recorded_extension_gives_the_same_trials_again() -> None:
    plan = planned()
    extension = plan_extension(plan, recorded(plan), [cell(4), cell(2, 3)])
    entry = json.loads(json.dumps(extension.to_json()))
    rebuilt, _ = carried_over([entry], plan, describe(plan.sweep.budget))
    assert [t.key for t in rebuilt.trials] == [t.key for t in extension.plan.trials]


# --- how they are run -----------------------------------------------------------------------------


@pytest.fixture
def plan() -> Plan:
    return planned(replicates=2, early_stopping=Asha(grace=1, strata=(), min_survivors=1))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal", create=True) as journal:
        yield journal


@pytest.fixture
def run(journal: Journal, plan: Plan, tmp_path: Path) -> Callable[..., dict[str, TrialRow]]:
    """Run trials of the plan; return what the record has of all."""

    def run(**which: frozenset[str]) -> dict[str, TrialRow]:
        record_trials(journal, plan.trials)
        InlineRunner().run(
            Coordinator(
                journal=journal,
                sweep=plan.sweep,
                trials=plan.trials,
                checkpoints=str(tmp_path / "checkpoints"),
                **which,  # type: ignore[arg-type]
            )
        )
        return {row.key: replace(row) for row in journal.trials()}

    return run


def test_only_the_chosen_trials_are_handed_out_and_none_of_them_is_stopped(
    run: Callable[..., dict[str, TrialRow]], plan: Plan
) -> None:
    kept = frozenset(trial.key for trial in plan.trials if trial.point.width == 1)
    rows = run(only=kept, exempt=kept)
    assert {key for key, row in rows.items() if row.status is TrialStatus.FINISHED} == kept
    assert {row.status for row in rows.values()} == {TrialStatus.FINISHED, TrialStatus.PLANNED}
    # Going on with the rest, early stopping counts the kept ones as no contenders left.
    rest = run(exempt=kept)
    assert {row.point["width"] for row in rest.values() if row.status == "finished"} > {1}


def test_an_interrupted_extension_goes_on_unstopped(
    run: Callable[..., dict[str, TrialRow]], journal: Journal, plan: Plan
) -> None:
    weak = next(trial for trial in plan.trials if trial.point.width == 1)
    rows = run()
    assert rows[weak.key].status is TrialStatus.STOPPED_EARLY
    journal.append(journal.reopening_entries([weak.key], "asked for at its full budget"))
    after = run(exempt=frozenset({weak.key}))
    again = after.pop(weak.key)
    before = rows.pop(weak.key)
    assert (again.status, again.attempt) == (TrialStatus.FINISHED, before.attempt + 1)
    assert after == rows
