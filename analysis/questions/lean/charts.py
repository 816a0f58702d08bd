"""The chart of lean equivalents: every candidate's difference to its baseline."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import row_axis
from analysis.charts.chart import Axis, Chart, Heading, Mark, Pick, Reference, Series, by_look
from analysis.charts.picks import config_key, short_label, unique_names
from analysis.questions.lean.result import LeanGroups, LeanResult, LeanRow, RowOutcome, comparisons
from analysis.questions.lean.text import OUTCOMES, gain_of, outcome_text
from analysis.questions.pareto.charts import front_charts
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    amount_text,
    cost_title,
    gain_title,
    p_text,
    percent_text,
    setting_text,
)
from analysis.values import Config
from hsweep.design.labels import varying_axes
from hsweep.record.summary import counted

MAX_FOREST_ROWS: Final = 40
_LOOKS: Final[dict[RowOutcome, Series]] = {
    "established": Series((), palette.BLUE, "established", interval="x"),
    **{
        outcome: Series((), palette.GREY, OUTCOMES[outcome], is_open=True, interval="x")
        for outcome in OUTCOMES
        if outcome not in ("established", "excluded")
    },
    "excluded": Series((), palette.GREY, "worse by more", symbol="x-thin", interval="x"),
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
    points: list[tuple[RowOutcome, Mark]] = []
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
        labels = unique_names(
            [f"{short_label(row.config, axes)} ({counted(row.n, 'seed')})" for row in rows]
        )
        factor = 100 if result.is_share else 1
        for label, row in zip(labels, rows, strict=True):
            hover = _candidate_text(result, row)
            gain = Interval(*(factor * end for end in row.ci))
            mark = Mark(gain.estimate, len(names), gain, hover, pick=len(picks))
            points.append((row.outcome, mark))
            names.append(label)
            picks.append(Pick(row.label, tuple(row.config.items())))
    if not picks:
        return None
    lean = drawn[0]
    limit = -lean.margin * (100 if lean.is_share else 1)
    ends = [limit, 0.0]
    for _, point in points:
        down, up = point.reach("x")
        ends += [point.x - down, point.x + up]
    room = 0.05 * (max(ends) - min(ends))
    left_out = sum(len(result.table) for result in drawn) - len(picks)
    return Chart(
        "candidates",
        "Candidates against the baseline",
        _forest_caption(lean, left_out, in_groups=bool(headings)),
        Axis(
            gain_title(lean.metric, "points" if lean.is_share else ""),
            range=(min(ends) - room, max(ends) + room),
        ),
        row_axis(names),
        (
            Reference("x", limit, is_dashed=True),
            Reference("x", 0.0),
            *headings,
            *by_look(_LOOKS, points),
        ),
        is_wide=True,
        picks=tuple(picks),
        key=f"dashed: {amount_text(lean.margin, is_share=lean.is_share)} worse",
    )


def _forest_caption(lean: LeanResult, left_out: int, *, in_groups: bool) -> str:
    whose = "the baseline of its group" if in_groups else "the baseline"
    over = "within each group" if in_groups else f"over {lean.num_candidates} candidates"
    some = f" {left_out} further candidates are in the table only." if left_out else ""
    size = amount_text(lean.margin, is_share=lean.is_share)
    return (
        f"How much better each cheaper shape is than {whose}, with its "
        f"{percent_text(lean.settings.confidence)} interval, cheapest at the top; the dashed line "
        f"is the margin, {size} worse. Filled blue points are established to lie right of it, "
        f"crosses to lie left of it, open circles neither (Holm {over}).{some}"
    )


def _candidate_text(lean: LeanResult, row: LeanRow) -> str:
    saved = ", ".join(
        f"{percent_text(round(share, 3))} of {cost_title(cost)}"
        for cost, share in row.saving.items()
        if math.isfinite(share)
    )
    lines = [
        f"{row.label} (chosen)" if row.label == lean.choice else row.label,
        f"{lean.metric} {gain_of(lean, row)}",
        f"Holm {p_text(row.p_holm)}, {counted(row.n, 'seed')}{row.lost.behind}",
        *([f"saves {saved}"] if saved else []),
        f"at most {amount_text(lean.margin, is_share=lean.is_share)} worse? "
        f"{outcome_text(lean, row)}",
        *([f"best setting: {setting_text(row.setting)}"] if row.setting else []),
    ]
    return "\n".join(lines)
