"""What single axes do, in words and tables."""

import math

from analysis.questions.base import Section, tables_with_rows
from analysis.questions.effects.result import Effect, EffectsResult
from analysis.statistics.bounds import negated
from analysis.text.numbers import (
    NONE,
    ends_text,
    gain_title,
    metric_title,
    number_text,
    p_text,
    percent_text,
    settings_text,
)
from analysis.text.tables import Table


def gain_unit(result: EffectsResult) -> str:
    if result.scale == "error":
        return f"decades of {metric_title(result.metric, result.scale)}"
    return {"accuracy": "points", "loss": "nats"}.get(result.scale or "", result.metric)


def effects_sentences(result: EffectsResult) -> tuple[str, ...]:
    """Return what each axis does, what the first two do together, and what qualifies it."""
    parts = []
    if result.noise_gap:
        parts.append(
            f"No effect is tested: {result.noise_gap}, so the noise between seeds is not measured; "
            "the tables show means alone."
        )
    else:
        parts += [_axis_sentence(axis, result) for axis in result.axes]
        parts += [_interaction_sentence(both, result) for both in result.interactions[:1]]
    return tuple(filter(None, [*parts, settings_text(result.nuisance)]))


def _axis_sentence(axis: Effect, result: EffectsResult) -> str:
    where = f"{axis.axes[0]} ({', '.join(map(number_text, axis.values))})"
    lost, reasons = sum(axis.lost.values()), _reasons(axis.lost)
    if axis.verdict == "untested":
        why = "no two shapes differ in it alone"
        if axis.units:
            why = "no spread between seeds, so their noise is not measured"
        elif lost:
            why = f"all {lost} matched pairs are lost ({reasons})"
        return f"{where} is not tested: {why}."
    pairs = f"{axis.units} matched pair{'' if axis.units == 1 else 's'}, {axis.improved} improved"
    pairs += f", {lost} lost ({reasons})" if lost else ""
    amount, ends = _size(axis, result)
    details = f"{ends}; Holm {p_text(axis.p_holm)}; {pairs}"
    if axis.verdict == "unclear":
        return (
            f"No effect of {where} is established: {amount} a step, positive being better"
            f" ({details})."
        )
    better = "better" if axis.verdict == "helps" else "worse"
    return f"One step up in {where} makes {result.metric} {better} by {amount} ({details})."


def _interaction_sentence(interaction: Effect, result: EffectsResult) -> str:
    first, second = interaction.axes
    if interaction.verdict == "untested":
        return f"Whether {first} and {second} change each other's effect could not be tested."
    amount, ends = _size(interaction, result)
    details = f"{ends}; {p_text(interaction.p_holm)}"
    if interaction.verdict == "unclear":
        return (
            f"That {first} and {second} change each other's effect is not established (difference"
            f" of differences {amount}, {details})."
        )
    more = "more" if interaction.verdict == "helps" else "less"
    return (
        f"A step up in {first} gains {amount} {more} where {second} stands one step higher, and the"
        f" other way round ({details})."
    )


def _size(effect: Effect, result: EffectsResult) -> tuple[str, str]:
    """Return a gain, or a loss without its sign, and its interval."""
    size = negated(effect.gain) if effect.verdict == "hurts" else effect.gain
    amount = f"{number_text(size.estimate)} {gain_unit(result)}"
    return amount, ends_text(size, result.settings.confidence)


def _reasons(lost: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in lost.items())


def effects_tables(result: EffectsResult) -> tuple[Section, ...]:
    return tables_with_rows(
        Section("Effects of single axes", effects_table(result)),
        Section("Axes together", _interaction_table(result)),
    )


def effect_name(effect: Effect, *, is_step: bool) -> str:
    return " to ".join(map(number_text, effect.values)) if is_step else "mean of all"


def effects_table(result: EffectsResult) -> Table:
    interval = f"{percent_text(result.settings.confidence)} interval"
    header = (
        *("axis", "step", gain_title(result.metric, gain_unit(result)), interval, "p", "Holm p"),
        *("pairs", "improved", "lost"),
    )
    rows = [
        (effect.axes[0], effect_name(effect, is_step=is_step), *_cells(effect))
        for effect, is_step in result.by_axis()
    ]
    note = (
        f"Pairs differ in one axis alone, neighbours on its grid; the test is a {result.test}. "
        "Holm runs over the axes, and over all steps apart."
    )
    return Table(header, tuple(rows), note)


def _cells(effect: Effect) -> tuple[str, ...]:
    gain = effect.gain
    ends = f"{number_text(gain.low)} to {number_text(gain.high)}"
    numbers = number_text(gain.estimate), NONE if math.isnan(gain.low) else ends
    p_values = number_text(effect.p, 2), number_text(effect.p_holm, 2)
    counts = str(effect.units), str(effect.improved), _reasons(effect.lost) or "0"
    return (*numbers, *p_values, *counts)


def _interaction_table(result: EffectsResult) -> Table:
    rows = tuple((" and ".join(both.axes), *_cells(both)) for both in result.interactions)
    interval = f"{percent_text(result.settings.confidence)} interval"
    header = ("axes", f"difference of differences ({gain_unit(result)})", interval, "p", "Holm p")
    note = (
        "Above 0 a step of one axis gains more where the other stands one step higher; 0 is two"
        " axes whose gains add up."
    )
    return Table((*header, "squares", "above 0", "lost"), rows, note)
