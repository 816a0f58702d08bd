"""What the tables of the report page show: pure functions from results and trials to rows."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from analysis.findings.losses import runs_text
from analysis.findings.results import (
    LeanResult,
    LeanRow,
    ParetoResult,
    RetrievalDimension,
    TransitionReading,
    TransitionResult,
)
from analysis.lean_groups import LeanGroups
from analysis.questions.conditioning.result import ConditioningResult
from analysis.questions.effects.result import EffectsResult
from analysis.questions.surrogate.result import SurrogateResult
from analysis.statistics.noninferiority import MOST_SEEDS_ASKED_FOR
from analysis.words.wording import (
    NONE,
    cost_text,
    cost_title,
    interval_text,
    number_text,
    percent_text,
    sentence,
    setting_text,
    y_unit,
)

MAX_ROWS: Final = 200
"""Rows of a table that the page shows as it is; the table of trials holds any number."""


@dataclass(frozen=True, slots=True)
class Table:
    """A small table in words.

    Attributes:
        header: column titles.
        rows: cells as text; each as long as the header.
        note: what to know before reading it.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def varying_columns(trials: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """Return the axes that take more than one value among the trials."""
    return [
        name for name in axes if name in trials.columns and trials[name].nunique(dropna=False) > 1
    ]


def reading_table(result: TransitionResult) -> Table:
    """Return the numbers of the transition, one column a reading of the seeds."""
    readings = [
        (name, reading)
        for name, reading in (("typical", result.typical), ("attainable", result.attainable))
        if reading is not None
    ] or [(result.reading, result)]
    header = ("", *(f"{name}{' (leads)' * (name == result.reading)}" for name, _ in readings))
    columns = [_reading_numbers(result, reading) for _, reading in readings]
    rows = tuple(
        (label, *(column[label] for column in columns))
        for label in columns[0]
        if any(column[label] != NONE for column in columns)
    )
    note = "“Typical” reads the median seed of a cell, “attainable” the expected best of its seeds."
    return Table(header, rows, note)


def _reading_numbers(result: TransitionResult, reading: TransitionReading) -> dict[str, str]:
    unit = y_unit(result.scale)
    x, by = result.x, result.by
    flat = reading.h_T
    d_eff = reading.d_eff
    numbers = {
        "verdict": reading.verdict.replace("_", " "),
        f"{x} where the drop ends": number_text(reading.h_star),
        "bracket": (
            f"({number_text(reading.bracket[0])}, {number_text(reading.bracket[1])}]"
            if reading.bracket
            else NONE
        ),
        f"{percent_text(result.settings.set_mass)} set": set_text(reading),
        "steps the drop takes": number_text(reading.width),
        f"largest drop ({unit})": number_text(reading.drop),
        f"excess over the decline before ({unit})": number_text(reading.excess),
        "abruptness, p": _abruptness(result, reading),
        f"{x} with half of the runs succeeding": number_text(reading.h_50),
        "over-dispersion of the cells": number_text(reading.phi),
    }
    if by is not None:
        for label, slope in (
            (f"slope in {by} below", reading.gamma_below),
            (f"slope in {by} from there on", reading.gamma_above),
        ):
            numbers[label] = interval_text(slope) if slope is not None else NONE
        numbers[f"no growth with {by} from {x}"] = number_text(flat.point) + (
            f", perhaps from {number_text(flat.lo)}"
            if flat.lo is not None and flat.lo != flat.point
            else ""
        )
        numbers[f"law in {by} (AICc weights)"] = (
            ", ".join(f"{law} {number_text(w, 2)}" for law, w in reading.law_weights.items())
            or NONE
        )
        numbers[f"located at each {by} alone"] = (
            ", ".join(f"{number_text(t)}: {number_text(h)}" for t, h in reading.per_T.items())
            or NONE
        )
    if d_eff is not None:
        guess = f", a conjecture for {d_eff.layers} layers" if d_eff.conjecture else ""
        numbers["effective retrieval dimension"] = dimension_text(d_eff) + guess
    return numbers


def _abruptness(result: TransitionResult, reading: TransitionReading) -> str:
    if not reading.abrupt_testable:
        return "not testable on this grid"
    p = number_text(reading.p_abrupt, 2)
    if not reading.noise_gap:
        return p
    by = (
        "by the few seeds there are"
        if result.n1_assumed_sd is None
        else f"if seeds scatter by {number_text(result.n1_assumed_sd)}"
    )
    return f"{p} {by} (no test)"


def set_text(reading: TransitionReading) -> str:
    """Return the set of h* in words; where seed noise is not measured there is none."""
    if reading.noise_gap:
        return f"none: {reading.noise_gap}"
    if not reading.h_set:
        return NONE
    return "{" + ", ".join(number_text(value) for value in reading.h_set) + "}"


def dimension_text(dimension: RetrievalDimension) -> str:
    """Return an effective retrieval dimension in words: a value, a range or a bound."""
    lo, hi = dimension.lo, dimension.hi
    if hi is None:
        return f"> {lo - 1}"
    if lo == hi:
        return str(lo)
    return f"at most {hi}" if lo == 1 else f"{lo} to {hi}"


def pareto_table(result: ParetoResult) -> Table:
    """Return every shape with its mean, interval, costs and place on the front."""
    header = (
        "shape",
        f"{result.metric} (mean)",
        f"{percent_text(result.settings.confidence)} interval",
        "runs",
        "crashed",
        *(cost_title(cost) for cost in result.costs),
        "P(front)",
        "class",
        *_setting_header(result.nuisance),
    )
    rows = tuple(
        (
            row.label,
            number_text(row.mean, 4),
            f"{number_text(row.ci.low, 4)} to {number_text(row.ci.high, 4)}",
            runs_text(row.n, row.lost),
            percent_text(row.crash_share),
            *(cost_text(cost, row.costs.get(cost)) for cost in result.costs),
            number_text(row.p_front, 2),
            row.class_,
            *((setting_text(row.setting),) if result.nuisance else ()),
        )
        for row in result.table
    )
    volume = (
        f"Hypervolume {interval_text(result.hv, result.settings.confidence)}. "
        if result.hv is not None
        else ""
    )
    return Table(header, rows, (volume + sentence(result.hv_note)).strip())


def likeliest_first(result: ParetoResult) -> ParetoResult:
    """Return the front with its likeliest shapes first where they are too many to show them all."""
    if len(result.table) <= MAX_ROWS:
        return result
    ordered = sorted(
        result.table, key=lambda row: -row.p_front if math.isfinite(row.p_front) else 1.0
    )
    return dataclasses.replace(result, table=tuple(ordered))


def established_first(result: LeanResult) -> LeanResult:
    """Return the comparison with what it established first where candidates are too many."""
    if len(result.table) <= MAX_ROWS:
        return result
    return dataclasses.replace(
        result, table=tuple(sorted(result.table, key=lambda row: not row.accepted))
    )


def first_rows(table: Table) -> Table:
    """Return a table that a page can hold: its first rows, and how many there are."""
    if len(table.rows) <= MAX_ROWS:
        return table
    some = f"The first {MAX_ROWS} of {len(table.rows):,} rows; analysis.json holds them all."
    return dataclasses.replace(
        table, rows=table.rows[:MAX_ROWS], note=f"{table.note} {some}".strip()
    )


def lean_table(result: LeanResult) -> Table:
    """Return every candidate with its difference, p values and savings."""
    header = (
        "shape",
        f"difference in {result.metric}",
        f"{percent_text(result.settings.confidence)} interval",
        "runs",
        "p",
        "Holm p",
        "no worse than the margin",
        f"seeds for {percent_text(result.settings.power)}",
        *(f"{cost_title(cost)} saved" for cost in result.costs),
        *_setting_header(result.nuisance),
    )
    rows = tuple(
        (
            row.label,
            number_text(row.diff),
            f"{number_text(row.ci.low)} to {number_text(row.ci.high)}",
            runs_text(row.n, row.lost),
            number_text(row.p_raw, 2),
            number_text(row.p_holm, 2),
            NONE if result.verdict in ("untrained", "unsupported") else row.outcome,
            NONE if result.verdict == "untrained" else _seeds_text(row),
            *(
                percent_text(round(row.saving[cost], 3)) if cost in row.saving else NONE
                for cost in result.costs
            ),
            *((setting_text(row.setting),) if result.nuisance else ()),
        )
        for row in result.table
    )
    spread = (
        f"seed standard deviation {number_text(result.sd)}, so the margin is "
        f"{number_text(result.margin_over_sd)} of them"
        if result.sd is not None
        else "no seed standard deviation (one run)"
    )
    note = (
        f"Baseline {result.baseline_label}: {result.metric} {number_text(result.baseline_mean, 4)} "
        f"over {result.baseline_n} run{'' if result.baseline_n == 1 else 's'}"
        f"{result.baseline_lost.behind}, {spread}{_best_setting(result)}. "
        f"{sentence(result.power_note)} {sentence(result.confirm)}"
    )
    return Table(header, rows, note.strip())


def _setting_header(nuisance: Sequence[str]) -> tuple[str, ...]:
    return (f"best {', '.join(nuisance)}",) if nuisance else ()


def _seeds_text(row: LeanRow) -> str:
    """Return the seeds that would establish an equal shape."""
    if row.seeds_needed is not None:
        return str(row.seeds_needed)
    is_open = row.outcome == "undecided" and row.p_raw is not None
    return f"more than {MOST_SEEDS_ASKED_FOR}" if is_open else NONE


def _best_setting(result: LeanResult) -> str:
    if result.baseline_setting is None:
        return ""
    return f", at its best {setting_text(result.baseline_setting)}"


def missing_runs_table(results: Mapping[str, LeanResult], within: str = "") -> Table:
    """Return the runs that would settle undecided comparisons.

    Args:
        results: the comparisons, by their value of ``within`` in words.
        within: the axis that parts them; empty where there is only one.
    """
    header = (*((within,) if within else ()), "shape", "trials to add", "why")
    rows = tuple(
        (*((value,) if within else ()), each.label, str(each.trials), each.why)
        for value, result in results.items()
        for each in result.missing
    )
    return Table(header, rows)


def group_candidates_table(groups: LeanGroups) -> Table:
    """Return the candidates of every comparison, one below the other."""
    tables = {value: lean_table(result) for value, result in groups.found.items()}
    header = max((table.header for table in tables.values()), key=len, default=())
    rows = tuple((value, *row) for value, table in tables.items() for row in table.rows)
    return Table((groups.within, *header), rows)


def group_baselines_table(groups: LeanGroups) -> Table:
    """Return the baseline of every comparison, its seeds' scatter and what they can show."""
    header = (
        *(groups.within, "baseline", "mean", "runs", "seed standard deviation"),
        *("margin in these", "what the seeds can show"),
    )
    rows = [
        (
            value,
            result.baseline_label,
            number_text(result.baseline_mean, 4),
            runs_text(result.baseline_n, result.baseline_lost),
            number_text(result.sd),
            number_text(result.margin_over_sd),
            f"{sentence(result.power_note)} {sentence(result.confirm)}".strip(),
        )
        for value, result in groups.found.items()
    ]
    rows += [
        (value, NONE, NONE, NONE, NONE, NONE, sentence(f"no answer: {problem}"))
        for value, problem in groups.problems.items()
    ]
    return Table(header, tuple(rows))


def settings_table(
    transition: TransitionResult | None,
    pareto: ParetoResult | None,
    lean: LeanResult | None,
    conditioning: ConditioningResult | None = None,
    effects: EffectsResult | None = None,
    surrogate: SurrogateResult | None = None,
) -> Table:
    """Return every choice that the analyses made."""
    rows = []
    for name, result in (
        ("transition", transition),
        ("front", pareto),
        ("lean", lean),
        ("conditioning", conditioning),
        ("effects", effects),
        ("surrogate", surrogate),
    ):
        if result is not None:
            for field in dataclasses.fields(result.settings):
                value = getattr(result.settings, field.name)
                shown = number_text(value, 6) if isinstance(value, int | float) else str(value)
                rows.append((name, field.name, shown))
    return Table(("analysis", "setting", "value"), tuple(rows))


def provenance_table(provenance: Mapping[str, Any]) -> Table:
    """Return what the study rests on, nested names joined by dots."""
    return Table(("what", "value"), tuple(_flatten("", provenance)))


def _flatten(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, value in values.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping):
            rows += _flatten(f"{full}.", value)
        elif isinstance(value, list | tuple | set):
            rows.append((full, json.dumps(list(value), default=str)))
        else:
            rows.append((full, NONE if value is None else str(value)))
    return rows


def missing_table(result: TransitionResult) -> Table:
    """Return the trials that would settle an open transition."""
    names = (result.x,) if result.by is None else (result.x, result.by)
    rows = tuple(
        (
            number_text(cell.x),
            *(() if result.by is None else (number_text(cell.by),)),
            str(cell.trials),
            cell.why,
        )
        for cell in result.missing
    )
    return Table((*names, "trials to add", "why"), rows)
