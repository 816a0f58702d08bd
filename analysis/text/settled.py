"""Whether an answer would survive more training, in words, and the runs that it lacks."""

from collections.abc import Sequence
from typing import Final

from analysis.sensitivity import SHORTER, SURE, Sensitivity, Settled
from analysis.text.numbers import Tone, percent_text, sentence
from analysis.text.tables import Table
from analysis.values import value_text
from hsweep.design.question import Missing

_STARTS: Final[dict[Settled, str]] = {
    "settled": "Settled",
    "moving": "Still moving",
    "unknown": "Not known to be settled",
}


def sensitivity_sentence(found: Sensitivity | None, missing: Sequence[Missing]) -> str:
    """Return whether an answer would survive more training; empty where that was not asked.

    Args:
        missing: of a study, the runs that would tell.
    """
    if found is None or not found.reason:
        return ""
    start = "One budget only" if found.is_single else _STARTS[found.verdict]
    assumed = ""
    if found.is_assumed:
        assumed = "; with two budgets how fast gains fade is assumed, and a third would tell"
    settled_by = ""
    if found.unit and missing:
        settled_by = " (hsweep run --only-missing trains " + _runs(found, missing) + ")"
    return f"{start}: {found.reason}{assumed}{settled_by}."


def _runs(found: Sensitivity, missing: Sequence[Missing]) -> str:
    trials, budget = sum(each.seeds for each in missing), missing[0].budget
    plural = "" if trials == 1 else "s"
    if budget is None:
        return f"{trials} further run{plural}"
    why = f"; {SHORTER}" if missing[0].why == SHORTER else ""
    return f"{trials} run{plural} of {found.at(budget)}{why}"


def sensitivity_badge(badge: tuple[str, Tone], found: Sensitivity | None) -> tuple[str, Tone]:
    """Return the answer's badge, with ``settled`` or ``still moving`` where that is known."""
    label, tone = badge
    if found is not None and found.verdict == "settled":
        return f"{label}, settled", tone
    if found is not None and found.verdict == "moving":
        return f"{label}, still moving", "partial" if tone == "found" else tone
    return badge


def budgets_table(found: Sensitivity | None) -> Table:
    """Return the answer at each budget; without rows where there is one budget."""
    if found is None or not found.answers:
        return Table((), ())
    note = "Each row is what the runs of one budget say alone."
    if found.same is not None:
        note += (
            f" In {percent_text(found.same)} of the draws of seeds and of what training still "
            f"changes the answer stays the same; settled needs {percent_text(SURE)}."
        )
    rows = tuple((f"{each.budget:g}", str(each.runs), each.says) for each in found.answers)
    return Table((found.unit or found.column, "runs", "answer"), rows, note)


def missing_table(missing: Sequence[Missing], told: Sensitivity | None) -> Table:
    """Return the runs that would settle an answer; ``told`` knows what a budget counts."""
    unit = told.unit if told is not None else ""
    axes = list(dict.fromkeys(axis for each in missing for axis in each.at))
    has_budgets = any(each.budget is not None for each in missing)
    rows = tuple(
        (
            *(value_text(each.at[axis]) if axis in each.at else "" for axis in axes),
            *([f"{each.budget or ''} {unit}".strip()] if has_budgets else []),
            str(each.seeds),
            sentence(each.why),
        )
        for each in missing
    )
    return Table((*axes, *(["budget"] if has_budgets else []), "runs to add", "why"), rows)
