"""The command line in processes of its own, and a sweep outside the project for it to run.

The sweep's trials wait in the middle until they are let go, so that a driver can be killed or
interrupted there and nowhere else.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil
from tiny_runs import History, histories

TESTS: Final = Path(__file__).resolve().parent
SECONDS: Final = 600
"""A deadline, far above what anything here takes."""

_SWEEP = '''
"""Trials that wait in their third epoch."""

from dataclasses import dataclass
from pathlib import Path

from hsweep import Recipe, Sweep, epochs, grid
from tiny_beside import TinyModel, TinyTask


@dataclass(frozen=True)
class OwnModel(TinyModel):
    """Defined in the sweep file itself."""


SWEEP = Sweep(
    name="outside",
    space=grid(width=[1, 2, 4], dropout=[0.2]),
    task=TinyTask(waits_at=10, folder=str(Path({traces!r}))),
    model=lambda point: OwnModel(point.width, dropout=point.dropout),
    recipe=Recipe(lr=0.05, batch_size=8),
    metric="nmse",
    goal="min",
    budget=epochs(4),
    checkpoint_seconds=0.0,
)
'''

_DECOY = """
from pathlib import Path

Path({marker!r}).touch()
raise RuntimeError("the code of another project")
"""


class Workplace:
    """A folder outside the project, with code of its own under the project's names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.traces = root / "traces"
        self.marker = root / "decoy-imported"
        self.sweep = root / "outside.py"
        self._drivers: list[Driver] = []
        self.traces.mkdir()
        shutil.copy(TESTS / "tiny.py", root / "tiny_beside.py")
        self.sweep.write_text(_SWEEP.format(traces=str(self.traces)))
        decoy = _DECOY.format(marker=str(self.marker))
        for name in ("models", "analysis"):
            (root / name).mkdir()
            (root / name / "__init__.py").write_text(decoy)
        (root / "tasks.py").write_text(decoy)

    def let_go(self) -> None:
        (self.traces / "go").touch()

    def hold(self) -> None:
        for trace in self.traces.iterdir():
            trace.unlink()

    def waiting(self) -> set[int]:
        """The processes whose trial waits."""
        return {int(trace.name.partition("-")[2]) for trace in self.traces.glob("waiting-*")}

    def study(self, name: str) -> Path:
        return self.home / "studies" / name

    def histories(self, name: str) -> dict[str, History]:
        journal = self.study(name) / "journal"
        return histories(journal.parent) if journal.exists() else {}

    def start(self, *arguments: str) -> "Driver":
        self._drivers.append(Driver(self, arguments))
        return self._drivers[-1]

    def close(self) -> None:
        """Leave nothing running, whatever a test left."""
        self.let_go()
        for driver in self._drivers:
            # It may come to its end by itself meanwhile.
            driver.process.kill()
            driver.wait()

    def run(self, *arguments: str) -> "Driver":
        """Run to the end and expect success."""
        driver = self.start(*arguments)
        code = driver.wait()
        assert code == 0, f"exit code {code}\n{driver.stdout()}\n{driver.stderr()}"
        return driver

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout())


class Driver:
    """A running ``hsweep`` command."""

    def __init__(self, workplace: Workplace, arguments: tuple[str, ...]) -> None:
        number = len(list(workplace.root.glob("*.stdout")))
        self._stdout = workplace.root / f"{number}.stdout"
        self._stderr = workplace.root / f"{number}.stderr"
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == "HSWEEP_NODE_DIR"
            or not name.startswith(("RAY_", "TUNE_", "HSWEEP_", "PYTEST_"))
        }
        with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hsweep", *arguments, "--home", str(workplace.home)],
                cwd=workplace.root,
                env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS.parent)},
                stdout=stdout,
                stderr=stderr,
            )

    def stdout(self) -> str:
        return self._stdout.read_text()

    def stderr(self) -> str:
        return self._stderr.read_text()

    def wait(self) -> int:
        return self.process.wait(timeout=SECONDS)

    def kill(self) -> None:
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def interrupt(self) -> None:
        """Send one interrupt and wait until it was taken."""
        self.process.send_signal(signal.SIGINT)
        self.until(lambda: "ending cleanly" in self.stderr())

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds, for as long as the process lives."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            said = f"{self.stdout()}\n{self.stderr()}"
            assert self.process.poll() is None, f"ended before its time\n{said}"
            assert time.monotonic() < deadline, f"not within {SECONDS} s\n{said}"
            time.sleep(0.05)


def running_in(folder: Path) -> list[int]:
    """The processes of scripts whose trial's folder is below a folder."""
    found = []
    for process in psutil.process_iter():
        # Another user's, or it has ended meanwhile.
        with contextlib.suppress(psutil.Error, OSError):
            place = process.environ().get("HSWEEP_TRIAL", "")
            if place.startswith(f"{folder.resolve()}/"):
                found.append(process.pid)
    return found
