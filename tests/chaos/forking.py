"""Commands run by a process that forks a child for each (see ``chaos.writes``)."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TESTS: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: its exit code, or the signal's number below 0.
        writes: the writes it made, if it was not killed.
        output: all that it printed.
    """

    code: int
    writes: list[dict[str, Any]]
    output: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Forks:
    """Runs commands below a folder.

    Args:
        root: writes below it count.
        notes: a folder elsewhere, for what the children say.
    """

    def __init__(self, root: Path, notes: Path) -> None:
        self.root, self._notes = root, notes
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == "HSWEEP_NODE_DIR"
            or not name.startswith(("RAY_", "TUNE_", "HSWEEP_", "PYTEST_", "MLFLOW_"))
        }
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
        paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "chaos" / "writes.py"), str(root)],
            cwd=root,
            env={**environment, **threads, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._answer() != "ready":
            self.close()
            raise RuntimeError("the forking process did not start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(
        self,
        *arguments: object,
        dies_at: int | None = None,
        torn: bool = False,
        tracks: bool = False,
        concludes: bool = False,
    ) -> Ended:
        """Run one command.

        Args:
            arguments: of ``hsweep``.
            dies_at: the write before which it is killed, from 1.
            torn: leave half of that write.
            tracks: deliver to MLflow while it runs.
            concludes: analyse the study at its end, and write the report.
        """
        output, counted = self._notes / "output", self._notes / "counted"
        for file in (output, counted):
            file.unlink(missing_ok=True)
        request = {
            "arguments": [str(argument) for argument in arguments],
            "dies_at": dies_at,
            "torn": torn,
            "tracks": tracks,
            "concludes": concludes,
            "output": str(output),
            "counted": str(counted),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        code = int(self._answer())
        writes = json.loads(counted.read_text()) if counted.exists() else []
        return Ended(code, writes, output.read_text())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
