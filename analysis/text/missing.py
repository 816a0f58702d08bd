"""The runs that an answer lacks, as a table."""

from collections.abc import Sequence

from analysis.sensitivity import Sensitivity
from analysis.text.numbers import axis_text, sentence
from analysis.text.tables import Table
from hsweep.design.question import Missing


def missing_table(missing: Sequence[Missing], told: Sensitivity | None) -> Table:
    """Return the runs that would settle an answer; ``told`` knows what a budget counts."""
    unit = told.unit if told is not None else ""
    axes = list(dict.fromkeys(axis for each in missing for axis in each.at))
    has_budgets = any(each.budget is not None for each in missing)
    rows = tuple(
        (
            *(axis_text(each.at[axis]) if axis in each.at else "" for axis in axes),
            *([f"{each.budget or ''} {unit}".strip()] if has_budgets else []),
            str(each.seeds),
            sentence(each.why),
        )
        for each in missing
    )
    return Table((*axes, *(["budget"] if has_budgets else []), "runs to add", "why"), rows)
