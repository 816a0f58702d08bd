"""A study as users have them, of trials of some seconds, whose processes note what they do when.

Where the variable ``HSWEEP_SPANS`` names a folder, every process that trains writes what it did,
from when to when, into a file of its own there. Otherwise this is a study like any other.

    hsweep run benchmarks/idle_sweep.py
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hsweep import Asha, Point, Recipe, Sweep, epochs, grid
from models.retrieval import RetrievalTransformer
from tasks.base import Metric, TaskData, TrainingEvaluated
from tasks.synthetic.retrieval import Retrieval

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from benchmarks.spans import Spans


@dataclass(frozen=True)
class Watched:
    """A task of which is noted when it is opened, stepped and evaluated."""

    task: Retrieval

    @property
    def name(self) -> str:
        """As the task's."""
        return self.task.name

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """As the task's."""
        return self.task.metrics

    def fingerprint(self) -> str:
        """As the task's."""
        return self.task.fingerprint()

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Open the task."""
        # Here, so that each process has one of it: what stands in a sweep file travels as a copy.
        from benchmarks.spans import spans

        def opened() -> TaskData:
            return self.task.open(
                data_seed=data_seed,
                sampling_seed=sampling_seed,
                batch_size=batch_size,
                device=device,
            )

        watch = spans()
        return opened() if watch is None else WatchedData(watch.timed("open", opened), watch)


class WatchedData:
    """A task's data, watched."""

    def __init__(self, data: TaskData, watch: "Spans") -> None:
        self._data = data
        self._watch = watch
        self._evaluated: float | None = None
        self.steps_per_epoch = data.steps_per_epoch
        self.eval_size = data.eval_size

    def batches(self, start_step: int) -> Iterator[Any]:
        """Yield the task's batches; the first after an evaluation says that training goes on."""
        for batch in self._data.batches(start_step):
            if self._evaluated is not None:
                self._watch.note("between reports", self._evaluated)
                self._evaluated = None
            yield batch

    def loss(self, model: "nn.Module", batch: Any) -> "Tensor":
        """As the task's."""
        return self._data.loss(model, batch)

    def evaluate(self, model: "nn.Module") -> Mapping[str, float]:
        """Evaluate."""
        found: Mapping[str, float] = self._watch.timed(
            "evaluate", lambda: self._data.evaluate(model)
        )
        self._evaluated = time.time()
        return found

    def evaluate_training(self, model: "nn.Module") -> Mapping[str, float]:
        """Evaluate training examples."""
        assert isinstance(self._data, TrainingEvaluated)
        of_training = self._data.evaluate_training
        found: Mapping[str, float] = self._watch.timed("evaluate", lambda: of_training(model))
        self._evaluated = time.time()
        return found

    def warm_start(self, model: "nn.Module") -> None:
        """As the task's."""
        self._data.warm_start(model)


def task(point: Point) -> Watched:
    """Retrieval over sequences of the point's length."""
    return Watched(Retrieval(seq_len=point.seq_len))


def model(point: Point) -> RetrievalTransformer:
    """Attention read at a class token."""
    return RetrievalTransformer(
        heads=point.heads, head_dim=8, seq_len=point.seq_len, input_dim=task(point).task.token_dim
    )


SWEEP = Sweep(
    name="idle",
    space=grid(heads=[1, 2, 3, 4, 5], seq_len=[16, 32]),
    task=task,
    model=model,
    recipe=Recipe(lr=1e-2, betas=(0.9, 0.99), warmup_fraction=0.05),
    metric="nmse",
    goal="min",
    budget=epochs(20),
    replicates=3,
    early_stopping=Asha(grace=7, strata=("seq_len", "heads"), min_survivors=2),
    checkpoint_seconds=5,
)
