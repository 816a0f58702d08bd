"""A trial tried out on the CPU before its study begins: one update's loss and gradient, and one
evaluation, so that a mistake in a task or a model is found before anything is recorded.

It is cheap: a batch is cut down to a few examples (see ``hsweep.training.micro_batches``), and
while the task evaluates, the model computes the first few rows of each input and repeats their
outputs for the other rows. Names, kinds and shapes are those of a trial; values mean nothing. What
fails in this short form is tried whole before it counts as a mistake, where that is affordable.
Above ``MAX_FLOPS`` or ``MAX_BYTES`` a model is built without memory (on torch's meta device), and
its loss alone is computed there.
"""

import contextlib
import functools
import math
import sys
import time
from collections.abc import Iterator
from numbers import Integral
from typing import Any, Final

import torch
from torch import Tensor, nn

from hsweep.design.trial import Trial
from hsweep.errors import defined_at, shown, told, user_frame
from hsweep.training.averaging import average_of
from hsweep.training.batches import leaves, moved, num_examples, parts_of, rows_of
from hsweep.training.evaluation import MetricsError, evaluated
from hsweep.training.memory import is_out_of_memory
from hsweep.training.memory_format import with_channels_last
from hsweep.training.micro_batches import check_divisible
from hsweep.training.opening import data_of
from hsweep.training.precision import autocast_of
from hsweep.training.process_state import ProcessState, seed_all
from models.counts import train_memory_bytes
from tasks.base import Batch, DataError, TaskData

MAX_FLOPS: Final = 3e11
"""Operations of the update that is tried; a few seconds of one CPU core."""
MAX_BYTES: Final = 4e9
"""Memory of the update that is tried, estimated as ``plan`` estimates it."""
EVALUATION_SECONDS: Final = 5.0
"""An evaluation that takes longer than this is given up, at the next call of the model."""
_EXAMPLES: Final = 2
"""In a short batch; one alone has no variance for batch norm."""
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
            return f"it does not run on the CPU ({told(cause) if cause else error})"
        raise


class _Rehearsal:
    """One trial, tried out."""

    def __init__(self, trial: Trial, data: TaskData) -> None:
        self._trial, self._data = trial, data
        self._autocast = autocast_of(trial.recipe, _CPU)

    def run(self) -> str:
        """Try loss, gradient and evaluation; return what could not be checked."""
        trial, data = self._trial, self._data
        with _accusing("the steps of an epoch of"):
            steps: Any = data.steps_per_epoch
        if trial.budget.unit == "epochs" and (not isinstance(steps, Integral) or steps < 1):
            raise RehearsalError(
                f"steps_per_epoch must be a whole number of at least 1, not {shown(steps)}: an "
                "epoch would train nothing",
                "",
            )
        warmup, budget = trial.recipe.warmup_steps, trial.budget
        if budget.unit == "epochs" and warmup >= (num_steps := budget.amount * steps):
            raise RehearsalError(
                f"warmup_steps={warmup} leave nothing of the {num_steps} steps in {budget}: give "
                "fewer",
                "",
            )
        with _accusing("the batches of"):
            batch = next(iter(data.batches(0)), None)
        if batch is None:
            raise RehearsalError(
                "batches(0) ended before its first batch; it must go on without end",
                defined_at(data.batches),
            )
        if trial.recipe.at_once is not None:
            with _accusing("dividing the batches of"):
                check_divisible(data, batch)
        short, examples = self._shortened(batch)
        if not _is_affordable(trial, examples):
            return self._without_memory(short)
        model = self._built()
        self._train(model, batch, short)
        return self._evaluate(model)

    def _shortened(self, batch: Batch) -> tuple[Batch, int]:
        """Return the part of a batch to try, and how many examples it has."""
        try:
            parts = parts_of(self._data, batch, _EXAMPLES)
        except Exception:  # parts are asked for only where memory does not suffice
            return batch, self._trial.recipe.batch_size
        if len(parts) > 1:
            return parts[0][0], _EXAMPLES
        return batch, num_examples(batch) or self._trial.recipe.batch_size

    def _built(self) -> nn.Module:
        seed_all(self._trial.seeds.init)
        with _accusing("building the model of"):
            model = self._trial.built[1].build().to(_CPU)
        with _accusing("warm_start of"):
            self._data.warm_start(model)
        if self._trial.recipe.channels_last:
            with_channels_last(model)
        with _accusing("copying the model, to average the weights, of"):
            average_of(model, self._trial.recipe)
        return model

    def _train(self, model: nn.Module, batch: Batch, short: Batch) -> None:
        model.train()
        seed_all(self._trial.seeds.sampling)
        try:
            self._update(model, short)
        except RehearsalError:
            if short is batch or not _is_affordable(self._trial, self._trial.recipe.batch_size):
                raise
            model.zero_grad(set_to_none=True)
            self._update(model, batch)

    def _update(self, model: nn.Module, batch: Batch) -> None:
        with _accusing("the training loss of", batch), _watched(model, {}):
            with self._autocast:
                loss = self._data.loss(model, batch)
            self._check_loss(loss)
            loss.backward()  # type: ignore[no-untyped-call]
        if all(each.grad is None for each in model.parameters()):
            raise RehearsalError(
                "the training loss depends on no parameter of the model, so nothing would be "
                "learned; compute it from what the model returns",
                defined_at(self._data.loss),
            )
        model.zero_grad(set_to_none=True)

    def _check_loss(self, loss: object) -> None:
        if not isinstance(loss, Tensor) or loss.ndim:
            found = f"one of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else shown(loss)
            raise RehearsalError(
                f"the training loss must be a scalar tensor, the mean over the batch, not {found}",
                defined_at(self._data.loss),
            )
        if not loss.requires_grad:
            raise RehearsalError(
                "the training loss has no gradient; it must be computed from the model's output by "
                "torch, without detach(), item() or no_grad()",
                defined_at(self._data.loss),
            )

    def _evaluate(self, model: nn.Module) -> str:
        model.eval()
        deadline = time.perf_counter() + EVALUATION_SECONDS
        too_long = f"its evaluation takes more than {EVALUATION_SECONDS:g} s"
        try:
            try:
                self._evaluate_once(model, deadline, _Shortening())
            except RehearsalError as error:
                if isinstance(error.__cause__, MetricsError):
                    raise
                self._evaluate_once(model, deadline, None)
        except _TooLongError:
            return too_long
        return ""

    def _evaluate_once(
        self, model: nn.Module, deadline: float, shortening: "_Shortening | None"
    ) -> None:
        wrong: MetricsError | None = None
        whole: dict[int, Tensor] = {} if shortening is None else shortening.whole
        with contextlib.ExitStack() as stack:
            stack.enter_context(_accusing("the evaluation of"))
            if shortening is not None:
                stack.enter_context(shortening.of(model))
            stack.enter_context(_watched(model, whole, deadline))
            with torch.no_grad(), self._autocast:
                try:
                    evaluated(self._trial, self._data, model, with_training=True)
                except MetricsError as error:
                    wrong = error
        if wrong is not None:
            raise RehearsalError(str(wrong), defined_at(self._data.evaluate)) from wrong

    def _without_memory(self, batch: Batch) -> str:
        """Try the loss without memory; its evaluation needs values."""
        meta = torch.device("meta")
        beyond = "too large to be tried out on the CPU"
        try:
            with _accusing("building the model of"), meta:
                model = self._trial.built[1].build()
            model.train()
            with _accusing("the training loss of"), self._autocast:
                self._check_loss(self._data.loss(model, moved(batch, meta)))
        except RehearsalError as error:
            # What asks for values fails for no mistake of its own.
            if _is_about_devices(error.__cause__):
                return beyond
            raise
        return f"{beyond}: its evaluation was not tried, its loss was, without values"


