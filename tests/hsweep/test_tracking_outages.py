"""Delivery to a real MLflow server that is down, killed, restarted or slow."""

import contextlib
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driving import Workplace
from mlflow_stores import (
    DEADLINE,
    STUDY,
    Line,
    Server,
    client,
    database,
    history,
    plan,
    recorded,
    report,
    runs_by_key,
)

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import Journal
from hsweep.tracking.tracker import Tracker, TrackingSummary, TrackingTarget, run_ids, sync

pytestmark = pytest.mark.slow

KEYS = ("a", "b", "c")


@pytest.fixture
def server(empty_database: Path, tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = Server(database(tmp_path / "mlflow", empty_database))
    yield server
    server.kill()


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    """Leads to the server."""
    with contextlib.closing(Line(server.port)) as line:
        yield line


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "study" / "journal.db"


@pytest.fixture
def journal(journal_path: Path) -> Iterator[Journal]:
    journal_path.parent.mkdir()
    with Journal(journal_path, create=True) as journal:
        yield journal


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until_delivering(tracker: Tracker) -> None:
    until(lambda: tracker.summary().delivered > 0)


def assert_all_there(journal: Journal, target: TrackingTarget, *keys: str) -> None:
    """One run a trial, with every report once and in order."""
    runs = runs_by_key(target)
    assert set(runs) == {*keys, "parent"}
    assert run_ids(journal, target) == {key: runs[key].info.run_id for key in keys}
    for key in keys:
        rows = history(target, runs[key], "nmse")
        assert rows == recorded(journal, key)
        steps = [step for step, _, _ in rows]
        assert steps == list(range(1, len(steps) + 1))
        assert runs[key].data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id


def test_a_server_killed_and_restarted_while_the_study_runs(
    journal: Journal, journal_path: Path, server: Server, line: Line
) -> None:
    plan(journal, *KEYS)
    server.start()
    target = line.target("heads")
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    for key in KEYS:
        journal.begin_attempt(key)
        report(journal, key, range(1, 4))
    until(lambda: tracker.summary().delivered == journal.count_after(0))

    # The next report reaches the server, whose answer never comes: it dies over it.
    line.hold()
    report(journal, "a", range(4, 6))
    seen = len(line.requests)
    until(lambda: any("runs/log-batch" in each for each in line.requests[seen:]))
    server.kill()
    line.let_go()
    for key, first in (("a", 6), ("b", 4), ("c", 4)):
        report(journal, key, range(first, 9), TrialStatus.FINISHED)
    until(lambda: tracker.summary().error)
    assert tracker.summary().pending > 0

    server.start()
    summary = tracker.close(wait_seconds=DEADLINE)
    if not summary.is_complete:
        # Between its attempts the tracker waits ever longer; what it left is left to sync.
        summary = sync(journal_path, target, **STUDY)
    assert summary.is_complete, summary
    assert_all_there(journal, target, *KEYS)
    runs = runs_by_key(target)
    assert {runs[key].info.status for key in (*KEYS, "parent")} == {"FINISHED"}


def test_a_server_killed_again_and_again_holds_each_report_once(
    journal: Journal, journal_path: Path, server: Server
) -> None:
    plan(journal, *KEYS)
    target = server.target("heads")
    for round_ in range(2):
        units = range(3 * round_ + 1, 3 * round_ + 4)
        server.start()
        tracker = Tracker(journal_path, target, **STUDY)
        tracker.start()
        for key in KEYS:
            report(journal, key, units)
            tracker.notify()
        until_delivering(tracker)
        server.kill()
        tracker.close(wait_seconds=DEADLINE)
    server.start()
    assert sync(journal_path, target, **STUDY).pending == 0
    assert_all_there(journal, target, *KEYS)


def test_a_server_that_was_down_from_the_beginning_gets_everything_and_the_files(
    journal: Journal, journal_path: Path, server: Server, tmp_path: Path
) -> None:
    plan(journal, *KEYS)
    target = server.target("heads")
    tracker = Tracker(journal_path, target, **STUDY)
    tracker.start()
    for key in KEYS:
        journal.begin_attempt(key)
        report(journal, key, range(1, 6), TrialStatus.FINISHED, **{"top-1 (%)": 50.0})
    page = tmp_path / "report.html"
    page.write_text("<p>answer</p>")
    tracker.attach(page)
    summary = tracker.close(wait_seconds=DEADLINE)
    assert (summary.delivered, summary.pending) == (0, journal.count_after(0))
    assert summary.unattached == (page,)
    server.start()
    summary = sync(journal_path, target, **STUDY, artifacts=summary.unattached)
    assert summary == TrackingSummary(journal.count_after(0), 0)
    assert_all_there(journal, target, *KEYS)
    parent = runs_by_key(target)["parent"]
    listed = client(target).list_artifacts(parent.info.run_id)
    assert [each.path for each in listed] == ["report.html"]
    with urllib.request.urlopen(f"{server.uri}/", timeout=60) as answer:
        assert answer.status == 200


def test_an_answer_that_is_lost_makes_nothing_twice(
    journal: Journal, journal_path: Path, server: Server, line: Line
) -> None:
    plan(journal, *KEYS)
    for key in KEYS:
        journal.begin_attempt(key)
        report(journal, key, range(1, 6), TrialStatus.FINISHED)
    server.start()
    target = line.target("heads")
    # First the study's own run, then a trial's, then what is logged.
    for request in ("runs/create", "runs/create", "runs/log-batch", "runs/update"):
        line.lose_answer_to(request)
        assert sync(journal_path, target, **STUDY).error is not None
    assert sync(journal_path, target, **STUDY).is_complete
    assert_all_there(journal, target, *KEYS)
    assert journal.metas(target.doubt_prefix) == {}


def test_answers_that_take_half_a_minute_arrive(
    journal: Journal, journal_path: Path, server: Server, line: Line
) -> None:
    plan(journal, "a")
    server.start()
    target = line.target("heads")
    tracker = Tracker(journal_path, target, **STUDY)
    line.answer_after(30.0)
    tracker.start()
    journal.begin_attempt("a")
    report(journal, "a", range(1, 6), TrialStatus.FINISHED)
    line.wait_for_request("experiments/get-by-name")
    assert tracker.summary().pending == journal.count_after(0)
    # The second request follows only upon the first one's answer.
    line.wait_for_request("experiments/create")
    line.answer_after(0.0)
    assert tracker.close(wait_seconds=DEADLINE) == TrackingSummary(journal.count_after(0), 0)
    assert_all_there(journal, target, "a")


def test_a_study_ends_beside_a_hanging_server_and_sync_delivers_the_rest(
    tmp_path: Path, server: Server, line: Line
) -> None:
    (tmp_path / "work").mkdir()
    workplace = Workplace(tmp_path / "work")
    server.start()
    line.hold()
    try:
        how = ("--runner", "inline", "--study", "mine", "--tracking-uri", line.uri)
        driver = workplace.start("run", str(workplace.sweep), *how)
        driver.until(workplace.waiting)
        line.wait_for_request("experiments/get-by-name")
        driver.process.send_signal(signal.SIGINT)
        workplace.let_go()
        assert driver.wait() == 130
        said = driver.stdout()
        assert "hsweep sync mine --home" in said, said
        line.let_go()
        study = workplace.study("mine")
        assert "(not done within" in said
        workplace.run("sync", "mine")
        target = line.target("outside")
        with Journal(study / "journal.db", read_only=True) as journal:
            begun = [row.key for row in journal.trials() if row.attempt]
            assert begun
            assert_all_there(journal, target, *begun)
        assert runs_by_key(target)["parent"].info.status == "KILLED"
        # The study goes on, and the same runs with it.
        workplace.run("resume", "mine", "--runner", "inline")
        with Journal(study / "journal.db", read_only=True) as journal:
            assert_all_there(journal, target, *(row.key for row in journal.trials()))
    finally:
        workplace.close()
