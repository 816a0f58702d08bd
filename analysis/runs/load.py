"""Tables of runs: reading them, checking them, and one canonical form for every analysis.

A run is a result only if it trained for its full budget. A run that was stopped early is a bound on
what it would have reached, never its last value.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs.columns import RunColumns, as_numbers
from analysis.runs.history import read_history, with_history
from analysis.runs.scale import check_goal, transform
from analysis.runs.table import Runs
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError


@dataclass(frozen=True)
class RunTable:
    """The runs of a sweep over ``x`` and ``by`` in canonical form.

    Attributes:
        frame: one row a run, columns ``x`` (float), ``by`` (float, NaN without a modulating axis),
            ``replicate`` (str), ``value`` (float, NaN unless known), ``y`` (float, NaN unless
            complete), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool),
            ``reached`` and ``budget`` (float, NaN if unknown).
        x: name of the searched axis.
        by: name of the modulating axis, or None.
        metric: name of the metric column.
        goal: min or max.
        scale: how ``value`` became ``y``.
        warnings: choices made on the way.
        history: one row a report (columns ``x``, ``by``, ``replicate``, ``reached``, ``value``,
            ``y``), or None.
    """

    frame: pd.DataFrame
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    warnings: tuple[str, ...]
    history: pd.DataFrame | None = None


def read_table(path: Path | str) -> pd.DataFrame:
    """Return the table at ``path`` (.parquet or .csv).

    Raises:
        UserError: a missing, unreadable or empty file, or another ending.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no table at {file}: the file does not exist")
    ending = file.suffix.lower()
    if ending not in (".parquet", ".csv"):
        raise UserError(f"cannot read {file}: the name must end in .parquet or .csv")
    try:
        frame = pd.read_parquet(file) if ending == ".parquet" else pd.read_csv(file)
    except pd.errors.EmptyDataError:
        raise UserError(f"the table at {file} is empty") from None
    except (ValueError, OSError) as error:  # pyarrow's and pandas' parsing errors derive from these
        raise UserError(f"cannot read {file} as {ending[1:]}: {error}") from error
    if frame.empty:
        raise UserError(f"the table at {file} is empty: it has no rows")
    return frame.apply(_texts_if_nested)


def _texts_if_nested(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of lists and the like as their texts, which can be compared and grouped."""
    if column.dtype != object or all(isinstance(value, Hashable) for value in column):
        return column
    return column.map(lambda value: value if isinstance(value, Hashable) else str(value))


def canonical(
    frame: pd.DataFrame,
    *,
    x: str,
    by: str | None,
    metric: str,
    goal: Goal,
    scale: Scale,
    replicate: str | None = "seed",
    status_column: str | None = None,
    complete: str = "finished",
    budget_column: str | None = None,
    target_budget: float | None = None,
    eval_size: int | None = None,
    nuisance: Sequence[str] = (),
    history: pd.DataFrame | None = None,
) -> RunTable:
    """Check a table of runs and bring it into canonical form.

    Args:
        frame: one row a run.
        x: ordered axis that is searched.
        by: modulating axis, positive numbers, or None.
        metric: the result.
        goal: min or max.
        scale: error, accuracy or loss.
        replicate: column that tells the runs of a cell apart; None numbers them in order.
        status_column: how each run ended; None uses a column named ``status`` if there is one.
        complete: the status word of a full-budget run.
        budget_column: how far each run got; rows short of ``target_budget`` are not complete.
        target_budget: full budget; None takes the largest seen.
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes (a learning rate, say) whose settings compete within a cell: of the settings
            with the most full-budget runs the one with the best median is kept.
        history: one row a report of a run; adds the runs that only it knows, and says how far each
            got where the table does not (see `analysis.runs.history`).

    Raises:
        UserError: anything about the table that would make an answer wrong.
    """
    check_goal(goal, scale)
    axes = [x] if by is None else [x, by]
    reports: pd.DataFrame | None = None
    if history is not None:
        if nuisance:
            raise UserError("a history cannot be matched with runs of competing settings")
        reports = read_history(
            history,
            frame,
            x=x,
            by=by,
            metric=metric,
            replicate=replicate,
            budget_column=budget_column,
        )
        if budget_column not in frame.columns:
            budget_column = None
    columns = RunColumns(
        replicate=replicate,
        status_column=status_column,
        complete=complete,
        budget_column=budget_column,
        target_budget=target_budget,
    )
    runs, warnings = Runs(frame, metric, columns).rows([*axes, *nuisance])
    runs = runs.rename(columns={x: "x"} if by is None else {x: "x", by: "by"})
    runs["x"] = _axis(runs["x"], x, positive=False)
    runs["by"] = np.nan if by is None else _axis(runs["by"], by, positive=True)
    if reports is not None:
        runs, notes = with_history(runs, reports, target_budget)
        warnings += notes
    done = runs["complete"].to_numpy(bool)
    y = np.full(len(runs), np.nan)
    results = runs.loc[done, "value"].to_numpy(np.float64)
    y[done], notes = transform(results, scale, eval_size, metric)
    runs["y"] = y
    warnings += notes
    if reports is not None:
        values = np.concatenate([results, reports["value"].to_numpy(np.float64)])
        reports["y"] = transform(values, scale, eval_size, metric)[0][len(results) :]
    if nuisance:
        runs, notes = _best_setting(runs, list(nuisance))
        warnings += notes
    names = ["x", "by", "replicate", "value", "y", "status", "complete", "reached", "budget"]
    runs = runs.sort_values(["x", "by", "replicate"], kind="stable")[names]
    notes = list(dict.fromkeys(warnings))
    return RunTable(runs.reset_index(drop=True), x, by, metric, goal, scale, tuple(notes), reports)


def _axis(column: "pd.Series[Any]", name: str, *, positive: bool) -> "pd.Series[float]":
    values = pd.Series(as_numbers(column, name), index=column.index)
    if positive and (values <= 0).any():
        raise UserError(
            f"axis {name!r} holds {float(values.min())!r}; its logarithm is used, so it must be"
            " above 0"
        )
    return values


def _best_setting(runs: pd.DataFrame, nuisance: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Keep one nuisance setting a cell: the best median among those with the most full runs."""
    kept: list[pd.DataFrame] = []
    places: dict[str, list[str]] = {}
    competed = False
    for _, cell in runs.groupby(["x", "by"], sort=True, dropna=False):
        settings = list(cell.groupby(nuisance, sort=True))
        competed |= len(settings) > 1
        most = max(int(rows["complete"].sum()) for _, rows in settings)
        best_setting, best_rows = min(
            (entry for entry in settings if int(entry[1]["complete"].sum()) == most),
            key=lambda entry: float(entry[1]["y"].median()) if most else 0.0,
        )
        kept.append(best_rows)
        words = ", ".join(
            f"{name}={value}" for name, value in zip(nuisance, best_setting, strict=True)
        )
        x, by = float(cell["x"].iloc[0]), float(cell["by"].iloc[0])
        places.setdefault(words, []).append(f"{x:g}" if np.isnan(by) else f"({x:g}, {by:g})")
    if not competed:
        return runs, []
    chosen = (
        f"{words} in every cell" if len(places) == 1 else f"{words} at {', '.join(cells)}"
        for words, cells in places.items()
    )
    note = (
        f"{', '.join(nuisance)} compete within a cell, best median kept: {'; '.join(chosen)}."
        " Choice and value come from the same runs, so values are optimistic"
    )
    return pd.concat(kept), [note]
