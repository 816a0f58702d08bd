"""A training function that computes a fixed amount between two reports, and its sweep.

`python -m benchmarks.own_sweep UNITS UPDATES` calls the function by itself, without a study.
"""

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from hsweep import Point, Run, Sweep, grid, steps
from hsweep.design.budget import BudgetUnit
from hsweep.seeding import Seeds, replicate_seeds

CHECKPOINT_EVERY = 10
_WIDTH = 192


def train(point: Point, run: Run) -> None:
    """Report every unit; where there is something to compute, each tenth with a checkpoint.

    The metric ``own_seconds`` is what has passed since the beginning, outside the reports.
    """
    own_seconds, goes_on = 0.0, time.perf_counter()
    generator = torch.Generator().manual_seed(run.seeds.init)
    weights = torch.randn(_WIDTH, _WIDTH, generator=generator)
    values = torch.randn(_WIDTH, _WIDTH, generator=generator)
    folder = run.folder / "checkpoint"
    folder.mkdir(exist_ok=True)
    for unit in range(1, run.budget + 1):
        for _ in range(point.updates):
            values = torch.tanh(values @ weights)
        checkpoint = None
        if point.updates and unit % CHECKPOINT_EVERY == 0:
            torch.save({"weights": weights, "values": values}, folder / "state.pt")
            checkpoint = folder
        loss = float(values[0, 0]) + 2
        own_seconds += time.perf_counter() - goes_on
        run.report(unit, checkpoint=checkpoint, loss=loss, own_seconds=own_seconds)
        goes_on = time.perf_counter()


SWEEP = Sweep(
    name="own",
    space=grid(updates=[0]),
    train=train,
    metric="loss",
    goal="min",
    budget=steps(10_000, report_every=1),
)


@dataclass(frozen=True, slots=True)
class _NoStudy:
    """What the function is given where nothing listens to its reports."""

    budget: int
    folder: Path
    seeds: Seeds
    budget_unit: BudgetUnit = "steps"
    device = torch.device("cpu")
    checkpoint = None
    rank = 0
    world_size = 1

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        """Take a report and do nothing with it."""


def _called(units: int, updates: int) -> float:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = _NoStudy(units, Path(folder), replicate_seeds(0, 0))
        began = time.perf_counter()
        train(Point({"updates": updates}), cast(Run, run))
        return time.perf_counter() - began


if __name__ == "__main__":
    asked_units, asked_updates = map(int, sys.argv[1:])
    # The first call is slower: kernels and memory are looked for. So is a worker's first trial.
    _called(CHECKPOINT_EVERY, asked_updates)
    computed = time.process_time()
    wall = _called(asked_units, asked_updates)
    # The processor's time is about the same whatever else the machine does.
    json.dump({"seconds": wall, "cpu_seconds": time.process_time() - computed}, sys.stdout)
