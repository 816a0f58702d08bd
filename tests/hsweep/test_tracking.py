"""Delivery to a real MLflow store on SQLite, and to servers that are down."""

import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow_stores import (
    STUDY,
    client,
    draft_of,
    history,
    plan,
    recorded,
    report,
    runs_by_key,
)

from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.record.journal import Journal
from hsweep.tracking.delivery import Delivery
from hsweep.tracking.store import initialise_database
from hsweep.tracking.tracker import (
    LOCAL_UI,
    Tracker,
    TrackingSummary,
    TrackingTarget,
    pending_rows,
    provenance_tags,
    run_ids,
    run_urls,
    sync,
)


@pytest.fixture
def target(empty_database: Path, tmp_path: Path) -> TrackingTarget:
    file = tmp_path / "mlflow" / "mlflow.db"
    file.parent.mkdir()
    shutil.copy(empty_database, file)
    return TrackingTarget(f"sqlite:///{file}", (tmp_path / "artifacts").as_uri(), "heads")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "study").mkdir()
    with Journal(tmp_path / "study" / "journal.db", create=True) as journal:
        yield journal


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "study" / "journal.db"


def deliver(journal_path: Path, target: TrackingTarget) -> TrackingSummary:
    return sync(journal_path, target, **STUDY)


def track(journal_path: Path, target: TrackingTarget) -> TrackingSummary:
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    return tracker.close(wait_seconds=60)


def test_the_store_holds_what_the_journal_holds(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 6))
    summary = track(journal_path, target)
    assert summary == TrackingSummary(delivered=12, pending=0)
    runs = runs_by_key(target)
    for key in ("a", "b"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)
    assert run_ids(journal, target) == {key: runs[key].info.run_id for key in ("a", "b")}


def test_a_trial_is_a_nested_run_with_its_shape_as_parameters(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 3), TrialStatus.FINISHED)
    deliver(journal_path, target)
    runs = runs_by_key(target)
    run, parent = runs["a"], runs["parent"]
    assert run.info.run_name == "heads=1 seq_len=16 #1"
    assert run.data.params == {
        "heads": "1", "seq_len": "16", "replicate": "1", "num_params": "10",
        "flops_per_example": "20", "train_memory_bytes": "30",
    }  # fmt: skip
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    expected = {
        "hsweep.study": "heads-1", "hsweep.sweep": "heads", "hsweep.trial": "a",
        "hsweep.stratum": "seq_len=16", "hsweep.status": "finished", "hsweep.tool_commit": "abc",
    }  # fmt: skip
    assert expected.items() <= run.data.tags.items()
    assert parent.info.run_name == "heads-1"
    assert parent.data.tags["hsweep.metric"] == "nmse"


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (TrialStatus.FINISHED, "FINISHED"),
        (TrialStatus.STOPPED_EARLY, "KILLED"),
        (TrialStatus.DIVERGED, "FAILED"),
        (TrialStatus.RUNNING, "RUNNING"),
    ],
)
def test_statuses_are_shown_and_only_a_finished_trial_has_final_metrics(
    journal: Journal, journal_path: Path, target: TrackingTarget, status: TrialStatus, shown: str
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 5), status)
    deliver(journal_path, target)
    run = runs_by_key(target)["a"]
    assert run.info.status == shown
    assert run.data.tags["hsweep.status"] == status.value
    final = {"final/nmse": 0.25} if status is TrialStatus.FINISHED else {}
    assert {name: v for name, v in run.data.metrics.items() if name.startswith("final/")} == final


def test_the_studys_run_is_finished_only_when_every_trial_is(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a", "b")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 3), TrialStatus.FINISHED)
    track(journal_path, target)
    assert runs_by_key(target)["parent"].info.status == "KILLED"
    journal.begin_attempt("b")
    report(journal, "b", range(1, 3), TrialStatus.STOPPED_EARLY)
    track(journal_path, target)
    assert runs_by_key(target)["parent"].info.status == "FINISHED"


def test_a_crash_between_delivery_and_cursor_leaves_no_duplicates(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 5), TrialStatus.FINISHED)
    deliver(journal_path, target)
    before = runs_by_key(target)["a"]
    journal.set_cursor(target.cursor_name, 0)
    assert deliver(journal_path, target).delivered == 6
    after = runs_by_key(target)["a"]
    assert history(target, after, "nmse") == recorded(journal, "a")
    assert len(history(target, after, "final/nmse")) == 1
    assert (after.info, after.data.params) == (before.info, before.data.params)


