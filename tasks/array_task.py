"""The task of learning from the user's own tensors, numpy arrays, or torch Dataset.

Shapes: n examples, B of them in a batch, C classes.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from models.fields import choice, share
from tasks.array_store import (
    IGNORED,
    Array,
    Part,
    arrays_of,
    by_name,
    check_alike,
    examples,
    of_constant,
    put,
    read_examples,
    to_send,
)
from tasks.base import Metric
from tasks.division import own_slices, sum_over_processes
from tasks.metrics import accuracy, error, loss
from tasks.sampling import EpochData
from tasks.sources.memory import keep_last

LossFunction = Callable[[Any, Tensor], Tensor]
MetricFunction = Callable[[Any, Tensor], Any]
Batch = tuple[tuple[Tensor, ...], Tensor]

_CHUNK: Final = 512
"""Examples evaluated at once."""
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
        arrays: hash of the arrays.
        inputs: the model's arguments that take the inputs: names, or positions as numbers.
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
        """The name of every task of arrays."""
        return "arrays"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The main metric and the loss, of the examples to validate on and to train on."""
        return (*self._declared(of_training=False), *self._declared(of_training=True))

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
        train, _ = examples(self.arrays, len(self.inputs), self.validation)
        first = tuple(torch.tensor(array[:1]) for array in train.inputs)
        if isinstance(self.inputs[0], str):
            return dict(zip(self.inputs, first, strict=True))
        return first

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "ArrayData":
        """Return the examples, on the device; the same ones are held out whatever the seed."""
        del data_seed
        loaded = load(self.arrays, len(self.inputs), self.validation, device)
        return ArrayData(self, loaded, sampling_seed, batch_size)

    @property
    def metric_name(self) -> str:
        """The name of the main metric."""
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
            is_error = self.loss is None and arrays_of(self.arrays)["y"].dtype.kind != "i"
            words = "cross-entropy in nats" if self.loss is None else "the loss"
            scale, words = (error, _ERRORS["mse"]) if is_error else (loss, words)
            declared.append(scale("train_loss" if of_training else _LOSS, f"{words}, {where}"))
        # A function's own name may begin as those of training metrics do.
        return [replace(metric, of_training=of_training) for metric in declared]

    def validation_targets(self) -> Array:
        """Return the targets of the examples that are validated on."""
        # Without the inputs, which a plan need not copy to know its metrics.
        return examples(self.arrays, 0, self.validation)[1].targets

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.arrays, self.inputs, self.loss, self.metric, self.goal, self.validation)
        return _unpickled, (fields, to_send(self.arrays))


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
        y: the target of each example; whole numbers are classes 0, 1, ..., and -100 has none: it
            counts neither in losses of torch nor in ``top1``.
        validation: the share of the examples that is held out to validate on, of each class, the
            same for every seed; or other examples, as ``(x, y)`` or as a ``Dataset``.
        loss: a function of what the model returns and the targets that returns the mean over the
            batch, a loss of ``torch.nn``, or a name in ``torch.nn.functional``. By default the
            cross-entropy of whole numbers and the mean squared error of others, where the model
            returns a tensor, an object with ``logits``, or a tuple that begins with a tensor.
            Parts of a batch (``Recipe(accumulate=...)``, several processes) count by their targets
            other than -100: what else a loss leaves out belongs in a task of your own.
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
    content = by_name(inputs.values(), targets, "")
    held_out_share: float | None = None
    if isinstance(validation, int | float):
        held_out_share = share("validation", validation)
        if not 1 <= round(held_out_share * len(targets)) < len(targets):
            raise ValueError(
                f"validation={validation} of {len(targets)} examples leaves none to train on or "
                "none to validate on; give another share, or validation=(x, y)"
            )
    else:
        is_pair = isinstance(validation, tuple) and len(validation) == 2
        validation_x, validation_y = validation if is_pair else (validation, None)
        validation_inputs, validation_targets = read_examples(
            validation_x, validation_y, "validation "
        )
        check_alike(inputs | {"y": targets}, validation_inputs | {"y": validation_targets})
        content |= by_name(validation_inputs.values(), validation_targets, "validation_")
    is_classified = targets.dtype.kind == "i"
    if metric is None:
        metric = _LOSS if loss is not None else "top1" if is_classified else "mse"
    _check(metric, goal, targets)
    return ArrayTask(
        put(content), tuple(inputs), _loss_function(loss), metric, goal, held_out_share
    )


