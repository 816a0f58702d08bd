"""What a transition says in words: sentence and tables."""

from collections.abc import Sequence
from typing import Final

from analysis.questions.transition.result import (
    CellCounts,
    RetrievalDimension,
    TransitionReading,
    TransitionResult,
    Verdict,
)
from analysis.runs.losses import losses_named
from analysis.text.numbers import (
    NONE,
    Tone,
    all_at_best,
    at_fixed_rate,
    first_to_lower,
    interval_text,
    number_text,
    p_text,
    percent_text,
    setting_header,
    setting_text,
    y_size,
    y_unit,
)
from analysis.text.tables import Table
from analysis.values import Number

_VERDICTS: Final[dict[Verdict, tuple[str, Tone]]] = {
    "transition": ("transition", "found"),
    "jump_only": ("jump only", "partial"),
    "threshold": ("threshold", "partial"),
    "plateau": ("plateau", "partial"),
    "suggested": ("suggested, not tested", "unknown"),
    "none": ("no transition", "absent"),
    "inconclusive": ("inconclusive", "unknown"),
}


def transition_badge(result: TransitionResult) -> tuple[str, Tone]:
    return _VERDICTS[result.verdict]


def transition_sentence(result: TransitionResult) -> str:
    return f"{_verdict_sentence(result)}{at_settings(result)}{cells_with_losses(result)}"


def _verdict_sentence(result: TransitionResult) -> str:
    if result.verdict == "inconclusive":
        reason = result.reason.strip().rstrip(".")
        trials = sum(cell.trials for cell in result.missing)
        wanted = f" {trials} more full-budget trials would settle it." if trials else ""
        return f"Inconclusive: {reason}.{wanted}"
    if result.verdict == "suggested":
        return _suggested_sentence(result)
    found = _plateau_sentence(result) if result.verdict == "plateau" else _tested_sentence(result)
    if result.stated_sd is None:
        return found
    stated = y_size(result.stated_sd, result.scale)
    return f"With a stated seed sd of {stated}: {first_to_lower(found)}"


def at_settings(result: TransitionResult) -> str:
    """Return at which settings of its nuisance axes each cell stands."""
    if result.verdict == "inconclusive":
        return ""
    if result.nuisance:
        return f" {all_at_best(result.nuisance, 'cell')}"
    return at_fixed_rate(result.fixed_rate, " All runs had")


def _suggested_sentence(result: TransitionResult) -> str:
    drop = y_size(result.drop, result.scale, result.drop_points)
    tested = abruptness_text(result)
    trials = sum(cell.trials for cell in result.missing)
    wanted = f"{trials} more full-budget trials would test it: three seeds in every cell."
    return (
        f"A collapse at {result.x} = {number_text(result.h_star)} is suggested, not tested: "
        f"{result.noise_gap}, so the noise between seeds is not measured. The error drops by "
        f"{drop} there ({tested}). {wanted if trials else 'Seeds that differ would test it.'}"
    )


def _plateau_sentence(result: TransitionResult) -> str:
    assert result.bracket is not None
    low, high = (f"{result.x} = {number_text(value)}" for value in result.bracket)
    drop = y_size(result.drop, result.scale, result.drop_points)
    later = y_size(max(result.later_fall or 0.0, 0.0), result.scale)
    confidence = percent_text(1 - result.settings.alpha)
    growth = result.gamma_above
    grows = ""
    if result.by is not None and growth is not None and growth.low > result.limits.max_growth:
        grows = f"; there it still grows with {result.by} (slope {interval_text(growth)})"
    return (
        f"A plateau from {high} on: the error drops by {drop} from "
        f"{low}, and larger values lower it by no more than {later} ({confidence} "
        f"bound){grows}. With one value below it, the drop cannot be told from diminishing "
        f"returns{_below_plateau(result)}."
    )


def _below_plateau(result: TransitionResult) -> str:
    """Return what would tell a plateau's drop from diminishing returns."""
    values = sorted({cell.x for cell in result.missing})
    if values:
        trials = sum(cell.trials for cell in result.missing)
        return f"; {trials} trials at {result.x} = {_listed(values)} would tell"
    if result.bracket is not None and result.bracket[0] == 1:
        return (
            f", and {result.x} has no smaller value: a task that needs more would tell (of a "
            "larger dimension, or of several)"
        )
    return f"; more values of {result.x} below it would tell"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(map(number_text, values))


