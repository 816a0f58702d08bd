"""Columns that nobody named and that tell the rows of one cell apart.

Rows without a seed are repeated runs only if nothing but their results differs. Data sets, layers
or token counts that are not named would pass for seeds, and every interval would be wrong.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.statuses import are_statuses
from analysis.statistics.values import IntArray
from hsweep.design.labels import first_of, listed
from hsweep.errors import UserError

_WORDS: Final = {
    "budget": frozenset({
        "budget", "step", "steps", "token", "tokens", "epoch", "epochs", "iteration", "iterations",
        "iter", "iters", "flop", "flops", "samples", "examples", "sequences", "updates",
    }),
    "seed": frozenset({
        "seed", "seeds", "rep", "replicate", "replica", "repeat", "repetition", "run", "trial",
        "fold", "init",
    }),
    "setting": frozenset({
        "lr", "learning", "warmup", "decay", "wd", "momentum", "dropout", "beta", "beta1", "beta2",
        "eps", "batch", "optimizer", "schedule", "scheduler", "cooldown",
    }),
    "result": frozenset({
        "loss", "losses", "error", "err", "nll", "ppl", "perplexity", "bpb", "mse", "nmse", "rmse",
        "mae", "acc", "accuracy", "top1", "top5", "auc", "f1", "mrr", "bleu", "rouge", "em",
        "score", "metric", "per", "best", "time", "timestamp", "date", "created", "runtime",
        "elapsed", "wall", "duration", "second", "seconds", "sec", "secs", "ms", "minutes", "hours",
        "memory", "mem", "mb", "gb", "mib", "gib", "bytes", "throughput", "latency", "host",
        "hostname", "pid", "ip", "grad",
    }),
}  # fmt: skip
"""Words in the names of columns that tell what a column is."""
_MAX_NAMES: Final = 4


def says(name: str, *roles: str) -> bool:
    """Whether a column's name says one of these roles: that it counts how far a run got
    (``budget``), tells runs apart (``seed``), is a ``setting`` of the training, or was measured or
    says where and when a run took place (``result``)."""
    words = re.findall(r"[a-z]+\d*", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return any(not _WORDS[role].isdisjoint(words) for role in roles)


def refuse_unnamed(
    frame: pd.DataFrame, cells: IntArray, keys: pd.DataFrame, roles: Collection[str]
) -> None:
    """Refuse rows of one cell that columns without a role tell apart.

    A column does if it varies inside a cell, its name does not say that it was measured, and

    - it holds names, true and false, or whole numbers, and most rows share theirs with another row
      (what differs in every row is a name of the run, a time or a measurement);
    - or it holds other numbers, and most rows hold one that at least two cells, and half of them,
      have;
    - or it holds numbers, and its name says how the run was trained or how far.

    Args:
        frame: one row a run.
        cells: number of the cell of each row.
        keys: what names the cell of each row.
        roles: columns that have a role.

    Raises:
        UserError: with the options that explain these columns.
    """
    shared = pd.Series(cells).duplicated(keep=False).to_numpy(bool)
    rows, inside = frame.loc[shared], cells[shared]
    unnamed: list[str] = []
    for name in (name for name in frame.columns if isinstance(name, str)):
        column = rows[name]
        if name in roles or says(name, "result") or not _is_choice(column, inside):
            continue
        follows = any(not _varies(column, _split(inside, rows[other])).size for other in unnamed)
        if not follows and _varies(column, inside).size:
            unnamed.append(name)
    if unnamed:
        raise UserError(_refusal(frame, cells, keys, unnamed))


def _refusal(
    frame: pd.DataFrame, cells: IntArray, keys: pd.DataFrame, unnamed: Sequence[str]
) -> str:
    varying = {name: _varies(frame[name], cells) for name in unnamed}
    # The cell in which most of them vary, and of these the one with the most rows.
    counts, several = (np.bincount(at) for at in (cells, np.concatenate([*varying.values()])))
    at = max(range(len(several)), key=lambda cell: (several[cell], counts[cell]))
    here = [name for name in unnamed if at in varying[name]][:_MAX_NAMES]
    rows, cell = frame.loc[cells == at], keys.loc[cells == at].iloc[0]
    where = ", ".join(
        f"{name}={f'{value:.12g}' if isinstance(value, float) else value}"
        for name, value in cell.items()
    )
    values = listed(
        [f"{name} ({first_of(list(dict.fromkeys(rows[name].dropna())), 3)})" for name in here]
    )
    is_one = len(here) == 1
    remedies = "; ".join(_remedy(frame[name], keys, rows[name]) for name in here)
    return (
        f"{values} {'varies' if is_one else 'vary'} inside {where} and"
        f" {'is' if is_one else 'are'} not named: these {len(rows)} rows would count as repeated"
        f" runs. Say what {'it is' if is_one else 'they are'}: {remedies}. In general --config"
        " (--by) COLUMN is part of the shape (cell), --nuisance COLUMN a setting of which each"
        " takes its best, --budget-column COLUMN how far a run got, --replicate COLUMN the seed,"
        " --where COLUMN=VALUE takes some rows alone, and --replicate '' says that they are"
        " repeated runs all the same"
    )


def _remedy(column: "pd.Series[Any]", keys: pd.DataFrame, here: "pd.Series[Any]") -> str:
    """Return the option that explains a column; ``here`` are its values in one cell."""
    name = str(column.name)
    alone = f"--where {name}={here.dropna().iloc[0]}"
    if are_statuses(column):
        return f"--status-column {name}"
    if says(name, "setting"):
        return f"--nuisance {name} or {alone}"
    if says(name, "budget"):
        return f"--budget-column {name} (then the last row of each run counts)"
    cells = keys.groupby(list(keys), dropna=False)
    is_of_one_cell = not _varies(cells.ngroup(), pd.factorize(column)[0]).size
    is_name = not pd.api.types.is_numeric_dtype(column)
    if says(name, "seed") or (is_name and is_of_one_cell):
        return f"--replicate {name} if it tells runs apart"
    return f"--config {name} or {alone}"


def _split(cells: IntArray, column: "pd.Series[Any]") -> IntArray:
    """Return cells that are split further by the values of a column."""
    codes = pd.factorize(column)[0]
    return cells * (int(codes.max(initial=0)) + 2) + codes + 1


def _varies(column: "pd.Series[Any]", cells: IntArray) -> IntArray:
    """Return the cells in which a column has several values."""
    codes = pd.factorize(column)[0]
    by_cell = pd.Series(codes[codes >= 0]).groupby(cells[codes >= 0])
    several = by_cell.max() > by_cell.min()
    return np.asarray(several.index[several], np.int64)


def _is_choice(column: "pd.Series[Any]", cells: IntArray) -> bool:
    """Whether a column holds what somebody chose rather than what came out."""
    known = column.notna().to_numpy(bool)
    values, name = column[known], str(column.name)
    are_numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if are_numbers and says(name, "budget", "setting"):
        return True
    if not values.duplicated(keep=False).mean() > 0.5:
        return False
    if not are_numbers or np.all((numbers := values.to_numpy(np.float64)) % 1 == 0):
        return True
    pairs = pd.DataFrame({"value": numbers, "cell": cells[known]}).drop_duplicates()
    having = pairs["value"].map(pairs["value"].value_counts())
    return bool((having >= max(2, pairs["cell"].nunique() / 2)).mean() > 0.5)