def _unpickled(fields: tuple[Any, ...], arrays: dict[str, Array] | None) -> ArrayTask:
    if arrays is not None:
        put(arrays)
    return ArrayTask(*fields)


def _loss_function(loss: Any) -> LossFunction | None:
    """Return a loss, which may be the name of a function of torch."""
    function: LossFunction | None = loss
    if isinstance(loss, str):
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


@keep_last(2)
def load(
    content: str, num_inputs: int, validation: float | None, device: torch.device
) -> tuple[Batch, Batch]:
    """Return the inputs and targets to train on and those to validate on, on a device.

    Args:
        content: hash of the arrays.
        num_inputs: of the model.
        validation: the share that is held out, or None.
        device: the device that trains.

    Raises:
        DataError: the arrays are not there.
    """

    def moved(part: Part) -> Batch:
        # Copied, since the user's arrays are not a model's to write into.
        inputs = tuple(torch.tensor(array, device=device) for array in part.inputs)
        return inputs, torch.tensor(part.targets, device=device)

    train, held_out = examples(content, num_inputs, validation)
    return moved(train), moved(held_out)


class ArrayData(EpochData):
    """Examples opened for one trial."""

    def __init__(
        self,
        task: ArrayTask,
        examples: tuple[Batch, Batch],
        sampling_seed: int,
        batch_size: int,
    ) -> None:
        self._train, self._validation = examples
        super().__init__(len(self._train[1]), len(self._validation[1]), sampling_seed, batch_size)
        self._task = task
        self._variance = of_constant("mse", task.validation_targets())
        targets = [part[1] for part in examples if not part[1].is_floating_point()]
        self._is_whole = not any(bool((part == IGNORED).any()) for part in targets)

    def batches(self, start_step: int) -> Iterator[Batch]:
        """Yield (inputs, targets) without end, beginning with ``start_step``."""
        inputs, targets = self._train
        for _, rows in self.rows_from(start_step, targets.device):
            yield (
                tuple(tensor.index_select(0, rows) for tensor in inputs),
                targets.index_select(0, rows),
            )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of a batch."""
        inputs, targets = batch
        return self._loss(self._outputs(model, inputs), targets)

    def parts(self, batch: Batch, at_once: int) -> list[tuple[Batch, float]]:
        """Return parts of a batch, each with its share of the targets that count."""
        inputs, targets = batch
        rows = [slice(at, at + at_once) for at in range(0, len(targets), at_once)]
        counts = [self._counted(targets[part]) for part in rows]
        return [
            ((tuple(tensor[part] for tensor in inputs), targets[part]), count / sum(counts))
            for part, count in zip(rows, counts, strict=True)
            if count
        ] or [(batch, 1.0)]

    def _counted(self, targets: Tensor) -> int:
        """Return how many targets count in a mean over a batch."""
        return len(targets) if self._is_whole else int((targets != IGNORED).sum())

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the metrics of the examples to validate on."""
        return self._measured(model, self._validation, "", "validation_loss")

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the metrics of the training examples."""
        return self._measured(model, self._train, "train_", "train_loss")

    def _outputs(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
        names = self._task.inputs
        if isinstance(names[0], str):
            return model(**dict(zip(names, inputs, strict=True)))  # type: ignore[arg-type]
        return model(*inputs)

    def _loss(self, outputs: Any, targets: Tensor) -> Tensor:
        if self._task.loss is not None:
            return self._task.loss(outputs, targets)
        if targets.is_floating_point():
            return functional.mse_loss(numbers_of(outputs, targets), targets)
        return functional.cross_entropy(*logits_of(outputs, targets))

    def _measured(
        self, model: nn.Module, part: Batch, prefix: str, loss_name: str
    ) -> dict[str, float]:
        metric, name = self._task.metric, self._task.metric_name
        inputs, targets = part
        # A function of all outputs at once: every process of a trial computes them all.
        all_rows = [slice(at, at + _CHUNK) for at in range(0, len(targets), _CHUNK)]
        chunks = all_rows if callable(metric) else own_slices(len(targets), _CHUNK)
        total = torch.zeros(3, dtype=torch.float64, device=targets.device)
        predictions = []
        for rows in chunks:
            truth = targets[rows]
            outputs = self._outputs(model, tuple(tensor[rows] for tensor in inputs))
            loss = self._loss(outputs, truth).double()
            score = loss
            if callable(metric):
                predictions.append(outputs)
            elif metric != _LOSS:
                score = _score(metric, outputs, truth).double()
            if counted := self._counted(truth):
                total += torch.stack((loss, score, torch.ones_like(loss))) * counted
        sums = total if callable(metric) else sum_over_processes(total)
        loss_sum, score_sum, count = sums.tolist()
        values = {loss_name: loss_sum / count}
        if callable(metric):
            values[f"{prefix}{name}"] = float(metric(_concatenated(predictions), targets))
        elif metric != _LOSS:
            unit = self._variance if metric == "nmse" else 1.0
            values[f"{prefix}{name}"] = score_sum / count / unit
        if metric == "mse" and self._task.loss is None:
            del values[loss_name]
        return values


def _concatenated(outputs: list[Any]) -> Any:
    """Return the outputs of several batches as those of one."""
    return tree_map(lambda *parts: torch.cat(parts), *outputs)


def main_output(outputs: Any) -> Tensor:
    """Return what a model's outputs are scored by: a tensor, the ``logits`` of an object or a
    dictionary, or the first part of a tuple.

    Raises:
        ValueError: there is no such tensor.
    """
    output = outputs
    if isinstance(outputs, Mapping):
        output = outputs.get("logits")
    elif hasattr(outputs, "logits"):
        output = outputs.logits
    elif isinstance(outputs, tuple | list) and outputs:
        output = outputs[0]
    if not isinstance(output, Tensor):
        raise ValueError(
            "the model must return a tensor, an object or dictionary with logits, or a tuple that "
            f"begins with a tensor, not {type(outputs).__name__}; arrays(..., loss=function) takes "
            "whatever it returns"
        )
    return output


def logits_of(outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, C) and classes (n,), of one prediction an example or of several: logits (B,
    ..., C) and classes (B, ...).

    Raises:
        ValueError: shapes that do not go together, or fewer logits than classes.
    """
    logits = main_output(outputs)
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"y holds classes of shape {tuple(targets.shape)}, so the model must return logits of "
            f"shape ({', '.join(map(str, (*targets.shape, 'classes')))}), not "
            f"{tuple(logits.shape)}"
        )
    return logits.flatten(0, -2), targets.flatten()


def numbers_of(outputs: Any, targets: Tensor) -> Tensor:
    """Return a model's numbers in the shape of the targets: a last dimension of 1 may be more or
    less.

    Raises:
        ValueError: another shape.
    """
    numbers = main_output(outputs)
    if numbers.shape == targets.shape:
        return numbers
    if numbers.shape == (*targets.shape, 1) or (*numbers.shape, 1) == targets.shape:
        return numbers.reshape(targets.shape)
    raise ValueError(
        f"y has the shape {tuple(targets.shape)} in a batch, so the model must return numbers of "
        f"that shape, not {tuple(numbers.shape)}"
    )


def _score(metric: str, outputs: Any, targets: Tensor) -> Tensor:
    """Return the mean of a metric over a batch; of ``nmse`` the squared error."""
    if metric == "top1":
        logits, classes = logits_of(outputs, targets)
        return (logits.argmax(1) == classes)[classes != IGNORED].double().mean()
    difference = numbers_of(outputs, targets).double() - targets
    return difference.abs().mean() if metric == "mae" else difference.square().mean()
