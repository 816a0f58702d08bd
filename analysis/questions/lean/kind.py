"""Lean equivalents: which cheaper shapes are no worse than a baseline?"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.lean.charts import lean_charts
from analysis.questions.lean.groups import answer_study, answer_table
from analysis.questions.lean.result import (
    LeanGroups,
    LeanResult,
    LeanSettings,
    confirming_runs,
    missing_runs,
)
from analysis.questions.lean.text import lean_badge, lean_sentences, lean_tables
from analysis.questions.shapes import BASELINE, CONFIG, COSTS, MARGIN, NUISANCE
from analysis.runs.table import Runs


class LeanKind(Kind):
    """Compares the shapes of a study or of a table with a baseline."""

    name = "lean"
    about = "Which cheaper shapes are no worse than a baseline by a margin?"
    settings = LeanSettings
    options = (CONFIG, COSTS, NUISANCE, BASELINE, MARGIN)

    def of_table(self, runs: Runs, options: Mapping[str, Any]) -> Finding:
        return self.finding(answer_table(runs, options))

    def of_study(
        self, study: StudyRuns, options: Mapping[str, Any] | None, findings: Sequence[Finding]
    ) -> Finding | None:
        return self.finding(answer_study(study, options))

    def finding(self, result: LeanResult | LeanGroups) -> Finding:
        """Return the sentences, badge, tables, charts and further runs of a result."""
        return Finding(
            self,
            result,
            tuple(lean_sentences(result)),
            lean_badge(result),
            lean_tables(result),
            lambda: lean_charts(result),
            missing_runs(result),
            confirming_runs(result),
        )


LEAN = LeanKind()
