"""The charts of a front: metric against each cost."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import cost_axis
from analysis.charts.chart import Axis, Chart, Mark, Pick, Series, Stroke, Symbol, by_look
from analysis.questions.pareto.result import FrontClass, ParetoResult, ParetoRow
from analysis.questions.pareto.text import CLASS_NAMES
from analysis.text.numbers import (
    cost_text,
    cost_title,
    interval_text,
    number_text,
    percent_text,
    setting_text,
)
from analysis.values import Config
from hsweep.design.scales import Goal

_MANY: Final = 60
_SHADES: Final[dict[FrontClass, tuple[palette.Shade, Symbol]]] = {
    "on": (palette.BLUE, "circle"),
    "undecided": (palette.ORANGE, "diamond"),
    "off": (palette.GREY, "square"),
    "untested_on": (palette.BLUE, "circle"),
    "untested_off": (palette.GREY, "square"),
}
_LOOKS: Final = {
    **{
        CLASS_NAMES[name]: Series(
            (), shade, CLASS_NAMES[name], "", symbol, name.startswith("untested"), is_thin=True
        )
        for name, (shade, symbol) in _SHADES.items()
    },
    "baseline": Series((), palette.INK, "baseline", is_open=True),
    "chosen": Series((), palette.INK, "chosen", symbol="star", is_open=True),
    "runs lost": Series((), palette.INK, "runs lost", symbol="x-thin"),
}


def front_charts(
    pareto: ParetoResult,
    role_of: Callable[[Config], str] = lambda _: "",
    by: str = "",
    looks: Mapping[str, Series] = _LOOKS,
) -> list[Chart]:
    """Return a front's charts, leaving out costs that no shape has.

    Args:
        role_of: whether a shape is the ``baseline`` or the ``chosen`` one; empty for neither.
        by: the axis whose values are told apart instead of the shapes' classes; empty for none.
        looks: of the classes and roles, or of these values.
    """
    charts = []
    for cost in pareto.costs:
        rows = [row for row in pareto.table if math.isfinite(row.costs.get(cost, math.nan))]
        if rows:
            rows.sort(key=lambda row: row.costs[cost])
            charts.append(_front_chart(pareto, cost, rows, role_of, by, looks))
    return charts


def _front_chart(
    pareto: ParetoResult,
    cost: str,
    rows: list[ParetoRow],
    role_of: Callable[[Config], str],
    by: str,
    looks: Mapping[str, Series],
) -> Chart:
    costs = [row.costs[cost] for row in rows]
    places = side_by_side(costs)
    size = 11 if len(rows) <= _MANY else 7
    points: list[tuple[str, Mark]] = []
    for at, (row, place) in enumerate(zip(rows, places, strict=True)):
        role, middle = role_of(row.config), row.ci.estimate
        # The fainter the less likely it is on the front.
        opacity = 0.7 if math.isnan(row.p_front) else 0.25 + 0.75 * row.p_front
        hover = _hover(row, role, pareto.metric)
        point = Mark(place, middle, row.ci, hover, None if by else at, size, opacity)
        points.append((str(row.config[by]) if by else CLASS_NAMES[row.class_], point))
        if role:
            points.append((role, Mark(place, middle, size=20)))
        if row.lost.total and not by:
            points.append(("runs lost", Mark(place, middle, size=11)))
    steps: list[Series] = []
    values = dict.fromkeys(row.config.get(by) for row in rows)
    for value in values if len(pareto.costs) == 1 else ():
        pairs = [(row.costs[cost], row.mean) for row in rows if row.config.get(by) == value]
        corners = tuple(Mark(x, y) for x, y in mean_front(pairs, pareto.goal))
        line = Stroke(1.4, is_step=True, opacity=0.6)
        if by:
            shade, name = looks[str(value)].shade, str(value)
            steps.append(Series(corners, shade, group=name, symbol=None, line=line))
        else:
            steps.append(Series(corners, palette.BLUE, "mean front", symbol=None, line=line))
    better = f"left and {'lower' if pareto.goal == 'min' else 'higher'} is better"
    if pareto.noise_gap:
        caption = (
            f"Each point is one shape as measured; {better}, and the front is shown, not tested: "
            f"{pareto.noise_gap}"
        )
    else:
        caption = (
            f"Each point is one shape with its {percent_text(pareto.settings.confidence)} interval "
            f"over seeds; {better}, and the fainter a point the smaller P(front), the chance that "
            "nothing beats it"
        )
    if len(pareto.costs) > 1:
        caption += ", all costs taken together"
    if places != costs:
        caption += "; shapes of equal cost stand side by side"
    if by:
        caption += f"; one colour a {by}{', whose means the steps join' if steps else ''}"
    elif any(row.lost.total for row in rows):
        caption += "; a cross marks a shape that lost runs: its mean is that of those left"
    return Chart(
        "front-" + re.sub(r"[^\w-]", "-", cost),
        f"{pareto.metric} against {cost_title(cost)}",
        f"{caption}.{'' if by else ' Click a point for its runs.'}",
        cost_axis(cost, places),
        Axis(pareto.metric),
        (*steps, *by_look(looks, points)),
        is_wide=True,
        picks=() if by else tuple(Pick(row.label, tuple(row.config.items())) for row in rows),
        legend="beside",
    )


def _hover(row: ParetoRow, role: str, metric: str) -> str:
    lines = [
        f"{row.label} ({role})" if role else row.label,
        f"{metric} {interval_text(row.ci)}",
        f"P(front) {number_text(row.p_front, 2)}, {CLASS_NAMES[row.class_]}",
    ]
    # Runs without a number are named with those that are left.
    if row.crash_share > 0 and not row.lost.total:
        lines.append(f"{percent_text(row.crash_share)} of runs crashed")
    lines += [f"{cost_title(name)}: {cost_text(name, row.costs[name])}" for name in row.costs]
    if row.setting:
        lines.append(f"best setting: {setting_text(row.setting)}")
    lines.append(f"{row.n} full-budget run{'' if row.n == 1 else 's'}{row.lost.behind}")
    return "\n".join(lines)


def mean_front(pairs: Sequence[tuple[float, float]], goal: Goal) -> list[tuple[float, float]]:
    """Return the corners of the front of means, cheapest first, of (cost, mean) of each shape."""
    corners: list[tuple[float, float]] = []
    best = math.inf
    sign = 1.0 if goal == "min" else -1.0
    for cost, mean in sorted(pairs, key=lambda pair: (pair[0], sign * pair[1])):
        if sign * mean < best:
            best = sign * mean
            corners.append((cost, mean))
    return corners


def side_by_side(costs: Sequence[float]) -> list[float]:
    """Return where each point is drawn: at its cost, those of equal cost beside one another.

    The whole group takes at most 5 % of the chart, so that it still reads as one cost.
    """
    places = list(costs)
    if not costs or min(costs) <= 0:
        return places
    span = math.log10(max(costs) / min(costs)) or 1.0
    ties: dict[str, list[int]] = defaultdict(list)
    for index, cost in enumerate(costs):
        ties[f"{cost:.9g}"].append(index)
    for members in ties.values():
        step = min(0.02, 0.05 / len(members)) * span
        for rank, index in enumerate(members):
            places[index] = costs[index] * 10 ** (step * (rank - (len(members) - 1) / 2))
    return places
