"""Whether an answer would survive more training, the runs that it lacks, and how a search came to
it, in words and tables."""

from collections.abc import Sequence
from typing import Final

from analysis.rounds.design import SearchFilm
from analysis.sensitivity import SHORTER, SURE, Sensitivity, Settled
from analysis.text.numbers import Tone, percent_text, sentence
from analysis.text.tables import Table
from analysis.values import value_text
from hsweep.design.labels import budget_text, counted
from hsweep.design.missing import Missing

_STARTS: Final[dict[Settled, str]] = {
    "settled": "Settled",
    "moving": "Still moving",
    "unknown": "Whether more training would change the answer is not known",
}


def sensitivity_sentence(sensitivity: Sensitivity | None, missing: Sequence[Missing]) -> str:
    """Return the sentence whether an answer would survive more training, and which ``missing`` runs
    of a study would tell; empty if not examined."""
    if sensitivity is None or not sensitivity.reason:
        return ""
    assumed = ""
    if sensitivity.is_assumed:
        assumed = "; two budgets do not tell how fast gains fade, so that is assumed"
    further_runs, trials = "", num_trials(missing)
    if sensitivity.unit and trials:
        budget, why = missing[0].budget, missing[0].why
        runs_text = counted(trials, "further run")
        if budget is not None:
            at = budget_text(budget, sensitivity.unit, sensitivity.column)
            runs_text = f"{counted(trials, 'run')} of {at}{f'; {why}' * (why == SHORTER)}"
        is_known = all(runs.trials is not None for runs in missing)
        verb = "--only-missing trains" if is_known else "what would tell:"
        further_runs = f" ({verb} {runs_text})"
    return f"{_STARTS[sensitivity.verdict]}: {sensitivity.reason}{assumed}{further_runs}."


def num_trials(missing: Sequence[Missing]) -> int:
    """Return how many trials missing runs come to; where that is not known, how many runs."""
    return sum(runs.seeds if runs.trials is None else runs.trials for runs in missing)


def sensitivity_badge(badge: tuple[str, Tone], sensitivity: Sensitivity | None) -> tuple[str, Tone]:
    """Return the answer's badge, with ``settled`` or ``still moving`` where that is known."""
    label, tone = badge
    if sensitivity is not None and sensitivity.verdict == "settled":
        return f"{label}, settled", tone
    if sensitivity is not None and sensitivity.verdict == "moving":
        return f"{label}, still moving", "partial" if tone == "found" else tone
    return badge


def budgets_table(sensitivity: Sensitivity | None) -> Table:
    """Return the table of the answer at each budget; without rows for a single budget."""
    if sensitivity is None or not sensitivity.answers:
        return Table((), ())
    note = "Each row is what the runs of one budget say alone."
    if sensitivity.same is not None:
        note += (
            f" In {percent_text(sensitivity.same)} of the draws of seeds and of what training "
            f"still changes the answer stays the same; settled needs {percent_text(SURE)}."
        )
    rows = tuple(
        (f"{answer.budget:g}", str(answer.runs), answer.says) for answer in sensitivity.answers
    )
    return Table((sensitivity.unit or sensitivity.column, "runs", "answer"), rows, note)


def missing_table(missing: Sequence[Missing], sensitivity: Sensitivity | None) -> Table:
    """Return the runs that would settle an answer; ``sensitivity`` knows what a budget counts."""
    unit = sensitivity.unit if sensitivity is not None else ""
    axes = list(dict.fromkeys(axis for runs in missing for axis in runs.at))
    has_budgets = any(runs.budget is not None for runs in missing)
    rows = tuple(
        (
            *(value_text(runs.at[axis]) if axis in runs.at else "" for axis in axes),
            *([f"{runs.budget or ''} {unit}".strip()] if has_budgets else []),
            str(num_trials([runs])),
            sentence(runs.why if runs.trials != 0 else f"{runs.why}; none of them can be trained"),
        )
        for runs in missing
    )
    return Table((*axes, *(["budget"] if has_budgets else []), "runs to add", "why"), rows)


def rounds_table(film: SearchFilm | None) -> Table:
    """Return the rounds of a search; no rows without one."""
    rounds = () if film is None else film.rounds
    rows = tuple(
        (str(number), asked.phase, str(asked.runs), asked.cells, asked.why)
        for number, asked in enumerate(rounds, 1)
    )
    return Table(("round", "for", "runs", "cells", "why"), rows)
