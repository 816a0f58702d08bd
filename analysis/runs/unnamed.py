"""Columns that nobody named and that tell the rows of one cell apart.

Rows without a seed are repeated runs only if nothing but their results differs. Data sets, layers
or token counts that are not named would pass for seeds, and every interval would be wrong.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hsweep.design.labels import first_of, listed

_BUDGETS: Final = frozenset({
    "budget", "step", "steps", "token", "tokens", "epoch", "epochs", "iteration", "iterations",
    "iter", "iters", "flop", "flops", "samples", "examples", "sequences", "updates",
})  # fmt: skip
_SEEDS: Final = frozenset({
    "seed", "seeds", "rep", "replicate", "replica", "repeat", "repetition", "run", "trial",
    "fold", "init",
})  # fmt: skip
_SETTINGS: Final = frozenset({
    "lr", "learning", "warmup", "decay", "wd", "momentum", "dropout", "beta", "beta1", "beta2",
    "eps", "batch", "optimizer", "schedule", "scheduler", "cooldown",
})  # fmt: skip
_RESULTS: Final = frozenset({
    "loss", "losses", "error", "err", "nll", "ppl", "perplexity", "bpb", "mse", "nmse", "rmse",
    "mae", "acc", "accuracy", "top1", "top5", "auc", "f1", "mrr", "bleu", "rouge", "em",
    "score", "metric", "per", "best", "time", "timestamp", "date", "created", "runtime",
    "elapsed", "wall", "duration", "second", "seconds", "sec", "secs", "ms", "minutes", "hours",
    "memory", "mem", "mb", "gb", "mib", "gib", "bytes", "throughput", "latency", "host",
    "hostname", "pid", "ip", "grad",
})  # fmt: skip
IntArray = NDArray[np.integer[Any]]
_MOST_NAMED: Final = 4


def says_budget(name: str) -> bool:
    """Whether a column's name says that it counts how far a run got."""
    return not says_result(name) and bool(_parts(name) & _BUDGETS)


def says_result(name: str) -> bool:
    """Whether a column's name says that it was measured, or where and when a run took place."""
    return bool(_parts(name) & _RESULTS)


def unnamed_columns(frame: pd.DataFrame, cells: IntArray, taken: Collection[str]) -> list[str]:
    """Return the columns without a role that tell rows of one cell apart.

    A column does if it varies inside a cell, its name does not say that it was measured, and

    - it holds names, true and false, or whole numbers, and most rows share theirs with another row
      (what differs in every row is a name of the run, a time or a measurement);
    - or it holds other numbers, and most rows hold one that at least two cells, and half of them,
      have;
    - or it holds numbers, and its name says how the run was trained or how far.

    Args:
        frame: one row a run.
        cells: number of the cell of each row.
        taken: columns that have a role.
    """
    shared = pd.Series(cells).duplicated(keep=False).to_numpy(bool)
    rows, cells = frame.loc[shared], cells[shared]
    found: list[str] = []
    for name in (each for each in frame.columns if isinstance(each, str)):
        column = rows[name]
        if name in taken or says_result(name) or not _is_chosen(column, cells):
            continue
        follows = any(not _varies(column, _split(cells, rows[each])) for each in found)
        if not follows and _varies(column, cells):
            found.append(name)
    return found


