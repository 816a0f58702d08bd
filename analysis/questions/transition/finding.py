"""A transition, or that none is established, as a finding."""

from analysis.questions.base import Finding, Kind, Section
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.result import TransitionResult
from analysis.questions.transition.text import (
    cells_table,
    numbers_table,
    transition_badge,
    transition_sentences,
)
from analysis.text.missing import missing_table
from analysis.text.numbers import sentence
from analysis.text.settled import budgets_table, sensitivity_badge


def transition_finding(kind: Kind, result: TransitionResult) -> Finding:
    """Return what is said of a transition."""
    told = result.sensitivity
    tables = (
        Section("Numbers of the transition", numbers_table(result), in_columns=True),
        Section("Answer at each budget", budgets_table(told)),
        Section("Runs that would settle it", missing_table(result.missing, told)),
        *([Section("Cells", cells_table(result))] if result.nuisance else []),
    )
    return Finding(
        kind,
        result,
        (*transition_sentences(result), *map(sentence, result.qualifications)),
        sensitivity_badge(transition_badge(result), told),
        tuple(section for section in tables if section.table.rows),
        lambda: transition_charts(result),
        result.missing,
    )
