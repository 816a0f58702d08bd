"""Runs that are one training: seeds that agree to the last digit, an axis that changes nothing.

Runs whose results agree are one training unless they could agree by chance, as accuracies on a
hundred images do. Two normal values with sd s that are recorded in steps of g agree with
probability g / (2 sqrt(pi) s), for g much smaller than s. What a run of another cell and seed has
as well, such as a perfect score, tells nothing.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.statistics.values import FloatArray, IntArray
from hsweep.design.labels import first_of, listed
from hsweep.design.metric_names import counts_examples

_LEVEL: Final = 0.05
"""All of a table's agreements together are ascribed to chance at most this often."""
_FLOAT: Final = 1e-6
"""Steps up to this part of a value are those of a number that nobody rounded."""


CURVE: Final = "curve"
"""Column of what tells apart the reports of a metric that agree at their end; it may be absent."""


def repeated_runs(
    rows: pd.DataFrame, keys: Sequence[str], metric: str
) -> "tuple[pd.Index[Any], str]":
    """Return the complete rows that repeat another seed of their cell, and a warning that names
    them, empty for none; ``rows`` as of `analysis.runs.table.Runs.rows`."""
    full = rows.loc[rows["complete"]]
    cell = full.groupby(list(keys), sort=False, dropna=False).ngroup().to_numpy()
    values = full["value"].to_numpy(np.float64)
    chance = _chance(values, cell, full["replicate"], metric, lone=1.0)
    groups = full.groupby([cell, *(full[name] for name in _results(full))], sort=False)
    repeats = groups.cumcount().gt(0).to_numpy()
    sizes = np.bincount(cell)
    told = repeats & (chance * (sizes * (sizes - 1) / 2).sum() <= _LEVEL)
    if not told.any():
        return full.index[:0], ""
    first = groups["replicate"].transform("first")
    named = [
        f"{', '.join(f'{key}={row[key]}' for key in keys)}: {row['replicate']} as {first[at]}"
        for at, row in full.loc[told].iterrows()
    ]
    return full.index[told], (
        "seeds that agree to the last digit are one run and count once: "
        f"{first_of(named, 3)}; such a training does not use its seed"
    )


def idle_axes(rows: pd.DataFrame, keys: Sequence[str], metric: str) -> str:
    """Return the axes at whose values each seed has the same results, in words; empty for none."""
    full = rows.loc[rows["complete"]]
    cell = full.groupby(list(keys), sort=False, dropna=False).ngroup().to_numpy()
    values = full["value"].to_numpy(np.float64)
    chance = _chance(values, cell, full["replicate"], metric, lone=0.0)
    idle = []
    for axis in keys:
        others = [full[name] for name in (*keys, "replicate") if name != axis]
        group = full.groupby(others, sort=False, dropna=False)
        several = group[axis].transform("nunique").gt(1).to_numpy()
        same = all(group[name].nunique(dropna=False).le(1).all() for name in _results(full))
        # The first of each group has nothing to agree with.
        if same and several.any() and chance[several & group.cumcount().gt(0)].prod() <= _LEVEL:
            idle.append(axis)
    if not idle:
        return ""
    changes, them = ("changes", "it") if len(idle) == 1 else ("change", "them")
    return (
        f"{listed(idle)} {changes} nothing here: each seed has the same {metric} to the last digit"
        f" at all values, as if the training did not use {them}"
    )


def _results(rows: pd.DataFrame) -> list[str]:
    return [name for name in ("value", CURVE) if name in rows]


def _chance(
    values: FloatArray, cell: IntArray, seeds: "pd.Series[Any]", metric: str, *, lone: float
) -> FloatArray:
    """Return for each value how likely another seed of its cell agrees with it by chance; ``lone``
    for unrounded numbers where no seeds differ, which tell of no spread."""
    runs = pd.DataFrame({"cell": cell, "value": values, "seed": seeds.to_numpy()})
    apart = runs.drop_duplicates(["cell", "value"]).groupby("cell")["value"]
    freedom = int((apart.count() - 1).sum())
    spread = math.sqrt((apart.var() * (apart.count() - 1)).sum() / freedom) if freedom else 0.0
    step = np.array([10.0 ** _exponent(value) for value in values.tolist()])
    if counts_examples(metric):
        step[:] = np.diff(np.unique(values)).min(initial=math.inf)
    if spread:
        chance = np.minimum(step / (2 * math.sqrt(math.pi) * spread), 1.0)
    else:
        chance = np.where(step <= _FLOAT * np.abs(values), lone, 1.0)
    for _, same in runs.groupby("value"):
        if same["cell"].nunique() > 1 and same["seed"].nunique() > 1:
            chance[same.index] = 1.0
    return chance


def _exponent(value: float) -> int:
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent
