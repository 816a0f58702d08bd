"""The sentences and tables of a transition."""

from typing import Final

from analysis.questions.base import Section, tables_with_rows
from analysis.questions.transition.charts import bracket_text
from analysis.questions.transition.judge import SET_MASS
from analysis.questions.transition.result import TransitionResult
from analysis.runs.losses import losses_named
from analysis.runs.statuses import AT_CHANCE, FULL, NOT_NEEDED, SHORT
from analysis.text.numbers import (
    NONE,
    Tone,
    first_to_lower,
    fold_text,
    interval_text,
    metric_title,
    number_text,
    percent_text,
    setting_header,
    setting_text,
    settings_text,
    share_text,
    y_size,
    y_unit,
)
from analysis.text.settled import (
    budgets_table,
    missing_table,
    num_trials,
    rounds_table,
    sensitivity_sentence,
)
from analysis.text.tables import Table
from hsweep.design.labels import listed

_ENDINGS: Final = {
    "complete": FULL,
    "of these at chance": (AT_CHANCE,),
    "stopped early": ("stopped_early",),
    "short of the budget": (SHORT,),
    "failed": ("failed",),
    "diverged": ("diverged",),
    "too large": ("too_large",),
    "not needed": (NOT_NEEDED,),
}
"""Columns of the table of cells, with the statuses that each counts."""
_IF_ANY: Final = ("of these at chance", "short of the budget", "too large", "not needed")


def transition_badge(result: TransitionResult) -> tuple[str, Tone]:
    if result.is_claimed:
        return f"collapse at {result.x} = {number_text(result.h_star)}", "found"
    if result.suggested:
        return "suggested, not tested", "unknown"
    return ("no collapse", "absent") if result.verdict == "none" else ("open", "unknown")


def transition_sentences(result: TransitionResult) -> list[str]:
    """Return the answer and then its qualifications, a sentence each."""
    if result.is_claimed:
        sentences = [_claim(result), _place(result), _further_drops(result), _growth(result)]
        sentences.append(_later_rise(result))
    elif result.verdict == "none":
        sentences = [f"No collapse in {result.x} is established: {result.reason}."]
    else:
        sentences = _open(result)
    if result.stated_sd is not None:
        stated = y_size(result.stated_sd, result.scale)
        sentences[0] = f"With a stated seed sd of {stated}: {first_to_lower(sentences[0])}"
    if result.verdict != "open":
        sentences.append(settings_text(result.nuisance, result.fixed_rate, "cell"))
    sentences += [_cells_with_losses(result), _search(result)]
    if result.verdict != "open":
        sentences.append(sensitivity_sentence(result.sensitivity, result.missing))
    return [text.strip() for text in sentences if text.strip()]


def _claim(result: TransitionResult) -> str:
    assert result.bracket is not None
    low, high = map(number_text, result.bracket)
    sizes = {
        "loss": f"{number_text(result.drop)} nats lower",
        "error": fold_text(result.drop or 0.0),
        "accuracy": f"{number_text(result.drop_points)} points higher",
    }
    error = metric_title(result.metric, result.scale)
    shown = result.metric if result.scale == "accuracy" else error
    there, rest = "there", ""
    if result.h_peak not in (None, result.h_star):
        # The largest drop comes before a further one that moves the place.
        largest = next(step for step in result.drops if step.x_to == result.h_peak)
        low, there = number_text(largest.x_from), f"at {number_text(largest.x_to)}"
        rest = f", and at {high} it is smaller still"
        if result.scale == "accuracy":
            rest = f", and at {high} it is higher still"
    claim = (
        f"The error collapses at {result.x} = {high}: {there} {shown} is {sizes[result.scale]} "
        f"than at {low}{rest}."
    )
    if result.shown_by == "growth":
        return (
            f"{claim} Growth with {result.by} ends there; that the fall is a sudden one is not "
            "shown."
        )
    by, survived = (
        f"{number_text(scatter, 2)} nats"
        if result.scale == "loss"
        else percent_text(float(f"{10**scatter - 1:.2g}"))
        for scatter in (result.scatter or 0.0, result.survives or 0.0)
    )
    most = share_text(result.settings.alpha)
    lasts = f", and at most {most} up to a scatter of {survived}" if result.survives else ""
    return (
        f"{claim} That is more abrupt than diminishing returns: only {share_text(result.p or 0.0)} "
        f"of declines without a collapse look so where single values scatter by {by}{lasts}."
    )


def _place(result: TransitionResult) -> str:
    confidence = percent_text(SET_MASS)
    if len(result.h_set) == 1:
        return f"Other seeds would put it at the same place ({confidence} confidence)."
    places = listed([number_text(value) for value in result.h_set], "or")
    return f"With other seeds it may lie at {result.x} = {places} ({confidence} confidence)."


def _further_drops(result: TransitionResult) -> str:
    steps = [
        f"by {y_size(step.drop, result.scale, step.points)} between {number_text(step.x_from)} and"
        f" {number_text(step.x_to)}"
        for step in result.further_drops
    ]
    return f"The error also falls {listed(steps)}." if steps else ""


def _growth(result: TransitionResult) -> str:
    by, growth = result.by, result.gamma_above
    if by is None:
        return ""
    if growth is None:
        return f"Growth with {by} cannot be judged by one value of it."
    shown = interval_text(growth, result.settings.confidence)
    verb = "does not make"
    if growth.low > 0:
        verb = "hardly makes"
        shown += f"; up to {number_text(result.limits.max_growth)} counts as no growth"
    words = {
        "gone": f"a larger {by} {verb} the error larger",
        "stays": f"a larger {by} still makes the error larger",
        "open": f"it is not clear yet whether a larger {by} makes the error larger",
    }
    assert result.growth is not None
    of = f"for a tenfold {by}, in {y_unit(result.scale)}"
    return f"From there on {words[result.growth]} ({of}: {shown})."


