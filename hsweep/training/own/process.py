"""The command of one attempt of a trial, and its process, which ends together with its children."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hsweep.design.template import fill
from hsweep.design.trial import Trial
from hsweep.design.user_training import Command
from hsweep.errors import UserError, format_error, shown
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE, REPORTS_VARIABLE
from hsweep.secrets import redact, redact_command
from hsweep.training.own.leftovers import MARK_VARIABLE, Leftovers

_OUTPUT_HALF: Final = 50_000_000
"""The bytes of a script's output that stay on disk, at its beginning and at its end."""
_PUNCH_HOLE: Final = 3
"""Linux: free some bytes of a file, whose size stays (``FALLOC_FL_PUNCH_HOLE | KEEP_SIZE``)."""

_OURS: Final = frozenset({OUTPUT_FILE, REPORTS_FILE})
_PYTHON: Final = frozenset({"python", "python3"})
_LAST_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 500
_LOOK_SECONDS: Final = 0.1
"""Seconds between two searches for processes that an ended script may have left."""


def search_path() -> str:
    """Return the folders of programs: that of this Python first, so that programs of an environment
    are found although it is not activated."""
    programs = str(Path(sys.executable).parent)
    return os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])


def fields_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """Return the values of a command's fields, but for ``resume``."""
    return {
        **trial.point,
        "seed": trial.seeds.program,
        "budget": trial.budget.amount,
        "folder": folder,
        "key": trial.key,
        "processes": trial.resources.processes,
    }


def arguments_of(
    command: Command, trial: Trial, folder: Path, *, resumes: bool = False
) -> list[str]:
    """Return the command and its arguments, where ``{resume}`` stands for something if it
    ``resumes``; UserError for a field that does not exist."""
    template, fields = command.template, fields_of(trial, folder)
    if resumes or command.resume.startswith("-"):
        template = template.replace("{resume}", command.resume if resumes else "")
    arguments = fill(template, {**fields, "resume": None})
    if arguments and arguments[0] in _PYTHON:
        arguments[0] = sys.executable
    return arguments


def can_resume(command: Command, trial: Trial, folder: Path) -> bool:
    """Whether an earlier attempt has left the files and folders of the trial that ``{resume}``
    names, or, if it names none, anything at all."""
    if not command.resume:
        return False
    words = fill(command.resume, fields_of(trial, folder))
    paths = [Path(word[word.index(str(folder)) :]) for word in words if str(folder) in word]
    if not paths:
        return has_content(folder)
    return all(path.is_file() or has_content(path) for path in paths)


def has_content(folder: Path) -> bool:
    """Whether a folder has files other than hsweep's own."""
    return folder.is_dir() and any(path.name not in _OURS for path in folder.iterdir())


def end_text(code: int) -> str:
    """Describe how a script ended; a negative exit code is the number of a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was ended by signal {-code} ({name})"


class ScriptProcess:
    """A script in a trial's folder; nothing of it outlives this process.

    Args:
        arguments: the command and its arguments. Programs beside this Python come first, so
            ``python`` is the one that runs here.
        folder: the trial's; it must exist. Output goes to the end of its ``output.txt``, of which
            the first and the last 50 MB stay.
        variables: of its environment, beside this process's.

    Attributes:
        output: the file with its standard output and error.

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
        self._code: int | None = None
        self._output_size = 0
        self._shorten_output()  # of an attempt whose worker was killed
        with self.output.open("ab") as output:
            self._leftovers = Leftovers(folder)
            environment = {
                **os.environ,
                "PATH": search_path(),
                # Python would keep lines for itself as long as its output is a file.
                "PYTHONUNBUFFERED": "1",
                **(variables or {}),
                REPORTS_VARIABLE: str(folder.resolve() / REPORTS_FILE),
                MARK_VARIABLE: self._leftovers.mark,
            }
            # What is blocked in this thread would be in the script; handlers are not passed on.
            blocked = signal.pthread_sigmask(signal.SIG_SETMASK, [])
            try:
                self._process = subprocess.Popen(
                    arguments,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                self._leftovers.close()
                raise UserError(
                    f"the command cannot be started in {directory}: {redact(format_error(error))}; "
                    f"it is {shown(redact_command(arguments))}"
                ) from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code of the script once all its processes have ended; None if it runs
        longer than ``seconds``."""
        if self._code is None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            self._end()
        return self._code

    def stop(self, grace_seconds: float) -> int:
        """End the script and all processes that it has started: SIGTERM, after the grace period
        SIGKILL. Return its exit code.

        Raises:
            OSError: a process cannot be killed; the message names it.
        """
        if self._code is None:
            deadline = time.monotonic() + grace_seconds
            self._leftovers.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
            while self._leftovers.are_left and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            self._end()
        assert self._code is not None
        self._shorten_output()
        return self._code

    def free_output(self) -> None:
        """Free the disk of the middle of the output, of what was there at the last call of this.

        The file keeps its size, so that script and reader keep their places. Some file systems
        cannot do that: there the output grows until the script ends.
        """
        with contextlib.suppress(FileNotFoundError), self.output.open("rb+") as file:
            before, self._output_size = self._output_size, file.seek(0, os.SEEK_END)
            if before > 2 * _OUTPUT_HALF and hasattr(libc := ctypes.CDLL(None), "fallocate"):
                places = map(ctypes.c_int64, (_OUTPUT_HALF, before - 2 * _OUTPUT_HALF))
                libc.fallocate(file.fileno(), _PUNCH_HOLE, *places)

    def _shorten_output(self) -> None:
        """Leave out the middle of the output, to which nobody writes any more."""
        with contextlib.suppress(FileNotFoundError), self.output.open("rb+") as file:
            if file.seek(0, os.SEEK_END) > 2 * _OUTPUT_HALF:
                file.seek(-_OUTPUT_HALF, os.SEEK_END)
                end = file.read()
                file.seek(0)
                # Whole lines: of a number that is cut off another one would be read.
                file.seek(file.read(_OUTPUT_HALF).rfind(b"\n") + 1)
                file.write(b"... the middle was left out ...\n" + end[end.find(b"\n") + 1 :])
                file.truncate()

    def _end(self) -> None:
        self._leftovers.close()
        self._code = self._process.wait()

    def last_lines(self, number: int = 20) -> str:
        """Return the last lines of the output for the record: long lines are cut, and texts that
        look like secrets are hidden."""
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
        visible = [redact(line.rstrip("\r").rpartition("\r")[2]) for line in lines[-number:]]
        return "\n".join(
            line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."
            for line in visible
        )
