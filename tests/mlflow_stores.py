"""Real MLflow stores for tests: a server in a process of its own, a slow line to it, a lock."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from tiny_studies import manifest

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.tracking.store import initialise_database
from hsweep.tracking.target import StoreState, TrackingTarget
from hsweep.tracking.tracker import Tracker, TrackingSummary

DEADLINE: Final = 400.0
"""Seconds, far above what anything here takes."""

History = list[tuple[int, int, float]]
"""(step, time in ms, value) of every row of a metric."""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Killed(BaseException):
    """The end of a process that was killed."""


class Kill:
    """Kills the process that calls some of the store's methods.

    Attributes:
        calls_left: after so many calls.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
        self.calls_left = 0
        for method in methods:
            monkeypatch.setattr(MlflowClient, method, self._counted(method))

    def _counted(self, method: str) -> Callable[..., Any]:
        real = getattr(MlflowClient, method)

        def call(client: MlflowClient, *values: Any, **named: Any) -> Any:
            result = real(client, *values, **named)
            self.calls_left -= 1
            if self.calls_left == 0:
                raise Killed
            return result

        return call


def plan(journal: Journal, *keys: str) -> None:
    counts = {"num_params": 10, "flops_per_example": 20, "train_memory_bytes": 30}
    journal.add_trials(
        TrialRow(key, i, {"heads": i + 1, "seq_len": 16}, 1, "seq_len=16", 8, counts)
        for i, key in enumerate(keys)
    )


def report(
    journal: Journal,
    key: str,
    units: range,
    status: TrialStatus = TrialStatus.RUNNING,
    **more: float | None,
) -> None:
    """Record one report a unit; the last one leads to ``status``."""
    for unit in units:
        metrics = {"nmse": 1 / unit, **more}
        journal.record(
            key, 1, Report(unit, 10 * unit, metrics, 0.5 * unit, False),
            status if unit == units[-1] else TrialStatus.RUNNING,
        )  # fmt: skip


class Tracked:
    """A study's record in a folder of its own, and the store it is delivered to.

    Args:
        folder: the study's; made here, else read only.
        target: the store.
        **changes: of the study's manifest.
    """

    def __init__(self, folder: Path, target: TrackingTarget, **changes: Any) -> None:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "journal"
        self.journal = Journal(self.path, create=is_new)
        self.target = target
        self.study = manifest("heads-1", metric="nmse", **changes)

    def plan(self, *keys: str) -> None:
        plan(self.journal, *keys)

    def train(
        self,
        key: str,
        units: range,
        status: TrialStatus = TrialStatus.RUNNING,
        **more: float | None,
    ) -> None:
        """Record the beginning of an attempt and one report a unit."""
        self.journal.begin_attempt(key)
        report(self.journal, key, units, status, **more)

    def trains(
        self,
        keys: Iterable[str],
        units: range,
        status: TrialStatus = TrialStatus.RUNNING,
        **more: float | None,
    ) -> None:
        """Plan trials and do that for each: one a letter of a text."""
        keys = list(keys)
        self.plan(*keys)
        for key in keys:
            self.train(key, units, status, **more)

    def tracker(self) -> Tracker:
        return Tracker(self.path, self.target, self.study)

    def sync(self, **options: Any) -> TrackingSummary:
        return self.tracker().sync(**options)

    def track(self) -> TrackingSummary:
        """Deliver as a run does: from a thread, which is closed."""
        tracker = self.tracker()
        tracker.start()
        return tracker.close(wait_seconds=DEADLINE)

    @property
    def state(self) -> StoreState:
        return StoreState.of(self.path, self.target)

    @property
    def state_file(self) -> Path:
        (file,) = self.path.parent.glob("tracking-*.json")
        return file

    @property
    def runs(self) -> dict[str, Run]:
        return runs_by_key(self.target)

    def pending(self) -> int:
        return self.journal.count_after(self.state.cursor)

    def history(self, key: str, metric: str = "nmse") -> "History":
        return history(self.target, self.runs[key], metric)

    def assert_all_there(self, *keys: str) -> None:
        """One run a trial, nested in the study's, with every report once."""
        runs = self.runs
        assert set(runs) == {*keys, "parent"}
        assert self.state.trial_runs == {key: runs[key].info.run_id for key in keys}
        for key in keys:
            rows = history(self.target, runs[key], "nmse")
            assert rows == recorded(self.journal, key)
            assert [step for step, _, _ in rows] == list(range(1, len(rows) + 1))
            assert runs[key].data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id


