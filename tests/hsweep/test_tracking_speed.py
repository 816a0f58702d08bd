"""Delivery asks the store and the record for no more than it needs, and ends the same."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow_stores import STUDY, history, plan, recorded, report, runs_by_key
from sqlalchemy import create_engine, text

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import Journal
from hsweep.tracking.delivery import Delivery, Source
from hsweep.tracking.store import connect
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.tracker import Tracker, seconds_after_slice, seconds_of_rest, sync


@pytest.fixture
def target(empty_database: Path, tmp_path: Path) -> TrackingTarget:
    file = tmp_path / "mlflow.db"
    shutil.copy(empty_database, file)
    return TrackingTarget(f"sqlite:///{file}", (tmp_path / "artifacts").as_uri(), "heads")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "study").mkdir()
    with Journal(tmp_path / "study" / "journal.db", create=True) as journal:
        yield journal


def test_parameters_are_sent_once_a_connection(
    journal: Journal, tmp_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    real = MlflowClient.log_batch

    def counted(self: MlflowClient, run_id: str, **values: Any) -> None:
        sent.append(len(values["params"]))
        real(self, run_id, **values)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    path = tmp_path / "study" / "journal.db"
    source = Source(path, target, STUDY["study"], STUDY["tags"], STUDY["metric"])
    plan(journal, "a")
    with closing(Delivery(source, reopen=True)) as delivery:
        journal.begin_attempt("a")
        delivery.deliver_rows()
        report(journal, "a", range(1, 3), TrialStatus.PLANNED)
        delivery.deliver_rows()
    journal.begin_attempt("a")
    report(journal, "a", range(3, 5), TrialStatus.FINISHED)
    assert sync(path, target, **STUDY).is_complete
    assert sent == [6, 0, 6], "a new connection does not know what the last one had sent"
    assert runs_by_key(target)["a"].data.params["heads"] == "1"


def test_only_the_trials_of_a_batch_are_read(
    journal: Journal, tmp_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, *(f"trial {number}" for number in range(50)))
    for key in ("trial 3", "trial 7"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4), TrialStatus.FINISHED)
    read: list[str] = []
    real = Journal.trials_of

    def counted(self: Journal, keys: Any) -> Any:
        found = real(self, keys)
        read.extend(found)
        return found

    def every_trial(self: Journal, **options: Any) -> Any:
        raise AssertionError("all trials were read")

    monkeypatch.setattr(Journal, "trials_of", counted)
    path = tmp_path / "study" / "journal.db"
    source = Source(path, target, STUDY["study"], STUDY["tags"], STUDY["metric"])
    with closing(Delivery(source, reopen=True)) as delivery, monkeypatch.context() as patch:
        patch.setattr(Journal, "trials", every_trial)
        assert delivery.deliver_rows() == 8 + 2
    assert read == ["trial 3", "trial 7"]


def test_a_store_made_here_writes_ahead_and_is_not_forced_to_disk_at_each_commit(
    target: TrackingTarget,
) -> None:
    connect(target)
    with create_engine(target.uri).connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 1


def test_a_store_of_the_users_own_making_keeps_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE anything (value TEXT)")
    connect(TrackingTarget(f"sqlite:///{file}", None, "heads"))
    with create_engine(f"sqlite:///{file}").connect() as opened:
        assert opened.execute(text("PRAGMA journal_mode")).scalar() == "delete"
        assert opened.execute(text("PRAGMA synchronous")).scalar() == 2


@pytest.mark.parametrize(("taken", "rest"), [(0.0, 1.0), (0.1, 5.0), (2.0, 15.0)])
def test_the_tracker_rests_in_proportion_to_what_a_delivery_took(taken: float, rest: float) -> None:
    assert seconds_of_rest(taken) == pytest.approx(rest)


@pytest.mark.parametrize(
    ("computed", "cores", "rest"), [(0.25, 2, 1.0), (0.25, 1, 2.25), (0.25, 10, 0.0), (1, 64, 0.0)]
)
def test_a_delivery_that_is_not_done_has_a_tenth_of_the_cores(
    computed: float, cores: int, rest: float
) -> None:
    assert seconds_after_slice(computed, cores) == pytest.approx(rest)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Deliver nothing beside training: a slice is over when it begins, and its pause is long."""
    is_paused = threading.Event()

    def long(computed: float, cores: int) -> float:
        is_paused.set()
        return 3600.0

    monkeypatch.setattr("hsweep.tracking.tracker._SLICE_SECONDS", 0.0)
    monkeypatch.setattr("hsweep.tracking.tracker.seconds_after_slice", long)
    return is_paused


def test_what_a_slice_left_is_delivered_when_it_is_waited_for(
    journal: Journal, tmp_path: Path, target: TrackingTarget, pauses: threading.Event
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4), TrialStatus.FINISHED)
    tracker = Tracker(tmp_path / "study" / "journal.db", target, **STUDY)
    tracker.start()
    assert pauses.wait(60)
    assert tracker.summary().pending == 2 * (1 + 3 + 1)
    assert tracker.drain(wait_seconds=60).pending == 0
    assert {run.info.status for run in runs_by_key(target).values()} == {"FINISHED", "RUNNING"}
    assert tracker.close(wait_seconds=60).is_complete


def test_what_a_slice_left_is_delivered_at_the_end(
    journal: Journal, tmp_path: Path, target: TrackingTarget, pauses: threading.Event
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4), TrialStatus.FINISHED)
    tracker = Tracker(tmp_path / "study" / "journal.db", target, **STUDY)
    tracker.start()
    assert pauses.wait(60)
    assert tracker.close(wait_seconds=60).is_complete
    run = runs_by_key(target)["a"]
    assert history(target, run, "nmse") == recorded(journal, "a")
