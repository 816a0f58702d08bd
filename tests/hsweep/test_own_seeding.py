"""Random numbers of training that seeds nothing: its replicate's, wherever they are drawn."""

import random
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_functions import own_sweep
from stepped_trial import to_the_end, train_stepwise
from tiny_runs import assignment_of, planned
from torch.utils.data import DataLoader, Dataset

from hsweep import Point, Run, command, epochs, grid
from hsweep.design.trial import Report, Trial
from hsweep.seeding import replicate_seeds
from hsweep.user_packages import SWEEP_FILE_VARIABLE, SWEEP_MODULE
from hsweep.workspace import load_sweep


def drawn() -> dict[str, float]:
    return {"loss": torch.rand(()).item(), "numpy": np.random.rand(), "python": random.random()}


class Drawn(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([*drawn().values()], dtype=torch.float64)


def here(_point: Point, run: Run) -> None:
    for unit in range(2 if run.checkpoint else 1, run.budget + 1):
        (run.folder / "state").touch()
        run.report(unit, run.folder / "state", **drawn())


def in_loaders(_point: Point, run: Run) -> None:
    for unit in range(1, run.budget + 1):
        examples = torch.cat([*DataLoader(Drawn(), batch_size=None, num_workers=2)])
        run.report(unit, loss=examples.sum(), **{f"n{i}": n for i, n in enumerate(examples)})


SPAWNS = """
import multiprocessing, random
import numpy as np, torch
from hsweep import Sweep, epochs, grid
def draw(queue):
    queue.put([random.random(), np.random.rand(), torch.rand(()).item()])
def train(point, run):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=draw, args=(queue,))
    child.start()
    run.report(1, **dict(zip(("loss", "numpy", "torch"), queue.get())))
    child.join()
SWEEP = Sweep(name="spawns", space=grid(lr=[1]), train=train, metric="loss", replicates=2,
              budget=epochs(1))
"""


def seeded(_point: Point, run: Run) -> None:
    torch.manual_seed(5)
    here(_point, run)


def trials_of(train: Any, **changes: Any) -> tuple[Trial, ...]:
    return planned(own_sweep(space=grid(lr=[1]), train=train, budget=epochs(2), **changes))


def numbers(trial: Trial, folder: Path) -> list[dict[str, float | None]]:
    return [
        report.metrics
        for report in to_the_end(assignment_of(trial, folder / "checkpoints"))
        if isinstance(report, Report)
    ]


def of_file(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trial, ...]:
    file = folder / "draws.py"
    file.write_text(text)
    monkeypatch.setenv(SWEEP_FILE_VARIABLE, "")  # given back afterwards
    monkeypatch.setitem(sys.modules, SWEEP_MODULE, ModuleType(SWEEP_MODULE))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return planned(load_sweep(file).sweep)


@pytest.mark.parametrize(
    "train", [here, in_loaders, pytest.param(SPAWNS, marks=pytest.mark.slow, id="spawned")]
)
def test_replicates_differ_and_repeat_whatever_was_drawn_before(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_file = isinstance(train, str)
    trials = of_file(train, tmp_path, monkeypatch) if is_file else trials_of(train, replicates=2)
    first, second = trials
    told = numbers(first, tmp_path / "first")
    drawn()
    other = numbers(second, tmp_path / "second")
    assert numbers(first, tmp_path / "again") == told
    flat = [value for row in (*told, *other) for value in row.values()]
    assert len({*flat}) == len(flat)


def test_a_shape_has_the_numbers_of_its_replicate(tmp_path: Path) -> None:
    trials = planned(own_sweep(space=grid(lr=[1, 2]), train=here, budget=epochs(2)))
    told, other = (numbers(trial, tmp_path / trial.key) for trial in trials)
    assert told == other


def test_a_functions_own_seed_wins(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(()).item()
    for trial in trials_of(seeded, replicates=2):
        assert numbers(trial, tmp_path / trial.key)[0]["loss"] == expected


def test_what_goes_on_from_a_checkpoint_draws_no_numbers_twice(tmp_path: Path) -> None:
    [trial] = trials_of(here)
    first = replace(assignment_of(trial, tmp_path), checkpoint_seconds=0.0)
    training = train_stepwise(first)
    told: Any = next(training)
    training.close()
    [after] = to_the_end(replace(first, attempt=2, recorded_through=1))
    assert isinstance(after, Report)
    assert (told.unit, after.unit) == (1, 2)
    assert told.metrics["loss"] != after.metrics["loss"]
    assert numbers(trial, tmp_path / "whole")[0] == told.metrics  # begun again, it repeats


def test_a_script_has_its_seed_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, hsweep\nfor epoch in (1, 2):\n"
        "    hsweep.report(epoch=epoch, loss=float(os.environ['HSWEEP_SEED']) + 5)\n"
    )
    train = command(f"{sys.executable} {script} --lr {{lr}} --seed {{seed}}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    told = [
        numbers(trial, tmp_path / trial.key)[0]["loss"]
        for trial in trials_of(train, replicates=2, folder=str(tmp_path))
    ]
    assert told == [5, 6]


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9_999)), max_size=9, unique=True))
def test_another_study_seed_is_another_seed_for_a_program(
    asked: list[tuple[int, int]],
) -> None:
    """Or fresh seeds would confirm an answer with the runs that gave it."""
    numbers = {replicate_seeds(*pair).program for pair in asked}
    assert len(numbers) == len(asked)
    assert all(0 <= number < 2**31 for number in numbers)
