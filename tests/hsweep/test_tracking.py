"""Delivery to a real MLflow store on SQLite."""

import contextlib
import io
import json
import shutil
import sqlite3
import threading
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import ViewType
from mlflow_stores import (
    DEADLINE,
    Kill,
    Killed,
    Tracked,
    client,
    history,
    plan,
    recorded,
    report,
    until,
)
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool
from tiny_studies import manifest

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal
from hsweep.tracking import store
from hsweep.tracking.contents import STUDY_ID, study_tags
from hsweep.tracking.target import StoreState, TrackingTarget
from hsweep.tracking.tracker import TrackingSummary
from hsweep.tracking.ui import LOCAL_UI, reachable_run_urls

FINISHED = TrialStatus.FINISHED


class TestWhatIsDelivered:
    def test_a_trial_is_a_nested_run_with_its_shape_as_parameters(self, tracked: Tracked) -> None:
        tracked.trains("ab", range(1, 3), FINISHED)
        assert tracked.tracker().close(wait_seconds=1).pending == 8, "it was never started"
        assert tracked.track() == TrackingSummary(delivered=8, pending=0)
        tracked.assert_all_there("a", "b")
        run, parent = tracked.runs["a"], tracked.runs["parent"]
        assert run.data.params == {
            "heads": "1", "seq_len": "16", "replicate": "1", "epochs": "8",
            "num_params": "10", "flops_per_example": "20", "train_memory_bytes": "30",
        }  # fmt: skip
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        expected = {
            "hsweep.study": "heads-1", "hsweep.sweep": "tiny", "hsweep.trial": "a",
            "hsweep.stratum": "seq_len=16", "hsweep.status": "finished",
            "hsweep.preset": "quick",
        }  # fmt: skip
        assert expected.items() <= run.data.tags.items()
        assert parent.info.run_name == "heads-1"
        assert parent.data.tags["hsweep.metric"] == "nmse"

    def test_rungs_and_scouts_are_told_apart_and_what_never_began_has_no_run(
        self, tracked: Tracked
    ) -> None:
        tracked.trains("a", range(1, 3), FINISHED)
        tracked.plan("b")
        tracked.journal.set_status("b", 0, TrialStatus.NOT_NEEDED, "rank 2 of 2")
        budget = {**tracked.study.budget, "ladder": [4, 8]}
        tracked.study = replace(tracked.study, scouts=2, budget=budget)
        assert tracked.sync().is_complete
        assert set(tracked.runs) == {"parent", "a"}
        run = tracked.runs["a"]
        assert run.data.tags["hsweep.role"] == "scout"
        assert run.data.tags["hsweep.ladder"] == "4, 8 epochs"
        # Asked for after all, it has one.
        tracked.train("b", range(1, 3), FINISHED)
        assert tracked.sync().is_complete
        tracked.assert_all_there("a", "b")

    def test_rate_norm_and_speed_of_updates_are_metrics_but_no_results(
        self, tracked: Tracked
    ) -> None:
        tracked.plan("a")
        attempt = tracked.journal.begin_attempt("a")
        last = Report(
            1, 4, {"nmse": 0.5}, 1.0, True,
            learning_rate=0.25, grad_norm=None, examples_per_second=128.0,
        )  # fmt: skip
        tracked.journal.record("a", attempt, last, FINISHED)
        tracked.sync()
        assert tracked.runs["a"].data.metrics == {
            "nmse": 0.5, "learning_rate": 0.25, "examples_per_second": 128.0,
        }  # fmt: skip

    def test_statuses_are_shown(self, tracked: Tracked) -> None:
        statuses = {
            FINISHED: "FINISHED",
            TrialStatus.STOPPED_EARLY: "KILLED",
            TrialStatus.DIVERGED: "FAILED",
            TrialStatus.RUNNING: "RUNNING",
        }
        tracked.plan(*statuses)
        for status in statuses:
            tracked.train(status, range(1, 5), status)
        tracked.sync()
        runs = tracked.runs
        for status, shown in statuses.items():
            assert runs[status].info.status == shown
            assert runs[status].data.tags["hsweep.status"] == status.value
            assert runs[status].data.metrics == {"nmse": 0.25}

    def test_the_studys_run_is_finished_only_when_every_trial_is(self, tracked: Tracked) -> None:
        tracked.plan("a", "b")
        tracked.train("a", range(1, 3), FINISHED)
        tracked.track()
        assert tracked.runs["parent"].info.status == "KILLED"
        assert tracked.sync(is_running=True).error is None
        assert tracked.runs["parent"].info.status == "RUNNING"
        tracked.train("b", range(1, 3), TrialStatus.STOPPED_EARLY)
        tracked.track()
        assert tracked.runs["parent"].info.status == "FINISHED"

    def test_after_a_resume_the_same_runs_go_on(self, tracked: Tracked) -> None:
        tracked.trains("a", range(1, 4))
        tracked.journal.set_status("a", 1, TrialStatus.FAILED, "worker died")
        tracked.track()
        first = tracked.runs
        assert first["a"].info.status == "FAILED"
        assert first["a"].data.tags["hsweep.reason"] == "worker died"
        tracked.train("a", range(4, 6))
        assert tracked.track().is_complete
        second = tracked.runs
        assert {key: run.info.run_id for key, run in second.items()} == {
            key: run.info.run_id for key, run in first.items()
        }
        assert second["a"].info.status == "RUNNING"
        assert second["a"].data.tags["hsweep.reason"] == ""
        tracked.assert_all_there("a")

    def test_missing_values_are_left_out_and_odd_names_made_acceptable(
        self, tracked: Tracked
    ) -> None:
        tracked.plan("a")
        more = {"top-1 (%)": 50.0, "loss": None, "../up": 1.0, "a//b": 2.0}
        tracked.train("a", range(1, 3), FINISHED, **more)
        assert tracked.sync().is_complete
        names = {"nmse", "top-1 ___", "___up", "a__b"}
        metrics = tracked.runs["a"].data.metrics
        assert set(metrics) == names
        assert metrics["top-1 ___"] == 50.0

    def test_what_became_of_a_trial_is_in_its_tags(self, tracked: Tracked) -> None:
        tracked.plan("large", "gone", "back", "parts")
        journal = tracked.journal
        journal.set_status("large", 1, TrialStatus.TOO_LARGE, "needs 9 GB")
        report(journal, "gone", range(1, 3))
        journal.append(
            journal.removal_entries(["gone", "back"], "heads=2 is no longer in the sweep")
        )
        tracked.sync()
        journal.append(journal.removal_entries(["back"], ""))
        metrics = {"nmse": 0.5}
        journal.record(
            "parts", 1, Report(1, 10, metrics, 0.5, False, micro_batch=4, note="in parts of 4")
        )
        assert tracked.sync().is_complete
        runs = tracked.runs
        assert runs["large"].info.status == "FAILED"
        large = {"hsweep.status": "too_large", "hsweep.reason": "needs 9 GB"}
        assert large.items() <= runs["large"].data.tags.items()
        assert runs["gone"].data.tags["hsweep.orphaned"] == "heads=2 is no longer in the sweep"
        assert runs["back"].data.tags["hsweep.orphaned"] == "false"
        assert "hsweep.orphaned" not in runs["large"].data.tags
        parts = {"hsweep.micro_batch": "4", "hsweep.note": "in parts of 4"}
        assert parts.items() <= runs["parts"].data.tags.items()

    def test_a_trial_taken_from_elsewhere_names_its_origin_and_keeps_its_times(
        self, tracked: Tracked, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir()
        with Journal(tmp_path / "other" / "journal", create=True) as other:
            plan(other, "a")
            report(other, "a", range(1, 4), FINISHED)
            reports = list(other.reports(["a"]))
        tracked.plan("a", "b")
        entries, planned = tracked.journal.adoption_entries, TrialStatus.PLANNED
        tracked.journal.append(entries("a", reports, status=FINISHED, reused_from="heads-0"))
        tracked.journal.append(entries("b", reports[:2], status=planned, continues="a"))
        assert tracked.sync().is_complete
        tracked.assert_all_there("a", "b")
        runs = tracked.runs
        assert runs["a"].data.tags["hsweep.reused_from"] == "heads-0"
        assert runs["b"].data.tags["hsweep.continues"] == "a"
        assert runs["a"].info.start_time == int(reports[0].time * 1000)
        assert runs["a"].info.end_time == int(reports[-1].time * 1000)
        assert runs["a"].data.metrics["nmse"] == pytest.approx(1 / 3)

    def test_a_reason_is_shortened_and_without_secrets(self, tracked: Tracked) -> None:
        tracked.plan("a")
        why = "s3://KEY:canary@bucket " + "x" * 20_000
        tracked.journal.set_status("a", 1, TrialStatus.FAILED, why)
        assert tracked.sync().is_complete
        reason = tracked.runs["a"].data.tags["hsweep.reason"]
        assert reason.startswith("s3://***@bucket xxx")
        assert reason.endswith("x ...")
        assert len(reason) == 5000

    def test_files_are_attached_to_the_studys_run(self, tracked: Tracked, tmp_path: Path) -> None:
        tracked.plan("a")
        (tmp_path / "plan.json").write_text("{}")
        page = tmp_path / "report.html"
        page.write_text("<p>old</p>")
        tracker = tracked.tracker()
        tracker.start()
        tracker.attach(tmp_path / "plan.json")
        tracker.attach(tmp_path / "never-written.json")
        assert tracker.close(wait_seconds=DEADLINE) == TrackingSummary(0, 0)
        page.write_text("<p>new</p>")
        tracked.sync(artifacts=[page])
        parent = tracked.runs["parent"]
        listed = client(tracked.target).list_artifacts(parent.info.run_id)
        assert [file.path for file in listed] == ["plan.json", "report.html"]
        kept = tmp_path / "artifacts" / parent.info.run_id / "artifacts" / "report.html"
        assert kept.read_text() == "<p>new</p>"

    def test_tags_name_the_commits_and_the_study(self) -> None:
        study = manifest(
            tags={"mlflow.user": "ann", "team": "vision"},
            provenance={
                "tool": {"commit": "aaa", "dirty": True},
                "sweep": {"commit": "bbb", "dirty": False},
                "sweep_file": "/home/ann/heads.py",
            },
        )
        tags = study_tags(study)
        assert tags.pop(STUDY_ID) not in (
            study_tags(replace(study, created=study.created + 1e-6))[STUDY_ID],
            study_tags(replace(study, name="another"))[STUDY_ID],
        )
        assert tags == {
            "hsweep.study": study.name,
            "hsweep.sweep": study.sweep,
            "hsweep.preset": study.preset,
            "hsweep.tool_commit": "aaa-dirty",
            "hsweep.sweep_commit": "bbb",
            "mlflow.source.git.commit": "bbb",
            "mlflow.source.git.dirty": "false",
            "mlflow.source.name": "/home/ann/heads.py",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": "ann",
            "team": "vision",
        }
        bare = study_tags(replace(study, provenance={"tool": None, "sweep": None}))
        assert not [name for name in bare if "commit" in name]
        assert bare["mlflow.source.name"] == "hsweep"


class TestEachRecordOnce:
    def test_without_a_readable_state_everything_is_sent_again_and_changes_nothing(
        self, tracked: Tracked
    ) -> None:
        tracked.plan("a", "b")
        tracked.train("a", range(1, 5), FINISHED)
        tracked.train("b", range(1, 3))
        assert tracked.sync().delivered == 9
        before, file = tracked.runs, tracked.state_file
        for content in (None, "", '{"cursor": 6', "[]", '{"cursor": 6}'):
            if content is None:
                file.unlink()
            else:
                file.write_text(content)
            assert tracked.sync() == TrackingSummary(delivered=9, pending=0)
        tracked.assert_all_there("a", "b")
        after = tracked.runs
        for key in ("a", "b"):
            assert after[key].info == before[key].info
            assert after[key].data.params == before[key].data.params

    def test_a_cursor_that_is_not_of_this_log_sends_everything_again(
        self, tracked: Tracked
    ) -> None:
        tracked.trains("a", range(1, 5))
        assert tracked.sync().delivered == 5
        known = json.loads(tracked.state_file.read_text())
        for other in ({"cursor_time": known["cursor_time"] - 1}, {"cursor": 7}):
            tracked.state_file.write_text(json.dumps({**known, **other}))
            assert tracked.sync() == TrackingSummary(5, 0)
            tracked.assert_all_there("a")

    def test_a_kill_after_any_single_call_to_the_store_does_no_harm(
        self, tracked: Tracked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = ("a", "b", "c")
        tracked.trains(keys, range(1, 4), FINISHED)
        kill = Kill(monkeypatch, "create_experiment", "create_run", "log_batch", "set_terminated")
        kills = 0
        # What is known of the store is lost with each kill, which is worse than a real one.
        while tracked.pending():
            kill.calls_left = kills + 1
            with contextlib.suppress(Killed):
                tracked.sync()
            kills += 1
            if tracked.pending():
                with contextlib.suppress(ValueError):
                    tracked.state_file.unlink()
        assert kills > 6, "a batch of three finished trials takes six calls once its runs exist"
        monkeypatch.undo()
        tracked.sync()
        tracked.assert_all_there(*keys)
        for key in keys:
            assert tracked.runs[key].data.params["heads"]
            assert tracked.runs[key].info.status == "FINISHED"

    def test_more_than_one_batch_is_delivered_in_order(
        self, tracked: Tracked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hsweep.tracking.tracker._ROWS_AT_ONCE", 3)
        tracked.trains("a", range(1, 8), FINISHED)
        told: list[int] = []
        assert tracked.sync(progressed=told.append).delivered == 9
        assert told == [3, 6, 9]
        tracked.assert_all_there("a")
        assert tracked.runs["a"].info.status == "FINISHED"
        assert tracked.runs["a"].data.metrics["nmse"] == pytest.approx(1 / 7)

    def test_another_store_gets_the_whole_study(
        self, tracked: Tracked, empty_database: Path, tmp_path: Path
    ) -> None:
        tracked.trains("a", range(1, 4))
        tracked.sync()
        first = tracked.state.trial_runs
        file = shutil.copy(empty_database, tmp_path / "b.db")
        tracked.target = replace(tracked.target, uri=f"sqlite:///{file}")
        assert tracked.pending() == 4
        tracked.sync()
        tracked.assert_all_there("a")
        assert tracked.state.trial_runs != first

    def test_a_store_that_was_emptied_gets_the_whole_study_again(
        self, tracked: Tracked, empty_database: Path
    ) -> None:
        tracked.trains("a", range(1, 4))
        tracked.sync()
        file = tracked.target.sqlite_file
        assert file is not None
        for part in file.parent.glob("mlflow.db-*"):
            part.unlink()
        # Under another name, because MLflow keeps connections to the file that was there.
        emptied = file.with_name("emptied.db")
        shutil.copy(empty_database, emptied)
        known = tracked.state_file
        tracked.target = replace(tracked.target, uri=f"sqlite:///{emptied}")
        shutil.copy(known, known.with_name(f"tracking-{tracked.target.scope}.json"))
        known.unlink()
        assert tracked.pending() == 0
        assert tracked.sync() == TrackingSummary(4, 0)
        tracked.assert_all_there("a")

    def test_a_run_the_user_deleted_stays_deleted_and_holds_nothing_up(
        self, tracked: Tracked
    ) -> None:
        tracked.plan("a", "b")
        for key in ("a", "b"):
            tracked.journal.begin_attempt(key)
        tracked.sync()
        client(tracked.target).delete_run(tracked.state.runs["a"])
        for key in ("a", "b"):
            report(tracked.journal, key, range(1, 4), FINISHED)
        assert tracked.sync() == TrackingSummary(delivered=8, pending=0)
        runs = tracked.runs
        assert set(runs) == {"b", "parent"}
        assert history(tracked.target, runs["b"], "nmse") == recorded(tracked.journal, "b")

    def test_two_studies_of_one_name_do_not_share_runs(
        self, tracked: Tracked, tmp_path: Path
    ) -> None:
        other = Tracked(tmp_path / "elsewhere", tracked.target, created=0.0)
        with closing(other.journal):
            for each in (tracked, other):
                each.plan("a")
                each.journal.begin_attempt("a")
                each.sync()
            assert not set(tracked.state.runs.values()) & set(other.state.runs.values())

    def test_two_deliveries_at_once_share_their_runs(self, tracked: Tracked) -> None:
        tracked.plan("a", "b")
        tracker = tracked.tracker()
        tracker.start()
        for key in ("a", "b"):
            tracked.train(key, range(1, 6))
            assert tracked.sync(is_running=True).error is None
        assert tracker.close(wait_seconds=DEADLINE).pending == 0
        tracked.assert_all_there("a", "b")

    def test_two_studies_at_once_share_a_store(self, tracked: Tracked, tmp_path: Path) -> None:
        studies = [Tracked(tmp_path / str(at), tracked.target, created=at) for at in (1.0, 2.0)]
        summaries: dict[int, TrackingSummary] = {}
        begin = threading.Barrier(2)

        def deliver(number: int) -> None:
            begin.wait(60)
            summaries[number] = studies[number].sync()

        for number, study in enumerate(studies):
            keys = [f"{number}-{i}" for i in range(5)]
            study.plan(*keys)
            for key in keys:
                report(study.journal, key, range(1, 4), FINISHED)
        threads = [threading.Thread(target=deliver, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert summaries == dict.fromkeys(range(2), TrackingSummary(20, 0))
        runs = client(tracked.target).search_runs(
            [studies[0].state.experiment], "tags.`hsweep.trial` != ''"
        )
        by_key = {run.data.tags["hsweep.trial"]: run for run in runs}
        assert len(runs) == len(by_key) == 10
        for key, run in by_key.items():
            journal = studies[int(key[0])].journal
            assert history(tracked.target, run, "nmse") == recorded(journal, key)
        for study in studies:
            study.journal.close()


class TestBesideTraining:
    @pytest.fixture
    def rests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Deliver one entry beside training and then rest for long."""
        monkeypatch.setattr("hsweep.tracking.tracker._ROWS_AT_ONCE", 1)
        monkeypatch.setattr("hsweep.tracking.tracker._FIRST_REST_SECONDS", 0.0)
        monkeypatch.setattr("hsweep.tracking.tracker._REST_SECONDS", 3600.0)

    @pytest.mark.parametrize("is_flushed", [True, False])
    def test_what_is_left_beside_training_is_delivered_when_training_is_over(
        self, tracked: Tracked, rests: None, is_flushed: bool
    ) -> None:
        tracked.trains("ab", range(1, 4), FINISHED)
        tracker = tracked.tracker()
        tracker.start()
        until(lambda: tracker.summary().delivered == 1)
        assert tracker.summary() == TrackingSummary(1, 9)
        if is_flushed:
            assert tracker.flush(wait_seconds=DEADLINE).pending == 0
            assert tracked.runs["parent"].info.status == "RUNNING"
        assert tracker.close(wait_seconds=DEADLINE) == TrackingSummary(10, 0)
        tracked.assert_all_there("a", "b")
        assert {run.info.status for run in tracked.runs.values()} == {"FINISHED"}

    def test_a_missing_journal_is_an_error_text_and_not_an_exception(
        self, tracked: Tracked
    ) -> None:
        tracked.path = tracked.path.with_name("none.db")
        for summary in (tracked.track(), tracked.sync()):
            assert "is missing" in (summary.error or "")


class TestTheStore:
    def test_a_deleted_experiment_is_named_in_the_error(self, tracked: Tracked) -> None:
        tracked.plan("a")
        tracked.journal.begin_attempt("a")
        tracked.sync()
        mlflow = client(tracked.target)
        mlflow.delete_experiment(tracked.state.experiment)
        report(tracked.journal, "a", range(1, 3))
        summary = tracked.sync()
        assert summary.pending == 2
        assert "'heads' was deleted" in (summary.error or "")
        assert mlflow.search_experiments(ViewType.DELETED_ONLY)

    def test_a_database_is_made_once_and_nothing_half_made_is_used(
        self, empty_database: Path
    ) -> None:
        assert not list(empty_database.parent.glob(".*"))
        target = TrackingTarget(f"sqlite:///{empty_database}", None, "heads")
        before = empty_database.stat()
        store.initialise_database(target)
        assert empty_database.stat() == before
        default = client(target).get_experiment_by_name("Default")
        assert default is not None
        assert default.artifact_location.startswith(empty_database.parent.as_uri())

    def test_the_tables_are_made_once_for_every_home_of_a_machine_that_has_a_cache(
        self, empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[Path] = []

        def make(file: Path) -> None:
            made.append(file)
            shutil.copy(empty_database, file)

        monkeypatch.setattr(store, "_make_empty", make)
        for cache, names, times in (("cache", "ab", 1), ("file/cache", "cd", 2)):
            monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / cache))
            (tmp_path / "file").touch()
            made.clear()
            for name in names:
                target = TrackingTarget(f"sqlite:///{tmp_path / name / 'mlflow.db'}", None, "heads")
                store.initialise_database(target)
                default = client(target).get_experiment_by_name("Default")
                assert default is not None
                assert default.artifact_location == (tmp_path / name / "artifacts/0").as_uri()
            assert len(made) == times

    def test_one_made_here_writes_ahead_and_one_of_the_users_keeps_its_settings(
        self, tracked: Tracked, tmp_path: Path
    ) -> None:
        theirs = tmp_path / "theirs.db"
        with closing(sqlite3.connect(theirs)) as connection:
            connection.execute("CREATE TABLE anything (value TEXT)")
        store.connect(tracked.target)
        for uri, mode, synchronous in (
            (tracked.target.uri, "wal", 1),
            (f"sqlite:///{theirs}", "delete", 2),
        ):
            with create_engine(uri, poolclass=NullPool).connect() as opened:
                assert opened.execute(text("PRAGMA journal_mode")).scalar() == mode
                assert opened.execute(text("PRAGMA synchronous")).scalar() == synchronous

    def test_runs_have_addresses_without_secrets_on_a_server_and_on_the_local_ui(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO())
        path = tmp_path / "journal"
        server = TrackingTarget("https://ann:secret@host:5000/", None, "heads")
        assert reachable_run_urls(path, server) == {}
        local = TrackingTarget("sqlite:////tmp/mlflow.db", None, "heads")
        for target, experiment, key in ((server, "7", "a"), (local, "3", "b")):
            state = StoreState.of(path, target)
            state.experiment, state.runs = experiment, {"parent": "f00", key: "f01"}
            state.save()
        shown = "?workflowType=machine_learning"
        assert reachable_run_urls(path, server) == {
            "a": f"https://host:5000/#/experiments/7/runs/f01{shown}"
        }
        assert reachable_run_urls(path, local) == {
            "b": f"{LOCAL_UI}/#/experiments/3/runs/f01{shown}"
        }
        for file in tmp_path.glob("tracking-*.json"):
            assert "secret" not in file.read_text()
            assert json.loads(file.read_text())["cursor"] == 0
