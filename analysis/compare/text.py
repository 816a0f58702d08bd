"""Studies side by side as tables and sentences, for the terminal and the page."""

import math

from analysis.compare.result import Comparison, StudySide
from analysis.questions.lean.result import LeanResult, LeanRow
from analysis.questions.lean.text import chosen_row
from analysis.questions.transition.text import set_text
from analysis.runs.losses import losses_named
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


def comparison_tables(comparison: Comparison) -> list[tuple[str, Table]]:
    """Return every table that has a row, with its title."""
    found = [
        ("Studies", studies_table(comparison)),
        ("Transitions", transitions_table(comparison)),
        ("Do they agree on the place of the collapse?", agreement_table(comparison)),
        ("Lean choices", lean_table(comparison)),
        ("Hypervolume", volumes_table(comparison)),
        ("Difference in hypervolume", volume_pairs_table(comparison)),
        ("What differs", differences_table(comparison)),
        ("What they share", shared_table(comparison)),
    ]
    if comparison.apart:  # what differs comes first
        found.sort(key=lambda each: each[0] != "What differs")
    return [(title, table) for title, table in found if table.rows]


def studies_table(comparison: Comparison) -> Table:
    rows = tuple(
        (side.label, side.sweep, side.preset, side.budget, f"{side.finished} of {side.trials}")
        for side in comparison.studies
    )
    return Table(("study", "sweep", "preset", "compared at", "trials run to their end"), rows)


def transitions_table(comparison: Comparison) -> Table:
    header = ("study", "verdict", "h*", "95% set", "bracket", "drop", "p (abrupt)", "reading")
    rows = []
    for side in comparison.studies:
        found = side.transition
        if found is None:
            continue
        bracket = found.bracket
        rows.append(
            (
                side.label,
                found.verdict.replace("_", " "),
                f"{found.x} = {number_text(found.h_star)}" if found.h_star is not None else NONE,
                set_text(found),
                f"({number_text(bracket[0])}, {number_text(bracket[1])}]" if bracket else NONE,
                NONE if found.drop is None else y_size(found.drop, found.scale, found.drop_points),
                f"{number_text(found.p_abrupt, 2)}{' (no test)' if found.noise_gap else ''}",
                found.reading,
            )
        )
    note = "Where the verdict is none, inconclusive or suggested, h* is where a collapse would be."
    return Table(header, tuple(rows), note)


def agreement_table(comparison: Comparison) -> Table:
    header = ("studies", "in both sets", "first lower", "equal", "first higher", "dimension")
    rows = []
    for pair in comparison.transitions:
        common = pair.common_dimension
        dimension = NONE
        if pair.dimensions_disagree:
            dimension = "disagree"
        elif common is not None:
            dimension = f"{common.lo} to {number_text(common.hi) if common.hi else 'any'}"
        rows.append(
            (
                f"{pair.first} and {pair.second}",
                "{" + ", ".join(number_text(h) for h in pair.common_set) + "}"
                if pair.common_set
                else "none: they disagree",
                percent_text(round(pair.p_lower, 3)),
                percent_text(round(pair.p_equal, 3)),
                percent_text(round(pair.p_higher, 3)),
                dimension + ("" if pair.both_claim else "; not both claim a collapse"),
            )
        )
    note = "Shares of pairs of draws of h*, one from each study, taken as independent."
    return Table(header, tuple(rows), note)


def _lean_results(side: StudySide) -> list[tuple[str, LeanResult]]:
    if side.lean is not None:
        return [(side.label, side.lean)]
    if side.lean_groups is None:
        return []
    within = side.lean_groups.within
    return [
        (f"{side.label}, {within} = {value}", result)
        for value, result in side.lean_groups.found.items()
    ]


