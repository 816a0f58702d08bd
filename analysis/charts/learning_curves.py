"""The chart of learning curves: it chooses the trials, their groups and the points."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.charts import palette
from analysis.charts.chart import Axis, Chart, Layer, Mark, Pick, Ribbon, Series, Stroke, by_look
from analysis.charts.picks import config_key
from analysis.runs.columns import in_order, plain
from analysis.text.numbers import number_text
from analysis.text.tables import varying_columns
from analysis.values import AxisValue, describe

_Row = Mapping[Any, Any]
_Line = tuple[Sequence[_Row], "pd.Series[float]", pd.DataFrame | None]
"""The trials of a curve, their median metric at each unit, and every trial's metric there; None
for a curve of a single trial."""
MAX_LINES: Final = 120
MAX_POINTS: Final = 120
_ENDINGS: Final = {
    "stopped_early": "stopped early",
    **dict.fromkeys(("diverged", "failed", "too_large"), "no number"),
}
"""The mark at the end of a curve that ended early, by the status of its trial."""
_ENDING_LOOKS: Final = {
    "stopped early": Series(
        (), palette.INK, "stopped early", is_open=True, hover="{pick}: stopped early"
    ),
    "no number": Series((), palette.INK, "no number", symbol="x-thin", hover="{pick}: no number"),
}


def curve_chart(
    trials: pd.DataFrame,
    reported: Collection[str],
    reports_of: Callable[[Sequence[str]], pd.DataFrame],
    metric: str,
    axes: Sequence[str],
    prefer: str | None,
    *,
    unit: str,
    log: bool,
) -> Chart | str:
    """Draw learning curves of at most `MAX_LINES` trials, spread evenly over the groups.

    Trials that differ in their seed alone are a thick line, their median, with a band from their
    lowest to their highest. One series holds a group's curves, so that many trials stay light.

    Args:
        trials: one row a trial.
        reported: keys of the trials that have a report.
        reports_of: returns the reports of trials by their keys, one row a report (``key``,
            ``unit``, metrics): a study can have half a million, and few are drawn.
        prefer: the axis that should colour the lines, if there is one.
        unit: what ``unit`` counts: epochs, steps.
        log: whether the metric is drawn on a logarithmic axis where all values allow it.

    Returns:
        The chart, or why there is none.
    """
    none = f"No trial has reported {metric} yet."
    if trials.empty:
        return none
    names = _grouping(trials, axes, prefer)
    known = trials[trials["key"].isin(list(reported))]
    groups = _drawn(known, names)
    drawn = [row for members in groups.values() for row in members]
    reports = reports_of([row["key"] for row in drawn]) if drawn else trials.iloc[:0]
    if reports.empty or metric not in reports:
        return none
    few = reports.assign(**{metric: pd.to_numeric(reports[metric], errors="coerce")})
    values = {
        key: pd.Series(part[metric].to_numpy(float), part["unit"].to_numpy(float))
        for key, part in few.sort_values("unit").groupby("key", sort=False)
    }
    if max(map(len, values.values())) == 1:
        return (
            f"Each of the {number_text(len(known))} trials has reported {metric} once, at its end, "
            "so there is no curve to draw."
        )
    varying = varying_columns(trials, axes)
    picks: dict[Pick, int] = {}
    bands: list[Layer] = []
    lines: list[Layer] = []
    shades = palette.shades_for(list(groups))
    named = palette.named_groups(len(groups)) if names else set()
    for index, ((group, members), shade) in enumerate(zip(groups.items(), shades, strict=True)):
        label = group if isinstance(group, str) else number_text(group)
        name = f"{names[0]} = {label}" if len(names) == 1 else label
        marks: list[tuple[str, Mark]] = []
        for rows, line, seeds in _curves(members, values, varying):
            pick = picks.setdefault(_pick(rows, varying), len(picks))
            look = "dot" if len(line) == 1 else "single"
            if seeds is not None:
                look, low, high = "median", seeds.min(axis=1), seeds.max(axis=1)
                bands.append(Ribbon(tuple(line.index), tuple(low), tuple(high), shade, name))
            marks += [(look, _mark(x, y, pick, 6)) for x, y in zip(line.index, line, strict=True)]
            marks.append((look, _mark(math.nan, math.nan, pick, 6)))
        hover = f"{{pick}}\n{metric} {{y}} at {unit} {{x}}"
        series = Series((), shade, "", name, symbol=None, hover=hover)
        looks = {
            "median": replace(series, line=Stroke(2.2)),
            "single": replace(series, line=Stroke(1.2, opacity=0.6)),
            # A single report is no line.
            "dot": replace(series, symbol="circle"),
        }
        first, *others = by_look(looks, marks)
        lines += [replace(first, name=name if index in named else ""), *others]
    ends = [
        (_ENDINGS[row["status"]], _mark(seen.index[-1], seen.iloc[-1], pick, 8))
        for row in drawn
        if row.get("status") in _ENDINGS and len(seen := values[row["key"]].dropna())
        for pick in [picks.setdefault(_pick([row], varying), len(picks))]
    ]
    numbers = np.concatenate([values[row["key"]] for row in drawn])
    numbers = numbers[np.isfinite(numbers)]
    is_log = log and numbers.size > 0 and numbers.min() > 0
    coloured = f", coloured by {' and '.join(names)}" if names else ""
    caption = f"{metric} of every trial at each report{coloured}."
    if bands:
        caption = (
            f"{metric} at each report{coloured}: a thick line is the median of trials that differ "
            "in their seed alone, its band reaches from their lowest to their highest, both as far "
            "as all of them go. A thin line is a single trial."
        )
    if ends:
        caption += (
            " A ring marks a trial stopped early, a cross one that diverged, failed or was too "
            "large."
        )
    if len(drawn) < len(known):
        caption += f" Shown are {len(drawn)} of {number_text(len(known))} trials, spread evenly."
    return Chart(
        "learning-curves",
        "Learning curves",
        caption,
        Axis(unit, form="whole", from_zero=True),
        Axis(metric, "log" if is_log else "number"),
        (*bands, *lines, *by_look(_ENDING_LOOKS, ends)),
        is_wide=True,
        picks=tuple(picks),
        legend="beside",
    )


def _mark(unit: float, value: float, pick: int, size: float) -> Mark:
    """Return a mark with as many digits as a chart shows."""
    return Mark(unit, float(f"{value:.5g}"), pick=pick, size=size)


def _drawn(known: pd.DataFrame, names: Sequence[str]) -> dict[AxisValue, list[_Row]]:
    """Group trials by the columns ``names`` and return `MAX_LINES` of them at most, as many of each
    group as possible, spread evenly within it."""
    members: dict[AxisValue, list[int]] = {}
    labels = zip(*(known[name].tolist() for name in names), strict=True)
    for position, label in enumerate(labels if names else [()] * len(known)):
        members.setdefault(_group(names, label), []).append(position)
    groups = sorted(members, key=in_order)
    sizes = [len(members[group]) for group in groups]
    turns = sorted((turn, at) for at, size in enumerate(sizes) for turn in range(size))
    quota = Counter(at for _, at in turns[:MAX_LINES])
    chosen: dict[AxisValue, list[_Row]] = {}
    for at, group in enumerate(groups):
        positions = [members[group][k] for k in _evenly(sizes[at], quota[at])]
        chosen[group] = list(known.iloc[positions].to_dict("records"))
    return chosen


def _group(names: Sequence[str], label: tuple[Any, ...]) -> AxisValue:
    """Return the value that names a group: that of a single column (``none`` where it is missing),
    or the values of several columns in words."""
    if len(names) == 1:
        return "none" if label[0] is None or label[0] != label[0] else plain(label[0])
    return describe(dict(zip(names, label, strict=True)))


def _grouping(trials: pd.DataFrame, axes: Sequence[str], prefer: str | None) -> list[str]:
    """Return the columns that colour the lines: the preferred one, else the axes that are constant
    within every stratum, else the first axis that varies."""
    varying = varying_columns(trials, axes)
    if prefer is not None and varying_columns(trials, [prefer]):
        return [prefer]
    if "stratum" in trials.columns and 1 < trials["stratum"].nunique() <= 12:
        within = trials.groupby("stratum")
        made_of = [axis for axis in varying if within[axis].nunique(dropna=False).max() == 1]
        return made_of or varying[:1]
    return varying[:1]


def _evenly(total: int, count: int) -> list[int]:
    places: list[int] = np.linspace(0, total - 1, min(count, total)).round().astype(int).tolist()
    return places


def _curves(
    rows: Sequence[_Row], values: Mapping[Any, "pd.Series[float]"], axes: Sequence[str]
) -> Iterator[_Line]:
    """Yield the curves of a group, with at most `MAX_POINTS` points each.

    Trials that differ in their seed alone share one curve, their median, up to the unit where the
    first of these trials ends: the median of the others would jump there. From that unit on every
    trial has its own curve.
    """
    alike: dict[tuple[object, ...], list[_Row]] = {}
    for row in rows:
        point = (config_key({axis: row[axis] for axis in axes}), row.get("budget"))
        alike.setdefault(point, []).append(row)
    for seeds in alike.values():
        lines = [values[row["key"]] for row in seeds]
        end = -math.inf
        if len(seeds) > 1:
            beside = pd.concat(lines, axis=1, join="inner").dropna()
            if len(beside) > 1:
                end = beside.index[-1]
                thin = beside.iloc[_evenly(len(beside), MAX_POINTS)]
                yield seeds, thin.median(axis=1), thin
        for row, line in zip(seeds, lines, strict=True):
            rest = line[line.index >= end]
            if len(rest) > 1 or end == -math.inf:
                yield [row], rest.iloc[_evenly(len(rest), MAX_POINTS)], None


def _pick(rows: Sequence[_Row], axes: Sequence[str]) -> Pick:
    first = rows[0]
    values = {axis: first[axis] for axis in axes}
    point = describe(values)
    if len(rows) > 1:
        budgets = {"budget": first["budget"]} if "budget" in first else {}
        label = " · ".join(part for part in (point, f"median of {len(rows)} seeds") if part)
        return Pick(label, tuple({**values, **budgets}.items()))
    seed = f"seed {first['seed']}" if "seed" in first else ""
    label = " · ".join(part for part in (point, seed) if part) or str(first["key"])
    return Pick(label, (("key", first["key"]),))
