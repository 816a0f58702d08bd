"""Columns that nobody named, judged by their values: what was chosen for a run, and what came out.

Rows without a seed are repeated runs only if nothing but their results differs. Data sets, layers
or token counts that are not named would pass for seeds, and every interval would be wrong. What was
chosen splits the runs of most cells in the same way; what came out (a host, the best epoch) does
not. No rule reads a column's name, but where the tool that wrote the table puts it there.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import special

from analysis.runs.columns import budget_steps, numbers_if_all_are
from analysis.statistics.values import FloatArray, IntArray
from hsweep.design.labels import first_of, listed
from hsweep.errors import UserError

MOVES: Final = "inside cells or shapes"
"""How the warning about columns that the metric moves with begins, which stands beside the
answer."""
_FORMS: Final = (
    ("params_", "values?(_.*)?|datetime_.*|duration|number|state"),  # Optuna
    ("params.", r"metrics\..*"),  # MLflow
    ("config/", ".*"),  # Ray Tune
    ("config.", r"summary\..*"),  # Weights & Biases
)
"""How tools write what was chosen for a trial, and the pattern of what came out of it."""
_OWN_ENDS: Final = ("ordinal", "seed")
"""Columns of a study's own table between which its axes stand."""
_OWN: Final = frozenset({*_OWN_ENDS, "key", "study", "stratum", "status", "attempt"})
_MAX_NAMES: Final = 4
_DRAWS: Final = 199
_LEVEL: Final = 0.025
"""So seldom do columns that split the runs at random pass one of the two tests of that."""
_MOST: Final = 0.8
_LOST: Final = 0.1
"""Share of the runs of a plan that may be lost."""
_CLEAR: Final = 0.001
"""So seldom does a metric seem to move with one of the columns that it does not depend on."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the form of a table tells.

    Attributes:
        prefix: of the columns of what was chosen; empty where there is none.
        chosen: columns of what was chosen for a run.
        others: columns that are not chosen; of the rest the form tells nothing.
    """

    prefix: str
    chosen: frozenset[str]
    others: frozenset[str]


def form_of(names: Iterable[object]) -> Form:
    """Return what the names of a tool's columns tell, by their prefixes."""
    columns = [str(name) for name in names]
    if set(columns) >= _OWN:
        first, last = map(columns.index, _OWN_ENDS)
        axes = frozenset(columns[first + 1 : last])
        return Form("", axes, frozenset(columns) - axes)
    for prefix, results in _FORMS:
        chosen = frozenset(name for name in columns if name.startswith(prefix))
        if chosen:
            rest = frozenset(columns) - chosen
            others = frozenset(name for name in rest if re.fullmatch(results, name))
            return Form(prefix, chosen, others)
    return Form("", frozenset(), frozenset())


def refuse_unnamed(
    frame: pd.DataFrame,
    cells: IntArray,
    keys: pd.DataFrame,
    roles: Collection[str],
    seeds: "pd.Series[Any] | None" = None,
) -> None:
    """Refuse runs of one cell that columns without a role tell apart.

    Args:
        frame: one row a run.
        cells: number of the cell of each row.
        keys: what names the cell of each row.
        roles: columns that have a role.
        seeds: names of the seeds; a column with one value for each of them is another name of it.

    Raises:
        UserError: with the options that explain these columns.
    """
    shared = pd.Series(cells).duplicated(keep=False).to_numpy(bool)
    rows, inside = frame.loc[shared], cells[shared]
    form = form_of(frame.columns)
    known = None if seeds is None else pd.factorize(seeds.loc[rows.index])[0]
    unnamed: dict[str, IntArray] = {}
    for name in map(str, frame.columns):
        if name in roles or name in form.others or not len(rows):
            continue
        values = _codes(rows[name])
        if not _varies(values, inside).any() or (known is not None and _is_alias(values, known)):
            continue
        follows = any(
            not _varies(values, _numbered(inside, other)).any() for other in unnamed.values()
        )
        if not follows and (
            name in form.chosen or _is_crossed(values, inside) or _describes(rows[name], inside)
        ):
            unnamed[name] = values
    if unnamed:
        raise UserError(_refusal(rows, inside, keys.loc[shared], unnamed))