def _later_rise(result: TransitionResult) -> str:
    if result.later_rise is None:
        return ""
    x, rise = result.later_rise
    size = y_size(rise, result.scale)
    return f"At {result.x} = {number_text(x)} the error is larger again, by {size}."


def _open(result: TransitionResult) -> list[str]:
    trials = num_trials(result.missing)
    request = f"{trials} more full-budget runs would settle it." if trials else ""
    reason = result.reason.strip().rstrip(".")
    if not result.suggested:
        return [f"Whether the error collapses along {result.x} is open: {reason}.", request]
    drop = y_size(result.drop, result.scale, result.drop_points)
    test = request.replace("settle", "test") if trials else "Seeds that differ would test it."
    return [
        f"A collapse at {result.x} = {number_text(result.h_star)} is suggested, not tested: the "
        f"error falls by {drop} there, but {reason}.",
        test,
    ]


def _cells_with_losses(result: TransitionResult) -> str:
    lossy = [
        (cell.label(result.x, result.by), cell.losses)
        for cell in result.counts
        if cell.losses.total
    ]
    if not lossy:
        return ""
    return (
        f"{len(lossy)} of {len(result.counts)} cells are read from the runs that are left: "
        f"{losses_named(lossy)}."
    )


def _search(result: TransitionResult) -> str:
    """Return what a search has trained, and what may lie where it has not."""
    film = result.film
    if film is None:
        return ""
    text = film.text
    if result.is_claimed:
        most = share_text(result.settings.alpha)
        text += f" All its looks together claim a collapse of at most {most} of such declines."
    if film.hidden is None:
        return text
    size, low, high = film.hidden
    return (
        f"{text} Between {result.x} = {low:g} and {high:g} a jump of at most"
        f" {y_size(size, result.scale)} may lie that these runs cannot show."
    )


def transition_tables(result: TransitionResult) -> tuple[Section, ...]:
    training = result.sensitivity
    return tables_with_rows(
        Section("Numbers of the transition", numbers_table(result), in_columns=True),
        Section("Rounds of the search", rounds_table(result.film)),
        Section("Answer at each budget", budgets_table(training)),
        Section("Runs that would settle it", missing_table(result.missing, training)),
        *([Section("Cells", cells_table(result))] if result.nuisance else []),
    )


def numbers_table(result: TransitionResult) -> Table:
    """Return the numbers that the answer rests on."""
    x, by = result.x, result.by
    drop, excess, unit, beyond = result.drop, result.excess, y_unit(result.scale), ""
    if result.scale == "accuracy":
        drop, unit, beyond = result.drop_points, "points", "factor of the error"
        excess = None if excess is None else 10**excess
    places, dimension = f"none: {result.noise_gap}", NONE
    if not result.noise_gap:
        places = f"{{{', '.join(map(number_text, result.h_set))}}}" if result.h_set else NONE
    if (d_eff := result.d_eff) is not None:
        span = f"{d_eff.lo}" if d_eff.lo == d_eff.hi else f"{d_eff.lo} to {d_eff.hi}"
        dimension = span + f", a conjecture for {d_eff.layers} layers" * d_eff.conjecture
    reading = "median seed" if result.reading == "typical" else "expected best of the seeds"
    rows = {
        "verdict": transition_badge(result)[0],
        f"{x} where the drop ends": number_text(result.h_star),
        "bracket": bracket_text(result.bracket) if result.bracket else NONE,
        f"largest drop ({unit})": number_text(drop),
    }
    if result.verdict != "none":
        rows |= {
            f"{percent_text(SET_MASS)} set": places,
            "effective retrieval dimension": dimension,
            f"excess over the decline before ({beyond or unit})": number_text(excess),
            "over-dispersion of the cells": number_text(result.phi),
        }
    rows |= {
        "declines without a collapse that look as abrupt": NONE
        if result.p is None
        else percent_text(float(f"{result.p:.2g}")),
        f"scatter of single {x} ({y_unit(result.scale)})": number_text(result.scatter, 2),
        "each cell is read as": reading,
    }
    if by is not None:
        for where, slope in (("below", result.gamma_below), ("from there on", result.gamma_above)):
            shown = interval_text(slope, result.settings.confidence) if slope else NONE
            rows[f"slope in {by} {where}"] = shown
    return Table(("", "value"), tuple((name, text) for name, text in rows.items() if text != NONE))


def cells_table(result: TransitionResult) -> Table:
    """Return how the trials of every cell ended, and the cell's best setting of nuisance axes;
    planned trials have not started."""
    names = (result.x,) if result.by is None else (result.x, result.by)
    endings = {
        title: statuses
        for title, statuses in _ENDINGS.items()
        if title not in _IF_ANY or any(cell.count(*statuses) for cell in result.counts)
    }
    rows = tuple(
        (
            *map(number_text, (cell.x, cell.by)[: len(names)]),
            str(cell.started),
            *(str(cell.count(*statuses)) for statuses in endings.values()),
            *((str(cell.read), setting_text(cell.setting)) if result.nuisance else ()),
        )
        for cell in result.counts
    )
    header = (*names, "started", *endings)
    if not result.nuisance:
        return Table(header, rows)
    note = (
        "“Read” counts the runs that stand for a cell: one a seed, of the setting that its other "
        "seeds chose."
    )
    return Table((*header, "read", *setting_header(result.nuisance)), rows, note)
