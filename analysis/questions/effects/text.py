"""What single axes do, in words and tables."""

import math

from analysis.questions.effects.result import (
    AxisEffect,
    EffectsResult,
    EqualCostGroup,
    Interaction,
)
from analysis.statistics.bounds import negated
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    all_at_best,
    cost_text,
    cost_title,
    ends_text,
    metric_title,
    number_text,
    p_text,
    percent_text,
)
from analysis.text.tables import Table
from hsweep.design.question import Scale

_MOST_NAMED = 3


def gain_unit(metric: str, scale: Scale | None) -> str:
    if scale == "error":
        return f"decades of {metric_title(metric, scale)}"
    if scale == "accuracy":
        return "points"
    return "nats" if scale == "loss" else metric


def effects_sentences(result: EffectsResult) -> tuple[str, ...]:
    """Return what each axis does, what the first two do together, and what qualifies it."""
    answered = [axis.axis for axis in result.axes if axis.verdict == "answered"]
    parts = []
    if result.noise_gap:
        parts.append(
            f"No effect is tested: {result.noise_gap}, so the noise between seeds is not measured; "
            "the tables show means alone."
        )
    else:
        parts += [axis_sentence(axis, result) for axis in result.axes if axis.axis not in answered]
        parts += [interaction_sentence(found, result) for found in result.interactions[:1]]
        if result.equal_cost:
            parts.append(equal_cost_sentence(result))
    if answered:
        parts.append(
            f"The question asks about {' and '.join(answered)}: its answer says what they do, and"
            " here are means alone."
        )
    if result.nuisance:
        parts.append(all_at_best(result.nuisance))
    return tuple(parts)


def axis_sentence(axis: AxisEffect, result: EffectsResult) -> str:
    listed = ", ".join(number_text(value) for value in axis.values)
    where = f"{axis.axis} ({listed})"
    if axis.verdict == "untested":
        lost = sum(axis.lost.values())
        why = (
            "no spread between seeds, so their noise is not measured"
            if axis.pairs
            else f"all {lost} matched pairs are lost ({_reasons(axis.lost)})"
            if lost
            else "no two shapes differ in it alone"
        )
        return f"{where} is not tested: {why}."
    pairs = f"{axis.pairs} matched pair{'' if axis.pairs == 1 else 's'}, {axis.improved} improved"
    if axis.lost:
        pairs += f", {sum(axis.lost.values())} lost ({_reasons(axis.lost)})"
    unit = gain_unit(result.metric, result.scale)
    details = f"Holm {p_text(axis.p_holm)}; {pairs}"
    interval = ends_text(axis.effect, result.settings.confidence)
    if axis.verdict == "unclear":
        return (
            f"No effect of {where} is established: {number_text(axis.effect.estimate)} {unit} a"
            f" step, positive being better ({interval}; {details})."
        )
    better = axis.verdict == "helps"
    size = axis.effect if better else negated(axis.effect)
    return (
        f"One step up in {where} makes {result.metric} {'better' if better else 'worse'} by"
        f" {number_text(size.estimate)} {unit} ({ends_text(size, result.settings.confidence)};"
        f" {details})."
    )


def interaction_sentence(found: Interaction, result: EffectsResult) -> str:
    both = f"{found.first} and {found.second}"
    if found.verdict == "untested":
        return f"Whether {both} change each other's effect could not be tested."
    details = f"{ends_text(found.effect, result.settings.confidence)}; {p_text(found.p_holm)}"
    unit = gain_unit(result.metric, result.scale)
    if found.verdict == "unclear":
        return (
            f"That {both} change each other's effect is not established (difference of differences"
            f" {number_text(found.effect.estimate)} {unit}, {details})."
        )
    more = found.verdict == "helps"
    size = found.effect if more else negated(found.effect)
    details = f"{ends_text(size, result.settings.confidence)}; {p_text(found.p_holm)}"
    return (
        f"A step up in {found.first} gains {number_text(size.estimate)} {unit}"
        f" {'more' if more else 'less'} where {found.second} stands one step higher, and the other"
        f" way round ({details})."
    )


