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

from analysis.runs.columns import as_numbers, numbers_if_all_are, replicate_words, require
from analysis.runs.history import read_history, with_history
from analysis.runs.scale import FloatArray, check_goal, transform
from analysis.runs.statuses import read_statuses
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
    runs, warnings = clean_runs(
        frame,
        keys=[*axes, *nuisance],
        metric=metric,
        replicate=replicate,
        status_column=status_column,
        complete=complete,
        budget_column=budget_column,
        target_budget=target_budget,
    )
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
    columns = ["x", "by", "replicate", "value", "y", "status", "complete", "reached", "budget"]
    runs = runs.sort_values(["x", "by", "replicate"], kind="stable")[columns]
    notes = list(dict.fromkeys(warnings))
    return RunTable(runs.reset_index(drop=True), x, by, metric, goal, scale, tuple(notes), reports)


def clean_runs(
    frame: pd.DataFrame,
    *,
    keys: Sequence[str],
    metric: str,
    replicate: str | None = "seed",
    status_column: str | None = None,
    complete: str = "finished",
    budget_column: str | None = None,
    target_budget: float | None = None,
    numbers: Sequence[str] = (),
) -> tuple[pd.DataFrame, list[str]]:
    """Return one checked row a run, and warnings.

    Columns: ``keys`` and ``numbers`` as they were, then replicate, value, status, complete,
    reached, budget as in `RunTable`.

    Raises:
        UserError: a missing column, a metric or ``numbers`` column that is not finite numbers, an
            unknown status, or two rows of one run.
    """
    if frame.empty:
        raise UserError("the table is empty: it has no rows")
    if status_column is None and "status" in frame.columns and "status" not in keys:
        status_column = "status"
    optional = (replicate, status_column, budget_column)
    roles = [*keys, metric, *(name for name in optional if name is not None)]
    require(frame, [*roles, *numbers], "table")
    twice = [name for name in roles if roles.count(name) > 1]
    if twice:
        raise UserError(f"column {twice[0]!r} is asked for in two roles at once")
    warnings: list[str] = []
    runs = frame[list(dict.fromkeys([*keys, *numbers]))].copy().reset_index(drop=True)
    for name in (*keys, *([replicate] if replicate is not None else [])):
        if frame[name].isna().any():
            raise UserError(f"column {name!r} has empty entries; every run needs its {name}")
    for name in keys:
        runs[name] = numbers_if_all_are(runs[name])
    for name in numbers:
        runs[name] = as_numbers(frame[name], name)
    runs["value"] = as_numbers(frame[metric], metric, infinite=True)
    runs["status"] = "finished"
    if status_column is not None:
        words = frame[status_column]
        runs["status"] = read_statuses(words, status_column, complete=complete).to_numpy()
        if budget_column is None and words.astype(str).str.lower().eq("terminated").any():
            warnings.append(
                "TERMINATED is also Ray Tune's word for a trial that its scheduler stopped;"
                " name the column of the budget to tell the two apart"
            )
    runs["reached"] = np.nan
    runs["budget"] = np.nan
    if budget_column is not None:
        reached = as_numbers(frame[budget_column], budget_column)
        runs["reached"] = reached
        runs["budget"] = full = _full_budget(reached, budget_column, target_budget)
        short = runs["status"].eq("finished") & ~(reached >= full)
        runs.loc[short, "status"] = "stopped_early"
    if replicate is None:
        runs["replicate"] = runs.groupby(list(keys), sort=False).cumcount().astype(str)
    else:
        runs["replicate"] = replicate_words(frame[replicate]).to_numpy()
    _refuse_infinities(runs, metric)
    if budget_column is not None:
        runs = _furthest_row(runs, list(keys))
    _refuse_duplicates(runs, list(keys), replicate)
    blank = runs["status"].eq("finished") & runs["value"].isna()
    if blank.any():
        runs.loc[blank, "status"] = "failed"
        warnings.append(f"{int(blank.sum())} finished runs have no {metric}; counted as failed")
    runs["complete"] = runs["status"].eq("finished")
    return runs, warnings


def _full_budget(reached: FloatArray, name: str, target: float | None) -> float:
    if target is not None:
        if not (np.isfinite(target) and target > 0):
            raise UserError(f"the target budget must be above 0, not {target!r}")
        return float(target)
    if np.isnan(reached).all():
        raise UserError(f"column {name!r} is empty, so no run can be said to have its full budget")
    return float(np.nanmax(reached))


def _refuse_infinities(runs: pd.DataFrame, metric: str) -> None:
    """Refuse an infinite result; an infinity of a run that is none is no value."""
    infinite = np.isinf(runs["value"].to_numpy(np.float64))
    results = np.flatnonzero(infinite & runs["status"].eq("finished").to_numpy(bool))
    if results.size:
        raise UserError(
            f"column {metric!r} holds an infinity in row {int(results[0])}; leave the entry of a"
            " diverged run empty and give it the status 'diverged'"
        )
    runs.loc[infinite, "value"] = np.nan


def _axis(column: "pd.Series[Any]", name: str, *, positive: bool) -> "pd.Series[float]":
    values = pd.Series(as_numbers(column, name), index=column.index)
    if positive and (values <= 0).any():
        raise UserError(
            f"axis {name!r} holds {float(values.min())!r}; its logarithm is used, so it must be"
            " above 0"
        )
    return values


def _furthest_row(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Of several rows of one run at different budgets, keep the furthest."""
    same = [*keys, "replicate"]
    repeated_at_one_budget = runs.duplicated([*same, "reached"]).any()
    if repeated_at_one_budget or not runs.duplicated(same).any():
        return runs
    last = runs.sort_values("reached", kind="stable").groupby(same, sort=False).tail(1)
    return last.sort_index().reset_index(drop=True)


def _refuse_duplicates(runs: pd.DataFrame, keys: list[str], replicate: str | None) -> None:
    duplicated = runs.duplicated([*keys, "replicate"])
    if not duplicated.any():
        return
    first = runs.loc[duplicated].iloc[0]
    where = ", ".join(f"{name}={first[name]}" for name in keys)
    raise UserError(
        f"{int(duplicated.sum())} rows repeat a run, the first at {where},"
        f" {replicate}={first['replicate']}; keep one row a run, name the column that tells"
        " replicates apart, or name the axes whose settings compete (nuisance)"
    )


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