def _refusal(
    rows: pd.DataFrame, cells: IntArray, keys: pd.DataFrame, unnamed: dict[str, IntArray]
) -> str:
    varying = {name: _varies(values, cells) for name, values in unnamed.items()}
    # The cell in which most of them vary, and of these the one with the most rows.
    several, counts = np.sum([*varying.values()], axis=0), np.bincount(cells, minlength=1)
    at = max(range(len(several)), key=lambda cell: (several[cell], counts[cell]))
    here = [name for name in unnamed if varying[name][at]][:_MAX_NAMES]
    in_cell = rows.loc[cells == at]
    where = ", ".join(
        f"{name}={f'{value:.12g}' if isinstance(value, float) else value}"
        for name, value in keys.loc[cells == at].iloc[0].items()
    )
    examples = {name: list(dict.fromkeys(in_cell[name])) for name in here}
    values = listed([f"{name} ({first_of(examples[name], 3)})" for name in here])
    is_one = len(here) == 1
    name, value = here[0], examples[here[0]][0]
    vary, what, are = ("varies", "it is", "is") if is_one else ("vary", "they are", "are")
    return (
        f"{values} {vary} inside {where} as chosen values do and {are} not named: these"
        f" {len(in_cell)} runs would count as seeds of one. Say what {what}: --where {name}={value}"
        f" takes such runs alone; --config {name} (--by in a transition) is part of the shape"
        f" (cell), --nuisance {name} a setting of which each takes its best, --budget-column {name}"
        f" how far a run got, --replicate {name} the seed, --status-column {name} how it ended;"
        f" --ignore {name} leaves it out of account{'' if is_one else ', and so on'}"
    )


def moving_columns(
    frame: pd.DataFrame, cells: IntArray, metric: FloatArray, roles: Collection[str]
) -> list[str]:
    """Return the columns without a role that the metric moves with inside the cells, those that it
    moves with most first.

    A column of numbers is compared by its ranks, one of names by the means of its values (F test);
    the level is shared by all columns. What a form says came out of the run is left out.

    Args:
        frame, cells, roles: as in `refuse_unnamed`.
        metric: the result of each row, finite.
    """
    form = form_of(frame.columns)
    residuals = _within(metric, cells)
    total, df = float(residuals @ residuals), len(metric) - len(np.unique(cells))
    found: list[tuple[float, str]] = []
    names = [name for name in map(str, frame.columns) if name not in {*roles, *form.others}]
    for name in names:
        column = numbers_if_all_are(frame[name])
        codes = _codes(column)
        if not _varies(codes, cells).any():
            continue
        if pd.api.types.is_numeric_dtype(column) and column.notna().all():
            ranks = _within(np.asarray(column.astype(np.float64).rank(), np.float64), cells)
            used, explained = 1, float(residuals @ ranks) ** 2 / float(ranks @ ranks)
        else:
            sums, counts = np.bincount(codes, residuals), np.bincount(codes)
            used, explained = len(counts) - 1, float((sums**2 / counts).sum())
        left = total - explained
        if df > used and left > 0:
            p = float(special.fdtrc(used, df - used, explained / used / (left / (df - used))))
            if p <= _CLEAR / len(names):
                found.append((p, name))
    return [name for _, name in sorted(found)]


def _codes(column: "pd.Series[Any]") -> IntArray:
    """Return a number for each value; numbers that differ by rounding alone, whole numbers as text
    and empty entries are one value each."""
    values = numbers_if_all_are(column)
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        sign = np.sign(numbers)
        values = pd.Series(sign * budget_steps(np.abs(numbers)), index=column.index)
    return np.asarray(pd.factorize(values, use_na_sentinel=False)[0], np.int64)