def equal_cost_sentence(result: EffectsResult) -> str:
    cost = cost_title(result.cost or "cost")
    tolerance = percent_text(result.settings.tolerance)
    count = len(result.equal_cost)
    groups = (
        f"{count} group{'' if count == 1 else 's'} of shapes of equal {cost} (within {tolerance})"
    )
    decided = [group for group in result.equal_cost if len(group.unbeaten) < len(group.shapes)]
    if not decided:
        return f"In {groups} no shape is established as better than another."
    named = "; ".join(_group_text(group, result) for group in decided[:_MOST_NAMED])
    rest = f"; {len(decided) - _MOST_NAMED} more" if len(decided) > _MOST_NAMED else ""
    return f"Of {groups}, {len(decided)} hold an established difference: {named}{rest}."


def _group_text(group: EqualCostGroup, result: EffectsResult) -> str:
    beaten = [shape for shape in group.shapes if shape.established]
    worst = beaten[-1]
    assert worst.behind is not None
    return (
        f"{group.best} is better than {worst.label} by {number_text(worst.behind.estimate)}"
        f" {gain_unit(result.metric, result.scale)} (Holm {p_text(worst.p_holm)})"
    )


def _reasons(lost: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in lost.items())


def effects_table(result: EffectsResult) -> Table:
    header = (
        "axis",
        "step",
        f"gain ({gain_unit(result.metric, result.scale)})",
        f"{percent_text(result.settings.confidence)} interval",
        "p",
        "Holm p",
        "pairs",
        "improved",
        "lost",
    )
    rows: list[tuple[str, ...]] = []
    for axis in result.axes:
        numbers = _numbers(axis.effect, axis.p, axis.p_holm)
        counts = (str(axis.pairs), str(axis.improved), _reasons(axis.lost) or "0")
        rows.append((axis.axis, "mean of all", *numbers, *counts))
        for step in axis.steps:
            name = f"{number_text(step.low)} to {number_text(step.high)}"
            improved = sum(pair.gain > 0 for pair in step.pairs)
            numbers = _numbers(step.effect, step.p, step.p_holm)
            rows.append((axis.axis, name, *numbers, str(len(step.pairs)), str(improved), ""))
    note = "A gain above 0 is better. Pairs differ in one axis alone, neighbours on its grid"
    if any(axis.verdict != "answered" for axis in result.axes):
        note += f"; the test is a {result.test}. Holm runs over the axes, and over all steps apart"
    return Table(header, tuple(rows), f"{note}.")


def _numbers(interval: Interval, *p_values: float | None) -> tuple[str, ...]:
    ends = f"{number_text(interval.low)} to {number_text(interval.high)}"
    return (
        number_text(interval.estimate),
        NONE if math.isnan(interval.low) else ends,
        *(number_text(p, 2) for p in p_values),
    )


def interaction_table(result: EffectsResult) -> Table:
    rows = tuple(
        (
            f"{found.first} and {found.second}",
            *_numbers(found.effect, found.p, found.p_holm),
            str(sum(square.count for square in found.squares)),
            _reasons(found.lost) or "0",
        )
        for found in result.interactions
    )
    header = (
        "axes",
        f"difference of differences ({gain_unit(result.metric, result.scale)})",
        f"{percent_text(result.settings.confidence)} interval",
        "p",
        "Holm p",
        "squares",
        "lost",
    )
    return Table(
        header,
        rows,
        "Above 0 a step of one axis gains more where the other stands one step higher; 0 is two"
        " axes whose gains add up.",
    )


def equal_cost_table(result: EffectsResult) -> Table:
    cost = result.cost or "cost"
    rows = [
        (
            str(at + 1),
            shape.label,
            cost_text(cost, shape.cost),
            number_text(shape.metric, 4),
            str(shape.n),
            *(
                ("best", NONE, NONE)
                if shape.behind is None
                else _numbers(shape.behind, shape.p_holm)
            ),
            "worse" if shape.established else "not told apart" if shape.behind else "",
        )
        for at, group in enumerate(result.equal_cost)
        for shape in group.shapes
    ]
    header = (
        "group",
        "shape",
        cost_title(cost),
        result.metric,
        "runs",
        f"behind the best ({gain_unit(result.metric, result.scale)})",
        "interval, for all pairs together",
        "Holm p",
        "established",
    )
    note = (
        f"Shapes whose {cost_title(cost)} lie within {percent_text(result.settings.tolerance)}."
        f" Holm runs over all {result.equal_cost_pairs} pairs, so picking the best afterwards is"
        " paid for."
    )
    return Table(header, tuple(rows), note)
