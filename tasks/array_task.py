"""The task of learning from the user's own tensors, numpy arrays, or torch Dataset."""

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from models.fields import choice, share
from tasks.array_store import (
    Array,
    check_alike,
    examples,
    has_classes,
    named,
    of_constant,
    put,
    read_examples,
    receive,
    to_send,
)
from tasks.base import Metric
from tasks.metrics import accuracy, error, loss

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tasks.array_data import ArrayData

LossFunction = Callable[[Any, "Tensor"], "Tensor"]
MetricFunction = Callable[[Any, "Tensor"], Any]

_LOSS: Final = "validation_loss"
_ERRORS: Final = {
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "nmse": "mean squared error over the variance of the targets validated on",
}
NAMED_METRICS: Final = ("top1", *_ERRORS, _LOSS)


@dataclass(frozen=True, slots=True)
class ArrayTask:
    """The task of learning from arrays; ``tasks.arrays`` makes it.

    Attributes:
        arrays: hash of them.
        inputs: what they are called as the model's arguments; numbers are positions.
        loss: a function of what the model returns and the targets; None for the usual ones.
        metric: the main metric: one of ``NAMED_METRICS``, or a function of what the model returns
            and the targets.
        goal: whether less or more of a metric that is a function is better.
        validation: the share held out; None where there are other examples to validate on.
    """

    arrays: str
    inputs: tuple[str | int, ...]
    loss: LossFunction | None
    metric: str | MetricFunction
    goal: Literal["min", "max"] | None
    validation: float | None

    @property
    def name(self) -> str:
        """What every task of arrays is called."""
        return "arrays"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The main metric and the loss, of the examples to validate on and to train on."""
        return (*self._declared(of_training=False), *self._declared(of_training=True))

    @property
    def is_classified(self) -> bool:
        """Whether targets are classes: whole numbers."""
        return has_classes(self.arrays)

    def fingerprint(self) -> str:
        """Return the hash of the arrays."""
        return self.arrays

    def key_content(self) -> Mapping[str, Any]:
        """Return what tells this task from others, beside its arrays and its code."""
        return {
            "inputs": self.inputs,
            "loss": _content_of(self.loss),
            "metric": self.metric,
            "goal": self.goal,
            "validation": self.validation,
        }

    def example_input(self) -> Any:
        """Return the model's input for the first example, as a batch of one."""
        import torch

        train, _ = examples(self.arrays, len(self.inputs), self.validation)
        first = tuple(torch.tensor(array[:1]) for array in train.inputs)
        if isinstance(self.inputs[0], str):
            return dict(zip(self.inputs, first, strict=True))
        return first

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> "ArrayData":
        """Return the examples, on the device; the same ones are held out whatever the seed."""
        from tasks.array_data import ArrayData, load

        del data_seed
        loaded = load(self.arrays, len(self.inputs), self.validation, device)
        return ArrayData(self, loaded, sampling_seed, batch_size)

    @property
    def metric_name(self) -> str:
        """What the main metric is called."""
        return self.metric if isinstance(self.metric, str) else _name_of(self.metric)

    def _declared(self, *, of_training: bool) -> list[Metric]:
        where = f"{'training' if of_training else 'validation'} examples"
        prefix = "train_" if of_training else ""
        declared = []
        if callable(self.metric):
            scale = accuracy if self.goal == "max" else error
            declared.append(scale(f"{prefix}{self.metric_name}", f"{self.metric_name}, {where}"))
        elif self.metric != _LOSS:
            chance = None if of_training else of_constant(self.metric, self.validation_targets())
            words = _ERRORS.get(self.metric, "share of targets with the largest output")
            scale = accuracy if self.metric == "top1" else error
            declared.append(scale(f"{prefix}{self.metric}", f"{words}, {where}", chance))
        if self.metric != "mse" or self.loss is not None:
            is_error = self.loss is None and not self.is_classified
            words = "cross-entropy in nats" if self.loss is None else "the loss"
            scale, words = (error, _ERRORS["mse"]) if is_error else (loss, words)
            declared.append(scale("train_loss" if of_training else _LOSS, f"{words}, {where}"))
        # A function's own name may begin as those of training metrics do.
        return [replace(metric, of_training=of_training) for metric in declared]

    def validation_targets(self) -> Array:
        """Return the targets of the examples that are validated on."""
        return examples(self.arrays, len(self.inputs), self.validation)[1].targets

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.arrays, self.inputs, self.loss, self.metric, self.goal, self.validation)
        return _received, (fields, to_send(self.arrays))