def lean_table(comparison: Comparison) -> Table:
    header = ("study", "baseline", "choice", "difference", "Holm", "margin", "saves")
    rows = []
    for side in comparison.studies:
        for label, result in _lean_results(side):
            row, margin = chosen_row(result), number_text(result.margin)
            if row is None:
                verdict = result.verdict.replace("_", " ")
                rows.append((label, result.baseline_label, verdict, NONE, NONE, margin, NONE))
                continue
            ci = f"{interval_text(row.ci, result.settings.confidence)}{_losses(row, result)}"
            saved = ", ".join(
                f"{percent_text(round(share, 3))} of {cost_title(cost)}"
                for cost, share in row.saving.items()
                if math.isfinite(share)
            )
            holm = p_text(row.p_holm)
            rows.append((label, result.baseline_label, row.label, ci, holm, margin, saved))
    return Table(header, tuple(rows))


def _losses(row: LeanRow, result: LeanResult) -> str:
    pairs = ((row.label, row.lost), (result.baseline_label, result.baseline_lost))
    named = losses_named(pairs)
    return f" (of the runs left: {named})" if named else ""


def volumes_table(comparison: Comparison) -> Table:
    rows = tuple(
        (side.label, _interval(side.hv, comparison.settings.confidence))
        for side in comparison.studies
        if side.hv is not None
    )
    costs = " and ".join(cost_title(cost) for cost in comparison.costs)
    return Table(("study", f"{comparison.metric} against {costs}"), rows, f"{comparison.hv_note}.")


def volume_pairs_table(comparison: Comparison) -> Table:
    rows = tuple(
        (
            f"{pair.first} minus {pair.second}",
            _interval(pair.difference, comparison.settings.confidence),
            NONE if pair.p_better is None else percent_text(round(pair.p_better, 3)),
        )
        for pair in comparison.volumes
    )
    return Table(("studies", "difference", "first is better"), rows)


def shared_table(comparison: Comparison) -> Table:
    header = ("studies", "trials of both", "same point and seed, other trial")
    rows = tuple(
        (f"{pair.first} and {pair.second}", str(pair.same), str(pair.changed))
        for pair in comparison.shared
    )
    note = (
        "The same trial has the same model, task, data, recipe, budget, seeds and code; where only "
        "point and seed agree, one of these has changed."
    )
    return Table(header, rows, note)


def differences_table(comparison: Comparison) -> Table:
    header = ("what", *(side.label for side in comparison.studies))
    return Table(header, tuple((row.what, *row.values) for row in comparison.differences))


def comparison_sentences(comparison: Comparison) -> list[str]:
    if comparison.apart:
        return [comparison.apart]
    sentences = []
    for pair in comparison.transitions:
        if not pair.both_claim:
            continue
        where = {side.label: side.transition for side in comparison.studies}
        one, other = where[pair.first], where[pair.second]
        assert one is not None
        assert other is not None
        places = f"{one.x} = {number_text(one.h_star)} and {number_text(other.h_star)}"
        agree = "can be the same place" if pair.common_set else "are not the same place"
        sentences.append(
            f"{pair.first} and {pair.second} put the collapse at {places}; by their 95% sets "
            f"these {agree}."
        )
    for volume in comparison.volumes:
        low, high = volume.difference.low, volume.difference.high
        if not math.isfinite(low):
            outcome = "how far seeds scatter is not known, so no interval can be given"
        elif low > 0:
            outcome = f"the front of {volume.first} is the better one"
        elif high < 0:
            outcome = f"the front of {volume.second} is the better one"
        else:
            outcome = "neither front is shown to be the better one"
        sentences.append(
            f"Hypervolume, {volume.first} minus {volume.second}: "
            f"{_interval(volume.difference, comparison.settings.confidence)}; {outcome}."
        )
    return sentences or [
        "Nothing that these studies found can be set against each other by a test."
    ]


def _interval(interval: Interval | None, confidence: float) -> str:
    if interval is None:
        return NONE
    if not math.isfinite(interval.low):
        return f"{number_text(interval.estimate)}, no interval"
    return interval_text(interval, confidence)
