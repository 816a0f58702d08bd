"""Tiny sweeps that Optuna proposes the points of."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiny import tiny_sweep

from hsweep import Point, Recipe, Sweep, int_range, log_uniform, optuna_search
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import record_trials
from hsweep.coordination.search import OptunaProposer
from hsweep.planning.plan import Plan, Planner
from hsweep.record.journal import Journal

SPACE = int_range(width=(1, 40)) * log_uniform(lr=(1e-3, 1e-1))


def recipe(point: Point) -> Recipe:
    return Recipe(lr=point.lr, batch_size=8)


def adaptive(num_points: int = 6, also: Any = (), **changes: Any) -> Sweep:
    search = optuna_search(num_points, also=also)
    return tiny_sweep(**{"space": SPACE, "recipe": recipe, "search": search} | changes)


@contextmanager
def searching(sweep: Sweep, folder: Path, **parts: Any) -> Iterator[Coordinator]:
    folder.mkdir(exist_ok=True)
    with Journal(folder / "journal", create=True) as journal:
        proposer = OptunaProposer(sweep, Planner(Plan(sweep, "base", 0)), journal, seed=0)
        record_trials(journal, proposer.known_trials)
        coordinator = Coordinator(
            journal=journal,
            sweep=sweep,
            trials=proposer.known_trials,
            checkpoints=str(folder / "checkpoints"),
            proposer=proposer,
            **parts,
        )
        yield coordinator
        coordinator.settle()
