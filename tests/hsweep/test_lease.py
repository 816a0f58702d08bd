"""One process at a time has a study: another is refused, or takes over what a dead one left."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tiny_studies import new_study
from told_process import ToldProcess

from hsweep.errors import FencedError, UserError
from hsweep.paths import Home
from hsweep.record import lease
from hsweep.record.lease import holding, is_held, read_holder, refuse_held
from hsweep.record.log import begin_segment, segment_files
from hsweep.record.study import StudyFolder
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.tracker import Tracker

Invoke = Callable[..., Result]

DRIVER = """
import sys
from pathlib import Path
from hsweep.errors import FencedError, UserError
from hsweep.paths import Home
from hsweep.record import lease
from hsweep.record.study import StudyFolder

home, machine, lease_seconds = sys.argv[1:]
if machine:
    lease._machine = lambda: machine
lease.BEAT_SECONDS, lease.LEASE_SECONDS, lease._LOOK_SECONDS = 0.05, float(lease_seconds), 0.05
study = StudyFolder.open(Home(Path(home)), "mine")
try:
    print("ready", flush=True)
    sys.stdin.readline()
    with study.writer() as journal:
        print("holds", flush=True)
        for line in sys.stdin:
            journal.set_meta("said", line.strip())
            print("recorded", flush=True)
except (FencedError, UserError) as error:
    print(error, flush=True)
"""


class Driver(ToldProcess):
    """Another process that wants the study.

    Args:
        machine: what it runs on; empty for this machine.
        lease_seconds: how long it waits for a sign of life of another one.
    """

    def __init__(self, home: Home, machine: str = "", lease_seconds: float = 300.0) -> None:
        super().__init__(DRIVER, home.root, machine, lease_seconds)


@pytest.fixture
def drivers(study: StudyFolder, home: Home) -> Iterator[Callable[..., Driver]]:
    """Start processes that want the study."""
    with contextlib.ExitStack() as stack:

        def start(machine: str = "", lease_seconds: float = 300.0) -> Driver:
            driver = Driver(home, machine, lease_seconds)
            stack.callback(driver.close)
            return driver

        yield start


@pytest.fixture
def study(home: Home) -> StudyFolder:
    return new_study(home)


def said(study: StudyFolder) -> str | None:
    with study.journal() as journal:
        return journal.meta("said")


def test_of_several_that_want_a_study_at_once_one_gets_it(
    study: StudyFolder, drivers: Callable[..., Driver]
) -> None:
    all_drivers = [drivers(machine) for machine in ("", "", "elsewhere", "far")]
    for driver in all_drivers:
        driver.say("")
    answers = [driver.hears() for driver in all_drivers]
    [holder] = [driver for driver, it in zip(all_drivers, answers, strict=True) if it == "holds"]
    refusals = [answer for answer in answers if answer != "holds"]
    assert all(f"process {holder.process.pid} on " in refusal for refusal in refusals), answers
    assert holder.asks("here") == "recorded"
    assert said(study) == "here"
    assert len(segment_files(study.paths.journal)) == 2


def test_a_holder_on_another_machine_that_lives_is_left_alone(
    study: StudyFolder, drivers: Callable[..., Driver]
) -> None:
    there, here = drivers("elsewhere"), drivers()
    assert there.asks() == "holds"
    assert is_held(study.paths)
    assert f"'mine' is being run by process {there.process.pid} on" in here.asks()
    assert there.asks("still") == "recorded"


@pytest.mark.parametrize("machine", ["", "elsewhere"])
def test_what_a_killed_process_left_is_taken_over(
    study: StudyFolder, drivers: Callable[..., Driver], machine: str
) -> None:
    there, here = drivers(machine), drivers(lease_seconds=1.0)
    assert there.asks() == "holds"
    assert there.asks("first") == "recorded"
    there.process.kill()
    there.process.wait()
    assert here.asks() == "holds"
    assert said(study) == "first"
    assert here.asks("second") == "recorded"
    here.process.kill()
    _, told = here.process.communicate()
    assert ("gives no sign of life" in told) == bool(machine)


def test_a_process_that_was_frozen_beyond_its_lease_writes_nothing_that_counts(
    study: StudyFolder, drivers: Callable[..., Driver]
) -> None:
    frozen, next_one = drivers("elsewhere", 1.0), drivers(lease_seconds=1.0)
    assert frozen.asks() == "holds"
    assert frozen.asks("before") == "recorded"
    with study.journal() as beside:
        assert beside.meta("said") == "before"
        frozen.process.send_signal(signal.SIGSTOP)
        frozen.say("too late")
        assert next_one.asks() == "holds"
        assert next_one.asks("after") == "recorded"
        frozen.process.send_signal(signal.SIGCONT)
        assert "another driver has taken the study 'mine' over: process" in frozen.hears()
        assert frozen.process.wait() == 0
        assert next_one.asks("later") == "recorded"
        assert beside.meta("said") == said(study) == "later"
    assert str(read_holder(study.paths)).startswith(f"process {next_one.process.pid} on")


def test_what_a_fenced_process_wrote_unknowingly_is_not_read(study: StudyFolder) -> None:
    with contextlib.suppress(FencedError), study.writer() as journal, study.journal() as reader:
        journal.set_meta("said", "counts")
        begin_segment(study.paths.journal, 3, {})
        # Its last sign of life is young, so it does not look.
        journal.set_meta("said", "does not count")
        journal.set_meta("more", "nor does this")
        assert said(study) == reader.meta("said") == "counts"
        assert reader.meta("more") is None
        with pytest.raises(FencedError, match="What it recorded since does not count"):
            journal.lease.beat()
        with pytest.raises(FencedError):
            journal.set_meta("said", "never")


def test_a_reader_that_had_read_what_does_not_count_forgets_it(study: StudyFolder) -> None:
    with contextlib.suppress(FencedError), study.writer() as journal, study.journal() as reader:
        fence = journal._end
        journal.set_meta("said", "a while")
        assert reader.meta("said") == "a while"
        lines = segment_files(study.paths.journal)[-1].read_bytes()
        segment_files(study.paths.journal)[-1].write_bytes(lines[: -(journal._end - fence)])
        begin_segment(study.paths.journal, 3, {})
        segment_files(study.paths.journal)[1].write_bytes(lines)
        assert reader.meta("said") is said(study) is None


@contextlib.contextmanager
def elsewhere(study: StudyFolder) -> Iterator[None]:
    """Hold the study, as another machine does."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lease, "_machine", lambda: "elsewhere")
            stack.enter_context(holding(study.paths))
        yield


