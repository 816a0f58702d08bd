"""A study goes on with an edited sweep: nothing that still holds is trained again, nothing is lost,
and what happens is said before it does."""

import errno
import io
import json
import os
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import Result
from tiny_runs import History, histories, run_inline
from tiny_studies import put_on_record

from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import record_trials
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.code import SWEEP_FILE
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import loaded_sweep, own_sweep, prepare, recorded_options
from hsweep.record.journal import TrialRow
from hsweep.record.lease import holding
from hsweep.record.study import StudyFolder
from hsweep.running.change import Change, edit, resume
from hsweep.running.manifests import new_manifest
from hsweep.running.options import RunOptions
from hsweep.tracking.target import TrackingTarget, tracking_target
from hsweep.user_packages import add_user_packages, default_folders

SWEEP = '''"""A tiny question."""
from dataclasses import dataclass

from hsweep import Asha, Recipe, Transition, epochs, grid, optuna_search, steps
from tiny import TinyModel, TinyTask, tiny_sweep


@dataclass(frozen=True)
class OwnModel(TinyModel):
    """Defined in the sweep file itself."""

    def build(self):
        module = super().build()
        # HERE
        return module


SWEEP = tiny_sweep(
    space=grid(width=[1, 2, 3], dropout=[0.2]),
    model=lambda p: OwnModel(p.width, dropout=p.dropout),
    recipe=Recipe(lr=0.05, batch_size=8, schedule="constant"),
    checkpoint_seconds=0.0,
)
'''
WSD = SWEEP.replace('"constant"', '"wsd"')
COSINE = SWEEP.replace('"constant"', '"cosine"')
PRUNED = SWEEP.replace("[1, 2, 3]", "[1, 2, 3, 4, 5, 6]").replace(
    "checkpoint_seconds=0.0,",
    "checkpoint_seconds=0.0, early_stopping=Asha(grace=1, min_survivors=1), replicates=2,",
)

Invoke = Callable[..., Result]


class Bench:
    """Studies that are begun, edited and run without a tracker."""

    def __init__(self, home: Home, folder: Path, finished: dict[Any, bytes] | None = None) -> None:
        self.home, self.folder = home, folder
        self.finished = {} if finished is None else finished
        self.target: TrackingTarget = tracking_target(None, home, "tiny")

    def file(self, source: str, name: str = "question.py") -> Path:
        path = self.folder / name
        path.write_text(source)
        return path

    def begin(self, source: str, name: str = "mine", **settings: Any) -> StudyFolder:
        chosen = SweepOptions(settings=[(n, [v]) for n, v in settings.items()])
        prepared = prepare(self.file(source), chosen)
        manifest = new_manifest(name, prepared, self.target)
        self.home.create()
        return StudyFolder.create(
            self.home, manifest, sweep_source=source, plan=prepared.plan.to_json()
        )

    def plan_edit(
        self,
        study: StudyFolder,
        source: str | None = None,
        *,
        accept: bool = False,
        **settings: int,
    ) -> Change:
        """Plan it with these settings besides those that the study has."""
        path = study.sweep_file() if source is None else self.file(source, "edited.py")
        chosen = recorded_options(study.manifest)
        merged = dict(chosen.settings) | {name: [value] for name, value in settings.items()}
        options = replace(chosen, settings=list(merged.items()))
        return edit(study, loaded_sweep(path), options, self.target, RunOptions(accept_code=accept))

    def edit(self, study: StudyFolder, source: str | None = None, **settings: Any) -> Change:
        change = self.plan_edit(study, source, **settings)
        self.take_over(study, change)
        return change

    def take_over(self, study: StudyFolder, change: Change) -> None:
        with study.writer() as journal:
            change.take_over(study, journal)

    def plan(self, study: StudyFolder) -> Plan:
        """Plan what the study is by its own record."""
        return resume(study, own_sweep(study), self.target, RunOptions()).prepared.plan

    def run(self, study: StudyFolder, most: int | None = None) -> None:
        """Train everything that is left, or so many reports of it."""
        plan = self.plan(study)
        with study.writer() as journal:
            record_trials(journal, plan.trials)
            coordinator = Coordinator(
                journal=journal,
                sweep=plan.sweep,
                trials=plan.trials,
                checkpoints=study.checkpoints(),
                exempt=study.manifest.added_keys,
            )
            run_inline(coordinator, most)
            coordinator.settle()

    def ran(self, source: str, name: str = "mine", **settings: Any) -> StudyFolder:
        """Return a finished study, trained once for all tests that ask for the same."""
        kind = source, name, *settings.items()
        if kind not in self.finished:
            study = self.begin(source, name, **settings)
            self.run(study)
            packed = shutil.make_archive(str(self.folder / "packed"), "tar", study.paths.root)
            self.finished[kind] = Path(packed).read_bytes()
            return study
        self.file(source)
        with tarfile.open(fileobj=io.BytesIO(self.finished[kind])) as archive:
            archive.extractall(self.home.create().study(name).root, filter="fully_trusted")
        return StudyFolder.open(self.home, name)


