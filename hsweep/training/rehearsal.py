"""Tries trials out before anything is recorded: two updates and an evaluation by the ordinary loop.

It runs on the CPU with batches of a few examples, and its evaluation is divided as among thousands
of processes, where its task divides one. Names, kinds and shapes are those of the trial; values
mean nothing. What fails in this short form is tried with whole batches before it counts as a
mistake, where that is affordable. Above ``MAX_FLOPS`` or ``MAX_BYTES`` only the data are tried.
"""

import contextlib
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Final

import torch
from torch import Tensor, nn

from hsweep.design.budget import steps
from hsweep.design.function_model import model_name
from hsweep.design.labels import point_label, varying_axes
from hsweep.design.trial import Assignment, Event, Resources, Trial
from hsweep.errors import UserError, defined_at, format_error, shown, user_frame
from hsweep.training import evaluation
from hsweep.training.batches import num_examples
from hsweep.training.devices import is_out_of_memory
from hsweep.training.evaluation import MetricsError
from hsweep.training.loop import train_setup
from hsweep.training.opening import data_of, open_trial
from hsweep.training.process_state import ProcessState, seed_all
from hsweep.training.run import Channel
from hsweep.training.trial_run import TrialRun
from models.counts import train_memory_bytes
from tasks.base import Batch, DataError, TaskData
from tasks.division import Share, divide_evaluation

MAX_FLOPS: Final = 3e11
"""Operations of the update that is tried; a few seconds of one CPU core."""
MAX_BYTES: Final = 4e9
"""Memory of the update that is tried, estimated as ``plan`` estimates it."""
EVALUATION_SECONDS: Final = 5.0
"""An evaluation that takes longer is ended at the next call of the model."""
_EXAMPLES: Final = 2
"""The number of examples in a short batch: a single one has no variance for batch norm."""
_UPDATES: Final = 2
_PARTS: Final = 10_000
"""The number of parts that an evaluation is divided into here. Only the last part is computed,
which always has a row."""
_CPU: Final = torch.device("cpu")


_MOST_PAIRS: Final = 5
"""Pairs of a task's and a model's class whose shapes are tried out."""
_MOST_SECONDS: Final = 30.0
"""No shape is started after so long."""


class RehearsalError(Exception):
    """A trial cannot be trained or evaluated.

    Attributes:
        where: ``path:line`` to look at; None where nothing tells, empty where no line is at fault.
    """

    def __init__(self, message: str, where: str | None) -> None:
        super().__init__(message)
        self.where = where


class _DoneError(BaseException):
    """Ends a rehearsal, and says what could not be checked. No ``Exception``, so that no task
    catches it."""


class _FirstReport(Channel):
    """The channel of a trial that ends at its first report."""

    def put(self, _event: Event, /) -> bool:
        """End the rehearsal."""
        raise _DoneError


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
    CPU and changes nothing of the trials.

    Raises:
        UserError: a trial cannot be trained or evaluated, or its data cannot be read.
    """
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
            with undisturbed():
                if opened is None or _data_of(opened[0]) != _data_of(trial):
                    opened = None  # one at a time
                    opened = (trial, open_data(trial))
                left_out = rehearse(trial, opened[1])
        except DataError as error:
            raise UserError(str(error)) from error
        except RehearsalError as error:
            raise UserError(_refusal(label, trial, error)) from error
        if left_out:
            unchecked.append(f"{label}: {left_out}")
    seconds = time.perf_counter() - started
    return Checked(tuple(shapes), tuple(unchecked), seconds)


def _extremes(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Yield the smallest and the largest shape of each pair of classes, and one whose cost a plan
    could not tell as it could that of others: its forward pass may fail. Equal data together."""
    pairs: dict[tuple[type, str], list[Trial]] = {}
    for trial in trials:
        if trial.model is not None:  # what the first update of a user's training is, is not known
            pairs.setdefault((type(trial.task), model_name(trial.model)), []).append(trial)
    by_key: dict[str, Trial] = {}
    for group in list(pairs.values())[:_MOST_PAIRS]:
        untraced = [trial for trial in group if not trial.forward_flops]
        odd = untraced[:1] if len(untraced) < len(group) else []
        for extreme in (min(group, key=_size), max(group, key=_size), *odd):
            by_key.setdefault(extreme.key, extreme)
    yield from sorted(by_key.values(), key=lambda trial: trial.parts.get("task", ""))


def _size(trial: Trial) -> tuple[int, int]:
    assert trial.counts is not None
    return trial.counts.num_params, trial.counts.forward_flops


def _data_of(trial: Trial) -> tuple[object, ...]:
    return trial.task, trial.seeds, trial.recipe.batch_size


def _refusal(label: str, trial: Trial, error: RehearsalError) -> str:
    at = f"{error.where}: " if error.where else ""
    return (
        f"{at}{error} ({label}, task {trial.task.name!r}, model {model_name(trial.model)}). "
        "This was tried out before the start, and nothing was recorded; --no-check starts without"
    )


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the settings of this process after the ``with`` block, during which standard output
    goes to standard error."""
    process = ProcessState()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        process.restore()


def open_data(trial: Trial) -> TaskData:
    """Open a trial's data on the CPU; DataError of the task, or RehearsalError otherwise."""
    with _blaming("opening the data of"):
        return data_of(trial, _CPU)


