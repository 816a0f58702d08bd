"""Tries a trial out before its study begins: two updates and an evaluation by the ordinary loop.

It is opened with batches of a few examples, on the CPU, and its evaluation is divided as among
thousands of processes, where its task divides one. Names, kinds and shapes are those of the trial;
values mean nothing. What fails in this short form is tried with whole batches before it counts as a
mistake, where that is affordable. Above ``MAX_FLOPS`` or ``MAX_BYTES`` a model is built without
memory (on torch's meta device), and its loss alone is computed there.
"""

import contextlib
import functools
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any, Final

import torch
from torch import Tensor, nn

from hsweep.design.budget import steps
from hsweep.design.trial import Assignment, Event, Resources, Trial
from hsweep.errors import defined_at, format_error, shown, user_frame
from hsweep.training.batches import leaves, moved, num_examples
from hsweep.training.evaluation import MetricsError
from hsweep.training.loop import train_opened
from hsweep.training.memory import is_out_of_memory
from hsweep.training.opening import data_of, open_trial
from hsweep.training.precision import autocast_of
from hsweep.training.process_state import ProcessState, seed_all
from hsweep.training.trial_run import TrialRun
from models.counts import train_memory_bytes
from tasks.base import Batch, DataError, TaskData
from tasks.division import Share, divide_evaluation

MAX_FLOPS: Final = 3e11
"""Operations of the update that is tried; a few seconds of one CPU core."""
MAX_BYTES: Final = 4e9
"""Memory of the update that is tried, estimated as ``plan`` estimates it."""
EVALUATION_SECONDS: Final = 5.0
"""An evaluation that takes longer than this is given up, at the next call of the model."""
_EXAMPLES: Final = 2
"""In a short batch; one alone has no variance for batch norm."""
_UPDATES: Final = 2
_PARTS: Final = 10_000
"""Of an evaluation, of which the last is made: that one is never without a row."""
_CPU: Final = torch.device("cpu")


class RehearsalError(Exception):
    """A trial cannot be trained or evaluated.

    Attributes:
        where: ``path:line`` to look at; None where nothing tells.
    """

    def __init__(self, message: str, where: str | None) -> None:
        super().__init__(message)
        self.where = where


class _TooLongError(BaseException):
    """An evaluation has taken its time. Not an Exception, so that no task catches it."""


class _ReportedError(BaseException):
    """The trial has come to its report, so all has been tried."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore at the end what a rehearsal changes of this process. Standard output goes to standard
    error meanwhile."""
    process = ProcessState()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        process.restore()


def open_data(trial: Trial) -> TaskData:
    """Open a trial's data for a rehearsal, on the CPU.

    Raises:
        DataError: of the task.
        RehearsalError: it failed otherwise.
    """
    with _accusing("opening the data of"):
        return data_of(trial, _CPU)


def rehearse(trial: Trial, data: TaskData) -> str:
    """Try a trial out with its data open; return what could not be checked, empty for nothing.

    A RehearsalError says that it cannot be trained or evaluated.
    """
    try:
        return _Rehearsal(trial, data).run()
    except RehearsalError as error:
        cause = error.__cause__
        if isinstance(cause, Exception) and is_out_of_memory(cause):
            return "this machine's memory does not suffice for it"
        if trial.resources.gpus and _is_about_devices(cause):
            return f"it does not run on the CPU ({format_error(cause) if cause else error})"
        raise


