"""Checks of a sweep's command before it runs: its fields at every point, its program, its files."""

import ast
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from hsweep.design.labels import listed, point_label, varying_axes
from hsweep.design.template import fields_in, fill
from hsweep.design.trial import Trial
from hsweep.design.user_training import Command, UserTraining
from hsweep.errors import UserError, shown, unknown_name
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE
from hsweep.training.own.process import arguments_of, fields_of, search_path

_FOLDER: Final = Path("/folder-of-the-trial")
_LONGEST_FIRST_LINE: Final = 256


def check_commands(trials: Sequence[Trial]) -> None:
    """Refuse the command of these trials if it cannot train them, or trains several points alike.

    Raises:
        UserError: an unknown field, or one without a value; a program or a script that is not
            there; an axis that the command does not use; metrics in a trial's folder that the
            command does not name.
    """
    task = trials[0].task
    if not isinstance(task, UserTraining) or not isinstance(task.train, Command):
        return
    command, directory = task.train, Path(task.folder, task.train.folder)
    # Replicates share their point.
    trials = [*{id(trial.point): trial for trial in trials}.values()]
    _check_fields(command, trials)
    if not directory.is_dir():
        raise UserError(f"the command runs in {directory}, which is no folder; see folder=")
    booleans: dict[tuple[str, str], set[str]] = {}
    for trial in trials:
        arguments = arguments_of(command, trial, _FOLDER)
        fill(command.resume, fields_of(trial, _FOLDER))
        if not arguments or not arguments[0]:
            raise UserError(f"a command begins with a program; {shown(command.template)} has none")
        program = arguments[0]
        scripts = (word for word in arguments[1:] if word.endswith(".py") and word[0] != "-")
        script = next(scripts, "")
        if (program, script) not in booleans:
            booleans[program, script] = set()
            _check_program(program, directory)
            if script and not (directory / script).is_file():
                raise UserError(
                    f"the command's script {shown(script)} is not in {directory}, where the "
                    "command runs; give its path from there, or say folder="
                )
            if script:
                booleans[program, script] = _booleans_of(directory / script)
            for word in arguments[1:]:
                if word.endswith(".sh"):
                    _check_first_line(directory / word)
        _check_booleans(arguments, booleans[program, script])
    _check_axes(command, trials)


def _booleans_of(script: Path) -> set[str]:
    """Return the options of a script that argparse gives ``type=bool``."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        word.value
        for call in calls
        if any(key.arg == "type" and ast.unparse(key.value) == "bool" for key in call.keywords)
        for word in call.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    }


def _check_booleans(arguments: Sequence[str], booleans: Collection[str]) -> None:
    """Refuse False for an option that takes any text for True."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        option, sign, value = word.partition("=")
        if option in booleans and (value if sign else after) in ("False", "false", "0", "no"):
            raise UserError(
                f"{option} is given {value if sign else after}, and its type=bool takes any text "
                f"for True; give it action=BooleanOptionalAction in the script, and write "
                f"{{axis:{option}|--no-{option.lstrip('-')}}}"
            )


def _check_fields(command: Command, trials: Sequence[Trial]) -> None:
    fields = fields_of(trials[0], _FOLDER).keys() - trials[0].point.keys() | {"resume"}
    axes = {axis for trial in trials for axis in trial.point}
    if reserved := axes & {"folder", "resume", "processes"}:
        raise UserError(
            f"{{{min(reserved)}}} in a command is no axis but what the trial is given; call the "
            f"axis {min(reserved)!r} otherwise"
        )
    fields_used = fields_in(command.template) | fields_in(command.resume)
    for name in sorted(fields_used - fields):
        if name not in axes:
            raise unknown_name("field in the command", name, fields | axes)
        for trial in trials:
            if name not in trial.point:
                raise UserError(
                    f"the command's field {{{name}}} has no value at {point_label(trial.point)}; "
                    f"give every point one, None where the argument is to be left out"
                )
    where = command.metrics.files
    needs_folder = where not in (OUTPUT_FILE, REPORTS_FILE)
    if needs_folder and "folder" not in fields_used:
        raise UserError(
            f"the metrics come from {where} in the trial's folder, and the command does not name "
            f"{{folder}}, so nothing will be written there: {shown(command.template)}"
        )


def _check_axes(command: Command, trials: Sequence[Trial]) -> None:
    """Refuse points that the command trains alike: their results would differ by chance alone."""
    fields_used = fields_in(command.template)
    alike: dict[tuple[str, ...], Trial] = {}
    for trial in trials:
        key = tuple(repr(trial.point[axis]) for axis in trial.point if axis in fields_used)
        other = alike.setdefault(key, trial)
        if other is not trial:
            axes = varying_axes([other.point, trial.point])
            raise UserError(
                f"the command does not use {listed([f'{{{axis}}}' for axis in axes])}, so "
                f"{point_label(other.point, axes)} and {point_label(trial.point, axes)} would be "
                f"trained alike; name every axis in it: {shown(command.template)}"
            )


def _check_program(program: str, directory: Path) -> None:
    place = str(directory / program) if "/" in program else program
    if path := shutil.which(place, path=search_path()):
        _check_first_line(Path(path), is_program=True)
        return
    if (directory / program).is_file():
        remedy = "write ./ before it" if "/" not in program else "make it executable (chmod +x)"
        if program.endswith(".py"):
            remedy = f'write "python {program} ..."'
        raise UserError(f"the command's program {shown(program)} cannot be run as such; {remedy}")
    raise UserError(
        f"the command's program {shown(program)} is not found: not on PATH, and no file of "
        f"{directory}, where the command runs"
    )


def _check_first_line(file: Path, *, is_program: bool = False) -> None:
    """Refuse a text that the system or a shell cannot run; not one that cannot be read."""
    try:
        with file.open("rb") as content:
            line = content.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return
    words = line.removeprefix(b"#!").split()
    if line.endswith(b"\r\n"):
        problem = "has the line ends of Windows (CRLF); convert them: sed -i 's/\\r$//'"
    elif is_program and not (line.startswith(b"#!") and words and os.access(words[0], os.X_OK)):
        problem = "does not begin with the name of a program that is here, as in #!/bin/bash"
    else:
        return
    if b"\0" not in line:
        raise UserError(f"the command cannot run {file}, which {problem}")