def rehearse(trial: Trial, data: TaskData) -> str:
    """Try out a trial whose data are open; return in words what could not be checked, empty if all
    was.

    Raises:
        RehearsalError: the trial cannot be trained or evaluated.
    """
    size = min(trial.recipe.batch_size, _EXAMPLES * trial.recipe.accumulate)
    short = replace(trial, recipe=replace(trial.recipe, batch_size=size))
    try:
        _check_steps(trial, data)
        short_data = open_data(short)
        batch = _first_batch(short_data)
        if not _is_affordable(trial, num_examples(batch) or trial.recipe.batch_size):
            return "too large to be tried out on the CPU"
        try:
            return _try_updates(short, short_data, batch)
        except RehearsalError as error:
            is_whole = isinstance(error.__cause__, MetricsError)
            if is_whole or not _is_affordable(trial, trial.recipe.batch_size):
                raise
        return _try_updates(trial, data, _first_batch(data))
    except RehearsalError as error:
        cause = error.__cause__
        if isinstance(cause, Exception) and is_out_of_memory(cause):
            return "this machine's memory does not suffice for it"
        if trial.resources.gpus and _is_about_devices(cause):
            return f"it does not run on the CPU ({format_error(cause) if cause else error})"
        raise


def _check_steps(trial: Trial, data: TaskData) -> None:
    with _blaming("the steps of an epoch of"):
        in_epoch: Any = data.steps_per_epoch
    warmup, budget = trial.recipe.warmup_steps, trial.budget
    if budget.unit != "epochs":
        return
    if not isinstance(in_epoch, Integral) or in_epoch < 1:
        raise RehearsalError(
            f"steps_per_epoch must be a whole number of at least 1, not {shown(in_epoch)}: an "
            "epoch would train nothing",
            "",
        )
    if warmup >= (num_steps := budget.amount * int(in_epoch)):
        raise RehearsalError(
            f"warmup_steps={warmup} leave nothing of the {num_steps} steps in {budget}: give fewer",
            "",
        )


def _first_batch(data: TaskData) -> Batch:
    with _blaming("the batches of"):
        batch = next(iter(data.batches(0)), None)
    if batch is None:
        raise RehearsalError(
            "batches(0) ended before its first batch; it must go on without end",
            defined_at(data.batches),
        )
    return batch


def _try_updates(trial: Trial, data: TaskData, batch: Batch) -> str:
    """Train a few updates up to a report."""
    length = max(_UPDATES, trial.recipe.warmup_steps) * 2
    trial = replace(
        trial,
        recipe=replace(trial.recipe, compile="off"),
        budget=steps(length, report_every=_UPDATES),
        resources=Resources(processes=trial.num_ranks),
    )
    last_part = divide_evaluation(Share(_PARTS - 1, _PARTS, lambda sums: sums))
    with tempfile.TemporaryDirectory(prefix="hsweep-") as folder:
        assignment = Assignment(trial, 1, 0, folder, float("inf"), measures_training=True)
        run = TrialRun(assignment, _FirstReport())
        with _blaming("building the model of"):
            setup = open_trial(run, data)
        seed_all(trial.seeds.sampling, _CPU)
        with _blaming("the training loss of"):
            setup.model.train()
            with setup.autocast:
                loss = data.loss(setup.model, batch)
            _check_loss(loss, data, list(setup.model.parameters()))
        try:
            with _blaming("training"), _limited(setup.model), last_part:
                train_setup(run, setup)
        except MetricsError as error:
            raise RehearsalError(str(error), defined_at(data.evaluate)) from error
        except _DoneError as done:
            return str(done)
    raise AssertionError("a trial ends at its first report")


def _check_loss(loss: object, data: TaskData, parameters: Sequence[nn.Parameter]) -> None:
    where = defined_at(data.loss)
    if not isinstance(loss, Tensor) or loss.ndim:
        kind = f"one of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else shown(loss)
        raise RehearsalError(
            f"the training loss must be a scalar tensor, the mean over the batch, not {kind}",
            where,
        )
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    can_train = trained and loss.requires_grad
    gradients = torch.autograd.grad(loss, trained, allow_unused=True) if can_train else ()
    if all(gradient is None for gradient in gradients):
        raise RehearsalError(
            "the training loss has no gradient for any parameter of the model, so nothing would be "
            "learned; compute it from the model's output by torch, without detach(), item() or "
            "no_grad()",
            where,
        )


@contextlib.contextmanager
def _blaming(activity: str) -> Iterator[None]:
    """Turn an error of a task or a model into a RehearsalError: "``activity`` a trial fails", with
    the line of the user's code."""
    try:
        yield
    except (RehearsalError, DataError, MetricsError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if any(
            frame.name == "evaluate" and frame.filename == evaluation.__file__ for frame in frames
        ):
            activity = "the evaluation of"
        message = f"{activity} a trial fails: {format_error(error)}"
        raise RehearsalError(message, user_frame(error)) from error


@contextlib.contextmanager
def _limited(model: nn.Module) -> Iterator[None]:
    """End an evaluation at the first call of a module after `EVALUATION_SECONDS`."""
    deadline: float | None = None

    def check(module: nn.Module, _args: object) -> None:
        nonlocal deadline
        if deadline is None and not module.training:
            deadline = time.perf_counter() + EVALUATION_SECONDS
        if deadline is not None and time.perf_counter() > deadline:
            raise _DoneError(f"its evaluation takes more than {EVALUATION_SECONDS:g} s")

    handles = [module.register_forward_pre_hook(check) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_affordable(trial: Trial, examples: int) -> bool:
    counts, recipe = trial.counts, trial.recipe
    assert counts is not None
    memory = train_memory_bytes(
        counts,
        batch_size=examples,
        optimizer=recipe.optimizer,
        precision=recipe.precision,
        averaged=recipe.ema is not None,
    )
    return counts.train_flops * examples <= MAX_FLOPS and memory <= MAX_BYTES


def _is_about_devices(error: BaseException | None) -> bool:
    return isinstance(error, NotImplementedError) or "cuda" in str(error).lower()
