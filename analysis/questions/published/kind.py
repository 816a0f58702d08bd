"""A study beside the papers' printed results that it repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.published.numbers import Setup, setup_of, setups
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.published.fit import fit
from analysis.questions.published.result import PublishedResult, PublishedSettings
from analysis.questions.published.text import (
    missing_printed_table,
    published_sentence,
    published_table,
)
from analysis.questions.transition.result import TransitionResult
from analysis.runs.statuses import FULL
from hsweep.errors import unknown_name


class PublishedKind(Kind):
    """Holds a study against the papers; a table alone does not tell what it repeats."""

    name = "published"
    about = "How do a study's results compare with the papers' printed ones?"
    settings = PublishedSettings
    result = PublishedResult

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        if not study.trials["status"].isin(FULL).any():
            return None
        result = beside_published(study, found)
        return None if result is None else self.finding(result)

    def finding(self, result: PublishedResult) -> Finding:
        """Return what is said of the comparison."""
        tables = (
            Section("Published and run", published_table(result)),
            Section("Published, not run", missing_printed_table(result)),
        )
        shown = tuple(section for section in tables if section.table.rows)
        return Finding(
            self, result, (published_sentence(result),), tables=shown if result.comparable else ()
        )


def beside_published(
    study: StudyRuns,
    found: Sequence[Finding],
    *,
    setup_name: str | None = None,
    same_data: bool = False,
) -> PublishedResult | None:
    """Lay a study beside the published results that it repeats; None if it repeats none.

    Args:
        found: its own findings.
        setup_name: which results; None finds them by the sweep's name or the task.
        same_data: the user vouches that the data are those of the paper.

    Raises:
        UserError: an unknown name, or a table that cannot be read.
    """
    manifest = study.manifest
    tasks = [each["task"] for each in manifest.provenance.get("data", ()) if "task" in each]
    setup = setup_of(manifest.sweep, tasks) if setup_name is None else _setup(setup_name)
    if setup is None:
        return None
    transitions = [each.result for each in found if isinstance(each.result, TransitionResult)]
    return fit(
        study.trials,
        setup,
        axes=manifest.axes,
        tasks=tasks,
        transition=transitions[0] if transitions else None,
        budget=_budget_text(manifest.budget),
        settings=PublishedSettings(same_data=same_data),
    )


def _setup(name: str) -> Setup:
    named = {each.name: each for each in setups()}
    if name not in named:
        raise unknown_name("group of published results", name, named)
    return named[name]


def _budget_text(budget: Mapping[str, Any]) -> str:
    unit = str(budget["unit"])
    return f"{budget['amount']} {unit.removesuffix('s') if budget['amount'] == 1 else unit}"


PUBLISHED = PublishedKind()