class _Rehearsal:
    """One trial, tried out."""

    def __init__(self, trial: Trial, data: TaskData) -> None:
        self._trial, self._data = trial, data

    def run(self) -> str:
        """Try updates and an evaluation; return what could not be checked."""
        trial, data = self._trial, self._data
        self._check_steps()
        with _accusing("opening the data of"):
            short = data_of(_shortened(trial), _CPU)
        batch = self._first_batch(short)
        examples = num_examples(batch) or trial.recipe.batch_size
        if not _is_affordable(trial, examples):
            return self._without_memory(batch)
        try:
            return self._tried(_shortened(trial), short, batch)
        except RehearsalError as error:
            is_whole = isinstance(error.__cause__, MetricsError)
            if is_whole or not _is_affordable(trial, trial.recipe.batch_size):
                raise
        return self._tried(trial, data, self._first_batch(data))

    def _check_steps(self) -> None:
        trial = self._trial
        with _accusing("the steps of an epoch of"):
            in_epoch: Any = self._data.steps_per_epoch
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
                f"warmup_steps={warmup} leave nothing of the {num_steps} steps in {budget}: give "
                "fewer",
                "",
            )

    def _first_batch(self, data: TaskData) -> Batch:
        with _accusing("the batches of"):
            batch = next(iter(data.batches(0)), None)
        if batch is None:
            raise RehearsalError(
                "batches(0) ended before its first batch; it must go on without end",
                defined_at(data.batches),
            )
        return batch

    def _tried(self, trial: Trial, data: TaskData, batch: Batch) -> str:
        """Train a few updates up to a report."""
        length = max(_UPDATES, trial.recipe.warmup_steps) * 2
        trial = replace(
            trial,
            recipe=replace(trial.recipe, compile="off"),
            budget=steps(length, report_every=_UPDATES),
            resources=Resources(),
        )
        with tempfile.TemporaryDirectory(prefix="hsweep-") as folder:
            assignment = Assignment(trial, 1, 0, folder, float("inf"), measures_training=True)
            run = TrialRun(assignment, _Listener())
            with _accusing("building the model of"):
                opened = open_trial(run, data)
            model = opened.learned.model
            seed_all(trial.seeds.sampling)
            with _accusing("the training loss of", batch), _watched(model):
                model.train()
                with opened.autocast:
                    loss = data.loss(model, batch)
                self._check_loss(loss, list(model.parameters()))
            part = divide_evaluation(Share(_PARTS - 1, _PARTS, lambda sums: sums))
            try:
                with _accusing("training", batch), _watched(model), part:
                    train_opened(run, opened)
            except MetricsError as error:
                raise RehearsalError(str(error), defined_at(data.evaluate)) from error
            except _TooLongError:
                return f"its evaluation takes more than {EVALUATION_SECONDS:g} s"
            except _ReportedError:
                pass
            return ""

    def _check_loss(self, loss: object, parameters: list[nn.Parameter]) -> None:
        where = defined_at(self._data.loss)
        if not isinstance(loss, Tensor) or loss.ndim:
            found = f"one of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else shown(loss)
            raise RehearsalError(
                f"the training loss must be a scalar tensor, the mean over the batch, not {found}",
                where,
            )
        if not loss.requires_grad:
            raise RehearsalError(
                "the training loss has no gradient; it must be computed from the model's output by "
                "torch, without detach(), item() or no_grad()",
                where,
            )
        trained = [each for each in parameters if each.requires_grad]
        gradients = torch.autograd.grad(loss, trained, allow_unused=True) if trained else ()
        if all(each is None for each in gradients):
            raise RehearsalError(
                "the training loss depends on no parameter of the model, so nothing would be "
                "learned; compute it from what the model returns",
                where,
            )

    def _without_memory(self, batch: Batch) -> str:
        """Try the loss without memory; its evaluation needs values."""
        meta = torch.device("meta")
        beyond = "too large to be tried out on the CPU"
        try:
            with _accusing("building the model of"), meta:
                model = self._trial.built[1].build()
            model.train()
            with _accusing("the training loss of"), autocast_of(self._trial.recipe, _CPU):
                loss = self._data.loss(model, moved(batch, meta))
            self._check_loss(loss, list(model.parameters()))
        except RehearsalError as error:
            # What asks for values fails for no mistake of its own.
            if _is_about_devices(error.__cause__):
                return beyond
            raise
        return f"{beyond}: its evaluation was not tried, its loss was, without values"


class _Listener:
    """The channel of a trial of which the first report is all that is wanted."""

    is_stopped = False

    def begins(self) -> None:
        """Do nothing."""

    def put(self, _event: Event, /) -> bool:
        """End the rehearsal."""
        raise _ReportedError


def _shortened(trial: Trial) -> Trial:
    """Return the trial with a few examples in a batch."""
    recipe = trial.recipe
    size = min(recipe.batch_size, _EXAMPLES * recipe.accumulate)
    return replace(trial, recipe=replace(recipe, batch_size=size))


@contextlib.contextmanager
def _accusing(what: str, batch: Batch = ()) -> Iterator[None]:
    """Turn whatever a task or a model raises into a RehearsalError with the place to look at."""
    try:
        yield
    except (RehearsalError, DataError, MetricsError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.name == "_evaluated" for frame in frames):
            what = "the evaluation of"
        message = f"{what} a trial fails: {format_error(error)}"
        if isinstance(error, IndexError) and "index out of range in self" in str(error):
            message += ". An embedding has fewer rows than the largest id it is given"
            ids = [each for each in leaves(batch) if isinstance(each, Tensor) and each.numel()]
            ids = [each.max() for each in ids if each.dtype in (torch.int32, torch.int64)]
            if ids:
                message += f"; the largest whole number in the batch is {int(max(ids))}"
        raise RehearsalError(message, user_frame(error)) from error


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[None]:
    """Before every call of a module, look at the ids that an embedding is given, and from the first
    evaluation on at the time."""
    deadline: float | None = None

    def check(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal deadline
        if deadline is None and not module.training:
            deadline = time.perf_counter() + EVALUATION_SECONDS
        if deadline is not None and time.perf_counter() > deadline:
            raise _TooLongError
        if not isinstance(module, nn.Embedding) or not args or not isinstance(args[0], Tensor):
            return
        ids = args[0]
        if ids.numel() and not ids.is_meta and (largest := int(ids.max())) >= module.num_embeddings:
            raise IndexError(
                f"the model's embedding {name!r} has {module.num_embeddings} rows and is given the "
                f"id {largest}; it needs at least {largest + 1}: raise the model's vocabulary (or "
                "length), or lower the task's"
            )

    handles = [
        module.register_forward_pre_hook(functools.partial(check, name))
        for name, module in model.named_modules()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_affordable(trial: Trial, examples: int) -> bool:
    counts = trial.counts
    assert counts is not None
    memory = train_memory_bytes(
        counts,
        batch_size=examples,
        optimizer=trial.recipe.optimizer,
        precision=trial.recipe.precision,
        averaged=trial.recipe.ema is not None,
    )
    return counts.train_flops * examples <= MAX_FLOPS and memory <= MAX_BYTES


def _is_about_devices(error: BaseException | None) -> bool:
    words = str(error).lower()
    return isinstance(error, NotImplementedError) or "meta" in words or "cuda" in words
