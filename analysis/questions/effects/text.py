"""What single axes do, in words and tables."""

import math

from analysis.questions.base import Section, tables_with_rows
from analysis.questions.effects.result import AxisEffect, EffectsResult, Interaction
from analysis.statistics.bounds import negated
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    all_at_best,
    ends_text,
    gain_title,
    metric_title,
    number_text,
    p_text,
    percent_text,
)
from analysis.text.tables import Table


def gain_unit(result: EffectsResult) -> str:
    if result.scale == "error":
        return f"decades of {metric_title(result.metric, result.scale)}"
    return {"accuracy": "points", "loss": "nats"}.get(result.scale or "", result.metric)


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
        parts += [_axis_sentence(axis, result) for axis in result.axes if axis.axis not in answered]
        parts += [
            interaction_sentence(interaction, result) for interaction in result.interactions[:1]
        ]
    if answered:
        parts.append(
            f"The question asks about {' and '.join(answered)}: its answer says what they do, and"
            " here are means alone."
        )
    if result.nuisance:
        parts.append(all_at_best(result.nuisance))
    return tuple(parts)


def _axis_sentence(axis: AxisEffect, result: EffectsResult) -> str:
    where = f"{axis.axis} ({', '.join(map(number_text, axis.values))})"
    lost, reasons = sum(axis.lost.values()), _reasons(axis.lost)
    if axis.verdict == "untested":
        why = "no two shapes differ in it alone"
        if axis.pairs:
            why = "no spread between seeds, so their noise is not measured"
        elif lost:
            why = f"all {lost} matched pairs are lost ({reasons})"
        return f"{where} is not tested: {why}."
    pairs = f"{axis.pairs} matched pair{'' if axis.pairs == 1 else 's'}, {axis.improved} improved"
    pairs += f", {lost} lost ({reasons})" if lost else ""
    details = f"Holm {p_text(axis.p_holm)}; {pairs}"
    size = negated(axis.effect) if axis.verdict == "hurts" else axis.effect
    amount, ends = number_text(size.estimate), ends_text(size, result.settings.confidence)
    unit = gain_unit(result)
    if axis.verdict == "unclear":
        return (
            f"No effect of {where} is established: {amount} {unit} a step, positive being better"
            f" ({ends}; {details})."
        )
    better = "better" if axis.verdict == "helps" else "worse"
    return (
        f"One step up in {where} makes {result.metric} {better} by {amount} {unit} ({ends};"
        f" {details})."
    )


def interaction_sentence(interaction: Interaction, result: EffectsResult) -> str:
    both = f"{interaction.first} and {interaction.second}"
    if interaction.verdict == "untested":
        return f"Whether {both} change each other's effect could not be tested."
    size = negated(interaction.effect) if interaction.verdict == "hurts" else interaction.effect
    details = f"{ends_text(size, result.settings.confidence)}; {p_text(interaction.p_holm)}"
    amount = f"{number_text(size.estimate)} {gain_unit(result)}"
    if interaction.verdict == "unclear":
        return (
            f"That {both} change each other's effect is not established (difference of differences"
            f" {amount}, {details})."
        )
    more = "more" if interaction.verdict == "helps" else "less"
    return (
        f"A step up in {interaction.first} gains {amount} {more} where {interaction.second} stands"
        f" one step higher, and the other way round ({details})."
    )


def _reasons(lost: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in lost.items())


def effects_tables(result: EffectsResult) -> tuple[Section, ...]:
    return tables_with_rows(
        Section("Effects of single axes", effects_table(result)),
        Section("Axes together", _interaction_table(result)),
    )


def effects_table(result: EffectsResult) -> Table:
    interval = f"{percent_text(result.settings.confidence)} interval"
    header = (
        *("axis", "step", gain_title(result.metric, gain_unit(result)), interval, "p", "Holm p"),
        *("pairs", "improved", "lost"),
    )
    rows: list[tuple[str, ...]] = []
    for axis in result.axes:
        counts = (str(axis.pairs), str(axis.improved), _reasons(axis.lost) or "0")
        numbers = _numbers(axis.effect, axis.p, axis.p_holm)
        rows.append((axis.axis, "mean of all", *numbers, *counts))
        for step in axis.steps:
            name = f"{number_text(step.low)} to {number_text(step.high)}"
            improved = sum(pair.gain > 0 for pair in step.pairs)
            numbers = _numbers(step.effect, step.p, step.p_holm)
            rows.append((axis.axis, name, *numbers, str(len(step.pairs)), str(improved), ""))
    note = "Pairs differ in one axis alone, neighbours on its grid"
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


def _interaction_table(result: EffectsResult) -> Table:
    rows = tuple(
        (
            f"{interaction.first} and {interaction.second}",
            *_numbers(interaction.effect, interaction.p, interaction.p_holm),
            str(interaction.squares),
            _reasons(interaction.lost) or "0",
        )
        for interaction in result.interactions
    )
    interval = f"{percent_text(result.settings.confidence)} interval"
    header = ("axes", f"difference of differences ({gain_unit(result)})", interval, "p", "Holm p")
    note = (
        "Above 0 a step of one axis gains more where the other stands one step higher; 0 is two"
        " axes whose gains add up."
    )
    return Table((*header, "squares", "lost"), rows, note)
