"""The chart of effects: gains by axis and step."""

from typing import Final

from analysis.charts import palette
from analysis.charts.axes import row_axis
from analysis.charts.chart import Axis, Chart, Mark, Reference, Series, by_look
from analysis.questions.effects.result import Effect, EffectsResult
from analysis.questions.effects.text import effect_name, gain_unit
from analysis.text.numbers import interval_text, p_text, percent_text

MAX_ROWS: Final = 40
_LOOKS: Final = {
    True: Series((), palette.BLUE, "established", interval="x"),
    False: Series((), palette.GREY, "not established", is_open=True, interval="x"),
}


def effect_charts(result: EffectsResult) -> list[Chart]:
    rows = effect_rows(result)
    return [_gain_chart(result, rows)] if rows else []


def effect_rows(result: EffectsResult) -> list[tuple[Effect, bool]]:
    """Return the axes and their steps (True); beyond `MAX_ROWS` the axes alone."""
    rows = [row for row in result.by_axis() if row[0].units]
    return rows if len(rows) <= MAX_ROWS else [row for row in rows if not row[1]][:MAX_ROWS]


def _gain_chart(result: EffectsResult, rows: list[tuple[Effect, bool]]) -> Chart:
    points: list[tuple[bool, Mark]] = []
    for at, (effect, is_step) in enumerate(rows):
        gain = interval_text(effect.gain, result.settings.confidence)
        name = f"{effect.axes[0]} {effect_name(effect, is_step=is_step)}"
        text = f"{name}\n{gain}\nHolm {p_text(effect.p_holm)}"
        mark = Mark(effect.gain.estimate, at, effect.gain, hover=text, size=8 if is_step else 11)
        points.append((effect.verdict in ("helps", "hurts"), mark))
    labels = [
        effect_name(effect, is_step=is_step) if is_step else f"{effect.axes[0]}, mean"
        for effect, is_step in rows
    ]
    unit = gain_unit(result)
    return Chart(
        "effects",
        f"What each axis does to {result.metric}",
        f"The gain of one step, in {unit}, with every other axis held: the mean over pairs of "
        "shapes that differ in that step alone with its "
        f"{percent_text(result.settings.confidence)} interval over seeds; filled blue is told "
        "from 0 (Holm), and the large circles average an axis' steps.",
        Axis("gain (right is better)"),
        row_axis(labels, bold=(at for at, (_, is_step) in enumerate(rows) if not is_step)),
        (Reference("x", 0.0), *by_look(_LOOKS, points)),
        is_wide=True,
        key=f"gain in {unit}",
    )