def arrays(
    x: Any,
    y: Any = None,
    *,
    validation: Any = 0.2,
    loss: LossFunction | str | None = None,
    metric: str | MetricFunction | None = None,
    goal: Literal["min", "max"] | None = None,
) -> ArrayTask:
    """Return the task of learning from tensors, numpy arrays or a torch Dataset.

    The order of examples depends on a trial's seed and the epoch alone. A model is given numbers
    with a fraction as float32, and whole ones as int64.

    Args:
        x: the examples, along the first dimension: a tensor or an array; a tuple of several, the
            model's arguments, or a dictionary of its keyword arguments; or a ``Dataset`` of pairs
            (x, y), which is read once, whole.
        y: the target of each example; whole numbers are classes 0, 1, ...
        validation: the share of the examples that is held out to validate on, of each class, the
            same for every seed; or other examples, as ``(x, y)`` or as a ``Dataset``.
        loss: a function of what the model returns and the targets that returns the mean over the
            batch, a loss of ``torch.nn``, or a name in ``torch.nn.functional``. By default the
            cross-entropy of whole numbers and the mean squared error of others, where the model
            returns a tensor, an object with ``logits``, or a tuple that begins with a tensor.
        metric: the main metric: ``top1``, ``mse``, ``mae``, ``nmse`` (the mean squared error over
            the targets' variance), ``validation_loss``, or a function of all outputs and targets
            that returns a number. By default ``top1`` of whole numbers and ``mse`` of others; with
            a loss of your own, ``validation_loss``.
        goal: of a metric that is a function: whether ``"min"`` or ``"max"`` of it is better.

    Raises:
        ValueError: arrays that do not go together, or hold what cannot be learned from, or a loss
            or metric that does not fit them.
    """
    inputs, targets = read_examples(x, y, "")
    kept = named(inputs.values(), targets, "")
    part: float | None = None
    if isinstance(validation, int | float):
        part = share("validation", validation)
        if not 1 <= round(part * len(targets)) < len(targets):
            raise ValueError(
                f"validation={validation} of {len(targets)} examples leaves none to train on or "
                "none to validate on; give another share, or validation=(x, y)"
            )
    else:
        is_pair = isinstance(validation, tuple) and len(validation) == 2
        other_x, other_y = validation if is_pair else (validation, None)
        others, their_targets = read_examples(other_x, other_y, "validation ")
        check_alike(inputs | {"y": targets}, others | {"y": their_targets})
        kept |= named(others.values(), their_targets, "validation_")
    is_classified = targets.dtype.kind == "i"
    if metric is None:
        metric = _LOSS if loss is not None else "top1" if is_classified else "mse"
    _check(metric, goal, targets)
    return ArrayTask(put(kept), tuple(inputs), _loss_function(loss), metric, goal, part)


def _received(fields: tuple[Any, ...], sent: dict[str, Array] | None) -> ArrayTask:
    receive(fields[0], sent)
    return ArrayTask(*fields)


def _loss_function(loss: Any) -> LossFunction | None:
    """Return a loss, which may be the name of a function of torch."""
    function: LossFunction | None = loss
    if isinstance(loss, str):
        from torch.nn import functional

        function = getattr(functional, loss, None)
    if loss is None or callable(function):
        return function
    raise ValueError(
        "loss must be a function of outputs and targets, a loss of torch.nn, or the name of a "
        f"function of torch.nn.functional, such as 'mse_loss', not {loss!r}"
    )


def _check(metric: Any, goal: str | None, targets: Array) -> None:
    """Refuse a metric or goal that does not fit the targets."""
    if callable(metric):
        choice("min", "max")("goal of a metric that is a function", goal or "")
        if not _name_of(metric).isidentifier():
            raise ValueError("a metric needs a name: give a function that `def` defines")
        return
    choice(*NAMED_METRICS)("metric", metric)
    needed = "max" if metric == "top1" else "min"
    if goal not in (None, needed):
        raise ValueError(f"the goal of {metric} is {needed!r}, not {goal!r}; leave it out")
    is_classified = targets.dtype.kind == "i"
    if metric != _LOSS and (metric == "top1") != is_classified:
        kind, fitting, change = (
            ("whole numbers, classes", "top1", "float")
            if is_classified
            else ("numbers with a fraction", "mse, mae or nmse", "int")
        )
        raise ValueError(
            f"metric={metric!r} does not fit y, which holds {kind}: give {fitting}, or give "
            f"y.astype({change})"
        )
    if metric == "nmse" and not targets.std():
        raise ValueError("nmse is relative to the variance of y, and all of y is the same number")


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _content_of(loss: Any) -> Any:
    """Return a loss of ``torch.nn`` as its class and what it was made with; a function as it is."""
    if not hasattr(loss, "state_dict"):
        return loss
    settings = {
        name: value
        for name, value in vars(loss).items()
        if isinstance(value, str | int | float) and name != "training"
    }
    weights = {
        name: hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()
        for name, tensor in loss.state_dict().items()
    }
    return {"class": type(loss).__qualname__, **settings, **weights}