def test_a_crash_before_the_run_ids_were_written_creates_no_second_runs(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 3))
    deliver(journal_path, target)
    before = run_ids(journal, target)
    journal.clear_metas(target.run_prefix)
    journal.set_cursor(target.cursor_name, 0)
    deliver(journal_path, target)
    assert set(runs_by_key(target)) == {"a", "parent"}
    assert run_ids(journal, target) == before


class Killed(BaseException):
    """What nothing catches, as a killed process catches nothing."""


def test_a_kill_after_any_single_call_to_the_store_does_no_harm(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, "a", "b", "c")
    for key in ("a", "b", "c"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4), TrialStatus.FINISHED)
    calls_left = 0

    def dies_after(method: str) -> None:
        real = getattr(MlflowClient, method)

        def call(self: MlflowClient, *values: Any, **named: Any) -> Any:
            nonlocal calls_left
            result = real(self, *values, **named)
            calls_left -= 1
            if calls_left == 0:
                raise Killed
            return result

        monkeypatch.setattr(MlflowClient, method, call)

    for method in ("create_experiment", "create_run", "log_batch", "set_terminated"):
        dies_after(method)
    kills = 0
    # The journal's memory of the store is lost with each kill, which is worse than a real one.
    while pending_rows(journal_path, target):
        calls_left = kills + 1
        with contextlib.suppress(Killed):
            deliver(journal_path, target)
        kills += 1
        if pending_rows(journal_path, target):
            journal.clear_metas(target.run_prefix)
            journal.set_cursor(target.cursor_name, 0)
    assert kills > 6, "a batch of three finished trials takes six calls once its runs exist"
    monkeypatch.undo()
    deliver(journal_path, target)
    runs = runs_by_key(target)
    assert set(runs) == {"a", "b", "c", "parent"}
    for key in ("a", "b", "c"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)
        assert len(history(target, runs[key], "final/nmse")) == 1
        assert runs[key].data.params["heads"]
        assert runs[key].info.status == "FINISHED"


def test_a_failure_within_a_batch_is_made_up_for(
    journal: Journal,
    journal_path: Path,
    target: TrackingTarget,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4))
    real, calls = MlflowClient.log_batch, []

    def fails_at_second(self: MlflowClient, run_id: str, **values: Any) -> None:
        calls.append(run_id)
        if len(calls) == 2:
            raise ConnectionError("http://ann:secret@host is gone")
        real(self, run_id, **values)

    monkeypatch.setattr(MlflowClient, "log_batch", fails_at_second)
    failed = deliver(journal_path, target)
    assert (failed.delivered, failed.pending) == (4, 4)
    assert failed.error == "ConnectionError: http://***@host is gone"
    assert deliver(journal_path, target) == TrackingSummary(delivered=4, pending=0)
    runs = runs_by_key(target)
    for key in ("a", "b"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)
        assert runs[key].data.params["heads"]


def test_after_a_resume_the_same_runs_go_on(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4))
    journal.set_status("a", 1, TrialStatus.FAILED, "worker died")
    track(journal_path, target)
    first = runs_by_key(target)
    assert first["a"].info.status == "FAILED"
    assert first["a"].data.tags["hsweep.reason"] == "worker died"

    journal.begin_attempt("a")
    report(journal, "a", range(4, 6))
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    assert tracker.close(wait_seconds=60).pending == 0
    second = runs_by_key(target)
    assert {k: r.info.run_id for k, r in second.items()} == {
        k: r.info.run_id for k, r in first.items()
    }
    assert second["a"].info.status == "RUNNING"
    assert second["a"].data.tags["hsweep.reason"] == ""
    assert [step for step, _, _ in history(target, second["a"], "nmse")] == [1, 2, 3, 4, 5]