@pytest.fixture(scope="module")
def finished() -> dict[Any, bytes]:
    """Archives of finished studies, by what they are."""
    return {}


@pytest.fixture
def bench(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: dict[Any, bytes]
) -> Bench:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Bench(home, tmp_path, finished)


def rows_of(study: StudyFolder) -> dict[str, TrialRow]:
    with study.journal() as journal:
        return {row.key: row for row in journal.trials(orphaned=True)}


def present(study: StudyFolder) -> dict[Any, str]:
    """The status of each trial that is part of the study, by its width."""
    return {
        row.point["width"]: str(row.status) for row in rows_of(study).values() if not row.orphaned
    }


def orphans(study: StudyFolder) -> dict[Any, str]:
    return {row.point["width"]: row.orphaned for row in rows_of(study).values() if row.orphaned}


def attempts(study: StudyFolder) -> dict[str, int]:
    return {row.key: row.attempt for row in rows_of(study).values()}


def trained(study: StudyFolder) -> dict[str, History]:
    """The reports of the trials that are part of the study."""
    return {
        key: history
        for key, history in histories(study.paths.root).items()
        if not rows_of(study)[key].orphaned
    }


class TestAnotherSpace:
    def test_a_new_value_is_trained_and_what_was_there_is_not_touched(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        before, reports = rows_of(study), histories(study.paths.root)
        edit = bench.edit(study, SWEEP.replace("[1, 2, 3]", "[1, 2, 3, 4]"))
        assert edit.revision.counts() == {
            "before": 3, "kept": 3, "restored": 0, "new": 1, "extended": 0, "orphaned": 0,
        }  # fmt: skip
        bench.run(study)
        assert present(study) == dict.fromkeys((1, 2, 3, 4), "finished")
        for key, row in before.items():
            assert replace(rows_of(study)[key], ordinal=row.ordinal) == row
            assert histories(study.paths.root)[key] == reports[key]

    def test_a_value_taken_out_is_orphaned_and_counts_again_when_it_is_back(
        self, bench: Bench
    ) -> None:
        study = bench.ran(SWEEP)
        begun = attempts(study)
        bench.edit(study, SWEEP.replace("[1, 2, 3]", "[2, 3]"))
        assert orphans(study) == {1: "no longer in the space"}
        assert present(study) == {2: "finished", 3: "finished"}
        edit = bench.edit(study, SWEEP)
        assert [row.point["width"] for row in edit.revision.restored] == [1]
        bench.run(study)
        assert orphans(study) == {}
        assert present(study) == dict.fromkeys((1, 2, 3), "finished")
        assert attempts(study) == begun

    def test_unfinished_trials_go_on_where_they_were(self, bench: Bench) -> None:
        study = bench.begin(SWEEP)
        bench.run(study, most=2)
        edit = bench.edit(study, SWEEP.replace("[1, 2, 3]", "[1, 2, 3, 4]"))
        assert sorted(str(row.status) for row in edit.revision.remaining) == ["planned"] * 3
        bench.run(study)
        whole = bench.ran(SWEEP.replace("[1, 2, 3]", "[1, 2, 3, 4]"), "whole")
        assert trained(study) == trained(whole)

    def test_fewer_seeds_and_a_limit_are_told_from_another_space(self, bench: Bench) -> None:
        study = bench.ran(SWEEP, replicates=2)
        edit = bench.plan_edit(study, replicates=1)
        assert set(edit.revision.removed) == {"its seed is no longer one of the sweep's"}
        impossible = SWEEP.replace(
            "lambda p: OwnModel(", "lambda p: OwnModel(0 if p.width == 2 else "
        )
        edit = bench.plan_edit(study, impossible)
        (reason,) = edit.revision.removed
        assert reason.startswith("skipped, width must be a positive multiple")

    def test_another_name_of_an_axis_changes_no_trial(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        begun = attempts(study)
        renamed = SWEEP.replace("width=[", "wide=[").replace("p.width", "p.wide")
        edit = bench.edit(study, renamed)
        assert len(edit.revision.remaining) == 3
        assert study.manifest.axes == ["wide", "dropout"]
        assert [row.point["wide"] for row in rows_of(study).values()] == [1, 2, 3]
        bench.run(study)
        assert attempts(study) == begun


class TestChangedParts:
    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            (
                "# HERE",
                "module.requires_grad_(True)",
                "its model code (the sweep file) has changed",
            ),
            ("lr=0.05", "lr=0.04", "its recipe has changed"),
            (
                "tiny_sweep(\n    space",
                "tiny_sweep(\n    task=TinyTask(num_val=48),\n    space",
                "its task and data have changed",
            ),
            (
                "OwnModel(p.width, ",
                "OwnModel(p.width, heads=p.width, ",
                "its model has changed",
            ),
        ],
    )
    def test_what_changed_is_named(self, bench: Bench, old: str, new: str, reason: str) -> None:
        study = bench.ran(SWEEP)
        assert old in SWEEP
        edit = bench.edit(study, SWEEP.replace(old, new))
        expected = {1, 2, 3} - ({1} if "heads" in new else set())
        assert orphans(study) == dict.fromkeys(expected, reason)
        assert len(edit.revision.new) == len(expected)
        bench.run(study)
        assert present(study) == dict.fromkeys((1, 2, 3), "finished")

    def test_comments_and_questions_change_no_trial(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        asks = 'checkpoint_seconds=0.0, question=Transition(x="width", by=None)'
        edit = bench.plan_edit(
            study, SWEEP.replace("checkpoint_seconds=0.0", asks).replace("# HERE", "# a comment")
        )
        assert edit.changes(study)
        bench.take_over(study, edit)
        assert not edit.revision.changes_trials
        assert study.manifest.question is not None
        assert study.manifest.question["x"] == "width"


def test_a_study_finds_the_users_models_again_from_another_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "models").mkdir(parents=True)
    (project / "models" / "limits_of_project.py").write_text("WIDTHS = [1, 2, 3]\n")
    monkeypatch.chdir(project)
    source = SWEEP.replace("from tiny", "from models.limits_of_project import WIDTHS\nfrom tiny")
    study = bench.begin(source.replace("[1, 2, 3]", "WIDTHS"))
    monkeypatch.chdir(tmp_path)
    add_user_packages([])
    assert len(bench.plan(study).trials) == 3
    assert len(bench.plan_edit(study, replicates=2).revision.new) == 6
    assert study.manifest.own_folders == [str(project)]
    add_user_packages(default_folders())