def client(target: TrackingTarget) -> MlflowClient:
    return MlflowClient(tracking_uri=target.uri, registry_uri=target.uri)


def runs_of(target: TrackingTarget) -> list[Run]:
    """Every run of the experiment that is not deleted."""
    mlflow = client(target)
    experiment = mlflow.get_experiment_by_name(target.experiment)
    assert experiment is not None
    return list(mlflow.search_runs([experiment.experiment_id], run_view_type=ViewType.ACTIVE_ONLY))


def runs_by_key(target: TrackingTarget) -> dict[str, Run]:
    """Every run of the experiment; the study's own is called ``parent``."""
    runs = runs_of(target)
    found = {run.data.tags.get("hsweep.trial", "parent"): run for run in runs}
    assert len(found) == len(runs), "a trial has two runs"
    return found


def history(target: TrackingTarget, run: Run, metric: str) -> History:
    rows = client(target).get_metric_history(run.info.run_id, metric)
    return sorted((row.step, row.timestamp, row.value) for row in rows)


def recorded(journal: Journal, key: str, metric: str = "nmse") -> History:
    return sorted(
        (row.unit or 0, int(row.time * 1000), row.payload["metrics"][metric])
        for row in journal.reports([key])
    )


def database(folder: Path, empty: Path) -> Path:
    """Copy an empty store: making one takes seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(empty, folder / "mlflow.db"))


def make_database(folder: Path) -> Path:
    file = folder / "mlflow.db"
    initialise_database(TrackingTarget(f"sqlite:///{file}", None, "none"))
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``mlflow server`` on a SQLite file, on one port for all its lives."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._log = file.with_name("server.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def target(self, experiment: str) -> TrackingTarget:
        return TrackingTarget(self.uri, None, experiment)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--port", str(self.port)),
                    *("--workers", "1", "--backend-store-uri", f"sqlite:///{self._file}"),
                    *("--artifacts-destination", (self._file.parent / "artifacts").as_uri()),
                ],
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                cwd=self._file.parent,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """End it and its workers at once, as by ``kill -9``."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)
            self._process = None


class Line:
    """A TCP line to a server that lets answers through only as it is told.

    Attributes:
        requests: seen so far.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self.port}"
        self._open = threading.Event()
        self._open.set()
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._delay = 0.0
        self._cut_answer_to: bytes | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def target(self, experiment: str) -> TrackingTarget:
        return TrackingTarget(self.uri, None, experiment)

    def answer_after(self, seconds: float) -> None:
        """Hold every answer back for so long."""
        self._delay = seconds

    def hold(self) -> None:
        """Let requests through, but no answer until ``let_go``."""
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def lose_answer_to(self, what: str) -> None:
        """Let the next request whose first line holds ``what`` through, and drop its answer."""
        self._cut_answer_to = what.encode()

    @property
    def requests(self) -> list[str]:
        with self._changed:
            return [line.decode() for line in self._lines]

    def wait_for_request(self, what: str) -> None:
        with self._changed:
            found = self._changed.wait_for(
                lambda: any(what.encode() in line for line in self._lines), DEADLINE
            )
        assert found, f"no request for {what}"

    def close(self) -> None:
        self._open.set()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            far = socket.create_connection(("127.0.0.1", self._to))
            lost = threading.Event()
            with far:
                threading.Thread(target=self._back, args=(far, near, lost), daemon=True).start()
                while data := near.recv(65536):
                    first = data.split(b"\r\n", 1)[0]
                    if first.endswith(b"HTTP/1.1"):
                        cut = self._cut_answer_to
                        if cut is not None and cut in first:
                            self._cut_answer_to = None
                            lost.set()
                        with self._changed:
                            self._lines.append(first)
                            self._changed.notify_all()
                    far.sendall(data)

    def _back(self, far: socket.socket, near: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if self._delay and data.startswith(b"HTTP/1.1"):
                    time.sleep(self._delay)
                self._open.wait(DEADLINE)
                if lost.is_set():
                    break
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)


_LOCKING: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextlib.contextmanager
def locked(file: Path) -> Iterator[Any]:
    """Let another process hold a SQLite file; call what is yielded to let it go."""
    command = [sys.executable, "-c", _LOCKING, str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield lambda: process.communicate("\n", timeout=60)
        finally:
            process.kill()
