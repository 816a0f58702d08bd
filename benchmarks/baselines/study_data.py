"""What the programs beside ours have in common: their options, and reading the data."""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

NAMES = ("heads", "seq_len", "seed")
BATCH_SIZE = 256
LEARNING_RATE = 1e-2
BETAS = (0.9, 0.99)
WARMUP_SHARE = 0.05
HEAD_DIM = 8
ENCODER_HIDDEN = 32
READOUT_HIDDEN = 32


class Data(NamedTuple):
    """Sequences x of shape (n, T, d) and targets y of shape (n,)."""

    train_x: Tensor
    train_y: Tensor
    validation_x: Tensor
    validation_y: Tensor


class Grid(NamedTuple):
    """The options of a program.

    Attributes:
        data: folder of the files, one for each length and seed.
        out: folder for everything it writes.
        heads: numbers of heads.
        lengths: lengths of the sequences.
        seeds: how many seeds.
        epochs: passes over the training data.
        processes: trials at once.
    """

    data: Path
    out: Path
    heads: list[int]
    lengths: list[int]
    seeds: int
    epochs: int
    processes: int


def options() -> Grid:
    """Return what stands on the command line."""
    parser = argparse.ArgumentParser()
    for name in ("data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("heads", "lengths"):
        parser.add_argument(f"--{name}", type=int, nargs="+", required=True)
    for name in ("seeds", "epochs", "processes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return Grid(**vars(parser.parse_args()))


def data_file(folder: Path, length: int, seed: int) -> Path:
    """Return where the data of a length and a seed lie."""
    return folder / f"retrieval-{length}-{seed}.pt"


def read(folder: str | Path, length: int, seed: int) -> Data:
    """Return the data of a length and a seed."""
    return Data(**torch.load(data_file(Path(folder), length, seed), weights_only=True))


def write_results(out: Path, results: Iterable[Mapping[str, Any]]) -> None:
    """Write each trial's heads, seq_len, seed and final nmse."""
    (out / "results.json").write_text(json.dumps([dict(result) for result in results]), "utf-8")


def tune_space(grid: Grid) -> dict[str, Any]:
    """Return the grid as Ray Tune takes it."""
    from ray import tune

    return {
        "heads": tune.grid_search(grid.heads),
        "seq_len": tune.grid_search(grid.lengths),
        "seed": tune.grid_search(list(range(grid.seeds))),
        "epochs": grid.epochs,
        "data": str(grid.data.absolute()),
    }


def write_tune_results(out: Path, results: Iterable[Any]) -> None:
    """Write the results of Ray Tune."""
    write_results(
        out,
        (
            {**{name: result.config[name] for name in NAMES}, "nmse": result.metrics["nmse"]}
            for result in results
        ),
    )
