"""Trials that train nothing: what they take is what any trial takes besides its training.

Each has a model of one number, three updates and a report after each.

    hsweep run benchmarks/overhead_sweep.py --set num_points=3000
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsweep import Point, Recipe, Sweep, random_search, steps, uniform
from models.base import PARAM_GROUPS, Counts
from tasks.base import Metric

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

AXES = ("a", "b", "c", "d", "e", "f")
REPORTS = 3


@dataclass(frozen=True)
class Nothing:
    """There is nothing to learn; the loss is known before."""

    loss: float

    @property
    def name(self) -> str:
        """``nothing``."""
        return "nothing"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The loss that was known before."""
        return (Metric("loss", "min", "error", "known before"),)

    def fingerprint(self) -> str:
        """Return the same for all."""
        return "nothing"

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> "NoData":
        """Return no data."""
        return NoData(self.loss)


@dataclass(frozen=True)
class NoData:
    """No data, of one batch an epoch."""

    known: float
    steps_per_epoch: int = 1
    eval_size: int = 1

    def batches(self, start_step: int) -> Iterator[int]:
        """Yield the same batch without end."""
        while True:
            yield 0

    def loss(self, model: "nn.Module", batch: int) -> "Tensor":
        """Return the square of the model's one number."""
        total: Tensor = next(model.parameters()).square().sum()
        return total

    def evaluate(self, model: "nn.Module") -> Mapping[str, float]:
        """Return what was known before."""
        return {"loss": self.known}

    def warm_start(self, model: "nn.Module") -> None:
        """Do nothing."""


@dataclass(frozen=True)
class OneNumber:
    """A model of one number, made different from others by settings that change nothing."""

    settings: tuple[float, ...]

    def build(self) -> "nn.Module":
        """Return the model."""
        from torch import nn

        return nn.Linear(1, 1, bias=False)

    def counts(self) -> Counts:
        """Return the costs of one number."""
        return Counts(
            params=dict.fromkeys(PARAM_GROUPS, 0) | {"head": 1},
            forward_flops=2,
            activation_elements=1,
            output_elements=1,
        )


def task(point: Point) -> Nothing:
    """Let the first axis be the loss."""
    return Nothing(point.a)


def model(point: Point) -> OneNumber:
    """Let every point be a model of its own."""
    return OneNumber(tuple(point[axis] for axis in AXES))


SWEEP = Sweep(
    name="overhead",
    space=uniform(**dict.fromkeys(AXES, (0.1, 1.0))),
    search=random_search(1000),
    task=task,
    model=model,
    recipe=Recipe(batch_size=1),
    metric="loss",
    goal="min",
    budget=steps(REPORTS, report_every=1),
)
