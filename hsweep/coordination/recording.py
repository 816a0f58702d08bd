"""Puts planned trials on record."""

from collections.abc import Sequence

from hsweep.design.trial import Trial, cost_columns
from hsweep.planning.code_changes import code_metas
from hsweep.record.journal import Journal
from hsweep.record.recipes import recipe_metas
from hsweep.record.rows import TrialRow


def record_trials(journal: Journal, trials: Sequence[Trial]) -> None:
    """Put planned trials on record, with their recipes and the files behind their code."""
    journal.add_trials(map(planned_row, trials))
    journal.set_metas({**code_metas(trials), **recipe_metas(trials)})


def planned_row(trial: Trial) -> TrialRow:
    return TrialRow(
        key=trial.key,
        ordinal=trial.ordinal,
        point=trial.point,
        replicate=trial.replicate,
        stratum=trial.stratum,
        budget=trial.budget.amount,
        counts=cost_columns(trial),
        parts=trial.parts,
    )
