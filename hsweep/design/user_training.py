"""A user's training in place of a task, a model and a recipe: a function or a command."""

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from operator import index
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from hsweep.design.sources import MetricSource, reports
from hsweep.design.template import fields_in
from hsweep.errors import UserError, is_installed, is_number, shown
from tasks.base import Metric, not_in_key

TrainFunction = Callable[[Any, Any], object]
"""A function that trains one trial, called with its ``Point`` and its ``Run``; the return value is
ignored."""

TRAINING_PARTS: Final = {"training_function": "training_function_code", "command": "script"}
"""The part of a key that holds its code, by the two kinds of a user's training."""

GRACE_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 30.0
"""A generous bound on the time that killed processes take to end."""
_READ_WHOLE: Final = 1 << 30
"""Bytes of a folder up to which all of it is read for a fingerprint."""


@dataclass(frozen=True, slots=True)
class Command:
    """Training by a script that is run unchanged: ``Sweep(train=command(...))``.

    The line is split as a shell would and then filled in; no shell runs it. ``python`` is the one
    that runs the study, and programs beside it, such as ``torchrun``, are found first.

    Fields are the axes of the point and ``{seed}`` (the replicate's number, and 10,000 more for
    each study seed), ``{budget}``, ``{folder}`` (the trial's own, kept over attempts),
    ``{resume}``, ``{processes}`` and ``{key}``.
    ``{lr:.2e}`` formats a value. An argument whose value is None is left out, and so is the option
    before it. A list becomes an argument for each value (``--stages {stages}``); it is JSON beside
    other text (``stages={stages}``) and as ``{stages:json}``; ``{stages:,}`` joins it by commas.

    The script runs with ``OMP_NUM_THREADS`` as the trial's cpus and sees the trial's devices alone,
    none without ``gpus``. Of what it writes to standard output and error the first and the last
    50 MB stay in ``output.txt`` of the trial's folder. It should train ``{budget}`` units: it may
    end in its own time after the last, and is ended if it goes on to another.

    Attributes:
        template: ``"python train.py --heads {heads} --seed {seed} --out {folder} {resume}"``.
        metrics: where the script's metrics come from; by default its calls of ``hsweep.report``.
        resume: what ``{resume}`` stands for in a later attempt: ``"--resume {folder}/last.pt"``. It
            is given if the files and folders that it names in ``{folder}`` are there (if it names
            none, if the script has left anything there), and is nothing before. Let the script
            write its checkpoint under another name and rename it, so that it is always a whole one.
        folder: where the script runs; by default the folder of the sweep file.
        varies: whether its runs differ by chance where it is given no seed, so that replicates of
            it are several trainings.
        grace_seconds: time that it has to end by itself after SIGTERM, which all its processes get
            when the trial is stopped; then what is left gets SIGKILL.

    Raises:
        UserError: an argument that cannot be used.
    """

    template: str
    _: KW_ONLY
    metrics: MetricSource = field(default_factory=reports)
    resume: str = ""
    folder: str = not_in_key("")
    varies: bool = not_in_key(False)
    grace_seconds: float = not_in_key(GRACE_SECONDS)

    def __post_init__(self) -> None:
        for name in ("template", "resume", "folder"):
            value = getattr(self, name)
            if not isinstance(value, str) or (name == "template" and not value.strip()):
                raise UserError(f"a command's {name} is text, not {shown(value)}")
        if not isinstance(self.metrics, MetricSource):
            raise UserError(
                "a command's metrics come from stdout(...), json_lines(...), csv_file(...), "
                f"tensorboard(...), trainer_state(...) or reports(), not {shown(self.metrics)}"
            )
        grace = self.grace_seconds
        if not (is_number(grace) and 0 <= grace < 1e9):
            raise UserError(f"grace_seconds is a number of at least 0, not {shown(grace)}")
        if ("resume" in fields_in(self.template)) != bool(self.resume):
            raise UserError(
                "resume= says what the command's field {resume} stands for in a later attempt, so "
                f"a command has both or neither; this one is {shown(self.template)} with resume="
                f"{shown(self.resume)}"
            )
        if "resume" in fields_in(self.resume):
            raise UserError(f"resume= cannot hold {{resume}} itself: {shown(self.resume)}")


command: Final = Command
"""The name to use in a sweep file."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a point, as ``Sweep(describe=...)`` may return it; None stands for an unknown
    value.

    Attributes:
        num_params: parameters of the model.
        flops_per_example: floating-point operations of a forward pass over one example, a
            multiply-add counted as two.
        train_memory_bytes: peak memory of training, on its device.

    Raises:
        UserError: an amount that is no whole number of at least 0.
    """

    num_params: int
    flops_per_example: int | None = None
    train_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_params", "flops_per_example", "train_memory_bytes"):
            value = getattr(self, name)
            if value is None and name != "num_params":
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
                raise UserError(
                    f"{name} of a point is a whole number of at least 0, not {shown(value)}"
                )
            object.__setattr__(self, name, index(value))


