"""What is said of a lean answer and the budget: sentence and table."""

from analysis.questions.lean.result import LeanResult
from analysis.statistics.settled import SHORTER
from analysis.text.numbers import NONE, number_text
from analysis.text.settled import runs_text, settled_sentence
from analysis.text.tables import Table


def budgets_sentence(result: LeanResult) -> str:
    """Return whether the answer would survive more training; empty where nothing is decided."""
    found = result.budgets
    if found is None or not result.decides:
        return ""
    runs = ""
    if found.unit and found.missing and not result.missing:
        number = sum(each.trials for each in found.missing)
        runs = runs_text(number, found.at(found.missing[0].budget))
        runs += f"; {SHORTER}" if found.missing[0].why == SHORTER else ""
    return settled_sentence(found.verdict, found.reason, is_single=found.is_single, runs=runs)


def budgets_table(result: LeanResult) -> Table:
    """Return each candidate's difference at each budget; without rows where there is one budget."""
    found = result.budgets
    answers = found.answers if found is not None else ()
    gaps = {(gap.label, each.budget): gap.diff for each in answers for gap in each.gaps}
    rows = []
    for row in result.table if answers else ():
        shown = [gaps.get((row.label, each.budget)) for each in answers]
        texts = (
            NONE
            if gap is None
            else " ".join(
                (number_text(gap.estimate), f"({number_text(gap.low)} to {number_text(gap.high)})")
            )
            for gap in shown
        )
        rows.append((row.label, *texts))
    header = ("shape", *(found.at(each.budget) for each in answers)) if found else ("shape",)
    note = "Difference to the baseline, positive where the shape is better, with its interval."
    return Table(header, tuple(rows), note)


def longer_table(result: LeanResult) -> Table:
    """Return the trials that would tell whether the answer is settled, one row a shape."""
    found = result.budgets
    missing = found.missing if found is not None else ()
    rows = tuple(
        (each.label, number_text(each.budget), str(each.trials), each.why) for each in missing
    )
    unit = (found.unit or found.column) if found is not None else "budget"
    return Table(("shape", unit, "trials to add", "why"), rows)
