"""The processes of one trial's script: started, watched, and ended with all they have started."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from hsweep.errors import UserError, shown
from hsweep.redaction import redact, redact_command
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE, REPORTS_VARIABLE
from hsweep.training.own import supervisor
from hsweep.training.own.arguments import search_path

FOLDER_VARIABLE: Final = "HSWEEP_TRIAL_FOLDER"
"""In the environment of a script and of all it starts: by it what is left over is found."""

_LAST_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 500
_DYING_SECONDS: Final = 10.0
"""How long what was killed may take to be gone: it may hang in the kernel."""
_KILL_AGAIN_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Exit:
    """How a script ended.

    Attributes:
        code: what it exited with; the negative number of the signal that ended it; None where that
            is not known, because what watched it was killed.
    """

    code: int | None

    def __str__(self) -> str:
        if self.code is None:
            return "was killed together with what watched it"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = "unknown"
        return f"was ended by signal {-self.code} ({name})"


class ScriptProcess:
    """A script in a trial's folder.

    A supervisor process (``hsweep.training.own.supervisor``) runs it, outlives this process, and
    then kills all of it.

    Args:
        arguments: the command and its arguments. The programs beside this Python come first, so
            ``python`` is the one that runs here.
        folder: the trial's; it must exist. Output is appended to its ``output.txt``.
        directory: where the script runs.
        variables: what it has in its environment beside this process's.

    Attributes:
        supervisor: the number of that process; None where it was killed before it could tell.
        output: the file with what it wrote to standard output and error.

    Raises:
        UserError: the command cannot be started: not found, or not to be run.
        OSError: there is no folder to write to.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        directory: Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.output = folder / OUTPUT_FILE
        self._folder = folder.resolve()
        self._exit: Exit | None = None
        command = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid())]
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [*command, str(directory), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=_environment(self._folder, variables or {}),
                start_new_session=True,
                bufsize=0,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._control = process.stdin
        self._status = process.stdout
        started = self._next_line(None) or {}
        process.wait()  # it has left its place to a child
        if "error" in started:
            self._close()
            raise UserError(
                f"the command cannot be started in {directory}: {redact(started['error'])}; it is "
                f"{shown(redact_command(arguments))}"
            )
        self.supervisor: int | None = started.get("supervisor")

    def wait(self, seconds: float | None = 0) -> Exit | None:
        """Return how the script ended, once nothing of it is left; None if it has not within so
        many seconds (0: at once; None: wait for ever)."""
        if self._exit is None and (ended := self._next_line(seconds)) is not None:
            self._exit = Exit(os.waitstatus_to_exitcode(ended["status"]) if ended else None)
            self._status.read()  # until the supervisor has ended, too
            self._close()
            if not ended.get("is_all"):
                end_leftovers(self._folder)
        return self._exit

    def stop(self, grace_seconds: float) -> Exit:
        """End the script and all it has started: SIGTERM, after the grace period SIGKILL.

        Raises:
            OSError: something of it cannot be killed; names the processes.
        """
        if self._exit is None:
            with contextlib.suppress(BrokenPipeError):  # it has ended meanwhile
                self._control.write(b"%g\n" % grace_seconds)
            if self.wait(grace_seconds + _DYING_SECONDS) is None:
                # The supervisor does not answer, so it is ended, and what it watched is looked for.
                if self.supervisor is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.supervisor, signal.SIGKILL)
                self._exit = Exit(None)
                self._close()
                end_leftovers(self._folder)
        assert self._exit is not None
        return self._exit

    def last_lines(self, number: int = 20) -> str:
        """Return the last lines of the output as a record may keep them: long ones are cut, what
        looks like a secret is hidden."""
        if not self.output.exists():  # a script may clear its folder
            return ""
        with self.output.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
        lines = text.rstrip().split("\n")
        if size > _LAST_BYTES and len(lines) > 1:
            del lines[0]  # it begins in the middle, perhaps of a secret
        # Progress bars return to the start of their line: what was there last is what one saw.
        shown_last = [line.rstrip("\r").rpartition("\r")[2] for line in lines[-number:]]
        return "\n".join(_cut(redact(line)) for line in shown_last)

    def _next_line(self, seconds: float | None) -> dict[str, Any] | None:
        """Return the supervisor's next line, empty if it is gone; None if it has none in time.

        It is written at once, so what can be read is a whole line.
        """
        status = select.poll()
        status.register(self._status, select.POLLIN)
        if not status.poll(None if seconds is None else seconds * 1000):
            return None
        line = self._status.readline()
        return json.loads(line) if line else {}

    def _close(self) -> None:
        self._control.close()
        self._status.close()


def end_leftovers(folder: Path) -> None:
    """Kill every process of this user's that was started by a script in this trial's folder.

    Raises:
        OSError: something of it cannot be killed; names the processes.
    """
    deadline = time.monotonic() + _DYING_SECONDS
    while running := _processes_of(folder.resolve()):
        for process in running:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if time.monotonic() > deadline:
            named = ", ".join(str(process.pid) for process in running)
            raise OSError(f"processes {named} of the script in {folder} cannot be killed")
        psutil.wait_procs(running, timeout=_KILL_AGAIN_SECONDS)


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        # Another user's, or it has ended meanwhile.
        with contextlib.suppress(psutil.Error, OSError):
            is_own = process.pid == os.getpid()
            if not is_own and process.environ().get(FOLDER_VARIABLE) == str(folder):
                found.append(process)
    return found


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    environment = {
        **os.environ,
        "PATH": search_path(),
        # Python would keep lines for itself as long as its output is a file.
        "PYTHONUNBUFFERED": "1",
        **variables,
        REPORTS_VARIABLE: str(folder / REPORTS_FILE),
        FOLDER_VARIABLE: str(folder),
    }
    # It tells which process of several reports; what is ours says nothing about the script's.
    environment.pop("RANK", None)
    return environment


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."
