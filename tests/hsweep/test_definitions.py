"""Classes and functions of a sweep file, and of a module beside it, wherever plain pickle needs
them: in processes that a training starts, in checkpoints, in a program of the user's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hsweep import load
from hsweep.user_packages import SWEEP_FILE_VARIABLE, SWEEP_MODULE
from hsweep.workspace import LoadedSweep, load_sweep

BESIDE = """
from torch import nn

class Layer(nn.Linear):
    pass

def square(x):
    return x * x
"""
SWEEP = """
import multiprocessing
from enum import Enum

import definitions_beside
import torch
from definitions_beside import Layer
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hsweep import Sweep, epochs, grid

GAIN = 2

class Kind(Enum):
    SMALL = 1

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([float(index)])

class Net(nn.Module):
    kind = Kind.SMALL

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.of = Layer(1, 1), 0, Kind.SMALL

def collate(items):
    return GAIN * torch.stack(items)

def cube(x):
    return x**3

def train(point, run):
    model = Net()
    if run.checkpoint:
        model = torch.load(run.checkpoint / "model.pt", weights_only=False)
    assert type(model) is Net
    assert type(model.layer) is Layer
    context = multiprocessing.get_context(point.context)
    with context.Pool(1) as pool:
        assert pool.map(cube, [2]) == [8]
        assert pool.map(definitions_beside.square, [3]) == [9]
    for epoch in range(model.seen + 1, run.budget + 1):
        loader = DataLoader(
            Numbers(), 2, num_workers=1, collate_fn=collate, multiprocessing_context=context
        )
        model.seen = epoch
        folder = run.folder / "to-keep"
        folder.mkdir(exist_ok=True)
        torch.save(model, folder / "model.pt")
        total = float(sum(batch.sum() for batch in loader))
        run.report(epoch, checkpoint=folder, top1=total + epoch)

SWEEP = Sweep(
    name="pickled", space=grid(context=["spawn"]), replicates=1, train=train, metric="top1",
    goal="max", budget=epochs(1), checkpoint_seconds=0.0,
)
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedSweep]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(SWEEP_FILE_VARIABLE, "")
    (tmp_path / "definitions_beside.py").write_text(BESIDE)
    (tmp_path / "my-heads.2.py").write_text(SWEEP)
    yield load_sweep(tmp_path / "my-heads.2.py")
    for name in ("definitions_beside", SWEEP_MODULE):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("where", ["inline", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_training_pickles_what_its_sweep_defines_and_reads_it_in_another_process(
    loaded: LoadedSweep, where: str, tmp_path: Path
) -> None:
    words = ("run", loaded.path, "--runner", where, "--study", "s", "--home", tmp_path / "home")
    for replicates in (1, 2):  # edited in between: the process then also loads the sweep before
        loaded.path.write_text(SWEEP.replace("replicates=1", f"replicates={replicates}"))
        ran = subprocess.run(
            [sys.executable, "-m", "hsweep", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        trials = load("s", tmp_path / "home").trials
        assert list(trials["status"]) == ["finished"] * replicates
        assert list(trials["top1"]) == [2 * 6 + 1] * replicates


def test_a_program_of_the_users_reads_a_pickled_model_by_the_sweep_file(
    loaded: LoadedSweep, tmp_path: Path
) -> None:
    model = tmp_path / "model.pt"
    torch.save(loaded.module.Net(), model)
    program = (
        f"import sys, torch; sys.path.append({str(tmp_path)!r})\n"
        f"print(torch.load({str(model)!r}, weights_only=False).of.name)"
    )

    def read(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if name != SWEEP_FILE_VARIABLE
        }
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    assert f"set {SWEEP_FILE_VARIABLE} to its path" in read().stderr
    assert read(**{SWEEP_FILE_VARIABLE: str(loaded.path)}).stdout == "SMALL\n"