def test_a_running_tracker_shows_the_study_as_running(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    track(journal_path, target)
    assert sync(journal_path, target, **STUDY, is_running=True).error is None
    assert runs_by_key(target)["parent"].info.status == "RUNNING"


def test_missing_values_are_left_out_and_odd_names_made_acceptable(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    more = {"top-1 (%)": 50.0, "loss": None, "../up": 1.0, "a//b": 2.0}
    report(journal, "a", range(1, 3), TrialStatus.FINISHED, **more)
    assert deliver(journal_path, target).error is None
    names = {"nmse", "top-1 ___", "___up", "a__b"}
    metrics = runs_by_key(target)["a"].data.metrics
    assert set(metrics) == names | {f"final/{name}" for name in names}
    assert metrics["top-1 ___"] == 50.0


def test_more_than_one_batch_is_delivered_in_order(
    journal: Journal,
    journal_path: Path,
    target: TrackingTarget,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hsweep.tracking.delivery._ROWS_AT_ONCE", 3)
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 8), TrialStatus.FINISHED)
    assert deliver(journal_path, target).delivered == 9
    run = runs_by_key(target)["a"]
    assert history(target, run, "nmse") == recorded(journal, "a")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final/nmse"] == pytest.approx(1 / 7)


def test_another_store_gets_the_whole_study(
    journal: Journal, journal_path: Path, target: TrackingTarget, empty_database: Path
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4))
    deliver(journal_path, target)
    file = target.sqlite_file
    assert file is not None
    other = replace(target, uri=f"sqlite:///{shutil.copy(empty_database, file.parent / 'b.db')}")
    assert pending_rows(journal_path, other) == 4
    deliver(journal_path, other)
    assert history(other, runs_by_key(other)["a"], "nmse") == recorded(journal, "a")
    assert run_ids(journal, other) != run_ids(journal, target)


def test_a_store_that_was_emptied_gets_the_whole_study_again(
    journal: Journal,
    journal_path: Path,
    target: TrackingTarget,
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4))
    deliver(journal_path, target)
    # As if the ids had come from a database that is no more.
    journal.set_meta(f"{target.run_prefix}parent", "0" * 32)
    journal.set_meta(f"{target.run_prefix}a", "1" * 32)
    journal.set_meta("study_id", "another")
    assert deliver(journal_path, target).pending == 0
    run = client(target).get_run(run_ids(journal, target)["a"])
    assert history(target, run, "nmse") == recorded(journal, "a")


def test_a_run_the_user_deleted_stays_deleted_and_holds_nothing_up(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
    deliver(journal_path, target)
    client(target).delete_run(run_ids(journal, target)["a"])
    for key in ("a", "b"):
        report(journal, key, range(1, 4), TrialStatus.FINISHED)
    assert deliver(journal_path, target) == TrackingSummary(delivered=8, pending=0)
    runs = runs_by_key(target)
    assert set(runs) == {"b", "parent"}
    assert history(target, runs["b"], "nmse") == recorded(journal, "b")


def test_two_studies_of_one_name_do_not_share_runs(
    journal: Journal, journal_path: Path, target: TrackingTarget, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other_path = tmp_path / "elsewhere" / "journal.db"
    with Journal(other_path, create=True) as other:
        for each in (journal, other):
            plan(each, "a")
            each.begin_attempt("a")
        deliver(journal_path, target)
        deliver(other_path, target)
        assert run_ids(journal, target)["a"] != run_ids(other, target)["a"]


def test_two_deliveries_at_once_share_their_runs(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a", "b")
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 6))
        tracker.notify()
        assert sync(journal_path, target, **STUDY, is_running=True).error is None
    assert tracker.close(wait_seconds=60).pending == 0
    runs = runs_by_key(target)
    assert set(runs) == {"a", "b", "parent"}
    for key in ("a", "b"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)


def test_files_are_attached_to_the_studys_run(
    journal: Journal, journal_path: Path, target: TrackingTarget, tmp_path: Path
) -> None:
    plan(journal, "a")
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "report.html").write_text("<p>old</p>")
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    tracker.attach(tmp_path / "plan.json")
    tracker.attach(tmp_path / "never-written.json")
    assert tracker.close(wait_seconds=60) == TrackingSummary(0, 0)
    (tmp_path / "report.html").write_text("<p>new</p>")
    sync(journal_path, target, **STUDY, artifacts=[tmp_path / "report.html"])
    parent = runs_by_key(target)["parent"]
    listed = client(target).list_artifacts(parent.info.run_id)
    assert [file.path for file in listed] == ["plan.json", "report.html"]
    kept = tmp_path / "artifacts" / parent.info.run_id / "artifacts" / "report.html"
    assert kept.read_text() == "<p>new</p>"


@pytest.fixture
def server_that_is_down() -> TrackingTarget:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return TrackingTarget(f"http://ann:secret@127.0.0.1:{port}", None, "heads")


