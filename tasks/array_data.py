"""Learning from arrays: batches, losses and metrics.

Shapes: n examples, B of them in a batch, C classes.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from tasks.array_store import Part, examples, of_constant
from tasks.division import own_slices, sum_over_processes
from tasks.sampling import EpochData
from tasks.sources.memory import keep_last

if TYPE_CHECKING:
    from tasks.array_task import ArrayTask

_CHUNK: Final = 512
"""Examples evaluated at once."""
Batch = tuple[tuple[Tensor, ...], Tensor]


class Examples(NamedTuple):
    """Examples on the training device, each as a tuple of inputs and targets."""

    train: Batch
    validation: Batch


@keep_last(2)
def load(content: str, num_inputs: int, validation: float | None, device: torch.device) -> Examples:
    """Return examples on a device.

    Args:
        content: hash of the arrays.
        num_inputs: of the model.
        validation: the share that is held out, or None.
        device: where they are wanted.

    Raises:
        DataError: the arrays are not there.
    """
    train, others = examples(content, num_inputs, validation)
    return Examples(_on(train, device), _on(others, device))


def _on(part: Part, device: torch.device) -> Batch:
    # Copied, since the user's arrays are not a model's to write into.
    inputs = tuple(torch.tensor(array, device=device) for array in part.inputs)
    return inputs, torch.tensor(part.targets, device=device)


class ArrayData(EpochData):
    """Examples opened for one trial."""

    def __init__(
        self, task: "ArrayTask", loaded: Examples, sampling_seed: int, batch_size: int
    ) -> None:
        super().__init__(len(loaded.train[1]), len(loaded.validation[1]), sampling_seed, batch_size)
        self._task, self._examples = task, loaded
        self._variance = of_constant("mse", task.validation_targets())

    def batches(self, start_step: int) -> Iterator[Batch]:
        """Yield (inputs, targets) without end, beginning with ``start_step``."""
        inputs, targets = self._examples.train
        for _, rows in self.rows_from(start_step, targets.device):
            chosen = tuple(tensor.index_select(0, rows) for tensor in inputs)
            yield chosen, targets.index_select(0, rows)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of a batch."""
        inputs, targets = batch
        return self._loss(self._outputs(model, inputs), targets)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the metrics of the examples to validate on."""
        return self._measured(model, self._examples.validation, "", "validation_loss")

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the same of the training examples."""
        return self._measured(model, self._examples.train, "train_", "train_loss")

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
        if callable(metric):
            # A function of all outputs at once: every process of a trial computes them all.
            chunks = [slice(at, at + _CHUNK) for at in range(0, len(targets), _CHUNK)]
        else:
            chunks = [*own_slices(len(targets), _CHUNK)]
        total = torch.zeros(3, dtype=torch.float64, device=targets.device)
        predictions = []
        for rows in chunks:
            truth = targets[rows]
            outputs = self._outputs(model, tuple(tensor[rows] for tensor in inputs))
            loss = self._loss(outputs, truth).double() * len(truth)
            scored = torch.zeros((), dtype=torch.float64, device=targets.device)
            if callable(metric):
                predictions.append(outputs)
            elif metric != "validation_loss":
                scored = _score(metric, outputs, truth).double() * len(truth)
            total += torch.stack((loss, scored, scored.new_tensor(len(truth))))
        loss_sum, score_sum, count = (
            total if callable(metric) else sum_over_processes(total)
        ).tolist()
        values = {loss_name: loss_sum / count}
        if callable(metric):
            values[f"{prefix}{name}"] = float(metric(_joined(predictions), targets))
        elif metric == "nmse":
            values[f"{prefix}{name}"] = score_sum / count / self._variance
        elif metric != "validation_loss":
            values[f"{prefix}{name}"] = score_sum / count
        if metric == "mse" and self._task.loss is None:
            del values[loss_name]
        return values


def _joined(outputs: list[Any]) -> Any:
    """Return the outputs of several batches as those of one."""
    first, *others = outputs
    return tree_map(lambda *parts: torch.cat(parts), first, *others)


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
        return (logits.argmax(1) == classes).double().mean()
    difference = numbers_of(outputs, targets).double() - targets
    return difference.abs().mean() if metric == "mae" else difference.square().mean()
