"""The chart of lean equivalents: every candidate's difference to its baseline."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from analysis.adaptive.lean import Outcome
from analysis.charts import palette
from analysis.charts.axes import row_axis
from analysis.charts.chart import Axis, Chart, Heading, Mark, Pick, Reference, Series, by_look
from analysis.charts.picks import config_key, short_label, unique_names
from analysis.questions.lean.result import LeanGroups, LeanResult, LeanRow, comparisons
from analysis.questions.pareto.charts import front_charts
from analysis.text.numbers import (
    cost_title,
    interval_text,
    number_text,
    p_text,
    percent_text,
    setting_text,
)
from analysis.values import Config
from hsweep.design.labels import varying_axes

MAX_FOREST_ROWS: Final = 40
_LOOKS: Final[dict[Outcome, Series]] = {
    "established": Series((), palette.BLUE, "established", interval="x"),
    **{
        outcome: Series((), palette.GREY, outcome, is_open=True, interval="x")
        for outcome in ("undecided", "left early", "not raced", "failed")
    },
    "excluded": Series((), palette.GREY, "excluded", symbol="x-thin", interval="x"),
}


def lean_charts(result: LeanResult | LeanGroups) -> list[Chart]:
    """Return a chart of every comparison's front, where there is one, and one of all candidates."""
    compared = comparisons(result)
    charts: list[Chart] = []
    if isinstance(result, LeanGroups):
        for value, front in result.fronts.items():
            drawn = front_charts(front, roles_in(compared))
            charts += [chart.at(result.within, value) for chart in drawn]
    return [*charts, *filter(None, [forest_chart(compared)])]


def roles_in(compared: Sequence[LeanResult]) -> Callable[[Config], str]:
    """Return a function from a shape to its role: ``baseline``, ``chosen`` or empty."""

    def role_of(config: Config) -> str:
        for lean in compared:
            if any(str(config.get(axis)) != value for axis, value in lean.at.items()):
                continue
            if _matches(lean.baseline, config):
                return "baseline"
            if lean.chosen is not None and _matches(lean.chosen.config, config):
                return "chosen"
        return ""

    return role_of


def _matches(shape: Config, config: Config) -> bool:
    return bool(shape) and set(config_key(shape)) <= set(config_key(config))


def forest_rows(lean: LeanResult, most: int = MAX_FOREST_ROWS) -> list[LeanRow]:
    """Return the candidates of the forest plot, cheapest first.

    Of more than ``most`` candidates the accepted ones come first, then those with the highest lower
    bounds; the rest are left out.
    """
    cost = lean.costs[0]
    rows = [row for row in lean.table if math.isfinite(row.diff)]
    if len(rows) > most:
        lows = {row.label: row.ci.low for row in rows if math.isfinite(row.ci.low)}
        rows.sort(key=lambda row: (not row.accepted, -lows.get(row.label, -math.inf)))
        rows = rows[:most]
    return sorted(rows, key=lambda row: (row.costs.get(cost, math.inf), row.label))


def forest_chart(compared: Sequence[LeanResult]) -> Chart | None:
    """Draw every candidate's difference to its baseline and the margin, a block for each group.

    None where no comparison has a candidate.
    """
    names: list[str] = []
    headings: list[Heading] = []
    points: list[tuple[Outcome, Mark]] = []
    picks: list[Pick] = []
    drawn: list[LeanResult] = []
    share = max(3, MAX_FOREST_ROWS // max(1, len(compared)))
    for result in compared:
        rows = forest_rows(result, share)
        if not rows:
            continue
        drawn.append(result)
        axes = varying_axes([*(row.config for row in rows), result.baseline])
        if result.heading:
            headings.append(Heading(len(names), result.heading))
            names.append("")
        labels = unique_names([short_label(row.config, axes) for row in rows])
        for label, row in zip(labels, rows, strict=True):
            hover = _candidate_text(result, row)
            points.append((row.outcome, Mark(row.diff, len(names), row.ci, hover, pick=len(picks))))
            names.append(label)
            picks.append(Pick(row.label, tuple(row.config.items())))
    if not picks:
        return None
    lean = drawn[0]
    ends = [-lean.margin, 0.0]
    for _, point in points:
        down, up = point.reach("x")
        ends += [point.x - down, point.x + up]
    room = 0.05 * (max(ends) - min(ends))
    margin = number_text(-lean.margin)
    left_out = sum(len(result.table) for result in drawn) - len(picks)
    return Chart(
        "candidates",
        "Candidates against the baseline",
        _forest_caption(lean, left_out, in_groups=bool(headings)),
        Axis(
            f"difference in {lean.metric} (right is better)",
            range=(min(ends) - room, max(ends) + room),
        ),
        row_axis(names),
        (
            Reference("x", -lean.margin, is_dashed=True),
            Reference("x", 0.0),
            *headings,
            *by_look(_LOOKS, points),
        ),
        is_wide=True,
        picks=tuple(picks),
        key=f"dashed: margin {margin}",
    )


def _forest_caption(lean: LeanResult, left_out: int, *, in_groups: bool) -> str:
    whose = "the baseline of its group" if in_groups else "the baseline"
    over = "within each group" if in_groups else f"over {lean.num_candidates} candidates"
    some = f" {left_out} further candidates are in the table only." if left_out else ""
    return (
        f"Difference of each cheaper shape to {whose} with its "
        f"{percent_text(lean.settings.confidence)} interval, cheapest at the top; the dashed line "
        f"is the margin of {number_text(-lean.margin)}; filled blue points are established to lie "
        f"right of it, crosses are excluded (shown to lie left of it), and open circles are "
        f"neither (Holm {over}).{some}"
    )


def _candidate_text(lean: LeanResult, row: LeanRow) -> str:
    saved = ", ".join(
        f"{percent_text(round(share, 3))} of {cost_title(cost)}"
        for cost, share in row.saving.items()
        if math.isfinite(share)
    )
    lines = [
        f"{row.label} (chosen)" if row.label == lean.choice else row.label,
        f"difference in {lean.metric} {interval_text(row.ci, lean.settings.confidence)}",
        f"Holm {p_text(row.p_holm)}, {row.n} run{'' if row.n == 1 else 's'}{row.lost.behind}",
        *([f"saves {saved}"] if saved else []),
        row.outcome,
        *([f"best setting: {setting_text(row.setting)}"] if row.setting else []),
    ]
    return "\n".join(lines)
