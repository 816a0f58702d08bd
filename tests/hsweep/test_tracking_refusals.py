"""What a store refuses for good, what it answers too late, and what others hold locked."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
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
from mlflow_stores import (
    STUDY,
    client,
    database,
    history,
    locked,
    plan,
    recorded,
    report,
    runs_by_key,
    runs_of,
)

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal
from hsweep.tracking.tracker import Tracker, TrackingSummary, TrackingTarget, run_ids, sync


@pytest.fixture
def file(empty_database: Path, tmp_path: Path) -> Path:
    return database(tmp_path / "mlflow", empty_database)


@pytest.fixture
def target(file: Path) -> TrackingTarget:
    return TrackingTarget(f"sqlite:///{file}", (file.parent / "artifacts").as_uri(), "heads")


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "study" / "journal.db"


@pytest.fixture
def journal(journal_path: Path) -> Iterator[Journal]:
    journal_path.parent.mkdir()
    with Journal(journal_path, create=True) as journal:
        yield journal


def deliver(journal_path: Path, target: TrackingTarget) -> TrackingSummary:
    return sync(journal_path, target, **STUDY)


def refusing(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    is_refused: Callable[..., bool],
    code: int = INVALID_PARAMETER_VALUE,
) -> list[str]:
    """Let the store refuse some calls of a method; return the runs or names it was called with."""
    real, calls = getattr(MlflowClient, method), []

    def call(self: MlflowClient, run_id: str, *values: Any, **named: Any) -> Any:
        calls.append(run_id)
        if is_refused(run_id, **named):
            raise MlflowException("not with me", error_code=code)
        return real(self, run_id, *values, **named)

    monkeypatch.setattr(MlflowClient, method, call)
    return calls


def test_a_changed_parameter_keeps_back_itself_alone(
    journal: Journal, journal_path: Path, target: TrackingTarget, file: Path
) -> None:
    plan(journal, "a", "b")
    report(journal, "a", range(1, 3))
    deliver(journal_path, target)
    # Before its first status the run has no parameters; somebody gives it one of another value.
    run_id = run_ids(journal, target)["a"]
    client(target).log_param(run_id, "heads", "99")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(3, 6), TrialStatus.FINISHED)

    summary = deliver(journal_path, target)
    assert (summary.delivered, summary.pending, summary.error) == (10, 0, None)
    assert not summary.is_complete
    (refused,) = summary.refused
    assert (refused.key, refused.run) == ("a", "heads=1 seq_len=16 #1")
    assert refused.why.startswith("param heads: MlflowException: ")
    assert ";" not in refused.why, "nothing else was refused"
    runs = runs_by_key(target)
    for key in ("a", "b"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)
        assert runs[key].info.status == "FINISHED"
    assert runs["a"].data.params["seq_len"] == "16"

    again = deliver(journal_path, target)
    assert (again.delivered, again.refused) == (0, summary.refused)
    with sqlite3.connect(file) as store:
        store.execute("DELETE FROM params WHERE key = 'heads' AND value = '99'")
    assert deliver(journal_path, target) == TrackingSummary(0, 0)
    assert runs_by_key(target)["a"].data.params["heads"] == "1"
    assert history(target, runs["a"], "nmse") == recorded(journal, "a")


def test_a_run_that_cannot_be_created_is_left_out_and_made_later(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 4), TrialStatus.FINISHED)
    with monkeypatch.context() as patch:
        refusing(patch, "create_run", lambda _, tags, **__: tags.get("hsweep.trial") == "a")
        summary = deliver(journal_path, target)
    assert (summary.delivered, summary.pending) == (10, 0)
    assert [each.key for each in summary.refused] == ["a"]
    assert set(runs_by_key(target)) == {"b", "parent"}
    assert deliver(journal_path, target).is_complete
    runs = runs_by_key(target)
    assert history(target, runs["a"], "nmse") == recorded(journal, "a")
    assert runs["a"].info.status == "FINISHED"


def test_a_run_that_takes_no_metric_is_told_in_few_calls(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, "a", "b")
    for key in ("a", "b"):
        journal.begin_attempt(key)
        report(journal, key, range(1, 200), TrialStatus.FINISHED)
    with monkeypatch.context() as patch:
        calls = refusing(
            patch,
            "log_batch",
            lambda run_id, metrics, **_: bool(metrics) and run_id == run_ids(journal, target)["a"],
        )
        summary = deliver(journal_path, target)
        assert len(calls) < 100
    (refused,) = summary.refused
    assert refused.why.startswith("metric nmse at 1, metric nmse at 2, metric nmse at 3 and 19")
    assert refused.why.endswith(" more: MlflowException: not with me")
    runs = runs_by_key(target)
    assert history(target, runs["b"], "nmse") == recorded(journal, "b")
    assert runs["a"].data.tags["hsweep.status"] == "finished"
    assert deliver(journal_path, target).is_complete
    assert history(target, runs["a"], "nmse") == recorded(journal, "a")


def test_later_records_of_a_refused_run_are_sent_and_the_first_refused_one_is_remembered(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, "a")
    with monkeypatch.context() as patch:
        refusing(patch, "log_batch", lambda _, metrics, **__: any(m.step < 5 for m in metrics))
        for units in (range(1, 3), range(3, 5), range(5, 7)):
            report(journal, "a", units)
            tracker = Tracker(journal_path, target, **STUDY)
            tracker.start()
            assert [each.key for each in tracker.close(wait_seconds=60).refused] == ["a"]
        assert [step for step, _, _ in history(target, runs_by_key(target)["a"], "nmse")] == [5, 6]
    assert deliver(journal_path, target).is_complete
    assert history(target, runs_by_key(target)["a"], "nmse") == recorded(journal, "a")


@pytest.mark.parametrize(
    "code", [TEMPORARILY_UNAVAILABLE, REQUEST_LIMIT_EXCEEDED, PERMISSION_DENIED]
)
def test_what_may_pass_is_waited_for_and_not_taken_as_refused(
    journal: Journal,
    journal_path: Path,
    target: TrackingTarget,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    plan(journal, "a")
    report(journal, "a", range(1, 4))
    with monkeypatch.context() as patch:
        refusing(patch, "log_batch", lambda _, **__: True, code)
        summary = deliver(journal_path, target)
    assert (summary.delivered, summary.pending, summary.refused) == (0, 3, ())
    assert "not with me" in (summary.error or "")
    assert deliver(journal_path, target) == TrackingSummary(3, 0)


def test_a_run_created_by_a_request_that_is_carried_out_late_leaves_no_twin(
    journal: Journal, journal_path: Path, target: TrackingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4), TrialStatus.FINISHED)
    late: list[Callable[[], Any]] = []
    real = MlflowClient.create_run

    def gives_up(self: MlflowClient, *values: Any, **named: Any) -> Any:
        late.append(lambda: real(self, *values, **named))
        raise ConnectionError("timed out")

    # Twice: the study's own run and the trial's.
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, "create_run", gives_up)
            assert "timed out" in (deliver(journal_path, target).error or "")
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
            deliver(journal_path, target)
    for carry_out in late:
        carry_out()
    assert len(runs_of(target)) == 2 + len(late) == 5
    assert deliver(journal_path, target).is_complete
    runs = runs_by_key(target)
    assert set(runs) == {"a", "parent"}
    assert runs["a"].info.run_id == run_ids(journal, target)["a"]
    assert runs["a"].data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id
    assert history(target, runs["a"], "nmse") == recorded(journal, "a")
    assert journal.metas(target.doubt_prefix) == {}


def test_a_second_run_that_holds_something_is_nobodys_to_delete(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.begin_attempt("a")
    report(journal, "a", range(1, 4), TrialStatus.FINISHED)
    deliver(journal_path, target)
    run = runs_by_key(target)["a"]
    mlflow = client(target)
    copy = mlflow.create_run(run.info.experiment_id, tags=run.data.tags)
    mlflow.log_metric(copy.info.run_id, "mine", 1.0)
    deliver(journal_path, target)
    assert copy.info.run_id in {each.info.run_id for each in runs_of(target)}
    assert run_ids(journal, target) == {"a": run.info.run_id}


def test_what_became_of_a_trial_is_in_its_tags(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "large", "gone", "back", "parts")
    journal.set_status("large", 1, TrialStatus.TOO_LARGE, "needs 9 GB")
    report(journal, "gone", range(1, 3))
    journal.set_orphaned(["gone", "back"], "heads=2 is no longer in the sweep")
    deliver(journal_path, target)
    journal.set_orphaned(["back"], "")
    metrics = {"nmse": 0.5}
    journal.record(
        "parts", 1, Report(1, 10, metrics, 0.5, False, micro_batch=4, note="in parts of 4"), 0.5
    )
    assert deliver(journal_path, target).is_complete
    runs = runs_by_key(target)
    assert runs["large"].info.status == "FAILED"
    large = {"hsweep.status": "too_large", "hsweep.reason": "needs 9 GB"}
    assert large.items() <= runs["large"].data.tags.items()
    assert runs["gone"].data.tags["hsweep.orphaned"] == "heads=2 is no longer in the sweep"
    assert runs["back"].data.tags["hsweep.orphaned"] == "false"
    assert "hsweep.orphaned" not in runs["large"].data.tags
    parts = {"hsweep.micro_batch": "4", "hsweep.note": "in parts of 4"}
    assert parts.items() <= runs["parts"].data.tags.items()


def test_a_trial_taken_from_elsewhere_says_so_and_keeps_its_times(
    journal: Journal, journal_path: Path, target: TrackingTarget, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with Journal(tmp_path / "other" / "journal.db", create=True) as other:
        plan(other, "a")
        report(other, "a", range(1, 4), TrialStatus.FINISHED)
        reports = list(other.reports("a"))
    plan(journal, "a", "b")
    finished = TrialStatus.FINISHED
    journal.adopt("a", reports, status=finished, value=1 / 3, reused_from="heads-0")
    journal.adopt("b", reports[:2], status=TrialStatus.PLANNED, value=0.5, continues="a")
    assert deliver(journal_path, target).is_complete
    runs = runs_by_key(target)
    assert runs["a"].data.tags["hsweep.reused_from"] == "heads-0"
    assert runs["b"].data.tags["hsweep.continues"] == "a"
    assert history(target, runs["a"], "nmse") == recorded(journal, "a")
    assert runs["a"].info.start_time == int(reports[0].time * 1000)
    assert runs["a"].info.end_time == int(reports[-1].time * 1000)
    assert runs["a"].data.metrics["final/nmse"] == pytest.approx(1 / 3)


def test_a_reason_is_shortened_and_without_secrets(
    journal: Journal, journal_path: Path, target: TrackingTarget
) -> None:
    plan(journal, "a")
    journal.set_status("a", 1, TrialStatus.FAILED, "s3://KEY:canary@bucket " + "x" * 20_000)
    assert deliver(journal_path, target).is_complete
    reason = runs_by_key(target)["a"].data.tags["hsweep.reason"]
    assert reason.startswith("s3://***@bucket xxx")
    assert reason.endswith("x ...")
    assert len(reason) == 5000


def test_while_another_process_holds_the_store_the_study_goes_on(
    journal: Journal, journal_path: Path, target: TrackingTarget, file: Path
) -> None:
    plan(journal, "a", "b")
    tracker = Tracker(journal_path, target, **STUDY)
    with locked(file) as let_go:
        tracker.start()
        for key in ("a", "b"):
            journal.begin_attempt(key)
            report(journal, key, range(1, 6), TrialStatus.FINISHED)
        assert (tracker.summary().delivered, tracker.summary().pending) == (0, 14)
        let_go()
        assert tracker.close(wait_seconds=120) == TrackingSummary(14, 0)
    runs = runs_by_key(target)
    for key in ("a", "b"):
        assert history(target, runs[key], "nmse") == recorded(journal, key)


def test_two_studies_at_once_share_a_store(
    empty_database: Path, tmp_path: Path, target: TrackingTarget
) -> None:
    names = ("one", "two")
    summaries: dict[str, TrackingSummary] = {}
    begin = threading.Barrier(2)

    def deliver_from(name: str) -> None:
        begin.wait(60)
        summaries[name] = sync(
            tmp_path / name / "journal.db", target, study=name, tags={}, metric="nmse"
        )

    for name in names:
        (tmp_path / name).mkdir()
        with Journal(tmp_path / name / "journal.db", create=True) as journal:
            plan(journal, *(f"{name}-{i}" for i in range(5)))
            for i in range(5):
                report(journal, f"{name}-{i}", range(1, 4), TrialStatus.FINISHED)
    threads = [threading.Thread(target=deliver_from, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert summaries == dict.fromkeys(names, TrackingSummary(20, 0))
    runs = [run for run in runs_of(target) if "hsweep.trial" in run.data.tags]
    by_key = {run.data.tags["hsweep.trial"]: run for run in runs}
    assert len(runs) == len(by_key) == 10
    for name in names:
        with Journal(tmp_path / name / "journal.db", read_only=True) as journal:
            for i in range(5):
                run = by_key[f"{name}-{i}"]
                assert history(target, run, "nmse") == recorded(journal, f"{name}-{i}")


@pytest.mark.slow
def test_a_store_that_stays_locked_is_given_up_with_its_reason_and_served_later(
    journal: Journal,
    journal_path: Path,
    target: TrackingTarget,
    file: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plan(journal, "a")
    report(journal, "a", range(1, 4))
    with locked(file):
        summary = deliver(journal_path, target)
        assert (summary.delivered, summary.pending) == (0, 3)
        assert "database is locked" in (summary.error or "")
    assert capfd.readouterr() == ("", "")
    assert deliver(journal_path, target) == TrackingSummary(3, 0)
