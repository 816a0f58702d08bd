"""Grids of shapes with a known answer: additive, interacting, empty, and awkward noise."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd

from analysis.runs.grouped import grouped
from analysis.runs.table import Runs

HEADS = (2, 4, 8)
DEPTHS = (1, 2, 4)
NOISES = ("even", "uneven", "shared_seeds", "seed_along_depth")


def grid(
    truth: Callable[[int, int], float],
    seed: int,
    *,
    noise: str = "even",
    sd: float = 1.0,
    seeds: int = 3,
    heads: Sequence[int] = HEADS,
    depths: Sequence[int] = DEPTHS,
) -> pd.DataFrame:
    """Runs of every combination of heads and depth, higher is better.

    ``noise`` is: even; uneven, each shape with a scatter of its own; shared_seeds, a seed lifts all
    shapes alike; seed_along_depth, a seed lifts deep shapes and sinks shallow ones.
    """
    rng = np.random.default_rng([seed, NOISES.index(noise)])
    lift = rng.normal(size=seeds)
    rows = []
    for h in heads:
        for d in depths:
            scale = sd * (np.exp(rng.normal(0, 0.6)) if noise == "uneven" else 1.0)
            for s in range(seeds):
                value = truth(h, d) + scale * rng.normal()
                if noise == "shared_seeds":
                    value += 2 * sd * lift[s]
                if noise == "seed_along_depth":
                    value += sd * lift[s] * (np.log2(d) - 1)
                rows.append((h, d, s, "finished", value, 1000 + 100 * d))
    columns = ["heads", "depth", "seed", "status", "score", "num_params"]
    return pd.DataFrame(rows, columns=columns)


def additive(heads: int, depth: int) -> float:
    """A doubling of heads adds 1, a doubling of depth takes 0.5 away."""
    return float(np.log2(heads) - 0.5 * np.log2(depth))


def interacting(heads: int, depth: int) -> float:
    """Additive, and each doubling of one is worth 1 more for each doubling of the other."""
    return additive(heads, depth) + float(np.log2(heads) * np.log2(depth))


def nothing(heads: int, depth: int) -> float:
    """No shape is better than another."""
    return 0.0


Result = TypeVar("Result")
_OF_THE_KIND: Final = ("within", "answered", "settings")


def analysed(
    fit: Callable[..., Result],
    frame: pd.DataFrame,
    *,
    config: Sequence[str],
    metric: str,
    nuisance: Sequence[str] = (),
    **options: Any,
) -> Result:
    """Group the runs of a table by shape and put a question to them, with the options of both."""
    own = {name: options.pop(name) for name in _OF_THE_KIND if name in options}
    names = ("replicate", "status_column", "budget_column")
    columns: Any = {name: options.pop(name) for name in names if name in options}
    usual = {"goal": "max", "costs": ["num_params"]}
    usual["costs"] = [name for name in usual["costs"] if name in frame]
    runs = Runs(frame, metric, columns)
    return fit(grouped(runs, config, nuisance, **{**usual, **options}), **own)