def abruptness_text(result: TransitionResult) -> str:
    """Return the p value of abruptness with what it rests on, or that there is none."""
    if not result.abrupt_testable:
        return "abruptness is not testable on this grid"
    text = p_text(result.p_abrupt)
    if not result.noise_gap:
        return text
    if result.n1_assumed_sd is None:
        return f"{text} by the few seeds there are"
    sd = y_size(result.n1_assumed_sd, result.scale)
    return f"{text} if seeds scatter by {sd}, which is assumed"


def _tested_sentence(result: TransitionResult) -> str:
    reason = result.reason.strip().rstrip(".")
    if result.verdict == "none":
        kind = {
            None: "",
            "above_range": f" If there is one, it lies above the largest {result.x} tried.",
            "below_range": f" Either the smallest {result.x} tried is enough or none tried is: "
            "these runs do not tell which.",
        }[result.none_kind]
        return f"No transition in {result.x} is established: {reason}.{kind}"
    where = _where(result)
    drop = y_size(result.drop, result.scale, result.drop_points)
    if result.verdict == "transition":
        return (
            f"The error collapses at {where}: it drops by {drop}, abruptly "
            f"({p_text(result.p_abrupt)}){_growth_above(result, 'and')}."
        )
    if result.verdict == "jump_only":
        return (
            f"The error drops abruptly at {where}, by {drop} ({p_text(result.p_abrupt)})"
            f"{_growth_above(result, 'but')}: a jump, not a full transition."
        )
    if result.abrupt_testable:
        abrupt = f"is not shown to be abrupt ({p_text(result.p_abrupt)})"
    else:
        abrupt = f"cannot be tested for abruptness with so few {result.x} below it"
    return (
        f"A threshold at {where}: the error drops by {drop}{_growth_above(result, 'and')}; "
        f"the drop {abrupt}, so a transition is not claimed."
    )


def cells_with_losses(result: TransitionResult) -> str:
    lossy = [(cell_name(cell, result), cell.losses) for cell in result.counts if cell.losses.total]
    if not lossy:
        return ""
    return (
        f" {len(lossy)} of {len(result.counts)} cells are read from the runs that are left: "
        f"{losses_named(lossy)}."
    )


def cell_name(cell: CellCounts, result: TransitionResult) -> str:
    by = f", {result.by}={number_text(cell.by)}" if cell.by is not None else ""
    return f"{result.x}={number_text(cell.x)}{by}"


def _where(result: TransitionResult) -> str:
    place = f"{result.x} = {number_text(result.h_star)}"
    details = []
    if result.h_set:
        mass = percent_text(result.settings.set_mass)
        details.append(f"{mass} set {{{_listed(result.h_set)}}}")
    if result.bracket is not None:
        details.append(f"bracket {bracket_text(result.bracket)}")
    return f"{place} ({'; '.join(details)})" if details else place


def bracket_text(bracket: tuple[Number, Number]) -> str:
    low, high = bracket
    return f"({number_text(low)}, {number_text(high)}]"


