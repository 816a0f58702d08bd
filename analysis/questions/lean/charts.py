"""The chart of lean equivalents: every candidate's difference to its baseline."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import row_axis
from analysis.charts.chart import Axis, Chart, Mark, Pick, Reference, Series, by_look
from analysis.charts.picks import config_key, short_label, unique_names
from analysis.questions.lean.result import LeanResult, LeanRow, RowOutcome
from analysis.questions.lean.text import OUTCOMES, gain_of, outcome_text
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
from hsweep.design.labels import counted, varying_axes

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


def forest_rows(lean: LeanResult) -> list[LeanRow]:
    """Return the candidates of the forest plot, cheapest first.

    Of more than `MAX_FOREST_ROWS` candidates the accepted ones come first, then those with the
    highest lower bounds; the rest are left out.
    """
    cost = lean.costs[0]
    rows = [row for row in lean.table if math.isfinite(row.diff)]
    if len(rows) > MAX_FOREST_ROWS:
        lows = {row.label: row.ci.low for row in rows if math.isfinite(row.ci.low)}
        rows.sort(key=lambda row: (not row.accepted, -lows.get(row.label, -math.inf)))
        rows = rows[:MAX_FOREST_ROWS]
    return sorted(rows, key=lambda row: (row.costs.get(cost, math.inf), row.label))


def lean_charts(lean: LeanResult) -> list[Chart]:
    """Return the chart of every candidate's difference to the baseline, where there are any."""
    if not (rows := forest_rows(lean)):
        return []
    axes = varying_axes([*(row.config for row in rows), lean.baseline])
    labels = unique_names(
        [f"{short_label(row.config, axes)} ({counted(row.n, 'seed')})" for row in rows]
    )
    factor = 100 if lean.is_share else 1
    limit = -lean.margin * factor
    ends = [limit, 0.0]
    points: list[tuple[RowOutcome, Mark]] = []
    for at, row in enumerate(rows):
        gain = Interval(*(factor * end for end in row.ci))
        mark = Mark(gain.estimate, at, gain, _candidate_text(lean, row), pick=at)
        points.append((row.outcome, mark))
        down, up = mark.reach("x")
        ends += [mark.x - down, mark.x + up]
    room = 0.05 * (max(ends) - min(ends))
    left_out = len(lean.table) - len(rows)
    some = f" {left_out} further candidates are in the table only." if left_out else ""
    size = amount_text(lean.margin, is_share=lean.is_share)
    chart = Chart(
        "candidates",
        "Candidates against the baseline",
        "How much better each cheaper shape is than the baseline, with its "
        f"{percent_text(lean.settings.confidence)} interval, cheapest at the top; the dashed line "
        f"is the margin, {size} worse. Filled blue points are established to lie right of it, "
        "crosses to lie left of it, open circles neither (Holm over "
        f"{lean.num_candidates} candidates).{some}",
        Axis(
            gain_title(lean.metric, "points" if lean.is_share else ""),
            range=(min(ends) - room, max(ends) + room),
        ),
        row_axis(labels),
        (
            Reference("x", limit, is_dashed=True),
            Reference("x", 0.0),
            *by_look(_LOOKS, points),
        ),
        is_wide=True,
        picks=tuple(Pick(row.label, tuple(row.config.items())) for row in rows),
        key=f"dashed: {size} worse",
    )
    return [chart]


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