@dataclass(frozen=True, slots=True)
class UserTraining:
    """The training by the user's code, in place of a task.

    Attributes:
        train: a function ``train(point, run)``, or a command.
        metrics: the metrics that are known before training, the deciding one first; it may report
            others too.
        depends_on: files and folders whose content the results depend on.
        folder: where a command runs that names no other.
    """

    train: TrainFunction | Command
    metrics: tuple[Metric, ...]
    depends_on: tuple[str, ...] = not_in_key(())
    folder: str = not_in_key("")

    def __post_init__(self) -> None:
        train = self.train
        if isinstance(train, Command):
            return
        plain = plain_function(train)
        if plain is None:
            decorated, cure = getattr(train, "__wrapped__", None), ""
            if decorated is not None:
                cure = (
                    f"; the decorator {type(train).__name__} makes an object of "
                    f"{shown(decorated)}: let it return a function under functools.wraps"
                )
            raise UserError(
                "train must be a function train(point, run), a frozen dataclass with __call__, or "
                f"command(...), not {shown(train)}{cure}"
            )
        called = plain if isinstance(plain, FunctionType) else type(train).__call__
        if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called):
            raise UserError(
                f"train is called and not awaited or iterated, so {shown(train)} would do nothing; "
                "give a function that runs it, as by asyncio.run(...)"
            )
        try:
            inspect.signature(train).bind(None, None)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"train is called with two arguments, train(point, run), and {shown(train)} cannot "
                f"be: {error}"
            ) from None

    @property
    def part(self) -> str:
        """The name of this training's part in ``TRAINING_PARTS``."""
        return "command" if isinstance(self.train, Command) else "training_function"

    @property
    def name(self) -> str:
        """The function's name, or the first words of the command."""
        if isinstance(self.train, Command):
            return " ".join(self.train.template.split()[:2])
        return getattr(plain_function(self.train), "__name__", type(self.train).__name__)

    @property
    def ending_seconds(self) -> float:
        """The most seconds that ending a hung trial may take."""
        return self.train.grace_seconds + _DYING_SECONDS if isinstance(self.train, Command) else 0.0

    @property
    def text(self) -> str:
        """The function's name, or the command line."""
        return self.train.template if isinstance(self.train, Command) else self.name

    def fingerprint(self) -> str:
        """Return a hash of the files that the results depend on, empty without any.

        Of folders with more than 1 GiB the names and sizes of all files and what is read at 256
        places count, since reading all of it takes longer than one waits for a plan.

        Raises:
            UserError: one is not there.
            DataError: one cannot be read.
        """
        if not self.depends_on:
            return ""
        hashes = "".join(_fingerprint_of(Path(place)) for place in self.depends_on)
        return hashlib.sha256(hashes.encode()).hexdigest()[:20]

    def key_content(self) -> Mapping[str, Any]:
        """Return the content of this training for keys, without its code."""
        return {self.part: self.train}

    def record_content(self) -> Mapping[str, Any]:
        """Return the content of this training for the record, metrics and files included."""
        return {**self.key_content(), "metrics": self.metrics, "depends_on": self.depends_on}


def captured(function: FunctionType) -> dict[str, Any]:
    """Return the variables that a function has from the functions around it, by name; of one that a
    library's decorator made, the function that it decorates."""
    values = {}
    decorated = getattr(function, "__wrapped__", None)
    if decorated is not None and is_installed(Path(function.__code__.co_filename)):
        # What else it holds follows from the line that decorates, which is a part of the code.
        return {"decorated": decorated}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not yet assigned
            if cell.cell_contents is not function:
                values[name] = cell.cell_contents
    return values


def plain_function(train: Any) -> FunctionType | type | None:
    """Return the function behind ``train``, or the class of a dataclass with ``__call__``; None if
    it is neither."""
    while isinstance(train, partial):
        train = train.func
    if isinstance(train, FunctionType):
        return train
    if hasattr(train, "__dataclass_fields__") and callable(train) and not isinstance(train, type):
        return type(train)
    return None


def _fingerprint_of(place: Path) -> str:
    from tasks.sources.digest import files_digest, folder_digest, folder_outline

    if place.is_file():
        return files_digest(place.parent, [place])
    if not place.is_dir():
        raise UserError(
            f"depends_on names {place}, which is not there; give paths of files and folders, from "
            "the sweep's folder or absolute"
        )
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return (folder_digest if size <= _READ_WHOLE else folder_outline)(place)
