"""The chart of learning curves: which trials, in which groups, at which points."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from analysis.charts import palette
from analysis.charts.chart import Axis, Chart, Layer, Line, Pick, Point, Series, by_look
from analysis.charts.picks import query_text, run_links, value_text
from analysis.text.numbers import number_text

MAX_LINES: Final = 120
MAX_POINTS: Final = 120
_ENDINGS: Final = {
    "stopped_early": "stopped early",
    **dict.fromkeys(("diverged", "failed", "too_large"), "no number"),
}
"""How curves end early, by the statuses of their trials."""
_ENDING_LOOKS: Final = {
    "stopped early": Series(
        (), palette.INK, "stopped early", is_open=True, hover="{pick}: stopped early"
    ),
    "no number": Series((), palette.INK, "no number", symbol="x-thin", hover="{pick}: no number"),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One trial's metric over its budget: units done and the metric there, NaN where a report
    lacks it."""

    group: object
    pick: Pick
    status: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """The curves that are drawn and how many there are in all.

    Attributes:
        grouped_by: name of the column that colours the lines; None when nothing tells them apart.
        total: trials with at least one report.
        is_log: whether all drawn values allow a logarithmic axis.
    """

    grouped_by: str | None
    groups: tuple[object, ...]
    curves: tuple[Curve, ...]
    total: int
    is_log: bool


def curve_chart(curves: LearningCurves, metric: str, unit: str) -> Chart | None:
    """Draw the learning curves, or nothing where no trial has reported.

    One series holds a group's curves, so that many trials stay light.
    """
    if not curves.curves:
        return None
    shades = palette.shades_for(curves.groups)
    shown_names = palette.named_groups(len(curves.groups)) if curves.grouped_by else set()
    layers: list[Layer] = []
    for index, (group, shade) in enumerate(zip(curves.groups, shades, strict=True)):
        lines: list[Point] = []
        dots: list[Point] = []
        for at, curve in enumerate(curves.curves):
            if curve.group == group:
                # A single report is no line.
                found = dots if len(curve.points) == 1 else lines
                found += [_point(*point, at, 6) for point in (*curve.points, (math.nan, math.nan))]
        name = _group_name(curves.grouped_by, group)
        shown = name if index in shown_names else ""
        hover = f"{{pick}}\n{metric} {{y}} at {unit} {{x}}"
        line = Line(1.4, opacity=0.75)
        drawn = (
            Series(tuple(lines), shade, shown, name, symbol=None, line=line, hover=hover),
            Series(tuple(dots), shade, "" if lines else shown, name, hover=hover),
        )
        layers += [series for series in drawn if series.points]
    ends: list[tuple[str, Point]] = []
    for at, curve in enumerate(curves.curves):
        known = [point for point in curve.points if math.isfinite(point[1])]
        if known and curve.status in _ENDINGS:
            ends.append((_ENDINGS[curve.status], _point(*known[-1], at, 8)))
    layers += by_look(_ENDING_LOOKS, ends)
    ended = (
        "; a ring marks a trial stopped early, a cross one that diverged, failed or was too large"
    )
    num_drawn = len(curves.curves)
    some = (
        f" Shown are {num_drawn} of {number_text(curves.total)} trials, spread evenly."
        if num_drawn < curves.total
        else ""
    )
    coloured = f", coloured by {curves.grouped_by}" if curves.grouped_by else ""
    return Chart(
        "learning-curves",
        "Learning curves",
        f"{metric} of every trial at each report{coloured}{ended if ends else ''}.{some}",
        Axis(unit, form="whole", from_zero=True),
        Axis(metric, "log" if curves.is_log else "number"),
        tuple(layers),
        is_wide=True,
        picks=tuple(curve.pick for curve in curves.curves),
        legend="beside",
    )


def _point(unit: float, value: float, pick: int, size: float) -> Point:
    """Return a point with as many digits as a chart shows."""
    return Point(unit, float(f"{value:.5g}"), pick=pick, size=size)


def _group_name(column: str | None, group: object) -> str:
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
        prefer: the axis that should colour the lines, if there is one.
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
    varying = [axis for axis in axes if axis in trials.columns and trials[axis].nunique() > 1]
    # Only the drawn trials' reports are looked at one by one: a study can have half a million.
    few = reports.loc[reports["key"].isin(drawn["key"]), ["key", "unit", metric]]
    points = {str(key): frame for key, frame in few.groupby("key", sort=False)}
    colours = [group for group, positions in zip(groups, chosen, strict=True) for _ in positions]
    curves = tuple(
        _curve(group, row, points[str(row["key"])], metric, varying)
        for group, row in zip(colours, rows, strict=True)
    )
    values = [value for curve in curves for _, value in curve.points if math.isfinite(value)]
    return LearningCurves(
        grouped_by, groups, curves, len(known), log and bool(values) and min(values) > 0
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
    turns = sorted((turn, at) for at, group in enumerate(groups) for turn in range(len(group)))
    quota = Counter(at for _, at in turns[:limit])
    return [
        [group[position] for position in _evenly(len(group), quota[at])]
        for at, group in enumerate(groups)
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
    label = " · ".join(part for part in (point, seed) if part) or str(row["key"])
    values = pd.to_numeric(kept[metric], errors="coerce").astype(float)
    return Curve(
        group=group,
        pick=Pick(label, query_text({"key": row["key"]}), run_links([row])),
        status=str(row.get("status", "")),
        points=tuple(zip(kept["unit"].astype(float).tolist(), values.tolist(), strict=True)),
    )