class _Shortening:
    """While a task evaluates, the model computes the first rows of each input alone.

    Attributes:
        whole: the tensor that a shortened one was cut from, by the identity of the short one.
    """

    def __init__(self) -> None:
        self.whole: dict[int, Tensor] = {}
        self._kept: Any = None
        self._size: int | None = None

    @contextlib.contextmanager
    def of(self, model: nn.Module) -> Iterator[None]:
        before = model.register_forward_pre_hook(self._cut, with_kwargs=True, prepend=True)
        after = model.register_forward_hook(self._repeat, with_kwargs=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _cut(
        self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        size = num_examples((args, kwargs))
        self._size = size if size is not None and size > _EXAMPLES else None
        if self._size is None:
            return None
        self._kept = rows_of((args, kwargs), slice(0, _EXAMPLES))
        self.whole.clear()
        for whole, short in zip(leaves((args, kwargs)), leaves(self._kept), strict=True):
            if isinstance(whole, Tensor):
                self.whole[id(short)] = whole
        return self._kept  # type: ignore[no-any-return]

    def _repeat(
        self, _model: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any
    ) -> Any:
        if self._size is None:
            return output
        if num_examples(output) != _EXAMPLES:
            raise ValueError("an output that is not one row an example cannot be repeated")
        return rows_of(output, torch.arange(self._size) % _EXAMPLES)


@contextlib.contextmanager
def _accusing(what: str, batch: Batch = ()) -> Iterator[None]:
    """Turn whatever a task or a model raises into a RehearsalError with the place to look at."""
    try:
        yield
    except (RehearsalError, DataError):
        raise
    except (Exception, SystemExit) as error:
        message = f"{what} a trial fails: {told(error)}"
        if isinstance(error, IndexError) and "index out of range in self" in str(error):
            message += ". An embedding has fewer rows than the largest id it is given"
            ids = [each for each in leaves(batch) if isinstance(each, Tensor) and each.numel()]
            ids = [each.max() for each in ids if each.dtype in (torch.int32, torch.int64)]
            if ids:
                message += f"; the largest whole number in the batch is {int(max(ids))}"
        raise RehearsalError(message, user_frame(error)) from error


@contextlib.contextmanager
def _watched(
    model: nn.Module, whole: dict[int, Tensor], deadline: float = math.inf
) -> Iterator[None]:
    """Before every call of a module, look at the time and at the ids that an embedding is given, in
    the whole input where that was cut."""

    def check(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        if time.perf_counter() > deadline:
            raise _TooLongError
        if not isinstance(module, nn.Embedding) or not args or not isinstance(args[0], Tensor):
            return
        ids = whole.get(id(args[0]), args[0])
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
