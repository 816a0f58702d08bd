"""Studies side by side as tables and sentences, for the terminal and the page."""

import math

from analysis.compare.result import Comparison, Pair
from analysis.questions.base import Section
from analysis.questions.pareto.text import pareto_table
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    cost_title,
    interval_text,
    number_text,
    p_text,
    percent_text,
    y_size,
)
from analysis.text.tables import Table


def comparison_sentences(comparison: Comparison) -> list[str]:
    """Return what the studies say of each other."""
    if comparison.apart:
        return [comparison.apart]
    sentences = [text for pair in comparison.pairs for text in _pair_sentences(pair, comparison)]
    return sentences or [
        "Nothing that these studies found can be set against each other by a test."
    ]


def _pair_sentences(pair: Pair, comparison: Comparison) -> list[str]:
    sentences = []
    transitions = {side.label: side.transition for side in comparison.studies}
    first, second = transitions[pair.first], transitions[pair.second]
    if pair.common_set is not None and first and second and first.is_claimed and second.is_claimed:
        agree = "can be the same place" if pair.common_set else "are not the same place"
        sentences.append(
            f"{pair.first} and {pair.second} put the collapse at {first.x} = "
            f"{number_text(first.h_star)} and {number_text(second.h_star)}; by their 95% sets "
            f"these {agree}."
        )
    if pair.volume is not None:
        low, high = pair.volume.low, pair.volume.high
        if not math.isfinite(low):
            outcome = "how far seeds scatter is not known, so no interval can be given"
        elif low > 0 or high < 0:
            outcome = f"the front of {pair.first if low > 0 else pair.second} is the better one"
        else:
            outcome = "neither front is shown to be the better one"
        sentences.append(
            f"Hypervolume, {pair.first} minus {pair.second}: "
            f"{_interval(pair.volume, comparison.settings.confidence)}; {outcome}."
        )
    return sentences


def comparison_tables(comparison: Comparison) -> list[Section]:
    """Return every table that has a row."""
    header = ("what", *(side.label for side in comparison.studies))
    differences = tuple((label, *values) for label, values in comparison.differences.items())
    sections = [
        Section("Studies", studies_table(comparison)),
        Section("Transitions", transitions_table(comparison)),
        Section("Lean choices", lean_table(comparison)),
        Section("Pairs of studies", pairs_table(comparison)),
        Section("What differs", Table(header, differences)),
    ]
    if comparison.front is not None:
        sections.insert(3, Section("Shapes of all studies", pareto_table(comparison.front)))
    if comparison.apart:  # what differs comes first
        sections.sort(key=lambda section: section.title != "What differs")
    return [section for section in sections if section.table.rows]


def studies_table(comparison: Comparison) -> Table:
    has_volume = any(side.hv is not None for side in comparison.studies)
    rows = tuple(
        (
            side.label,
            side.sweep,
            side.preset,
            side.budget,
            f"{side.finished} of {side.trials}",
            *((_interval(side.hv, comparison.settings.confidence),) if has_volume else ()),
        )
        for side in comparison.studies
    )
    header = ("study", "sweep", "preset", "compared at", "trials run to their end")
    note = f"{comparison.front_note}." if has_volume else ""
    return Table((*header, *(("hypervolume",) if has_volume else ())), rows, note)


def transitions_table(comparison: Comparison) -> Table:
    rows = []
    for side in comparison.studies:
        if (result := side.transition) is None:
            continue
        places = ", ".join(map(number_text, result.h_set))
        rows.append(
            (
                side.label,
                result.verdict.replace("_", " "),
                NONE if result.h_star is None else f"{result.x} = {number_text(result.h_star)}",
                f"{{{places}}}",
                NONE
                if result.drop is None
                else y_size(result.drop, result.scale, result.drop_points),
            )
        )
    note = "Where no collapse is established, the place is where one would be."
    return Table(("study", "verdict", "place", "95% set", "drop"), tuple(rows), note)


def lean_table(comparison: Comparison) -> Table:
    gain = "gain (above 0 is better)"
    header = ("study", "baseline", "choice", gain, "Holm", "margin", "saves")
    rows = []
    for side in comparison.studies:
        for heading, result in side.lean.items():
            label = f"{side.label}, {heading}" if heading else side.label
            margin = number_text(result.margin)
            if (row := result.chosen) is None:
                verdict = result.verdict.replace("_", " ")
                rows.append((label, result.baseline_label, verdict, NONE, NONE, margin, NONE))
                continue
            savings = ", ".join(
                f"{percent_text(round(share, 3))} of {cost_title(cost)}"
                for cost, share in row.saving.items()
                if math.isfinite(share)
            )
            gap = f"{interval_text(row.ci, result.settings.confidence)}{row.lost.behind}"
            holm = p_text(row.p_holm)
            rows.append((label, result.baseline_label, row.label, gap, holm, margin, savings))
    return Table(header, tuple(rows))


def pairs_table(comparison: Comparison) -> Table:
    """Return what each pair of studies has in common, and where their answers differ."""
    columns: dict[str, list[str]] = {
        "studies": [f"{pair.first} and {pair.second}" for pair in comparison.pairs],
        "trials of both": [str(pair.same) for pair in comparison.pairs],
        "places in both 95% sets": [_common_text(pair) for pair in comparison.pairs],
        "hypervolume of the first less that of the second": [
            _interval(pair.volume, comparison.settings.confidence) for pair in comparison.pairs
        ],
    }
    columns = {name: cells for name, cells in columns.items() if set(cells) != {NONE}}
    note = "The same trial has the same model, task, data, recipe, budget, seeds and code."
    return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)), note)


def _common_text(pair: Pair) -> str:
    if pair.common_set is None:
        return NONE
    places = ", ".join(map(number_text, pair.common_set))
    return f"{{{places}}}" if places else "none: they disagree"


def _interval(interval: Interval | None, confidence: float) -> str:
    if interval is None:
        return NONE
    if not math.isfinite(interval.low):
        return f"{number_text(interval.estimate)}, no interval"
    return interval_text(interval, confidence)