def _is_crossed(values: IntArray, cells: IntArray) -> bool:
    """Whether a column's values split the runs of most cells in the same way.

    Either they come back in most cells, and all cells have as many runs of each but for a few that
    are lost, or the cells' numbers of them are more alike or more even than chance would make them
    (permutation tests). Or most cells have several values of their own, each equally often.
    """
    cell, value, counts = _pairs(values, cells)
    most, least = np.zeros(cells.max() + 1), np.full(cells.max() + 1, np.inf)
    np.maximum.at(most, cell, counts)
    np.minimum.at(least, cell, counts)
    several = np.bincount(cell) > 1
    num_cells = len(np.unique(cells))
    is_even = (least > 1) & (least == most)
    if several.sum() > num_cells / 2 and is_even[several].mean() >= _MOST:
        return True
    comes_back = np.flatnonzero(np.bincount(value) > num_cells / 2)
    is_kept = np.isin(values, comes_back)
    if len(comes_back) < 2 or is_kept.mean() < _MOST:
        return False
    at = np.unique(cells, return_inverse=True)[1]
    # All values that do not come back are one.
    kept = np.where(is_kept, np.searchsorted(comes_back, values), len(comes_back))
    size = (num_cells, int(kept.max()) + 1)

    def table(kept: IntArray) -> IntArray:
        flat = np.bincount(at * size[1] + kept, minlength=size[0] * size[1])
        return np.asarray(flat.reshape(size), np.int64)

    found = table(kept)
    if found.sum() >= (1 - _LOST) * num_cells * found.max(axis=0).sum():
        return True
    return any(
        _is_low(lambda drawn, measure=measure: measure(table(drawn)), kept)  # type: ignore[misc]
        for measure in (_disorder, _unevenness)
    )


def _describes(column: "pd.Series[Any]", cells: IntArray) -> bool:
    """Whether a column describes the cells, so that one with several of its values mixes what
    differs: most cells have a single value to the last digit, more of them than chance would give
    values to runs, and not the same one or two."""
    values = np.asarray(pd.factorize(column, use_na_sentinel=False)[0], np.int64)
    cell, value, _ = _pairs(values, cells)
    is_single = np.bincount(cell)[cell] == 1
    if is_single.sum() < _MOST * len(np.unique(cells)) or len(np.unique(value[is_single])) < 3:
        return False
    return _is_low(lambda drawn: float(len(_pairs(drawn, cells)[0])), values)


def _pairs(values: IntArray, cells: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the cell and the value of each pair of them, and how many runs have both."""
    size = int(values.max(initial=0)) + 1
    pairs, counts = np.unique(cells * size + values, return_counts=True)
    return pairs // size, pairs % size, counts


def _is_low(measure: Callable[[IntArray], float], values: IntArray) -> bool:
    """Whether a measure of the runs' values is lower than where chance gave the values to runs."""
    rng = np.random.default_rng(0)
    found = measure(values)
    as_low = sum(measure(rng.permutation(values)) <= found for _ in range(_DRAWS))
    return bool((1 + as_low) / (1 + _DRAWS) <= _LEVEL)


def _disorder(counts: IntArray) -> float:
    """Return the entropy of the rows: 0 where all are equal, log(rows) where none is."""
    _, number = np.unique(counts, axis=0, return_counts=True)
    shares = number / number.sum()
    return float(round(-(shares * np.log(shares)).sum(), 12))


def _unevenness(counts: IntArray) -> float:
    """Return Pearson's chi-square of the counts: 0 where every cell has the same shares."""
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    return float(round(((counts - expected) ** 2 / expected).sum(), 12))


def _is_alias(values: IntArray, seeds: IntArray) -> bool:
    """Whether each seed has a value of its own."""
    pairs = len(np.unique(np.column_stack([values, seeds]), axis=0))
    return pairs == len(np.unique(seeds)) == len(np.unique(values))


def _numbered(cells: IntArray, values: IntArray) -> IntArray:
    """Return cells that are split further by the values of a column."""
    pairs = cells * (int(values.max(initial=0)) + 1) + values
    return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int64)


def _varies(values: IntArray, cells: IntArray) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return for each cell whether a column has several values there."""
    return np.asarray(np.bincount(_pairs(values, cells)[0]) > 1)


def _within(values: FloatArray, cells: IntArray) -> FloatArray:
    """Return values less the mean of their cell."""
    counts = np.maximum(np.bincount(cells), 1)
    return np.asarray(values - (np.bincount(cells, values) / counts)[cells], np.float64)
