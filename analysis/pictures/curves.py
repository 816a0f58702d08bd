"""Learning curves for a picture: which trials, in which groups, at which points."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from analysis.pictures.rows import query_text, run_links, value_text
from analysis.text.numbers import number_text

MAX_LINES: Final = 120
MAX_POINTS: Final = 120


@dataclass(frozen=True, slots=True)
class Curve:
    """One trial's metric over its budget.

    Attributes:
        group: the value that colours the line.
        label: the trial in words.
        status: how it ended.
        units: budget units done at each point.
        values: the metric there; NaN where a report lacks it.
        query: text that finds the trial in the table of trials.
        links: name and address of its run's page, where that is known.
    """

    group: object
    label: str
    status: str
    units: tuple[float, ...]
    values: tuple[float, ...]
    query: str = ""
    links: tuple[tuple[str, str], ...] = ()

    @property
    def last(self) -> tuple[float, float] | None:
        """The last point with a value."""
        finite = [
            (unit, value)
            for unit, value in zip(self.units, self.values, strict=True)
            if math.isfinite(value)
        ]
        return finite[-1] if finite else None


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """The curves that are drawn and how many there are in all.

    Attributes:
        grouped_by: name of the column that colours the lines; None when nothing tells them apart.
        groups: its values, ordered.
        curves: the drawn curves, ordered by group.
        total: trials with at least one report.
        is_log: whether all drawn values allow a logarithmic axis.
    """

    grouped_by: str | None
    groups: tuple[object, ...]
    curves: tuple[Curve, ...]
    total: int
    is_log: bool

    def endings(self) -> dict[str, list[Curve]]:
        """Return the drawn curves that ended early, by how they did."""
        names = {
            "stopped early": ("stopped_early",),
            "no number": ("diverged", "failed", "too_large"),
        }
        found = {
            name: [curve for curve in self.curves if curve.status in statuses and curve.last]
            for name, statuses in names.items()
        }
        return {name: ends for name, ends in found.items() if ends}


def group_name(column: str | None, group: object) -> str:
    """Return a group of curves as the legend names it."""
    if column in (None, "stratum"):
        return str(group)
    return f"{column} = {number_text(group) if isinstance(group, int | float) else group}"


def learning_curves(
    trials: pd.DataFrame,
    reports: pd.DataFrame,
    metric: str,
    axes: Sequence[str],
    prefer: str | None,
    *,
    log: bool,
    reported: Collection[str] | None = None,
) -> LearningCurves:
    """Choose the trials to draw, spread evenly over the groups, and thin each one's points.

    Args:
        trials: one row a trial.
        reports: one row a report (``key``, ``unit``, metrics).
        metric: the metric to draw.
        axes: the swept axes.
        prefer: the axis that should colour the lines, if there is one.
        log: whether a logarithmic axis is wanted.
        reported: keys of the trials that have a report, where ``reports`` holds only those of the
            trials to draw (`drawn_keys`); None where it holds all.
    """
    wanted = {"key", "unit", metric}
    if reports.empty or trials.empty or not wanted <= set(reports.columns):
        return LearningCurves(None, (), (), 0, False)
    known, grouped_by, groups, chosen = _choice(
        trials, reports["key"].unique() if reported is None else reported, axes, prefer
    )
    drawn = known.iloc[[position for positions in chosen for position in positions]]
    rows = [{str(name): value for name, value in row.items()} for row in drawn.to_dict("records")]
    told = [axis for axis in axes if axis in trials.columns and trials[axis].nunique() > 1]
    # Only the drawn trials' reports are looked at one by one: a study can have half a million.
    few = reports.loc[reports["key"].isin(drawn["key"]), ["key", "unit", metric]]
    points = {str(key): frame for key, frame in few.groupby("key", sort=False)}
    colours = [group for group, positions in zip(groups, chosen, strict=True) for _ in positions]
    curves = tuple(
        _curve(group, row, points[str(row["key"])], metric, told)
        for group, row in zip(colours, rows, strict=True)
    )
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)]
    return LearningCurves(
        grouped_by, groups, curves, len(known), log and bool(finite) and min(finite) > 0
    )


def drawn_keys(
    trials: pd.DataFrame, reported: Collection[str], axes: Sequence[str], prefer: str | None
) -> list[str]:
    """Return the keys of the trials that `learning_curves` draws, of those that have a report."""
    known, _, _, chosen = _choice(trials, reported, axes, prefer)
    keys = known["key"].tolist()
    return [str(keys[position]) for positions in chosen for position in positions]


def _choice(
    trials: pd.DataFrame, reported: Collection[str], axes: Sequence[str], prefer: str | None
) -> tuple[pd.DataFrame, str | None, tuple[object, ...], list[list[int]]]:
    """Return the trials with a report, the column that groups them, its values, and the positions
    of the trials to draw of each."""
    grouped_by = _grouping(trials, axes, prefer)
    known = trials[trials["key"].isin(list(reported))]
    members: dict[object, list[int]] = {}
    labels = known[grouped_by].tolist() if grouped_by else [""] * len(known)
    for position, label in enumerate(labels):
        members.setdefault(_group(label), []).append(position)
    groups = tuple(sorted(members, key=_sort_key))
    return known, grouped_by, groups, _spread([members[group] for group in groups], MAX_LINES)


def _group(label: object) -> object:
    """Return the value that names a group: all missing ones are one group."""
    return "none" if label is None or label != label else label


def _grouping(trials: pd.DataFrame, axes: Sequence[str], prefer: str | None) -> str | None:
    candidates = [name for name in (prefer, "stratum", *axes) if name in trials.columns]
    for name in candidates:
        distinct = trials[name].nunique(dropna=True)
        if distinct > 1 and not (name == "stratum" and distinct > 12):
            return str(name)
    return None


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float | np.number):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _spread(groups: list[list[int]], limit: int) -> list[list[int]]:
    """Take turns between the groups until ``limit`` is reached, evenly within each."""
    quota = [0] * len(groups)
    left = limit
    while left > 0 and any(count < len(group) for count, group in zip(quota, groups, strict=True)):
        for index, group in enumerate(groups):
            if left > 0 and quota[index] < len(group):
                quota[index] += 1
                left -= 1
    return [
        [group[position] for position in _evenly(len(group), count)]
        for group, count in zip(groups, quota, strict=True)
    ]


def _evenly(total: int, count: int) -> list[int]:
    if count >= total:
        return list(range(total))
    return [int(position) for position in np.linspace(0, total - 1, count).round()]


def _curve(
    group: object, row: dict[str, object], frame: pd.DataFrame, metric: str, axes: Sequence[str]
) -> Curve:
    ordered = frame.sort_values("unit")
    kept = ordered.iloc[_evenly(len(ordered), MAX_POINTS)]
    point = ", ".join(f"{axis}={value_text(row[axis])}" for axis in axes)
    seed = f"seed {row['seed']}" if "seed" in row else ""
    return Curve(
        group=group,
        label=" · ".join(part for part in (point, seed) if part) or str(row["key"]),
        query=query_text({"key": row["key"]}),
        links=run_links([row]),
        status=str(row.get("status", "")),
        units=tuple(float(unit) for unit in kept["unit"]),
        values=tuple(
            float(value) for value in pd.to_numeric(kept[metric], errors="coerce").astype(float)
        ),
    )
