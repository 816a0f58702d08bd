"""A study's smallest and largest trials tried out before anything is recorded or trained."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hsweep.design.function_model import model_name
from hsweep.design.labels import point_label, varying_axes
from hsweep.design.trial import Trial
from hsweep.errors import UserError
from tasks.base import DataError

if TYPE_CHECKING:
    from hsweep.training.rehearsal import RehearsalError
    from tasks.base import TaskData

_MOST_PAIRS: Final = 5
"""Pairs of a task's and a model's class whose shapes are tried out."""
_MOST_SECONDS: Final = 30.0
"""No shape is started after so long."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of trying out a plan's shapes.

    Attributes:
        shapes: in words.
        unchecked: shapes that could not be tried out as a whole, each with the reason.
        seconds: duration of the trying out.
    """

    shapes: tuple[str, ...]
    unchecked: tuple[str, ...]
    seconds: float

    def lines(self) -> list[str]:
        return [f"not checked before the start: {part}" for part in self.unchecked]


def check_trials(trials: Sequence[Trial]) -> Checked:
    """Try out two updates and an evaluation of the smallest and the largest shape.

    Where tasks or models are of several classes, of each pair of classes. Everything happens on the
    CPU and changes nothing of the trials (see ``hsweep.training.rehearsal``).

    Raises:
        UserError: a trial cannot be trained or evaluated, or its data cannot be read.
    """
    # Seconds of importing, which commands that try nothing out do without.
    from hsweep.training import rehearsal

    started = time.perf_counter()
    axes = varying_axes(trial.point for trial in trials)
    shapes: list[str] = []
    unchecked: list[str] = []
    opened: tuple[Trial, TaskData] | None = None
    for trial in _extremes(trials):
        label = point_label(trial.point, axes)
        shapes.append(label)
        if time.perf_counter() - started > _MOST_SECONDS:
            unchecked.append(f"{label}: the shapes before it took {_MOST_SECONDS:g} s")
            continue
        try:
            with rehearsal.undisturbed():
                if opened is None or _data_of(opened[0]) != _data_of(trial):
                    opened = None  # one at a time
                    opened = (trial, rehearsal.open_data(trial))
                left_out = rehearsal.rehearse(trial, opened[1])
        except DataError as error:
            raise UserError(str(error)) from error
        except rehearsal.RehearsalError as error:
            raise UserError(_refusal(label, trial, error)) from error
        if left_out:
            unchecked.append(f"{label}: {left_out}")
    seconds = time.perf_counter() - started
    return Checked(tuple(shapes), tuple(unchecked), seconds)


def _extremes(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Yield the smallest and the largest shape of each pair of classes, equal data together."""
    pairs: dict[tuple[type, str], list[Trial]] = {}
    for trial in trials:
        if trial.model is not None:  # what the first update of a user's training is, is not known
            pairs.setdefault((type(trial.task), model_name(trial.model)), []).append(trial)
    by_key: dict[str, Trial] = {}
    for group in list(pairs.values())[:_MOST_PAIRS]:
        for extreme in (min(group, key=_size), max(group, key=_size)):
            by_key.setdefault(extreme.key, extreme)
    yield from sorted(by_key.values(), key=lambda trial: trial.parts.get("task", ""))


def _size(trial: Trial) -> tuple[int, int]:
    assert trial.counts is not None
    return trial.counts.num_params, trial.counts.forward_flops


def _data_of(trial: Trial) -> tuple[object, ...]:
    return trial.task, trial.seeds, trial.recipe.batch_size


def _refusal(label: str, trial: Trial, error: "RehearsalError") -> str:
    at = f"{error.where}: " if error.where else ""
    return (
        f"{at}{error} ({label}, task {trial.task.name!r}, model {model_name(trial.model)}). "
        "This was tried out before the start, and nothing was recorded; --no-check starts without"
    )
