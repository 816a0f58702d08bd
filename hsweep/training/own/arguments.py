"""The command line of one attempt of a trial, and the path for its program."""

import os
import sys
from pathlib import Path
from typing import Any, Final

from hsweep.design.template import fill
from hsweep.design.trial import Trial
from hsweep.design.user_training import Command
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE

TIMES_FILE: Final = "hsweep-times.json"
"""Training time of a script's earlier attempts, in the trial's folder."""
_OURS: Final = frozenset({OUTPUT_FILE, REPORTS_FILE, TIMES_FILE})
_PYTHON: Final = frozenset({"python", "python3"})


def search_path() -> str:
    """Return the folders of programs: that of this Python first, so that programs of an environment
    are found although it is not activated."""
    programs = str(Path(sys.executable).parent)
    return os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])


def fields_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """Return the values of a command's fields, but for ``resume``."""
    return {
        **trial.point,
        "seed": trial.replicate,
        "budget": trial.budget.amount,
        "folder": folder,
        "key": trial.key,
        "processes": trial.resources.processes,
    }


def arguments_of(
    command: Command, trial: Trial, folder: Path, *, resumes: bool = False
) -> list[str]:
    """Return the command and its arguments.

    Args:
        command: the template.
        trial: has the values of its fields.
        folder: the trial's.
        resumes: whether ``{resume}`` stands for something.

    Raises:
        UserError: a field that does not exist.
    """
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