def _growth_above(result: TransitionResult, joint: str) -> str:
    if result.by is None or result.gamma_above is None:
        return ""
    slope = f"slope {interval_text(result.gamma_above)}"
    if result.verdict == "jump_only":
        return f", {joint} above it the error still grows with {result.by} ({slope})"
    vanishes = result.gamma_above.high <= result.limits.max_growth
    if result.verdict == "threshold" or vanishes:
        return f", {joint} from there on it no longer grows with {result.by} ({slope})"
    # A transition only needs that growth is not shown to persist, which is less than its absence.
    return (
        f", {joint} growth with {result.by} from there on is neither shown nor excluded ({slope})"
    )


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
    x, by = result.x, result.by
    drop, excess, unit, beyond = reading.drop, reading.excess, y_unit(result.scale), ""
    if result.scale == "accuracy":
        drop, unit, beyond = reading.drop_points, "points", "factor of the error"
        excess = None if excess is None else 10**excess
    flat = reading.flat_from
    numbers = {
        "verdict": reading.verdict.replace("_", " "),
        f"{x} where the drop ends": number_text(reading.h_star),
        "bracket": bracket_text(reading.bracket) if reading.bracket else NONE,
        f"{percent_text(result.settings.set_mass)} set": set_text(reading),
        "steps the drop takes": number_text(reading.width),
        f"largest drop ({unit})": number_text(drop),
        f"excess over the decline before ({beyond or unit})": number_text(excess),
        "abruptness, p": _abruptness(result, reading),
        "over-dispersion of the cells": number_text(reading.phi),
    }
    if by is not None:
        below, above = reading.gamma_below, reading.gamma_above
        numbers[f"slope in {by} below"] = interval_text(below) if below else NONE
        numbers[f"slope in {by} from there on"] = interval_text(above) if above else NONE
        numbers[f"no growth with {by} from {x}"] = number_text(flat.point) + (
            f", perhaps from {number_text(flat.lo)}"
            if flat.lo is not None and flat.lo != flat.point
            else ""
        )
        numbers[f"located at each {by} alone"] = (
            ", ".join(f"{number_text(t)}: {number_text(h)}" for t, h in reading.h_star_at.items())
            or NONE
        )
    # A reading without it has the row all the same, as the other one may have it.
    numbers["effective retrieval dimension"] = NONE
    if (d_eff := reading.d_eff) is not None:
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
        else f"if seeds scatter by {y_size(result.n1_assumed_sd, result.scale)}"
    )
    return f"{p} {by} (no test)"


def set_text(reading: TransitionReading) -> str:
    """Return the set of h* in words; where seed noise is not measured there is none."""
    if reading.noise_gap:
        return f"none: {reading.noise_gap}"
    if not reading.h_set:
        return NONE
    return f"{{{_listed(reading.h_set)}}}"


def dimension_text(dimension: RetrievalDimension) -> str:
    lo, hi = dimension.lo, dimension.hi
    if hi is None:
        return f"> {lo - 1}"
    if lo == hi:
        return str(lo)
    return f"at most {hi}" if lo == 1 else f"{lo} to {hi}"


def missing_table(result: TransitionResult) -> Table:
    names = (result.x,) if result.by is None else (result.x, result.by)
    rows = tuple(
        (*map(number_text, (cell.x, cell.by)[: len(names)]), str(cell.trials), cell.why)
        for cell in result.missing
    )
    return Table((*names, "trials to add", "why"), rows)


def cells_table(result: TransitionResult) -> Table:
    """Return how the trials of every cell ended, and at which setting it stands; planned ones have
    not started."""
    names = (result.x,) if result.by is None else (result.x, result.by)
    has_at_chance = any(cell.at_chance for cell in result.counts)
    has_unneeded = any(cell.not_needed for cell in result.counts)
    has_too_large = any(cell.too_large for cell in result.counts)
    rows = []
    for cell in sorted(result.counts, key=lambda cell: (cell.x, cell.by or 0)):
        ended = [cell.started, cell.complete]
        ended += [cell.at_chance] if has_at_chance else []
        ended += [cell.pruned, cell.failed, cell.diverged]
        ended += [cell.too_large] if has_too_large else []
        ended += [cell.not_needed] if has_unneeded else []
        tuned = (str(cell.read), setting_text(cell.setting)) if result.nuisance else ()
        place = map(number_text, (cell.x, cell.by)[: len(names)])
        rows.append((*place, *map(str, ended), *tuned))
    endings = ["started", "complete", *(["of these at chance"] if has_at_chance else [])]
    endings += ["stopped early", "failed", "diverged"]
    endings += ["too large"] if has_too_large else []
    endings += ["not needed"] if has_unneeded else []
    tuned_header = ("read", *setting_header(result.nuisance)) if result.nuisance else ()
    note = (
        "“Read” counts the runs that stand for a cell: one a seed, of the setting that its other "
        "seeds chose."
    )
    header = (*names, *endings, *tuned_header)
    return Table(header, tuple(rows), note if result.nuisance else "")