class TestAcceptedCode:
    """A change of code that changes no result need not cost what is on record."""

    COSMETIC = SWEEP.replace("# HERE", "module = module.train(module.training)")

    def test_trials_stay_and_what_trained_them_is_still_on_record(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        before = rows_of(study)
        wider = self.COSMETIC.replace("[1, 2, 3]", "[1, 2, 3, 4]")
        edit = bench.edit(study, wider, accept=True)
        assert (len(edit.revision.remaining), len(edit.revision.new)) == (3, 1)
        (entry,) = study.manifest.accepted
        assert entry["files"] == {"model_code": [SWEEP_FILE]}
        assert (entry["what"], entry["trials"], entry["command"] != "") == ("kept", 3, True)
        bench.run(study)
        after = rows_of(study)
        for key, row in before.items():
            assert replace(after[key], ordinal=row.ordinal) == row
        (new,) = [row for key, row in after.items() if key not in before]
        with study.journal() as journal:
            told = journal.origins()
        trained_by = {key: json.loads(text)["code"]["model_code"] for key, (text,) in told.items()}
        assert {trained_by[key] for key in before} == {
            row.parts["model_code"] for row in before.values()
        }
        assert trained_by[new.key] == new.parts["model_code"] != trained_by[next(iter(before))]
        # Nothing is to be accepted again, not even after a third change.
        assert not bench.plan_edit(study, wider, accept=True).changes(study)
        again = wider.replace("module.training", "module.training and True")
        edit = bench.edit(study, again, accept=True)
        assert (len(edit.revision.remaining), len(edit.revision.new)) == (4, 0)

    def test_a_longer_budget_goes_on_from_accepted_checkpoints(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        edit = bench.plan_edit(study, self.COSMETIC, epochs=6)
        assert edit.revision.extended == ()
        edit = bench.edit(study, self.COSMETIC, accept=True, epochs=6)
        assert len(edit.revision.extended) == 3
        bench.run(study)
        with study.journal() as journal:
            told = journal.origins()
        for each in edit.revision.extended:
            assert len(told[each.trial.key]) == 2

    def test_other_changes_are_not_accepted_with_it(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        edit = bench.plan_edit(study, self.COSMETIC.replace("lr=0.05", "lr=0.04"), accept=True)
        assert set(edit.revision.removed) == {"its recipe has changed"}

    def test_a_plain_resume_accepts_it_when_asked_to_and_show_says_so(
        self, hsweep: Invoke, bench: Bench
    ) -> None:
        study = bench.ran(SWEEP)
        put_on_record(study, self.COSMETIC)
        refused = hsweep("resume", "mine", "--runner", "inline")
        assert refused.exit_code == 2
        for told in (
            "3 of 3 trials of 'mine' are no longer the same, 3 of them finished",
            "its model code (the sweep file) has changed (3)",
            f"`hsweep run {study.paths.sweep_source} --study mine --preset quick --home ",
            "`hsweep resume mine --accept-code --home ",
        ):
            assert told in refused.stderr
        accepted = hsweep("resume", "mine", "--runner", "inline", "--accept-code")
        assert accepted.exit_code == 0, accepted.output
        line = "3 trials kept although the model code (the sweep file) had changed"
        assert line in accepted.output
        assert line in hsweep("show", "mine").output
        assert attempts(study) == dict.fromkeys(attempts(study), 1)
        assert hsweep("resume", "mine", "--runner", "inline").exit_code == 0


class TestLongerBudgets:
    @pytest.mark.parametrize(("source", "shared"), [(SWEEP, 3), (WSD, 2)])
    def test_finished_trials_go_on_and_end_as_if_there_had_been_no_stop(
        self, bench: Bench, source: str, shared: int
    ) -> None:
        study = bench.ran(source)
        edit = bench.edit(study, epochs=6)
        assert {each.how for each in edit.revision.extended} == {"finished, now longer"}
        assert set(orphans(study).values()) == {"extended to a budget of 6 epochs"}
        assert {row.unit for row in rows_of(study).values() if not row.orphaned} == {shared}
        updates: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiny.TinyTask, "before_update", lambda _, number: updates.append(number))
            bench.run(study)
        # Only what was not there yet was trained.
        assert set(updates) == set(range(4 * shared + 1, 25))
        assert trained(study) == trained(bench.ran(source, "whole", epochs=6))

    @pytest.mark.parametrize(("most", "budgets"), [(5, [6]), (None, [4, 6])])
    def test_unfinished_trials_go_on_too_and_lengthened_ones_once_more(
        self, bench: Bench, most: int | None, budgets: list[int]
    ) -> None:
        study = bench.begin(SWEEP)
        bench.run(study, most)
        for epochs in budgets:
            bench.edit(study, epochs=epochs)
            bench.run(study)
        assert trained(study) == trained(bench.ran(SWEEP, "whole", epochs=6))
        assert sum(bool(row.orphaned) for row in rows_of(study).values()) == 3 * len(budgets)

    def test_early_stopping_decides_as_if_the_budget_had_been_the_longer(
        self, bench: Bench
    ) -> None:
        study = bench.ran(PRUNED)
        assert set(present(study).values()) == {"finished", "stopped_early"}
        edit = bench.edit(study, epochs=9)
        assert {each.how for each in edit.revision.extended} == {
            "finished, now longer", "stopped early, as before",
        }  # fmt: skip
        bench.run(study)
        whole = bench.ran(PRUNED, "whole", epochs=9)
        assert trained(study) == trained(whole)
        statuses = {key: rows_of(study)[key].status for key in trained(study)}
        assert statuses == {key: row.status for key, row in rows_of(whole).items()}

    def test_other_rungs_train_what_was_stopped_anew(self, bench: Bench) -> None:
        study = bench.ran(PRUNED)
        edit = bench.plan_edit(study, PRUNED.replace("grace=1", "grace=2"), epochs=9)
        assert any(
            "trained from the start: it was stopped early, and early stopping has changed" in reason
            for reason in edit.revision.removed
        )

    def test_what_diverged_has_diverged(self, bench: Bench) -> None:
        source = SWEEP.replace("tiny_sweep(\n", "tiny_sweep(\n    task=TinyTask(diverges_at=6),\n")
        study = bench.ran(source)
        edit = bench.edit(study, epochs=6)
        assert {each.how for each in edit.revision.extended} == {"diverged, as before"}
        bench.run(study)
        rows = [row for row in rows_of(study).values() if not row.orphaned]
        assert {(row.status, row.reason, row.attempt) for row in rows} == {
            (TrialStatus.DIVERGED, "the training loss was not finite at step 6", 0)
        }

    def test_without_its_checkpoint_a_trial_begins_again(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        shutil.rmtree(study.checkpoints())
        edit = bench.edit(study, epochs=6)
        assert edit.revision.extended == ()
        assert set(orphans(study).values()) == {
            "its budget is now 6 epochs, and it is trained from the start: "
            "its last checkpoint is gone"
        }
        bench.run(study)
        assert trained(study) == trained(bench.ran(SWEEP, "whole", epochs=6))

    @pytest.mark.parametrize(
        ("source", "settings", "why"),
        [
            (COSINE, {"epochs": 6}, "the cosine schedule spreads the learning rate over the whole"),
            (
                SWEEP.replace('"constant"', '"constant", warmup_fraction=0.1'),
                {"epochs": 6},
                "the warm-up takes 0.1 of the whole budget",
            ),
            (SWEEP, {"epochs": 2}, "a shorter training is not cut out of a longer one"),
            (SWEEP, {"epochs": 6, "report_every": 3}, "reports every 3 epochs instead of every 1"),
            (
                SWEEP.replace("checkpoint_", "budget=epochs(3, report_every=4), checkpoint_"),
                {"epochs": 6},
                "reports every 4 epochs leave none that both trainings have, of 3 epochs",
            ),
        ],
    )
    def test_what_cannot_go_on_says_why(
        self, bench: Bench, source: str, settings: dict[str, int], why: str
    ) -> None:
        study = bench.ran(source)
        edit = bench.plan_edit(study, **settings)
        assert edit.revision.extended == ()
        assert len(edit.revision.new) == 3
        assert all(why in reason for reason in edit.revision.removed)

    def test_the_old_budget_comes_back_with_its_results(self, bench: Bench) -> None:
        study = bench.ran(COSINE)
        begun = attempts(study)
        bench.edit(study, epochs=6)
        bench.edit(study, epochs=3)
        bench.run(study)
        assert {key: attempts(study)[key] for key in begun} == begun
        assert present(study) == dict.fromkeys((1, 2, 3), "finished")


class TestWhatIsRecorded:
    def test_what_was_before_stays_in_the_study(self, bench: Bench) -> None:
        study = bench.ran(SWEEP, replicates=1)
        wider = SWEEP.replace("[1, 2, 3]", "[2, 3, 4]")
        bench.edit(study, wider)
        bench.edit(study, epochs=6)
        manifest = StudyFolder.open(bench.home, "mine").manifest
        first, second = manifest.revisions
        assert first["counts"]["orphaned"] == 1
        assert first["reasons"] == {"no longer in the space": 1}
        assert second["before"]["budget"]["amount"] == 3
        assert manifest.budget["amount"] == 6
        assert [list(each) for each in manifest.settings] == [["replicates", [1]], ["epochs", [6]]]
        assert (study.paths.root / first["sweep_file"]).read_text() == SWEEP
        assert (study.paths.root / second["sweep_file"]).read_text() == wider
        assert study.paths.sweep_source.read_text() == wider

    def test_trials_added_for_an_answer_survive(self, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        with study.journal() as journal:
            rows = journal.trials()
        entries = [
            {"key": "of before", "point": {"width": 5, "dropout": 0.2}, "replicate": 0,
             "budget": 3, "how": "new"},
            {"key": rows[0].key, "point": dict(rows[0].point), "replicate": 0,
             "budget": 3, "how": "stopped early, now run to the end"},
            {"key": "of before", "point": dict(rows[1].point), "replicate": 4,
             "budget": 3, "how": "with a new seed"},
        ]  # fmt: skip
        with study.writer() as journal:
            extension = {"trials": entries, "problems": []}
            study.record_manifest(journal, replace(study.manifest, extensions=[extension]))
        bench.edit(study, SWEEP.replace("[1, 2, 3]", "[2, 3]").replace("lr=0.05", "lr=0.04"))
        (extension,) = study.manifest.extensions
        planned = bench.plan(study).trials
        assert [(entry["point"]["width"], entry["replicate"]) for entry in extension["trials"]] == [
            (5, 0), (2, 4),
        ]  # fmt: skip
        assert {(trial.point["width"], trial.replicate) for trial in planned} == {
            (2, 0), (3, 0), (5, 0), (2, 4),
        }  # fmt: skip
        assert study.manifest.added_keys <= {trial.key for trial in planned}


EDITED = SWEEP.replace("[1, 2, 3]", "[2, 3, 4]")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A study that was interrupted, and a copy of it that was edited without a kill."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        bench = Bench(Home(folder / "home"), folder)
        study = bench.begin(SWEEP)
        bench.run(study, most=4)
        shutil.copytree(study.paths.root, bench.home.studies / "calm")
        bench.edit(StudyFolder.open(bench.home, "calm"), EDITED, epochs=6)
    return bench


class TestKilledInBetween:
    @pytest.mark.parametrize("when", ["before", "in", "after"])
    def test_an_edit_is_on_record_as_a_whole_or_not_at_all(
        self, bench: Bench, template: Bench, when: str
    ) -> None:
        shutil.copytree(template.home.root, bench.home.root)
        study, calm = StudyFolder.open(bench.home, "mine"), StudyFolder.open(bench.home, "calm")
        before = rows_of(study)
        edit = bench.plan_edit(study, EDITED, epochs=6)
        pid = os.fork()
        if pid == 0:
            try:
                die_writing(when)
                bench.take_over(study, edit)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

        study = StudyFolder.open(bench.home, "mine")
        if when != "after":
            assert rows_of(study) == before
            assert len(study.manifest.revisions) == 0
            bench.edit(study, EDITED, epochs=6)
        study = StudyFolder.open_to_run(bench.home, "mine")
        study.export()
        assert rows_of(study) == rows_of(calm)
        assert trained(study) == trained(calm)
        assert study.manifest.budget == calm.manifest.budget
        assert len(study.manifest.revisions) == 1
        assert study.paths.sweep_source.read_text() == EDITED
        assert study.paths.earlier_sweep_source(1).read_text() == SWEEP

    def test_a_full_disk_is_said_and_leaves_the_study_as_it_was(
        self, bench: Bench, template: Bench
    ) -> None:
        shutil.copytree(template.home.root, bench.home.root)
        study = StudyFolder.open(bench.home, "mine")
        before = rows_of(study)
        edit = bench.plan_edit(study, EDITED, epochs=6)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hsweep.record.log.os.write", _full)
            with pytest.raises(UserError, match="No space left"):
                bench.take_over(study, edit)
        assert rows_of(study) == before


def die_writing(when: str) -> None:
    """Let this process die before its next line of a log, half through it, or after it."""
    write = os.write

    def die(file: int, content: bytes) -> int:
        if when != "before":
            write(file, content if when == "after" else content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    pytest.MonkeyPatch().setattr(os, "write", die)


class TestRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("tiny_sweep(\n", 'tiny_sweep(\n    name="other",\n', "is called 'other'"),
            (
                "tiny_sweep(\n",
                "tiny_sweep(\n    search=optuna_search(2),\n",
                "does not learn from its trials",
            ),
            ("tiny_sweep(\n", "tiny_sweep(\n    task=TinyTask(unreadable=True),\n", "be read"),
        ],
    )
    def test_what_no_edit_can_change(self, bench: Bench, old: str, new: str, message: str) -> None:
        study = bench.ran(SWEEP)
        with pytest.raises(UserError, match=message):
            bench.plan_edit(study, SWEEP.replace(old, new))
        assert study.manifest.revisions == []

    def test_an_adaptive_search_can_have_more_points_and_nothing_else(self, bench: Bench) -> None:
        source = SWEEP.replace("tiny_sweep(\n", "tiny_sweep(\n    search=optuna_search(2),\n")
        study = bench.begin(source)
        trial = bench.plan(study).trials[0]
        proposal = {"id": "0:0", "parameters": dict(trial.point), "point": dict(trial.point)}
        with study.writer() as journal:
            journal.set_meta("proposal:000000", json.dumps(proposal))
            journal.add_trials(
                [TrialRow(trial.key, 0, dict(trial.point), 0, "", 3, {}, parts=trial.parts)]
            )
        edit = bench.plan_edit(study, num_points=3)
        assert (len(edit.revision.remaining), edit.revision.new) == (1, ())
        for change, why in (
            (source.replace("[1, 2, 3]", "[1, 2]"), "its space has changed"),
            (source.replace("lr=0.05", "lr=0.04"), "its recipe has changed"),
        ):
            with pytest.raises(UserError, match=why):
                bench.plan_edit(study, change)


class TestFromTheCommandLine:
    def test_it_says_what_will_happen_and_does_it(
        self, hsweep: Invoke, bench: Bench, home: Home
    ) -> None:
        study = bench.ran(SWEEP)
        edited = bench.file(SWEEP.replace("[1, 2, 3]", "[2, 3, 4]"), "edited.py")
        run = ("run", edited, "--study", "mine", "--set", "epochs=4")
        shown = hsweep(*run, "--dry-run")
        assert shown.exit_code == 0, shown.output
        assert "study mine with an edited sweep: 3 trials, 3 before" in shown.output
        assert "new        1: width=4" in shown.output
        assert "extended   2 with a budget of 4 epochs (2 finished, now longer)" in shown.output
        assert "orphaned   1 (1 finished), no longer in the space: width=1" in shown.output
        assert "set        epochs=4" in shown.output
        assert StudyFolder.open(home, "mine").manifest == study.manifest
        as_json = hsweep(*run, "--dry-run", "--json")
        assert json.loads(as_json.stdout)["revision"]["extended"] == 2

        refused = hsweep(*run, "--runner", "inline", "--json")
        assert refused.exit_code == 2
        assert "1 of the finished trials behind the answer of 'mine'" in refused.stderr
        assert "give --study NAME for another study" in refused.stderr
        assert StudyFolder.open(home, "mine").manifest == study.manifest
        done = hsweep(*run, "--runner", "inline", "--json", "--yes")
        assert done.exit_code == 0, done.output
        content = json.loads(done.stdout)
        assert (content["finished"], content["trials"]) == (3, 3)
        assert content["revision"]["reasons"] == {
            "no longer in the space": 1, "extended to a budget of 4 epochs": 2,
        }  # fmt: skip
        # A second time there is nothing to change and nothing to train.
        again = hsweep(*run)
        assert "study mine as it is recorded: 3 trials, 3 before" in again.output
        assert "there is nothing to train" in again.output
        back = hsweep("run", edited, "--study", "mine", "--dry-run")
        assert "set back   epochs" in back.output
        assert "restored   2 (2 finished)" in back.output

    def test_settings_of_recipe_and_question_are_edits_of_the_sweep(
        self, hsweep: Invoke, bench: Bench, home: Home
    ) -> None:
        asking = "    question=lean({'width': 3}, margin=0.1), replicates=2,\n    checkpoint_s"
        source = SWEEP.replace("    checkpoint_s", asking).replace("Transition,", "lean,")
        by_point = "recipe=lambda p: " + source.partition("recipe=")[2]
        source = source.partition("recipe=")[0] + by_point
        study = bench.ran(source)
        path = bench.file(source)

        # A setting leads to the trials that the edited file leads to.
        def keys(file: Path, *settings: str) -> list[str]:
            planned = hsweep("plan", file, "--json", *settings)
            assert planned.exit_code == 0, planned.output
            return [trial["key"] for trial in json.loads(planned.stdout)["trials"]]

        lower = bench.file(source.replace("lr=0.05", "lr=0.03"), "lower.py")
        assert keys(path, "--set", "recipe.lr=3e-2") == keys(lower)
        assert not set(keys(lower)) & set(rows_of(study))

        run = ("run", path, "--study", "mine")
        shown = hsweep(*run, "--set", "recipe.betas=0.8,0.9", "--dry-run")
        assert "orphaned   6 (6 finished), its recipe has changed" in shown.output, shown.output
        # Needs no Ray: nothing is trained.
        done = hsweep(*run, "--set", "margin=0.2", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["revision"]["kept"] == 6
        manifest = StudyFolder.open(home, "mine").manifest
        assert manifest.question is not None
        assert (manifest.question["margin"], manifest.settings) == (0.2, [["margin", [0.2]]])
        again = hsweep(*run, "--set", "margin=0.2", "--dry-run")
        assert "study mine as it is recorded: 6 trials, 6 before" in again.output

    def test_the_studys_own_copy_is_not_to_be_edited(self, hsweep: Invoke, bench: Bench) -> None:
        study = bench.ran(SWEEP)
        own = study.paths.sweep_source
        own.write_text(SWEEP.replace("[1, 2, 3]", "[2, 3]"))
        refused = hsweep("run", own, "--study", "mine", "--dry-run")
        assert refused.exit_code == 2
        assert "is the study's own copy, which stays what is on record" in refused.stderr
        aside = own.with_name("question.py")
        own.rename(aside)
        shown = hsweep("run", aside, "--study", "mine", "--dry-run", "--json")
        assert json.loads(shown.stdout)["revision"]["orphaned"] == 1


OWN = """
from pathlib import Path

from hsweep import Sweep, epochs, grid


def train(point, run):
    number = 1
    if not Path({mended!r}).exists():
        raise RuntimeError("not mended")
    for epoch in range(1, run.budget + 1):
        run.report(epoch, loss=1 / (point.width * epoch), accuracy=number - 1 / point.width)


SWEEP = Sweep(
    name="own", space=grid(width=[1, 2, 3]), train=train, metric="loss", goal="min",
    budget=epochs(2), max_failures=0,
)
"""


class TestRunAgain:
    """`hsweep run FILE` is all that a user needs to know."""

    def file(self, bench: Bench, *changes: tuple[str, str]) -> Path:
        source = OWN.format(mended=str(bench.folder / "mended"))
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        return bench.file(source)

    METRIC = ('"loss", goal="min"', '"accuracy", goal="max"')

    def test_another_metric_judges_what_is_on_record(
        self, hsweep: Invoke, bench: Bench, home: Home
    ) -> None:
        (bench.folder / "mended").touch()
        assert hsweep("run", self.file(bench), "--runner", "inline").exit_code == 0
        wider = ("[1, 2, 3]", "[1, 2, 3, 4]")
        path = self.file(bench, self.METRIC, wider)
        done = hsweep("run", path, "--runner", "inline", "--json")
        assert done.exit_code == 0, done.output
        assert "metric     accuracy, before loss" in done.stderr
        assert json.loads(done.stdout)["revision"]["kept"] == 3
        study = StudyFolder.open(home, "own-quick")
        assert (study.manifest.metric, study.manifest.goal) == ("accuracy", "max")
        values = {row.point["width"]: row.metrics["accuracy"] for row in rows_of(study).values()}
        assert values == {width: 1 - 1 / width for width in (1, 2, 3, 4)}
        assert attempts(study) == dict.fromkeys(attempts(study), 1)
        # From the log alone, as if the index were lost.
        StudyFolder.open_to_run(home, "own-quick")
        again = {row.point["width"]: row.metrics["accuracy"] for row in rows_of(study).values()}
        assert again == values

    def test_a_metric_that_was_never_reported_is_refused_with_the_one_way_that_works(
        self, hsweep: Invoke, bench: Bench
    ) -> None:
        (bench.folder / "mended").touch()
        assert hsweep("run", self.file(bench), "--runner", "inline").exit_code == 0
        path = self.file(bench, ('"loss", goal="min"', '"acuracy", goal="max"'))
        refused = hsweep("run", path, "--runner", "inline")
        assert refused.exit_code == 2
        assert "3 of its trials have not reported the new one: unknown metric" in refused.stderr
        assert "Did you mean 'accuracy'?" in refused.stderr
        path = self.file(bench, self.METRIC)
        other = hsweep("run", path, "--study", "other", "--runner", "inline")
        assert "3 of 3 trials taken from study own-quick" in other.output

    def test_what_another_metric_has_stopped_stays_with_it(self, bench: Bench) -> None:
        study = bench.ran(PRUNED)
        assert "stopped_early" in {str(row.status) for row in rows_of(study).values()}
        with pytest.raises(UserError, match="were stopped early by that"):
            bench.plan_edit(
                study, PRUNED.replace("tiny_sweep(\n", 'tiny_sweep(\n    goal="max",\n')
            )

    def test_a_study_in_which_all_trials_failed_is_tried_again(
        self, hsweep: Invoke, bench: Bench, home: Home
    ) -> None:
        path = self.file(bench)
        assert hsweep("run", path, "--runner", "inline").exit_code == 1
        study = StudyFolder.open(home, "own-quick")
        assert set(present(study).values()) == {"failed"}
        (bench.folder / "mended").touch()
        done = hsweep("run", path, "--runner", "inline")
        assert done.exit_code == 0, done.output
        assert set(present(study).values()) == {"finished"}

    @pytest.mark.parametrize("change", [("number = 1", "number = 2"), METRIC, None])
    def test_one_that_ended_before_its_first_report_goes_on_however_it_was_edited(
        self, bench: Bench, hsweep: Invoke, home: Home, change: tuple[str, str] | None
    ) -> None:
        (bench.folder / "mended").touch()
        study = bench.begin(self.file(bench).read_text(), "own-quick")
        path = self.file(bench, *([change] if change else []))
        done = hsweep("run", path, "--runner", "inline")
        assert done.exit_code == 0, done.output
        assert set(present(study).values()) == {"finished"}
        again = hsweep("run", path)  # needs no Ray
        assert again.exit_code == 0, again.output
        assert "there is nothing to train" in again.output

    def test_another_choice_than_a_setting_and_a_study_that_runs_are_refused(
        self, bench: Bench, hsweep: Invoke
    ) -> None:
        study = bench.begin(self.file(bench).read_text(), "own-quick")
        for option, told in (
            (("--seed", "1"), "was started with seed=0, not 1; give that again, or another name"),
            (("--storage", "there"), "storage is chosen when a study begins"),
        ):
            refused = hsweep("run", self.file(bench), "--runner", "inline", *option)
            assert refused.exit_code == 2
            assert told in refused.stderr
        with holding(study.paths):
            refused = hsweep("run", self.file(bench))
        assert refused.exit_code == 2
        assert "is being run by process" in refused.stderr


def _full(*_arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
