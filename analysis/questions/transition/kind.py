"""The transition: at which value of an axis does the error collapse?"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.settings import Option
from analysis.questions.shapes import EVAL_SIZE, NUISANCE
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.fit import answer_study, answer_table
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.text import (
    transition_badge,
    transition_sentences,
    transition_tables,
)
from analysis.runs.table import Runs
from analysis.text.numbers import sentence
from analysis.text.settled import sensitivity_badge


class TransitionKind(Kind):
    """Finds the transition of a study or of a table."""

    name = "transition"
    about = "At which value of an axis does the error collapse?"
    settings = TransitionSettings
    options = (
        Option("x", "The axis that is searched.  [default: heads]"),
        Option("by", "The modulating axis; '' for none.  [default: seq_len if there]"),
        EVAL_SIZE,
        NUISANCE,
    )

    def of_table(self, runs: Runs, options: Mapping[str, Any]) -> Finding:
        return self.finding(answer_table(runs, options))

    def of_study(
        self, study: StudyRuns, options: Mapping[str, Any] | None, findings: Sequence[Finding]
    ) -> Finding | None:
        return self.finding(answer_study(study, options))

    def finding(self, result: TransitionResult) -> Finding:
        """Return the sentences, badge, tables, charts and missing runs of a result."""
        return Finding(
            self,
            result,
            (*transition_sentences(result), *map(sentence, result.qualifications)),
            sensitivity_badge(transition_badge(result), result.sensitivity),
            transition_tables(result),
            lambda: transition_charts(result),
            result.missing,
        )


TRANSITION = TransitionKind()