def refusal(
    frame: pd.DataFrame,
    cells: IntArray,
    keys: pd.DataFrame,
    unnamed: Sequence[str],
    statuses: Collection[str],
) -> str:
    """Return what to say of rows that unnamed columns tell apart, with the options that explain
    them.

    Args:
        frame, cells: as for `unnamed_columns`.
        keys: what names the cell of each row.
        unnamed: its columns.
        statuses: those that hold words for how a run ended.
    """
    varying = {name: _varying_cells(frame[name], cells) for name in unnamed}
    counts = np.bincount(cells)
    several = np.sum([np.isin(np.arange(len(counts)), at) for at in varying.values()], axis=0)
    shown = int(np.argmax(several * (counts.max() + 1) + counts))
    rows = frame.loc[cells == shown]
    here = [name for name in unnamed if shown in varying[name]][:_MOST_NAMED]
    at = np.flatnonzero(cells == shown)[0]
    where = ", ".join(f"{name}={_shown(keys[name].iloc[at])}" for name in keys)
    values = listed(
        [f"{name} ({first_of(list(dict.fromkeys(rows[name].dropna())), 3)})" for name in here]
    )
    is_one = len(here) == 1
    remedies = "; ".join(
        f"--status-column {name}" if name in statuses else _remedy(frame[name], keys, rows[name])
        for name in here
    )
    return (
        f"{values} {'varies' if is_one else 'vary'} inside {where} and"
        f" {'is' if is_one else 'are'} not named: these {len(rows)} rows would count as repeated"
        f" runs. Say what {'it is' if is_one else 'they are'}: {remedies}. In general --config"
        " (--by) COLUMN is part of the shape (cell), --nuisance COLUMN a setting of which each"
        " takes its best, --budget-column COLUMN how far a run got, --replicate COLUMN the seed,"
        " --where COLUMN=VALUE takes some rows alone, and --replicate '' says that they are"
        " repeated runs all the same"
    )


def _shown(value: Any) -> Any:
    return f"{value:.12g}" if isinstance(value, float) else value


def _remedy(column: "pd.Series[Any]", keys: pd.DataFrame, here: "pd.Series[Any]") -> str:
    name = str(column.name)
    parts, alone = _parts(name), f"--where {name}={here.dropna().iloc[0]}"
    if parts & _SETTINGS:
        return f"--nuisance {name} or {alone}"
    if says_budget(name):
        return f"--budget-column {name} (then the last row of each run counts)"
    is_of_one_cell = not _varies(
        pd.Series(keys.groupby(list(keys), dropna=False).ngroup()), _codes(column)
    )
    is_name = not pd.api.types.is_numeric_dtype(column)
    if parts & _SEEDS or (is_name and is_of_one_cell):
        return f"--replicate {name} if it tells runs apart"
    return f"--config {name} or {alone}"


def _parts(name: str) -> frozenset[str]:
    """Return the words of a column's name in lower case."""
    return frozenset(re.findall(r"[a-z]+\d*", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()))


def _codes(column: "pd.Series[Any]") -> IntArray:
    return pd.factorize(column)[0]


def _split(cells: IntArray, column: "pd.Series[Any]") -> IntArray:
    """Return cells that differ in a column, too."""
    codes = _codes(column)
    return cells * (int(codes.max(initial=0)) + 2) + codes + 1


def _varying_cells(column: "pd.Series[Any]", cells: IntArray) -> IntArray:
    codes = _codes(column)
    known = codes >= 0
    by_cell = pd.Series(codes[known]).groupby(cells[known])
    found = by_cell.max() > by_cell.min()
    return np.asarray(found.index[found], np.int64)


def _varies(column: "pd.Series[Any]", cells: IntArray) -> bool:
    return bool(_varying_cells(column, cells).size)


def _is_chosen(column: "pd.Series[Any]", cells: IntArray) -> bool:
    known = column.notna().to_numpy(bool)
    values, name = column[known], str(column.name)
    are_numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if are_numbers and (says_budget(name) or _parts(name) & _SETTINGS):
        return True
    if not _mostly(values.duplicated(keep=False)):
        return False
    if not are_numbers or np.all((numbers := values.to_numpy(np.float64)) % 1 == 0):
        return True
    pairs = pd.DataFrame({"value": numbers, "cell": cells[known]}).drop_duplicates()
    having = pairs["value"].map(pairs["value"].value_counts())
    return _mostly(having >= max(2, pairs["cell"].nunique() / 2))


def _mostly(rows: "pd.Series[bool]") -> bool:
    return bool(rows.mean() > 0.5)
