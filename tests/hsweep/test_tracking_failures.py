"""What a store refuses, what it answers too late, and what others hold locked."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INVALID_PARAMETER_VALUE,
    PERMISSION_DENIED,
    REQUEST_LIMIT_EXCEEDED,
    TEMPORARILY_UNAVAILABLE,
)
from mlflow_stores import DEADLINE, Tracked, client, locked, report, runs_of

from hsweep.design.trial import TrialStatus
from hsweep.tracking.tracker import TrackingSummary

FINISHED = TrialStatus.FINISHED


def failing(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: Exception,
    when: Callable[..., bool] = lambda *_, **__: True,
) -> None:
    """Let some calls of a method of MLflow's client fail."""
    real = getattr(MlflowClient, method)

    def call(self: MlflowClient, *values: Any, **named: Any) -> Any:
        if when(*values, **named):
            raise error
        return real(self, *values, **named)

    monkeypatch.setattr(MlflowClient, method, call)


def refusal(code: int = INVALID_PARAMETER_VALUE) -> MlflowException:
    return MlflowException("not with me", error_code=code)


def test_a_run_that_is_refused_something_is_left_and_the_others_go_on(tracked: Tracked) -> None:
    tracked.plan("a", "b")
    report(tracked.journal, "a", range(1, 3))
    tracked.sync()
    # Before its first status the run has no parameters; the user gives it one of another value.
    client(tracked.target).log_param(tracked.state.runs["a"], "heads", "99")
    for key in ("a", "b"):
        tracked.train(key, range(3, 6) if key == "a" else range(1, 4), FINISHED)

    summary = tracked.track()
    assert (summary.delivered, summary.pending, summary.error) == (10, 0, None)
    assert not summary.is_complete
    (refused,) = summary.refused
    assert (refused.key, refused.run) == ("a", "heads=1 #1")
    assert refused.why.startswith("MlflowException: ")
    assert "99" in refused.why
    assert tracked.runs["b"].info.status == "FINISHED"
    assert tracked.runs["a"].info.status == "RUNNING"

    again = tracked.sync()
    assert (again.pending, again.error, again.refused) == (0, None, summary.refused)
    with closing(sqlite3.connect(str(tracked.target.sqlite_file))) as store, store:
        store.execute("DELETE FROM params WHERE key = 'heads' AND value = '99'")
    assert tracked.sync().is_complete
    assert tracked.sync() == TrackingSummary(0, 0)
    tracked.assert_all_there("a", "b")
    assert tracked.runs["a"].data.params["heads"] == "1"
    assert tracked.runs["a"].info.status == "FINISHED"


def test_a_run_that_cannot_be_created_is_left_and_made_by_the_next_run(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked.plan("a", "b")
    with monkeypatch.context() as patch:
        failing(
            patch, "create_run", refusal(), lambda *_, tags, **__: tags.get("hsweep.trial") == "a"
        )
        for units, status in ((range(1, 4), TrialStatus.RUNNING), (range(4, 6), FINISHED)):
            for key in ("a", "b"):
                report(tracked.journal, key, units, status)
            assert [each.key for each in tracked.sync().refused] == ["a"]
    assert set(tracked.runs) == {"b", "parent"}
    assert tracked.track().is_complete
    tracked.assert_all_there("a", "b")
    assert tracked.runs["a"].info.status == "FINISHED"


def test_a_failure_within_a_batch_is_made_up_for(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked.trains("ab", range(1, 4))
    seen: list[str] = []

    def is_second(run_id: str, *_: Any) -> bool:
        seen.append(run_id)
        return len(seen) == 2

    with monkeypatch.context() as patch:
        failing(patch, "log_batch", ConnectionError("http://ann:secret@host is gone"), is_second)
        failed = tracked.sync()
    assert (failed.delivered, failed.pending) == (4, 4)
    assert failed.error == "ConnectionError: http://***@host is gone"
    assert tracked.sync() == TrackingSummary(delivered=4, pending=0)
    tracked.assert_all_there("a", "b")
    assert tracked.runs["b"].data.params["heads"]


@pytest.mark.parametrize(
    "code", [TEMPORARILY_UNAVAILABLE, REQUEST_LIMIT_EXCEEDED, PERMISSION_DENIED]
)
def test_what_may_pass_is_waited_for_and_not_taken_as_refused(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    tracked.plan("a")
    report(tracked.journal, "a", range(1, 4))
    with monkeypatch.context() as patch:
        failing(patch, "log_batch", refusal(code))
        summary = tracked.sync()
    assert (summary.delivered, summary.pending, summary.refused) == (0, 3, ())
    assert "not with me" in (summary.error or "")
    assert tracked.sync() == TrackingSummary(3, 0)


def test_a_run_created_by_a_request_that_is_carried_out_late_leaves_no_twin(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked.trains("a", range(1, 4), FINISHED)
    late: list[Callable[[], Any]] = []
    real = MlflowClient.create_run

    def gives_up(self: MlflowClient, *values: Any, **named: Any) -> Any:
        late.append(lambda: real(self, *values, **named))
        raise ConnectionError("timed out")

    # Twice: the study's own run and the trial's.
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, "create_run", gives_up)
            assert "timed out" in (tracked.sync().error or "")
        with monkeypatch.context() as patch:
            made: list[str] = []

            def once(
                self: MlflowClient, *values: Any, _made: list[str] = made, **named: Any
            ) -> Any:
                if _made:
                    return gives_up(self, *values, **named)
                _made.append("run")
                return real(self, *values, **named)

            patch.setattr(MlflowClient, "create_run", once)
            tracked.sync()
    for carry_out in late:
        carry_out()
    assert len(runs_of(tracked.target)) == 2 + len(late) == 5
    # Even where it is not known any more which of them was delivered to.
    tracked.state_file.unlink()
    assert tracked.sync().is_complete
    tracked.assert_all_there("a")


def test_a_second_run_that_holds_something_is_not_deleted(tracked: Tracked) -> None:
    tracked.trains("a", range(1, 4), FINISHED)
    tracked.sync()
    run = tracked.runs["a"]
    mlflow = client(tracked.target)
    copy = mlflow.create_run(run.info.experiment_id, tags=run.data.tags)
    mlflow.log_metric(copy.info.run_id, "mine", 1.0)
    tracked.sync()
    assert copy.info.run_id in {each.info.run_id for each in runs_of(tracked.target)}
    assert tracked.state.trial_runs == {"a": run.info.run_id}


def test_while_another_process_holds_the_store_the_study_goes_on(tracked: Tracked) -> None:
    tracked.plan("a", "b")
    tracker = tracked.tracker()
    file = tracked.target.sqlite_file
    assert file is not None
    with locked(file) as let_go:
        tracker.start()
        for key in ("a", "b"):
            tracked.train(key, range(1, 6), FINISHED)
        assert (tracker.summary().delivered, tracker.summary().pending) == (0, 14)
        let_go()
        assert tracker.close(wait_seconds=DEADLINE) == TrackingSummary(14, 0)
    tracked.assert_all_there("a", "b")


@pytest.mark.slow
def test_a_store_that_stays_locked_is_given_up_with_its_reason_and_served_later(
    tracked: Tracked, capfd: pytest.CaptureFixture[str]
) -> None:
    tracked.plan("a")
    report(tracked.journal, "a", range(1, 4))
    file = tracked.target.sqlite_file
    assert file is not None
    with locked(file):
        summary = tracked.sync()
        assert (summary.delivered, summary.pending) == (0, 3)
        assert "database is locked" in (summary.error or "")
    assert capfd.readouterr() == ("", "")
    assert tracked.sync() == TrackingSummary(3, 0)