def test_a_driver_whose_folder_was_deleted_says_so(study: StudyFolder) -> None:
    with study.writer() as journal:
        shutil.rmtree(study.paths.root)
        assert journal.lease is not None
        with pytest.raises(FencedError, match="'mine' has been deleted or moved"):
            journal.lease.check(at_once=True)


def test_a_study_is_free_after_its_last_holder_has_let_it_go(study: StudyFolder) -> None:
    with elsewhere(study):
        assert is_held(study.paths)
    refuse_held(study.paths)
    assert not is_held(study.paths)


def test_an_owner_that_has_made_no_note_yet_counts(study: StudyFolder) -> None:
    with holding(study.paths):
        study.paths.holder.unlink()
        with pytest.raises(UserError, match=f"is being run by process {os.getpid()} on"):
            refuse_held(study.paths)


def test_records_are_delivered_by_who_has_the_study_alone(
    hsweep: Invoke, study: StudyFolder
) -> None:
    def fenced() -> None:
        raise FencedError("another has it")

    # Nobody listens there: to connect would take a while, and fail.
    target = TrackingTarget("http://127.0.0.1:9", None, "tiny")
    tracker = Tracker(study.paths.journal, target, study.manifest, fenced)
    tracker.start()
    summary = tracker.close(wait_seconds=60.0)
    assert (summary.delivered, summary.error) == (0, None)
    with elsewhere(study):
        refused = hsweep("sync", "mine")
    assert refused.exit_code == 1
    assert "runs the study and delivers its records" in refused.stdout


FENCED = """
from pathlib import Path
from hsweep import Sweep, epochs, grid
from hsweep.record.log import begin_segment, segment_files

def train(point, run):
    for unit in range(1, 4):
        if (point.width, unit) == (2, 2):
            folder = Path({journal!r})
            begin_segment(folder, len(segment_files(folder)) + 1, {{}})
        run.report(unit, loss=1 / unit)

SWEEP = Sweep(name="own", space=grid(width=[1, 2, 3]), train=train, metric="loss", goal="min",
              budget=epochs(3))
"""


def test_a_run_whose_study_was_taken_over_ends_with_one_line(
    hsweep: Invoke, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    journal = home.study("own").journal
    sweep = tmp_path / "own.py"
    sweep.write_text(FENCED.format(journal=str(journal)))
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    ended = hsweep("run", sweep, "--study", "own", "--runner", "inline", "--tracking-uri", store)
    assert ended.exit_code == 1, ended.output
    assert ended.stderr.count("another driver has taken the study 'own' over") == 1
    assert "Traceback" not in ended.output
    status = json.loads(hsweep("show", "own", "--json").stdout)
    assert (status["finished"], status["running"], status["planned"]) == (1, 1, 1)
    assert not home.study("own").report.exists()


def test_a_study_runs_where_files_cannot_be_locked(
    hsweep: Invoke, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("flock", "lockf"):
        lock = getattr(fcntl, name)

        def refused(file: Any, *how: Any, lock: Any = lock) -> None:
            number = file if isinstance(file, int) else file.fileno()
            if Path(f"/proc/self/fd/{number}").readlink().is_relative_to(home.root):
                raise OSError(errno.ENOLCK, "No locks available")
            lock(file, *how)

        monkeypatch.setattr(fcntl, name, refused)
    sweep = tmp_path / "own.py"
    sweep.write_text(FENCED.format(journal="").replace("(2, 2)", "(0, 0)"))
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for verb, *rest in (("run", sweep, "--study"), ("resume",)):
        how = ("--runner", "inline", "--tracking-uri", store)
        ended = hsweep(verb, *rest, "own", *how)
        assert ended.exit_code == 0, ended.output
    assert "MLflow has not got" not in ended.output
    assert json.loads(hsweep("show", "own", "--json").stdout)["finished"] == 3
