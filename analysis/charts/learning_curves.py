"""The chart of learning curves: which trials, in which groups, at which points."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from analysis.charts import palette
from analysis.charts.chart import Axis, Chart, Layer, Line, Pick, Point, Ribbon, Series, by_look
from analysis.charts.picks import config_key, value_text
from analysis.text.numbers import number_text
from analysis.text.tables import varying_columns

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
    """A metric over the budget: units done and the metric there, NaN where a report lacks it.

    Attributes:
        band: the lowest and the highest of the seeds at each point, which is their median; empty
            for a single trial.
    """

    group: object
    pick: Pick
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """Where a trial ended early, and how (a key of `_ENDING_LOOKS`)."""

    how: str
    pick: Pick
    unit: float
    value: float


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """The curves that are drawn and how many trials there are in all.

    Attributes:
        grouped_by: names of the columns that colour the lines; None when nothing tells them apart.
        ends: of the drawn trials, those that ended early.
        drawn: trials that the curves are of.
        total: trials with at least one report.
        is_log: whether all drawn values allow a logarithmic axis.
    """

    grouped_by: str | None
    groups: tuple[object, ...]
    curves: tuple[Curve, ...]
    ends: tuple[End, ...]
    drawn: int
    total: int
    is_log: bool

    @property
    def are_points(self) -> bool:
        """Whether each trial has reported once, so that there is no curve."""
        return all(len(curve.points) == 1 for curve in self.curves)


def why_no_curves(curves: LearningCurves, metric: str) -> str:
    """Return why there is no chart of learning curves."""
    if not curves.curves:
        return f"No trial has reported {metric} yet."
    return (
        f"Each of the {number_text(curves.total)} trials has reported {metric} once, at its end, "
        "so there is no curve to draw."
    )


def curve_chart(curves: LearningCurves, metric: str, unit: str) -> Chart | None:
    """Draw the learning curves, or nothing where no trial has reported more than once.

    One series holds a group's curves, so that many trials stay light.
    """
    if curves.are_points:
        return None
    shades = palette.shades_for(curves.groups)
    shown_names = palette.named_groups(len(curves.groups)) if curves.grouped_by else set()
    own_picks = (*(each.pick for each in curves.curves), *(each.pick for each in curves.ends))
    picks = list(dict.fromkeys(own_picks))
    number_of = {pick: at for at, pick in enumerate(picks)}
    bands: list[Layer] = []
    lines: list[Layer] = []
    for index, (group, shade) in enumerate(zip(curves.groups, shades, strict=True)):
        own = [curve for curve in curves.curves if curve.group == group]
        name = _group_name(curves.grouped_by, group)
        shown = name if index in shown_names else ""
        hover = f"{{pick}}\n{metric} {{y}} at {unit} {{x}}"
        looks = {
            "median": Series((), shade, shown, name, symbol=None, line=Line(2.2), hover=hover),
            "single": Series(
                *((), shade, shown, name), symbol=None, line=Line(1.2, opacity=0.6), hover=hover
            ),
            # A single report is no line.
            "dot": Series((), shade, shown, name, hover=hover),
        }
        drawn = by_look(
            looks,
            (
                (_look(curve), _point(*point, number_of[curve.pick], 6))
                for curve in own
                for point in (*curve.points, (math.nan, math.nan))
            ),
        )
        lines += [replace(series, name=shown if not at else "") for at, series in enumerate(drawn)]
        bands += [
            Ribbon(
                tuple(unit for unit, _ in curve.points),
                tuple(low for low, _ in curve.band),
                tuple(high for _, high in curve.band),
                shade,
                name,
            )
            for curve in own
            if curve.band
        ]
    ends = ((end.how, _point(end.unit, end.value, number_of[end.pick], 8)) for end in curves.ends)
    return Chart(
        "learning-curves",
        "Learning curves",
        _caption(curves, metric, has_bands=bool(bands)),
        Axis(unit, form="whole", from_zero=True),
        Axis(metric, "log" if curves.is_log else "number"),
        (*bands, *lines, *by_look(_ENDING_LOOKS, ends)),
        is_wide=True,
        picks=tuple(picks),
        legend="beside",
    )


def _look(curve: Curve) -> str:
    if curve.band:
        return "median"
    return "dot" if len(curve.points) == 1 else "single"


def _caption(curves: LearningCurves, metric: str, *, has_bands: bool) -> str:
    coloured = f", coloured by {curves.grouped_by}" if curves.grouped_by else ""
    if has_bands:
        text = (
            f"{metric} at each report{coloured}: a thick line is the median of trials that differ "
            "in their seed alone, its band reaches from their lowest to their highest, both as far "
            "as all of them go. A thin line is a single trial."
        )
    else:
        text = f"{metric} of every trial at each report{coloured}."
    if curves.ends:
        text += (
            " A ring marks a trial stopped early, a cross one that diverged, failed or was too "
            "large."
        )
    if curves.drawn < curves.total:
        text += f" Shown are {curves.drawn} of {number_text(curves.total)} trials, spread evenly."
    return text


def _point(unit: float, value: float, pick: int, size: float) -> Point:
    """Return a point with as many digits as a chart shows."""
    return Point(unit, float(f"{value:.5g}"), pick=pick, size=size)


def _group_name(column: str | None, group: object) -> str:
    if column is None or " and " in column:
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
        return LearningCurves(None, (), (), (), 0, 0, False)
    known, grouped_by, groups, chosen = _choice(
        trials, reports["key"].unique() if reported is None else reported, axes, prefer
    )
    drawn = known.iloc[[position for positions in chosen for position in positions]]
    rows = [{str(name): value for name, value in row.items()} for row in drawn.to_dict("records")]
    varying = varying_columns(trials, axes)
    # Only the drawn trials' reports are looked at one by one: a study can have half a million.
    few = reports.loc[reports["key"].isin(drawn["key"]), ["key", "unit", metric]]
    few = few.assign(**{metric: pd.to_numeric(few[metric], errors="coerce")}).sort_values("unit")
    values_of = {
        str(key): pd.Series(frame[metric].to_numpy(float), frame["unit"].to_numpy(float))
        for key, frame in few.groupby("key", sort=False)
    }
    group_of = {
        str(key): group
        for group, positions in zip(groups, chosen, strict=True)
        for key in known["key"].iloc[positions]
    }
    alike: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in rows:
        point = (config_key({axis: row[axis] for axis in varying}), row.get("budget"))
        alike.setdefault(point, []).append(row)
    curves = tuple(
        curve
        for seeds in alike.values()
        for curve in _curves(
            group_of[str(seeds[0]["key"])],
            seeds,
            [values_of[str(row["key"])] for row in seeds],
            varying,
        )
    )
    ends = tuple(
        End(_ENDINGS[str(row["status"])], _pick([row], varying), seen.index[-1], seen.iloc[-1])
        for row in rows
        if row.get("status") in _ENDINGS and len(seen := values_of[str(row["key"])].dropna())
    )
    seen_values = (values_of[str(row["key"])].dropna() for row in rows)
    values = [value for seen in seen_values for value in seen[np.isfinite(seen)]]
    is_log = log and bool(values) and min(values) > 0
    return LearningCurves(grouped_by, groups, curves, ends, len(rows), len(known), is_log)


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
    names = _grouping(trials, axes, prefer)
    known = trials[trials["key"].isin(list(reported))]
    members: dict[object, list[int]] = {}
    labels = zip(*(known[name].tolist() for name in names), strict=True)
    for position, label in enumerate(labels if names else [()] * len(known)):
        members.setdefault(_group(names, label), []).append(position)
    groups = tuple(sorted(members, key=_sort_key))
    chosen = _spread([members[group] for group in groups], MAX_LINES)
    return known, " and ".join(names) or None, groups, chosen


def _group(names: Sequence[str], label: tuple[object, ...]) -> object:
    """Return the value that names a group, all missing ones being one; of several columns in
    words."""
    if len(names) == 1:
        return "none" if label[0] is None or label[0] != label[0] else label[0]
    return ", ".join(
        f"{name}={value_text(value)}" for name, value in zip(names, label, strict=True)
    )


def _grouping(trials: pd.DataFrame, axes: Sequence[str], prefer: str | None) -> list[str]:
    """Return the columns that colour the lines: the preferred one, else those that make up the
    strata, else the first that varies."""
    varying = varying_columns(trials, axes)
    if prefer is not None and varying_columns(trials, [prefer]):
        return [prefer]
    if "stratum" in trials.columns and 1 < trials["stratum"].nunique() <= 12:
        within = trials.groupby("stratum")
        made_of = [axis for axis in varying if within[axis].nunique(dropna=False).max() == 1]
        return made_of or varying[:1]
    return varying[:1]


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


def _curves(
    group: object,
    rows: list[dict[str, object]],
    values: list["pd.Series[float]"],
    axes: Sequence[str],
) -> Iterator[Curve]:
    """Yield the curves of trials that differ in their seed alone: the median as far as all of them
    go, since that of those left would jump where one ends, and from there each by itself."""
    beside = pd.concat(values, axis=1, join="inner").dropna() if len(rows) > 1 else pd.DataFrame()
    end = -math.inf
    if len(beside) > 1:
        end = float(beside.index[-1])
        thin = beside.iloc[_evenly(len(beside), MAX_POINTS)]
        yield Curve(
            group,
            _pick(rows, axes),
            _points(thin.median(axis=1)),
            tuple(zip(thin.min(axis=1), thin.max(axis=1), strict=True)),
        )
    for row, seen in zip(rows, values, strict=True):
        rest = seen[seen.index >= end]
        if len(rest) > 1 or end == -math.inf:
            thin_rest = rest.iloc[_evenly(len(rest), MAX_POINTS)]
            yield Curve(group, _pick([row], axes), _points(thin_rest))


def _points(values: "pd.Series[float]") -> tuple[tuple[float, float], ...]:
    return tuple(zip(values.index.astype(float), values.astype(float), strict=True))


def _pick(rows: Sequence[Mapping[str, object]], axes: Sequence[str]) -> Pick:
    first = rows[0]
    values = {axis: first[axis] for axis in axes}
    point = ", ".join(f"{axis}={value_text(value)}" for axis, value in values.items())
    if len(rows) > 1:
        budgets = {"budget": first["budget"]} if "budget" in first else {}
        label = " · ".join(part for part in (point, f"median of {len(rows)} seeds") if part)
        return Pick(label, tuple({**values, **budgets}.items()))
    seed = f"seed {first['seed']}" if "seed" in first else ""
    label = " · ".join(part for part in (point, seed) if part) or str(first["key"])
    return Pick(label, (("key", first["key"]),))
