"""A transition, or that none is established, as a finding."""

from analysis.questions.base import Finding, Kind, Section
from analysis.questions.transition.budget_charts import budget_charts
from analysis.questions.transition.budget_text import (
    budgets_sentence,
    budgets_table,
    longer_table,
)
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.result import TransitionResult
from analysis.questions.transition.text import (
    cells_table,
    missing_table,
    reading_table,
    transition_badge,
    transition_sentence,
)
from analysis.text.numbers import sentence
from analysis.text.settled import settled_badge
from analysis.values import AxisValue, Number
from hsweep.design.question import Missing


def transition_finding(kind: Kind, result: TransitionResult) -> Finding:
    """Return what is said of a transition."""
    budgets = result.budgets
    tables = (
        Section("Numbers of the transition", reading_table(result), in_columns=True),
        Section("Answer at each budget", budgets_table(result)),
        Section("Trials that would tell whether it is settled", longer_table(result)),
        Section("Trials that would settle it", missing_table(result)),
        *([Section("Cells", cells_table(result))] if result.nuisance else []),
    )
    return Finding(
        kind,
        result,
        (
            f"{transition_sentence(result)}{budgets_sentence(result)}",
            *map(sentence, result.qualifications),
        ),
        settled_badge(transition_badge(result), budgets.verdict if budgets else None),
        tuple(section for section in tables if section.table.rows),
        lambda: [*transition_charts(result), *budget_charts(result)],
        _missing(result),
    )


def _missing(result: TransitionResult) -> tuple[Missing, ...]:
    def at(x: Number, by: Number | None) -> dict[str, AxisValue]:
        return {result.x: x, **({result.by: by} if result.by and by else {})}

    if result.missing or result.budgets is None:
        # An answer first, and then whether it would survive.
        return tuple(Missing(at(each.x, each.by), each.trials, each.why) for each in result.missing)
    chosen = {(cell.x, cell.by): cell.setting for cell in result.counts}
    return tuple(
        Missing(
            {**at(each.x, each.by), **(setting.values if setting else {})},
            each.trials,
            each.why,
            None if each.budget is None else int(each.budget),
        )
        for each in result.budgets.missing
        for setting in (chosen.get((each.x, each.by)),)
    )
