"""A task, a model and a sweep that train in milliseconds.

The task is a linear map of ``dim`` inputs to ``dim`` outputs, the model two matrices with ``width``
numbers between them, so the error collapses when the width reaches the dimension. On request the
task diverges, raises or waits, which tests of what happens around training need.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep import Point, Recipe, Sweep, epochs, grid
from models.base import PARAM_GROUPS, Counts
from tasks.base import DataError, Metric

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

METRICS = (
    Metric("nmse", "min", "error", "squared error over the outputs' power, validation split"),
    Metric("fit", "max", "accuracy", "1 - nmse, at least 0, validation split"),
)


@dataclass(frozen=True)
class TinyTask:
    """Learn a linear map.

    Attributes:
        dim: inputs and outputs.
        num_train, num_val: examples of the splits.
        diverges_at: the update (counted from 1) whose loss is NaN, as are all later ones.
        raises_at: the update (counted from 1) before which a RuntimeError is raised, ...
        raises: ... the first so many times, over all attempts.
        waits_at: the update (counted from 1) before which the task waits for ``go`` in ``folder``.
        fits: examples whose forward pass fits memory: of more, gradients cannot be had.
        folder: where those two leave their traces: ``raised-1``, ``raised-2``, ... and
            ``waiting-PID``.
        unreadable: whether the data set cannot be read.
    """

    dim: int = 3
    num_train: int = 32
    num_val: int = 32
    diverges_at: int | None = None
    raises_at: int | None = None
    raises: int = 1
    waits_at: int | None = None
    fits: int | None = None
    folder: str | None = None
    unreadable: bool = False

    @property
    def name(self) -> str:
        return "tiny"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return METRICS

    def fingerprint(self) -> str:
        self._read()
        return hashlib.sha256(f"{self.dim}/{self.num_train}/{self.num_val}".encode()).hexdigest()

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> "TinyData":
        self._read()
        return TinyData(self, data_seed, sampling_seed, batch_size, device)

    def _read(self) -> None:
        if self.unreadable:
            raise DataError("the tiny data set at /nowhere cannot be read")

    def before_update(self, number: int) -> None:
        """Raise or wait if this is the update for it."""
        if number == self.raises_at:
            folder = self._traces()
            before = len(list(folder.glob("raised-*")))
            if before < self.raises:
                (folder / f"raised-{before + 1}").touch()
                raise RuntimeError(f"raised on purpose before update {number}")
        if number == self.waits_at:
            folder = self._traces()
            (folder / f"waiting-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)

    def _traces(self) -> Path:
        assert self.folder is not None, "raises_at and waits_at need a folder"
        return Path(self.folder)


class TinyData:
    """The examples of one trial."""

    def __init__(
        self,
        task: TinyTask,
        data_seed: int,
        sampling_seed: int,
        batch_size: int,
        device: "torch.device",
    ) -> None:
        import torch

        self._task, self._sampling_seed = task, sampling_seed
        rng = torch.Generator().manual_seed(data_seed)
        target, _ = torch.linalg.qr(torch.randn(task.dim, task.dim, generator=rng))
        inputs = torch.randn(task.num_train + task.num_val, task.dim, generator=rng)
        outputs = inputs @ target
        n = task.num_train
        self._train = (inputs[:n].to(device), outputs[:n].to(device))
        self._val = (inputs[n:].to(device), outputs[n:].to(device))
        self._batch_size = min(batch_size, n)

    @property
    def steps_per_epoch(self) -> int:
        return self._task.num_train // self._batch_size

    @property
    def eval_size(self) -> int:
        return self._task.num_val

    def batches(self, start_step: int) -> Iterator[tuple[int, "Tensor", "Tensor"]]:
        """Yield (update number, inputs, outputs)."""
        import torch

        step = start_step
        while True:
            epoch, position = divmod(step, self.steps_per_epoch)
            rng = torch.Generator().manual_seed((self._sampling_seed + epoch) % 2**63)
            order = torch.randperm(self._task.num_train, generator=rng)
            rows = order[position * self._batch_size : (position + 1) * self._batch_size]
            step += 1
            yield step, self._train[0][rows], self._train[1][rows]

    def loss(self, model: "nn.Module", batch: tuple[int, "Tensor", "Tensor"]) -> "Tensor":
        import torch

        number, inputs, outputs = batch
        self._task.before_update(number)
        if (
            self._task.fits is not None
            and torch.is_grad_enabled()
            and len(inputs) > self._task.fits
        ):
            raise torch.OutOfMemoryError("out of memory on purpose. Tried to allocate 2.00 GiB.")
        loss: Tensor = (model(inputs) - outputs).square().mean()
        diverges_at = self._task.diverges_at
        return loss * float("nan") if diverges_at and number >= diverges_at else loss

    def evaluate(self, model: "nn.Module") -> Mapping[str, float]:
        inputs, outputs = self._val
        power = outputs.square().mean()
        nmse = float((model(inputs) - outputs).square().mean() / power)
        return {"nmse": nmse, "fit": nmse if nmse != nmse else max(0.0, 1.0 - nmse)}

    def warm_start(self, model: "nn.Module") -> None:
        pass


@dataclass(frozen=True)
class TinyModel:
    """Two matrices without biases: ``dim`` to ``width`` to ``dim``; dropout between if asked for.

    Raises:
        ValueError: a width below 1 or one that ``heads`` does not divide.
    """

    width: int
    dim: int = 3
    heads: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % self.heads:
            raise ValueError(
                f"width must be a positive multiple of heads; got width={self.width}, "
                f"heads={self.heads}"
            )

    def build(self) -> "nn.Module":
        from torch import nn

        read = nn.Linear(self.dim, self.width, bias=False)
        read.weight.data /= self.heads  # an axis that changes nothing has no answer
        write = nn.Linear(self.width, self.dim, bias=False)
        return nn.Sequential(read, *([nn.Dropout(self.dropout)] if self.dropout else []), write)

    def counts(self) -> Counts:
        matrix = self.dim * self.width
        return Counts(
            params=dict.fromkeys(PARAM_GROUPS, 0) | {"mlp": matrix, "head": matrix},
            forward_flops=4 * matrix,
            activation_elements=self.dim + self.width,
        )


def tiny_model(point: Point, dim: int = 3) -> TinyModel:
    """Return the model of a point with a ``width`` and possibly ``heads`` and ``dropout``."""
    return TinyModel(
        point.width, dim=dim, heads=point.get("heads", 1), dropout=point.get("dropout", 0.0)
    )


def tiny_sweep(**changes: Any) -> Sweep:
    """Return a sweep of three widths and three epochs, some of its fields replaced.

    The model has the dimension of the task, if that is a value and not a function.
    """
    task = changes.get("task", TinyTask())
    settings: dict[str, Any] = {
        "name": "tiny",
        "space": grid(width=[1, 2, 3]),
        "task": task,
        "model": partial(tiny_model, dim=getattr(task, "dim", 3)),
        "recipe": Recipe(lr=0.05, batch_size=8),
        "metric": "nmse",
        "goal": "min",
        "budget": epochs(3),
    }
    return Sweep(**{**settings, **changes})
