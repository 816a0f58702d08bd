"""The answer of a study, whoever wrote its question."""

import importlib
from typing import TYPE_CHECKING

from hsweep.design.question import Question
from hsweep.errors import UserError

if TYPE_CHECKING:
    from analysis.answer import Answer
    from analysis.questions.base import Count
    from hsweep.record.study import StudyFolder
    from hsweep.record.tables import StudyTables


def answer_study(
    study: "StudyFolder", tables: "StudyTables | None" = None, count: "Count | None" = None
) -> "Answer":
    """Answer a study's question from what it has recorded so far (see `analysis.ask`).

    Raises:
        UserError: the question stands in the study's sweep, and that can no longer be loaded.
    """
    from analysis import ask

    return ask.answer_study(study, tables, count, own_question(study))


def own_question(study: "StudyFolder") -> Question | None:
    """Return the question of a study if it is one of the user's own; None for any other.

    Raises:
        UserError: the study's sweep can no longer be loaded, or has no such question.
    """
    from hsweep.planning.prepare import own_sweep
    from hsweep.workspace import another_sweep

    content = study.manifest.question or {}
    module = content.get("module", "analysis")
    if module.split(".")[0] == "analysis":
        return None
    with another_sweep():
        own_sweep(study)
        kind = getattr(importlib.import_module(module), content["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, Question)):
        raise UserError(
            f"the question of the study {study.name!r} is a {content['type']} of {module}, which "
            "has no such class any more; give it back its name"
        )
    return kind.recorded(content)