def test_a_server_that_is_down_leaves_the_study_unharmed(
    journal: Journal,
    journal_path: Path,
    server_that_is_down: TrackingTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    plan(journal, "a")
    tracker = Tracker(journal_path, server_that_is_down, **STUDY)
    tracker.start()
    journal.begin_attempt("a")
    report(journal, "a", range(1, 6), TrialStatus.FINISHED)
    tracker.attach(journal_path)
    summary = tracker.close(wait_seconds=30)
    assert (summary.delivered, summary.pending) == (0, 7)
    assert summary.error is not None
    assert "secret" not in summary.error
    assert summary.unattached == (journal_path,)
    assert journal.status_counts()[TrialStatus.FINISHED] == 1
    assert sync(journal_path, server_that_is_down, **STUDY).pending == 7


def test_close_waits_no_longer_than_asked(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()

    def hangs(self: Delivery) -> int:
        entered.set()
        release.wait(60)
        return 0

    monkeypatch.setattr(Delivery, "deliver_rows", hangs)
    plan(journal, "a")
    journal.begin_attempt("a")
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    assert entered.wait(60)
    summary = tracker.close(wait_seconds=0.01)
    assert (summary.pending, summary.error) == (1, "not done within 0.01 s")
    assert not release.is_set()
    release.set()
    tracker._thread.join(60)
    assert not tracker._thread.is_alive()


def test_sync_begins_no_batch_after_its_time_is_up(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report_file = journal_path.with_name("report.html")
    summary = sync(journal_path, target, **STUDY, artifacts=[report_file], wait_seconds=0)
    assert summary == TrackingSummary(0, 1, "not done within 0 s", (report_file,))
    assert deliver(journal_path, target) == TrackingSummary(1, 0)


def test_a_broken_journal_is_an_error_text_and_not_an_exception(
    tmp_path: Path, target: TrackingTarget
) -> None:
    tracker = Tracker(tmp_path / "none" / "journal.db", target, **STUDY)
    tracker.start()
    summary = tracker.close(wait_seconds=30)
    assert summary.error is not None
    assert "is missing" in summary.error
    with pytest.raises(UserError, match="is missing"):
        sync(tmp_path / "none" / "journal.db", target, **STUDY)


def test_a_tracker_that_never_started_reports_everything_as_pending(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    assert Tracker(journal_path, target, **STUDY).close(wait_seconds=1).pending == 1


def test_a_deleted_experiment_is_named_in_the_error(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    deliver(journal_path, target)
    experiment = client(target).get_experiment_by_name("heads")
    assert experiment is not None
    client(target).delete_experiment(experiment.experiment_id)
    report(journal, "a", range(1, 3))
    summary = deliver(journal_path, target)
    assert summary.pending == 2
    assert "'heads' was deleted" in (summary.error or "")
    assert client(target).search_experiments(ViewType.DELETED_ONLY)


def test_a_database_is_made_once_and_nothing_half_made_is_used(empty_database: Path) -> None:
    assert not draft_of(empty_database).exists()
    target = TrackingTarget(f"sqlite:///{empty_database}", None, "heads")
    before = empty_database.stat()
    initialise_database(target)
    assert empty_database.stat() == before
    default = client(target).get_experiment_by_name("Default")
    assert default is not None
    assert default.artifact_location.startswith(empty_database.parent.as_uri())


def test_runs_have_addresses_without_secrets_on_a_server_and_on_the_local_ui(
    journal: Journal, journal_path: Path
) -> None:
    server = TrackingTarget("https://ann:secret@host:5000/", None, "heads")
    assert run_urls(journal, server) == {}
    journal.set_meta(server.experiment_name, "7")
    journal.set_meta(f"{server.run_prefix}a", "f00")
    assert run_urls(journal, server) == {"a": "https://host:5000/#/experiments/7/runs/f00"}
    local = TrackingTarget("sqlite:////tmp/mlflow.db", None, "heads")
    journal.set_meta(local.experiment_name, "3")
    journal.set_meta(f"{local.run_prefix}b", "f01")
    assert run_urls(journal, local) == {"b": f"{LOCAL_UI}/#/experiments/3/runs/f01"}


def test_tags_name_the_commits() -> None:
    provenance = {
        "tool": {"commit": "aaa", "dirty": True},
        "sweep": {"commit": "bbb", "dirty": False},
    }
    assert provenance_tags(provenance) == {
        "hsweep.tool_commit": "aaa-dirty",
        "hsweep.sweep_commit": "bbb",
        "mlflow.source.git.commit": "bbb",
    }
    assert provenance_tags({"tool": None, "sweep": None}) == {}
