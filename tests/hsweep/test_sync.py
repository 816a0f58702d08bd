"""``hsweep sync``, and the shutdown of a run whose store does not answer."""

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from click.testing import Result
from mlflow.entities import Run
from mlflow_stores import client, database, free_port, history, recorded, runs_by_key
from rich.console import Console
from tiny_studies import SWEEP_FILE, finish, manifest, new_study, recording

from hsweep.paths import Home
from hsweep.record.lease import holding
from hsweep.record.study import StudyFolder
from hsweep.tracking.target import Refusal, TrackingTarget, tracking_target
from hsweep.tracking.tracker import Tracker, TrackingSummary, sync_line, tracking_lines


@pytest.fixture
def store(empty_database: Path, tmp_path: Path) -> str:
    return f"sqlite:///{database(tmp_path / 'mlflow', empty_database)}"


def ended_study(home: Home, name: str) -> StudyFolder:
    """A study all of whose trials finished while no tracker ran."""
    study = new_study(home, name)
    with recording(study) as (journal, trials):
        for trial in trials:
            finish(journal, trial, 0.25)
    return study


def num_records(study: StudyFolder) -> int:
    with study.journal() as journal:
        return journal.count_after(0)


def assert_delivered(study: StudyFolder, target: TrackingTarget) -> dict[str, Run]:
    """Check that a store has every report of every trial, and return its runs."""
    runs = runs_by_key(target)
    with study.journal() as journal:
        for row in journal.trials():
            assert history(target, runs[row.key], "nmse") == recorded(journal, row.key)
    return runs


def output(result: Result) -> str:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout + result.stderr


def test_sync_delivers_records_and_files_and_a_second_one_changes_nothing(
    home: Home, hsweep: Callable[..., Result], store: str
) -> None:
    study = ended_study(home, "mine")
    study.paths.report.write_text("<p>answer</p>")
    first = hsweep("sync", "mine", "--tracking-uri", store)
    assert first.exit_code == 0, output(first)
    assert f"mine: {num_records(study)} records delivered to {store}" in first.stdout
    target = tracking_target(store, home, study.manifest.sweep)
    runs = assert_delivered(study, target)
    parent = runs["parent"]
    assert parent.info.status == "FINISHED"
    listed = client(target).list_artifacts(parent.info.run_id)
    assert [each.path for each in listed] == ["plan.json", "report.html"]
    second = hsweep("sync", "mine", "--tracking-uri", store, "--json")
    assert second.exit_code == 0
    assert json.loads(second.stdout) == [
        {
            "study": "mine", "store": store, "running": False, "complete": True, "delivered": 0,
            "pending": 0, "files_left": [], "refused": [], "error": None,
        }
    ]  # fmt: skip
    assert runs_by_key(target).keys() == runs.keys()


def test_without_names_every_study_is_served_and_what_is_wrong_with_one_is_said(
    home: Home, hsweep: Callable[..., Result], store: str
) -> None:
    ended_study(home, "one")
    broken = ended_study(home, "two")
    ended_study(home, "three")
    shutil.rmtree(broken.paths.journal)
    result = hsweep("sync", "--tracking-uri", store, "--json")
    assert result.exit_code == 1, output(result)
    found = {each["study"]: each for each in json.loads(result.stdout)}
    assert {name: each["complete"] for name, each in found.items()} == {
        "one": True, "two": False, "three": True,
    }  # fmt: skip
    assert "cannot be read" in found["two"]["error"]
    assert found["one"]["delivered"] == found["three"]["delivered"] > 0


def test_a_store_that_is_down_leaves_everything_pending_and_exit_code_1(
    home: Home, hsweep: Callable[..., Result]
) -> None:
    study = ended_study(home, "mine")
    uri = f"http://ann:canary@127.0.0.1:{free_port()}"
    result = hsweep("sync", "mine", "--tracking-uri", uri)
    assert result.exit_code == 1
    assert f"{num_records(study)} records and 1 files are left (MlflowException: " in result.stdout
    assert "canary" not in output(result)


def test_a_name_that_is_no_study_is_said_before_anything_is_delivered(
    home: Home, hsweep: Callable[..., Result], store: str
) -> None:
    study = ended_study(home, "mine")
    result = hsweep("sync", "mine", "yours", "--tracking-uri", store)
    assert result.exit_code == 2
    assert "no study called 'yours'" in result.stderr
    assert list(study.paths.root.glob("tracking-*.json")) == []


def test_an_empty_home_has_nothing_to_deliver(hsweep: Callable[..., Result]) -> None:
    result = hsweep("sync")
    assert (result.exit_code, "holds no study yet" in result.stdout) == (0, True)


def test_a_password_that_was_not_kept_is_asked_for_or_taken_from_the_environment(
    home: Home, hsweep: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"http://***@127.0.0.1:{free_port()}"
    StudyFolder.create(home, manifest(tracking_uri=uri), sweep_source=SWEEP_FILE, plan={})
    asked = hsweep("sync", "mine")
    assert asked.exit_code == 1
    assert "whose password is not kept; give it again with --tracking-uri" in asked.stdout
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "canary-word")
    tried = hsweep("sync", "mine")
    assert "0 records and 1 files are left (MlflowException: " in tried.stdout
    assert "canary-word" not in output(tried)


