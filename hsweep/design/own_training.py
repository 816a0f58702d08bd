"""Training of the user's own, in place of a task, a model and a recipe: a function or a command."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from hsweep.design.sources import Source, reports
from hsweep.design.template import fields_in
from hsweep.errors import UserError, shown
from tasks.base import DataError, Metric, not_in_key

TrainFunction = Callable[[Any, Any], object]
"""Trains one trial, given its ``Point`` and its ``Run``; what it returns is ignored."""

GRACE_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 30.0
"""What killed processes may take to be gone, with much to spare."""
_EXAMPLES: Final = {
    "template": "python train.py --heads {heads}",
    "resume": "--resume {folder}/last.pt",
    "folder": "scripts",
}
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Command:
    """A script that trains one trial; see ``command``.

    Attributes:
        template: the command line, with fields.
        metrics: where its metrics come from.
        resume: arguments that stand for ``{resume}`` where an earlier attempt left something.
        folder: where it runs; empty for the sweep's folder.
        grace_seconds: between SIGTERM and SIGKILL when it is ended.
    """

    template: str
    metrics: Source = field(default_factory=reports)
    resume: str = ""
    folder: str = not_in_key("")
    grace_seconds: float = not_in_key(GRACE_SECONDS)

    def __post_init__(self) -> None:
        for name in ("template", "resume", "folder"):
            value = getattr(self, name)
            if not isinstance(value, str) or (name == "template" and not value.strip()):
                raise UserError(
                    f"a command's {name} is text, as in {_EXAMPLES[name]!r}, not {shown(value)}"
                )
        if not isinstance(self.metrics, Source):
            raise UserError(
                "a command's metrics come from stdout(...), json_lines(...), csv_file(...), "
                f"tensorboard(...), trainer_state(...) or reports(), not {shown(self.metrics)}"
            )
        grace = self.grace_seconds
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace < 1e9:
            raise UserError(f"grace_seconds is a number of at least 0, not {shown(grace)}")
        if ("resume" in fields_in(self.template)) != bool(self.resume):
            raise UserError(
                "resume= says what the command's field {resume} stands for in a later attempt, so "
                f"a command has both or neither; this one is {shown(self.template)} with resume="
                f"{shown(self.resume)}"
            )
        if "resume" in fields_in(self.resume):
            raise UserError(f"resume= cannot hold {{resume}} itself: {shown(self.resume)}")


def command(
    template: str,
    *,
    metrics: Source | None = None,
    resume: str = "",
    folder: str = "",
    grace_seconds: float = GRACE_SECONDS,
) -> Command:
    """Return training by a script that is run unchanged: ``Sweep(train=command(...))``.

    The line is split as a shell would and then filled in; no shell runs it. ``python`` is the one
    that runs the study, and programs beside it, such as ``torchrun``, are found first.

    Fields are the axes of the point and ``{seed}`` (the replicate's number), ``{budget}``,
    ``{folder}`` (the trial's own, kept over attempts), ``{resume}``, ``{processes}`` and ``{key}``.
    ``{lr:.2e}`` formats a value. An argument whose value is None is left out, and so is the option
    before it.

    The script runs with ``OMP_NUM_THREADS`` as the trial's cpus and sees the trial's devices alone,
    none without ``gpus``. What it writes to standard output and error is kept in ``output.txt`` of
    the trial's folder. It should train ``{budget}``
    units: it may end in its own time after the last, and is ended if it goes on to another.

    Args:
        template: ``"python train.py --heads {heads} --seed {seed} --out {folder} {resume}"``.
        metrics: where the script's metrics come from; by default its calls of ``hsweep.report``.
        resume: what ``{resume}`` stands for in a later attempt: ``"--resume {folder}/last.pt"``. It
            is given if the files and folders that it names in ``{folder}`` are there (if it names
            none, if the script has left anything there), and is nothing before. Let the script
            write its checkpoint under another name and rename it, so that it is always a whole one.
        folder: where the script runs; by default the folder of the sweep file.
        grace_seconds: time that it has to end by itself after SIGTERM, which all its processes get
            when the trial is stopped; then what is left gets SIGKILL.

    Raises:
        UserError: an argument that cannot be used.
    """
    source = reports() if metrics is None else metrics
    return Command(template, source, resume, folder, grace_seconds)


@dataclass(frozen=True, slots=True)
class OwnTask:
    """What is learned, where the training is the user's own.

    Attributes:
        train: a function ``train(point, run)``, or a command.
        metrics: those that are known before training, the deciding one first; others may be
            reported besides.
        depends_on: files and folders whose content the results depend on.
        folder: where a command runs that names no other.
    """

    train: TrainFunction | Command
    metrics: tuple[Metric, ...]
    depends_on: tuple[str, ...] = not_in_key(())
    folder: str = not_in_key("")

    def __post_init__(self) -> None:
        if not isinstance(self.train, Command):
            self._check_function()

    def _check_function(self) -> None:
        function = plain_function(self.train)
        if function is None:
            raise UserError(
                "train must be a function train(point, run), a frozen dataclass with __call__, or "
                f"command(...), not {shown(self.train)}"
            )

    @property
    def name(self) -> str:
        """The function's name, or the first words of the command."""
        if isinstance(self.train, Command):
            return " ".join(self.train.template.split()[:2])
        return getattr(plain_function(self.train), "__name__", type(self.train).__name__)

    @property
    def ending_seconds(self) -> float:
        """Seconds that it may take at most to end a trial that hangs."""
        return self.train.grace_seconds + _DYING_SECONDS if isinstance(self.train, Command) else 0.0

    def fingerprint(self) -> str:
        """Return a hash of the files that the results depend on, empty without any.

        Raises:
            DataError: one is not there or cannot be read.
        """
        if not self.depends_on:
            return ""
        digest = hashlib.sha256()
        for place in self.depends_on:
            _add(digest, Path(place))
        return digest.hexdigest()[:20]

    def content(self) -> Mapping[str, Any]:
        """Return what tells this training from another, without its code: as plain values."""
        if isinstance(self.train, Command):
            return {"command": self.train, "metrics": self.metrics}
        function = self.train
        arguments: tuple[Any, ...] = ()
        if isinstance(function, partial):
            arguments = (function.args, function.keywords)
        if is_dataclass(function):
            arguments = (function,)
        return {
            "function": getattr(plain_function(function), "__qualname__", ""),
            "arguments": arguments,
            "metrics": self.metrics,
        }


def plain_function(train: Any) -> FunctionType | type | None:
    """Return the function behind ``train``, or the class of a dataclass with ``__call__``; None if
    it is neither."""
    while isinstance(train, partial):
        train = train.func
    if isinstance(train, FunctionType):
        return train
    if is_dataclass(train) and not isinstance(train, type) and callable(train):
        return type(train)
    return None


def _add(digest: "hashlib._Hash", place: Path) -> None:
    """Add the content of a file, or of all files below a folder by their names in it."""
    try:
        files = sorted(each for each in place.rglob("*") if each.is_file())
        for file in files if place.is_dir() else [place]:
            digest.update(f"{file.relative_to(place)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as content:
                while block := content.read(_BLOCK):
                    digest.update(block)
    except OSError as error:
        raise DataError(
            f"depends_on names {place}, which cannot be read ({error.strerror or error}); name "
            "files and folders that are there, from the sweep's folder or whole"
        ) from error
