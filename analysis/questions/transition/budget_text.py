"""What is said of an answer and the budget: sentence and table."""

from itertools import groupby
from typing import Final

from analysis.questions.transition.budget_result import BudgetAnswer, Budgets
from analysis.questions.transition.result import TransitionResult
from analysis.statistics.settled import SHORTER
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    number_text,
    percent_text,
    y_unit,
)
from analysis.text.settled import runs_text, settled_sentence
from analysis.text.tables import Table

_UNTESTED: Final = ("inconclusive", "suggested")


def budgets_sentence(result: TransitionResult) -> str:
    """Return whether the answer would survive more training; empty where there is no answer."""
    found = result.budgets
    if found is None or result.verdict in _UNTESTED:
        return ""
    runs = ""
    if found.unit and found.missing and not result.missing:
        budget = found.missing[0].budget
        number = sum(each.trials for each in found.missing)
        runs = runs_text(number, "" if budget is None else found.at(budget))
        runs += f"; {SHORTER}" if found.missing[0].why == SHORTER else ""
    return settled_sentence(found.verdict, found.reason, is_single=found.is_single, runs=runs)


def budgets_table(result: TransitionResult) -> Table:
    """Return the answer at each budget; without rows where there is one budget."""
    found = result.budgets
    answers = found.answers if found is not None else ()
    slopes = [f"slope in {result.by} below", f"slope in {result.by} from there on"]
    is_share = result.scale == "accuracy"
    header = (
        found.unit or found.column if found is not None else "budget",
        *("runs", "verdict", result.x, f"{percent_text(result.settings.set_mass)} set"),
        f"largest drop ({'factor of the error' if is_share else y_unit(result.scale)})",
        *(slopes if result.by is not None else ()),
    )
    return Table(header, tuple(_row(result, each) for each in answers), _note(result, found))


def _row(result: TransitionResult, answer: BudgetAnswer) -> tuple[str, ...]:
    slopes = (answer.gamma_below, answer.gamma_above) if result.by is not None else ()
    members = ", ".join(map(number_text, answer.h_set))
    drop = answer.drop
    if drop is not None and result.scale == "accuracy":
        drop = Interval(*(10**end for end in drop))
    return (
        number_text(answer.budget),
        str(answer.runs),
        answer.verdict.replace("_", " "),
        number_text(answer.h_star),
        f"{{{members}}}" if members else NONE,
        *(_interval(each) for each in (drop, *slopes)),
    )


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    estimate, low, high = map(number_text, interval)
    return f"{estimate} ({low} to {high})"


def _note(result: TransitionResult, found: Budgets | None) -> str:
    if found is None or found.same is None:
        return "Each row is what the runs of one budget say alone."
    settings = result.settings
    return (
        "Each row is what the runs of one budget say alone. In "
        f"{percent_text(found.same)} of the draws nothing that training can still change would "
        "change the answer, if the part of every error above its floor falls at least as the "
        f"budget to the power of {number_text(-settings.budget_exponent)}; settled needs "
        f"{percent_text(settings.set_mass)}."
    )


def longer_table(result: TransitionResult) -> Table:
    """Return the trials that would tell whether the answer is settled, one row a value of x."""
    found = result.budgets
    rows = []
    for x, each in groupby(found.missing if found is not None else (), key=lambda each: each.x):
        cells = list(each)
        assert found is not None
        budget = "as before" if cells[0].budget is None else found.at(cells[0].budget)
        lengths = ", ".join(number_text(cell.by) for cell in cells)
        named = (number_text(x),) if result.by is None else (number_text(x), lengths)
        trials = sum(cell.trials for cell in cells)
        rows.append((*named, budget, str(trials), cells[0].why))
    names = (result.x,) if result.by is None else (result.x, result.by)
    return Table((*names, "budget", "trials to add", "why"), tuple(rows))