def test_a_study_that_runs_is_served_without_being_ended(
    home: Home, hsweep: Callable[..., Result], store: str
) -> None:
    study = ended_study(home, "mine")
    with holding(study.paths):
        result = hsweep("sync", "--tracking-uri", store, "--json")
    assert result.exit_code == 0, output(result)
    assert json.loads(result.stdout)[0]["running"]
    target = tracking_target(store, home, study.manifest.sweep)
    assert runs_by_key(target)["parent"].info.status == "RUNNING"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """One that takes every request and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_run_beside_a_server_that_never_answers_ends_and_names_what_delivers_the_rest(
    home: Home,
    hsweep: Callable[..., Result],
    silent_server: str,
    store: str,
    sweep_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hsweep.tracking.tracker._FLUSH_SECONDS", 0.2)
    monkeypatch.setattr("hsweep.tracking.tracker._CLOSE_SECONDS", 0.2)
    run = ("run", sweep_file, "--runner", "inline", "--study", "mine", "--set", "replicates=1")
    result = hsweep(*run, "--tracking-uri", silent_server)
    assert result.exit_code == 0, output(result)
    study = StudyFolder.open(home, "mine")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("MLflow has not")]
    assert line == (
        f"MLflow has not got {num_records(study)} records and 3 files yet (not done within "
        f"0.2 s); they are kept in the study; deliver them by: hsweep sync mine --home {home.root}"
    )
    # Elsewhere, as this one stays silent; what is delivered is the same.
    assert hsweep("sync", "mine", "--tracking-uri", store).exit_code == 0
    assert_delivered(study, tracking_target(store, home, study.manifest.sweep))


class StubTracker(Tracker):
    """A tracker whose store stays in some state; notes how long it is waited for."""

    def __init__(self, summary: TrackingSummary, interrupt_at: str = "") -> None:
        self._summary = summary
        self.target = TrackingTarget("http://host", None, "tiny")
        self._interrupt_at = interrupt_at
        self.waited: list[float] = []

    def summary(self) -> TrackingSummary:
        return self._summary

    def flush(self, *, wait_seconds: float) -> TrackingSummary:
        return self._wait("flush", wait_seconds)

    def close(self, *, wait_seconds: float) -> TrackingSummary:
        return self._wait("close", wait_seconds)

    def _wait(self, step: str, seconds: float) -> TrackingSummary:
        if step == self._interrupt_at and seconds:
            raise KeyboardInterrupt
        self.waited.append(seconds)
        return self._summary


def shut_down(tracker: Tracker, *, is_interrupted: bool = False) -> str:
    out = StringIO()
    tracker.await_delivery(Console(file=out, width=200), is_interrupted=is_interrupted)
    assert tracker.finish() == tracker.summary()
    return out.getvalue()


def test_waiting_for_a_slow_store_is_announced_and_for_a_swift_one_it_is_not() -> None:
    slow = StubTracker(TrackingSummary(0, 7))
    assert shut_down(slow).startswith("delivering 7 records to MLflow, for at most 30 s (Ctrl-C")
    assert sum(slow.waited) <= 90
    assert shut_down(StubTracker(TrackingSummary(7, 0))) == ""


def test_a_store_that_failed_is_not_waited_for_long() -> None:
    dead = StubTracker(TrackingSummary(0, 7, "connection refused"))
    assert shut_down(dead) == ""
    assert dead.waited[-1] <= 5


def test_after_an_interrupt_the_end_is_near_and_a_second_one_ends_the_waiting() -> None:
    slow = StubTracker(TrackingSummary(0, 7))
    shut_down(slow, is_interrupted=True)
    assert sum(slow.waited) <= 20
    again = StubTracker(TrackingSummary(0, 7), interrupt_at="flush")
    shut_down(again)
    assert again.waited == [0.0]
    late = StubTracker(TrackingSummary(0, 7), interrupt_at="close")
    shut_down(late)
    assert late.waited[-1] == 0.0


def test_the_line_that_delivers_names_the_store_where_the_study_does_not(home: Home) -> None:
    study = new_study(home, "mine")
    line = f"hsweep sync mine --home {home.root}"
    own = TrackingTarget(study.manifest.tracking_uri, None, "tiny")
    assert sync_line(study, own) == line
    other = TrackingTarget("http://ann:canary@host", None, "tiny")
    assert sync_line(study, other) == line.replace(
        "--home", "--tracking-uri 'http://***@host' --home"
    )


def test_what_is_refused_is_said_with_the_trial_and_the_reason(home: Home) -> None:
    study = new_study(home, "mine")
    target = TrackingTarget(study.manifest.tracking_uri, None, "tiny")
    refused = tuple(Refusal(str(i), i, f"width={i} #0", "param width: changed") for i in range(5))
    assert tracking_lines(TrackingSummary(9, 0), study, target) == []
    (line,) = tracking_lines(TrackingSummary(9, 0, refused=refused), study, target)
    assert "refuses part of 5 trials: width=0 #0: param width: changed; width=1" in line
    assert "and 2 more; it is kept in the study, and sent again by: hsweep sync mine" in line


def test_the_thread_of_a_tracker_that_hangs_keeps_no_process_alive(
    home: Home, silent_server: str
) -> None:
    study = ended_study(home, "mine")
    target = TrackingTarget(silent_server, None, "tiny")
    tracker = Tracker(study.paths.journal, target, study.manifest)
    tracker.start()
    assert tracker.flush(wait_seconds=0.3).pending
    tracker.close(wait_seconds=0)
    (thread,) = [each for each in threading.enumerate() if each.name == "hsweep-MLflow"][-1:]
    assert thread.daemon
