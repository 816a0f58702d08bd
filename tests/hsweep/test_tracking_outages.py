"""Delivery to a real MLflow server that is down, killed, restarted or slow."""

import contextlib
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import Workplace
from mlflow_stores import DEADLINE, Line, Server, Tracked, client, database, report, until

from hsweep.design.trial import TrialStatus
from hsweep.tracking.tracker import TrackingSummary
from hsweep.tracking.ui import reachable_run_urls

pytestmark = pytest.mark.slow

KEYS = ("a", "b", "c")
FINISHED = TrialStatus.FINISHED


@pytest.fixture
def server(empty_database: Path, tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = Server(database(tmp_path / "served", empty_database))
    yield server
    server.kill()


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    """Leads to the server."""
    with contextlib.closing(Line(server.port)) as line:
        yield line


def test_a_server_killed_and_restarted_while_the_study_runs(
    tracked: Tracked, server: Server, line: Line
) -> None:
    tracked.plan(*KEYS)
    server.start()
    tracked.target = line.target("heads")
    tracker = tracked.tracker()
    tracker.start()
    for key in KEYS:
        tracked.train(key, range(1, 4))
    until(lambda: tracker.summary().delivered == tracked.journal.count_after(0))

    # The next report reaches the server, whose answer never comes: it dies over it.
    line.hold()
    report(tracked.journal, "a", range(4, 6))
    seen = len(line.requests)
    until(lambda: any("runs/log-batch" in each for each in line.requests[seen:]))
    server.kill()
    line.let_go()
    for key, first in (("a", 6), ("b", 4), ("c", 4)):
        report(tracked.journal, key, range(first, 9), FINISHED)
    until(lambda: tracker.summary().error)
    assert tracker.summary().pending > 0

    server.start()
    summary = tracker.close(wait_seconds=DEADLINE)
    if not summary.is_complete:
        # Between its attempts the tracker waits ever longer; sync delivers what is pending then.
        summary = tracked.sync()
    assert summary.is_complete, summary
    tracked.assert_all_there(*KEYS)
    assert {run.info.status for run in tracked.runs.values()} == {"FINISHED"}
    # A report links the runs where they are found, and nothing where they are not.
    assert reachable_run_urls(tracked.path, tracked.target).keys() == set(KEYS)
    server.kill()
    assert reachable_run_urls(tracked.path, tracked.target) == {}


def test_a_server_that_was_down_from_the_beginning_gets_everything_and_the_files(
    tracked: Tracked, server: Server, tmp_path: Path
) -> None:
    tracked.plan(*KEYS)
    tracked.target = server.target("heads")
    tracker = tracked.tracker()
    tracker.start()
    for key in KEYS:
        tracked.train(key, range(1, 6), FINISHED, **{"top-1 (%)": 50.0})
    page = tmp_path / "report.html"
    page.write_text("<p>answer</p>")
    tracker.attach(page)
    summary = tracker.close(wait_seconds=DEADLINE)
    last = tracked.journal.count_after(0)
    assert (summary.delivered, summary.pending) == (0, last)
    assert summary.unattached == (page,)
    server.start()
    assert tracked.sync(artifacts=summary.unattached) == TrackingSummary(last, 0)
    tracked.assert_all_there(*KEYS)
    listed = client(tracked.target).list_artifacts(tracked.state.runs["parent"])
    assert [each.path for each in listed] == ["report.html"]
    with urllib.request.urlopen(f"{server.uri}/", timeout=60) as answer:
        assert answer.status == 200


def test_an_answer_that_is_lost_makes_nothing_twice(
    tracked: Tracked, server: Server, line: Line
) -> None:
    tracked.trains(KEYS, range(1, 6), FINISHED)
    server.start()
    tracked.target = line.target("heads")
    # First the study's own run, then a trial's, then what is logged.
    for request in ("runs/create", "runs/create", "runs/log-batch", "runs/update"):
        line.lose_answer_to(request)
        assert tracked.sync().error is not None
    assert tracked.sync().is_complete
    tracked.assert_all_there(*KEYS)


def test_answers_that_take_half_a_minute_arrive(
    tracked: Tracked, server: Server, line: Line
) -> None:
    tracked.plan("a")
    server.start()
    tracked.target = line.target("heads")
    tracker = tracked.tracker()
    line.answer_after(30.0)
    tracker.start()
    tracked.train("a", range(1, 6), FINISHED)
    line.wait_for_request("experiments/get-by-name")
    assert tracker.summary().pending == 7
    # The second request follows only upon the first one's answer.
    line.wait_for_request("experiments/create")
    line.answer_after(0.0)
    assert tracker.close(wait_seconds=DEADLINE) == TrackingSummary(7, 0)
    tracked.assert_all_there("a")


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
        output = driver.stdout()
        assert "hsweep sync mine --home" in output, output
        line.let_go()
        assert "(not done within" in output
        workplace.run("sync", "mine")
        study = Tracked(workplace.study("mine"), line.target("outside"))
        with contextlib.closing(study.journal):
            started = [row.key for row in study.journal.trials() if row.attempt]
            assert started
            study.assert_all_there(*started)
            assert study.runs["parent"].info.status == "KILLED"
        # The study goes on, and the same runs with it; a resume builds the index again.
        workplace.run("resume", "mine", "--runner", "inline")
        study = Tracked(workplace.study("mine"), line.target("outside"))
        with contextlib.closing(study.journal):
            study.assert_all_there(*(row.key for row in study.journal.trials()))
    finally:
        workplace.close()
