"""A sweep outside the project, a home for each of its studies, and real processes that run them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from chaos.audit import Endings, Seen, Shown, read_record, shown_metrics, standing
from click.testing import CliRunner

from hsweep.cli import main

TESTS: Final = Path(__file__).resolve().parents[1]
PACE: Final = 0.02
"""Seconds an update takes, at least: a trial has 32 updates, and reports after every fourth."""
UPDATES: Final = 24 * 32
"""Of all trials of a study."""
CHECKPOINT_SECONDS: Final = 0.4
REPORT_SECONDS: Final = 4 * PACE
PATIENCE: Final = 600.0
"""Seconds after which something that should have happened counts as not happening."""

_HELPERS: Final = ("dashboard", "DashboardAgent", "RuntimeEnvAgent", "log_monitor", "agent/main.py")
_SWEEP: Final = '''
"""Twenty-four trials of about a second each."""

from hsweep import (
    Asha, Recipe, Resources, Sweep, Transition, adaptive_search, epochs, grid
)
from paced_beside import PacedTask
from tiny_beside import tiny_model

SWEEP = Sweep(
    name="paced",
    space=grid(width={widths}, dropout=[0.0, 0.2]),
    replicates=3,
    task=PacedTask(),
    model=tiny_model,
    recipe=Recipe(lr=0.05, batch_size=8),
    metric="nmse",
    goal="min",
    budget=epochs(8),
    resources=Resources(cpus=0.5),
    checkpoint_seconds={checkpoint_seconds},
    {more}
)
'''
SEARCHING: Final = (
    'question=Transition(x="width", nuisance=("dropout",)), search=adaptive_search(),'
)
STOPPING: Final = 'early_stopping=Asha(grace=2, strata=("dropout",), min_survivors=2),'


class Process:
    """A running ``hsweep`` command, in a session of its own.

    Whatever it starts stays in that session, so nothing it leaves behind goes unseen.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        folder: Path,
        environment: Mapping[str, str],
        within: Sequence[str] = (),
    ) -> None:
        number = len(list(folder.glob("*.stdout")))
        self._files = [folder / f"{number}.stdout", folder / f"{number}.stderr"]
        self.began = time.monotonic()
        with self._files[0].open("w") as stdout, self._files[1].open("w") as stderr:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", "hsweep", *map(str, arguments)],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def stdout(self) -> str:
        return self._files[0].read_text()

    @property
    def stderr(self) -> str:
        return self._files[1].read_text()

    @property
    def output(self) -> str:
        return f"{self.stdout}\n{self.stderr}"

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def seconds(self) -> float:
        """Return how long ago it was started."""
        return time.monotonic() - self.began

    def kill(self) -> None:
        """Kill the driver, and it alone."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> None:
        """Give the driver, and it alone, notice that its machine goes away."""
        self._process.terminate()

    def interrupt(self) -> None:
        """Do what Ctrl-C on a terminal does: signal everything in the foreground."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self) -> int:
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {PATIENCE:g} s\n{self.output}") from None

    def runs_until(self, moment: float) -> bool:
        """Wait until so many seconds after the start; return whether the process still runs."""
        try:
            self._process.wait(max(0.0, self.began + moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return False

    def until(self, condition: Callable[[], bool]) -> bool:
        """Poll until the condition holds; return False if the process ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if not self.runs:
                return condition()
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s\n{self.output}"
            time.sleep(0.02)
        return True

    def session(self) -> list[psutil.Process]:
        """Return the living processes that this one started, and itself."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != "zombie":
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def left_behind(self) -> list[str]:
        """Wait until nothing that could train is left of the session; end what stays for ever."""
        return self._left(lambda process: not _is_helper(process))

    def left_at_last(self) -> list[str]:
        """Wait until nothing is left, Ray's helpers included; end what stays for ever.

        They look for their head for a minute and a half, and do nothing else.
        """
        return self._left(lambda process: True)

    def _left(self, counts: Callable[[psutil.Process], bool]) -> list[str]:
        deadline = time.monotonic() + PATIENCE
        while (left := [each for each in self.session() if counts(each)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.1)
        return [_end(process) for process in left]


def _is_helper(process: psutil.Process) -> bool:
    """Whether a process is one of Ray's that never train."""
    try:
        words = " ".join([process.name(), *process.cmdline()])
    except psutil.NoSuchProcess:
        return True
    return any(word in words for word in _HELPERS)


def _end(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        said = f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
        process.kill()
        return said
    return f"{process.pid} in its last moment"


class Workplace:
    """Studies of one sweep.

    Args:
        root: an empty folder.
        more: further fields of the sweep, as code.
        widths: of its models.
        store: an empty MLflow database, which takes seconds to make; None makes it anew.
    """

    def __init__(
        self,
        root: Path,
        *,
        more: str = "",
        store: Path | None = None,
        widths: Sequence[int] = (1, 2, 3, 4),
    ) -> None:
        self.root = root
        self.sweep = root / "paced.py"
        self.traces = root / "traces"
        self.traces.mkdir()
        self.seen: Seen = set()
        self._store = store
        self._processes: list[Process] = []
        shutil.copy(TESTS / "tiny.py", root / "tiny_beside.py")
        shutil.copy(TESTS / "chaos" / "paced.py", root / "paced_beside.py")
        self.write_sweep(more, widths)

    def write_sweep(self, more: str = "", widths: Sequence[int] = (1, 2, 3, 4)) -> None:
        self.sweep.write_text(
            _SWEEP.format(more=more, widths=list(widths), checkpoint_seconds=CHECKPOINT_SECONDS)
        )

    def home(self, study: str) -> Path:
        """The study's own home: no study takes over what another has finished."""
        home = self.root / f"home-{study}"
        if not (home / "mlflow").exists() and self._store is not None:
            (home / "mlflow").mkdir(parents=True)
            shutil.copy(self._store, home / "mlflow" / "mlflow.db")
        return home

    def study(self, study: str) -> Path:
        return self.home(study) / "studies" / study

    def store(self, study: str) -> str:
        return f"sqlite:///{self.home(study)}/mlflow/mlflow.db"

    def variables(self, pace: float = PACE) -> dict[str, str]:
        """Return what the processes that train take from their environment."""
        return {"CHAOS_TRACES": str(self.traces), "CHAOS_PACE": str(pace)}

    def start(
        self,
        *arguments: object,
        pace: float = PACE,
        within: Sequence[str] = (),
        **variables: str,
    ) -> Process:
        """Start a command, perhaps ``within`` another one that runs it."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == "HSWEEP_NODE_DIR"
            or not name.startswith(("RAY_", "TUNE_", "HSWEEP_", "PYTEST_", "MLFLOW_"))
        }
        process = Process(
            arguments,
            self.root,
            {
                **environment,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(TESTS.parent),
                **self.variables(pace),
                **variables,
            },
            within,
        )
        self._processes.append(process)
        return process

    def go_on(self, study: str, *how: object, pace: float = PACE, **variables: str) -> Process:
        """Resume a study, or begin it if it was killed before there was one."""
        if (self.study(study) / "study.json").exists():
            verb: tuple[object, ...] = ("resume", study)
        else:
            verb = ("run", self.sweep, "--study", study)
        return self.start(*verb, *how, "--home", self.home(study), pace=pace, **variables)

    def end(self, study: str, *how: object, pace: float = PACE, **variables: str) -> Process:
        """Go on with a study until it is complete."""
        process = self.go_on(study, *how, pace=pace, **variables)
        code = process.wait()
        assert code == 0, f"exit code {code}\n{process.output}"
        assert process.left_behind() == []
        return process

    def look(self, study: str) -> dict[str, Any] | None:
        """Note what ``show`` shows; None while there is no such study."""
        before = (self.study(study) / "study.json").exists()
        shown = CliRunner().invoke(main, ["show", study, "--json", "--home", str(self.home(study))])
        if not before and shown.exit_code == 2:
            return None
        assert shown.exit_code == 0, shown.output
        content: dict[str, Any] = json.loads(shown.stdout)
        for row in content["trials_list"]:
            if row["reached"]:
                metrics = {name: row[name] for name in ("nmse", "fit")}
                self.seen.add((row["key"], Shown(row["reached"], shown_metrics(metrics))))
        return content

    def standing(self, study: str) -> tuple[int, int]:
        """Return how many reports are on record, and how many trials have not ended.

        Reads the log itself: it is asked all the time, beside the study that runs.
        """
        folder = self.study(study)
        return standing(folder) if (folder / "journal").exists() else (0, 0)

    def wait_for_report(self, study: str, driver: Process) -> None:
        """Wait until a driver that has just been started reports."""
        before, _ = self.standing(study)
        assert driver.until(lambda: self.standing(study)[0] > before), driver.output

    def trainers(self) -> list[int]:
        """The living processes that have trained."""
        pids = (int(trace.name.partition("-")[2]) for trace in self.traces.glob("pid-*"))
        return sorted(pid for pid in pids if psutil.pid_exists(pid))

    def updates(self) -> int:
        """Return how many updates all processes have done."""
        return sum(trace.stat().st_size for trace in self.traces.glob("updates-*"))

    def endings(self, study: str) -> Endings:
        return read_record(self.study(study)).endings()

    def left_behind(self) -> list[str]:
        """Wait until nothing is left that could train; end, and return, what stays."""
        return [each for process in self._processes for each in process.left_behind()]

    def left_at_last(self) -> list[str]:
        """Wait until nothing of all that was started is left; end, and return, what stays."""
        return [each for process in self._processes for each in process.left_at_last()]

    def close(self) -> None:
        """Leave nothing running, whatever a test left."""
        for process in self._processes:
            for each in process.session():
                _end(each)
            process.wait()
