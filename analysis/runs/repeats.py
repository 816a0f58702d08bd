"""Runs that are one training: seeds that agree to the last digit, an axis that changes nothing.

Runs that agree are one training unless they could agree by chance, as accuracies on a hundred
images do. Two normal values with sd s that are multiples of a step g agree with probability
g / (2 sqrt(pi) s), for g much smaller than s. A value that runs of another cell and seed have as
well, such as a perfect score, tells nothing, unless they came to it in the same way.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import special

from analysis.statistics.values import FloatArray
from hsweep.design.labels import first_of, listed

CURVE: Final = "_curve"
"""Column of the sd of all values that a run has reported, 0 where that is not known."""
REPEATED: Final = "seeds that agree to the last digit are one run and count once"
"""How the warning about them begins, which stands beside the answer."""
_RESULTS: Final = ["value", CURVE]
_LEVEL: Final = 0.001
"""So seldom does chance alone make a table's runs agree as they do."""
_ROUNDING: Final = 1e-7
"""Of numbers of 32 bits. Seeds are taken to scatter by this part of their value at least."""
_FEW: Final = 1000
"""An unrounded number is hardly a ratio of smaller counts."""
_MOST: Final = 50
"""So many values of a table show whether all are shares."""


def with_chance(runs: pd.DataFrame, curve: Any) -> pd.DataFrame:
    """Return the complete runs of `analysis.runs.rows.RunRows`, and the ``chance`` that another
    seed of their cell agrees with them; none where no two agree. ``curve`` for the column
    `CURVE`."""
    full = runs.loc[runs["complete"]].assign(**{CURVE: curve})
    if not full.duplicated(_RESULTS).any():
        return full.iloc[:0]
    values = full["value"].to_numpy(np.float64)
    # The smallest of all cells: chance is never taken for less than it is.
    spread = full.drop_duplicates(["cell", "value"]).groupby("cell")["value"].std().min()
    spread = np.maximum(_ROUNDING * np.abs(values), 0.0 if np.isnan(spread) else spread)
    steps = np.maximum([_decimal_step(value) for value in values], _share_step(values))
    with np.errstate(divide="ignore"):
        chance = np.minimum(steps / (2 * math.sqrt(math.pi) * spread), 1.0)
    by_result = full.groupby(_RESULTS, sort=False)
    counts = [by_result[name].transform("nunique") for name in ("cell", "replicate")]
    is_common = (counts[0] > 1) & (counts[1] > 1) & full[CURVE].eq(0)
    return full.assign(chance=np.where(is_common, 1.0, chance))


def repeated_runs(full: pd.DataFrame, keys: pd.DataFrame) -> "tuple[pd.Index[Any], str]":
    """Return the runs (of `with_chance`) that repeat another seed of their cell, and a warning that
    names them by their ``keys``, empty for none."""
    full = full.loc[full["chance"].lt(1)]
    same = full.groupby(["cell", *_RESULTS], sort=False)
    repeats = full.loc[same.cumcount() > 0]
    sizes = full.groupby("cell")["cell"].transform("size")
    expected = float((full["chance"] * (sizes - 1) / 2).sum())
    if repeats.empty or special.pdtrc(len(repeats) - 1, expected) > _LEVEL:
        return repeats.index[:0], ""
    repeats = repeats.assign(first=same["replicate"].transform("first"))
    named = [
        f"{', '.join(f'{name}={value}' for name, value in at.items())}: {seed} as {first}"
        for (_, at), seed, first in zip(
            keys.loc[repeats.index].iterrows(), repeats["replicate"], repeats["first"], strict=True
        )
    ]
    return repeats.index, (
        f"{REPEATED}: {first_of(named, 3)}; such a training does not use its seed"
    )


def idle_axes(full: pd.DataFrame, keys: pd.DataFrame, parts: Sequence[str], metric: str) -> str:
    """Return the columns of ``keys``, those of ``parts`` apart, at whose values each seed of the
    runs (of `with_chance`) has the same results, in words; empty for none."""
    idle = []
    for axis in [key for key in keys if key not in parts]:
        others = [*(keys[name] for name in keys if name != axis), full["replicate"]]
        group = full.groupby(others, sort=False, dropna=False)
        same = all(group[name].nunique().le(1).all() for name in _RESULTS)
        # The first of each group has nothing to agree with.
        several = keys[axis].groupby(others, sort=False, dropna=False).transform("nunique").gt(1)
        agreeing = several & group.cumcount().gt(0)
        chance = full["chance"].to_numpy(np.float64)[agreeing.to_numpy(bool)]
        if same and chance.size and chance.prod() <= _LEVEL:
            idle.append(axis)
    if not idle:
        return ""
    return (
        f"nothing changes with {listed(idle)}: each seed has the same {metric} to the last digit "
        "at all values, as if the training did not use that"
    )


def _decimal_step(value: float) -> float:
    """Return the unit of the last decimal place of a number."""
    return 10.0 ** -next((places for places in range(17) if round(value, places) == value), 17)


def _share_step(values: FloatArray) -> float:
    """Return 1 / n where values, up to rounding, may be shares of n examples, or ratios of counts
    up to n, as F1 is; 0 otherwise."""
    distinct = np.unique(values)
    # A single number is near some share of so many examples as several are not.
    sizes = np.arange(1, 10 ** min(distinct.size + 2, 4) + 1)
    counts = sizes[:, np.newaxis] * distinct[:_MOST]
    is_share = np.abs(counts - counts.round()) <= _ROUNDING * np.abs(counts)
    if (few := is_share[:_FEW]).any(axis=0).all():
        return 1.0 / (1 + int(few.argmax(axis=0).max(initial=0)))
    of_all = np.flatnonzero(is_share.all(axis=1))
    return 1.0 / (1 + int(of_all[0])) if of_all.size else 0.0
