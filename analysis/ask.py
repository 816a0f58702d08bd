"""What every kind of question finds in a study, or one of them in any table."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from analysis.answer import NO_QUESTION, Answer
from analysis.questions.base import Count, Finding, Kind, StudyRuns
from analysis.questions.commands import confirm_command, settle_command
from analysis.questions.conditioning.kind import CONDITIONING
from analysis.questions.effects.kind import EFFECTS
from analysis.questions.lean.kind import LEAN
from analysis.questions.pareto.kind import PARETO
from analysis.questions.shapes import cost_columns, read_value
from analysis.questions.transition.kind import TRANSITION
from analysis.results import no_results, which_report
from analysis.runs.columns import RunColumns
from analysis.runs.load import read_table
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.numbers import first_to_lower
from hsweep.design.labels import first_of, listed
from hsweep.design.question import Question
from hsweep.errors import UserError, format_error, shown, unknown_name, user_frame
from hsweep.record.study import StudyFolder
from hsweep.record.tables import StudyTables

KINDS: Final[tuple[Kind, ...]] = (TRANSITION, PARETO, LEAN, CONDITIONING, EFFECTS)
"""Every kind of question, in the order in which the page shows what they find."""


def answer_study(
    study: StudyFolder,
    tables: StudyTables | None = None,
    count: Count | None = None,
    own: Question | None = None,
) -> Answer:
    """Answer a study's question from what it has recorded so far, and say what every other kind of
    question finds in it.

    ``tables`` are the study's, where they are needed for more than this; ``own`` is a question of
    the user's own; for ``count`` see `StudyRuns`.
    """
    if tables is None:
        with study.reading() as tables:
            return answer_study(study, tables, count, own)
    is_listed = not study.is_adaptive()
    runs = StudyRuns(study.manifest, tables, is_listed=is_listed, count=count)
    return answer_runs(study, runs, own)


def answer_runs(study: StudyFolder, runs: StudyRuns, own: Question | None = None) -> Answer:
    """Answer a study's question from these runs of it."""
    question_type = "" if own is not None else str(runs.question.get("type", "")).lower()
    question_kind = next((kind for kind in KINDS if kind.name == question_type), None)
    findings: list[Finding] = []
    problem = no_results(runs) or None
    if (own is not None or question_kind is not None) and problem is None:
        try:
            _need_full_runs(runs)
            if own is not None:
                findings.append(_own_answer(own, runs))
            elif question_kind is not None:
                findings += filter(None, [question_kind.of_study(runs, None, ())])
        except UserError as error:
            problem = str(error)
    for kind in KINDS:
        if kind.stands_beside and kind is not question_kind:
            # The answer stands without what cannot be said.
            with contextlib.suppress(UserError):
                findings += filter(None, [kind.of_study(runs, None, findings)])
    if runs.unfinished:
        findings = [_so_far(finding) for finding in findings]
    instead = None
    if problem is not None:
        instead = f"No answer: {problem}."
    elif all(finding.badge is None for finding in findings):
        instead = NO_QUESTION
    return Answer(
        tuple(findings),
        instead,
        problem,
        confirm_command(study, findings),
        settle_command(study, findings),
        which_report(runs),
        runs.unfinished,
    )


def _own_answer(question: Question, runs: StudyRuns) -> Finding:
    """Return the answer of a question of the user's own; UserError if it gives none."""
    try:
        answer: Any = question.answer(runs)
        if isinstance(answer, Finding):
            return answer
        problem = f"returns {shown(answer)}, no Finding"
    except UserError:
        raise
    except Exception as error:
        place = user_frame(error)
        problem = f"fails: {format_error(error)}{f' at {place}' if place else ''}"
    raise UserError(
        f"answer(study) of the question {type(question).__name__} {problem}; mend it, and "
        "`hsweep run` of the file answers again, with the runs that are there"
    )


def _so_far(finding: Finding) -> Finding:
    """Return the finding of a study whose runs have not all ended: whatever kind of question it
    answers, part of the runs establishes nothing."""
    if finding.badge is None or finding.badge[1] == "unknown":
        return finding
    first, *rest = finding.sentences
    return replace(
        finding,
        badge=(f"so far: {finding.badge[0]}", "unknown"),
        sentences=(f"So far, {first_to_lower(first)}", *rest),
    )


def _need_full_runs(runs: StudyRuns) -> None:
    if not runs.trials["status"].isin(FULL).any():
        raise UserError("no trial has run to its full budget yet")


def ask_study(study: StudyFolder, kind: Kind, options: Mapping[str, Any]) -> Answer:
    """Answer what a study says to a kind of question, whatever its own question.

    Raises:
        UserError: it cannot be said, with the reason.
    """
    with study.reading() as tables:
        runs = StudyRuns(study.manifest, tables, is_listed=not study.is_adaptive())
        _need_full_runs(runs)
        finding = kind.of_study(runs, options, ())
        if finding is None:
            raise UserError(f"the study {study.name!r} says nothing of {kind.name}")
        if runs.unfinished:
            finding = _so_far(finding)
        return Answer((finding,), which_report=which_report(runs), unfinished=runs.unfinished)


def asked_in_python(name: str, given: Mapping[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """Return a kind of question by its name, and the options that Python gives it as ``of_study``
    reads them: one value for several, a mapping for texts such as ``heads=8,depth=1``.

    Raises:
        UserError: there is no such kind, or it has no such option of a study.
    """
    if (kind := table_kinds().get(name)) is None:
        raise unknown_name("kind of question", name, table_kinds())
    several = {option.name: option.multiple for option in kind.options if not option.of_table}
    several |= {"settings": True, "scale": False}
    for option in given:
        if option not in several:
            raise unknown_name(f"option of {name}", option, several)
    options: dict[str, Any] = {one.name: () if one.multiple else None for one in kind.options}
    options |= {"settings": (), "scale": None, "goal": None}
    for option, value in given.items():
        if option == "settings" and isinstance(value, Mapping):
            options[option] = [f"{field}={text}" for field, text in value.items()]
        elif isinstance(value, Mapping):
            options[option] = ",".join(f"{axis}={one}" for axis, one in value.items())
        else:
            is_one = isinstance(value, str) and several[option]
            options[option] = [value] if is_one else value
    return kind, options


def ask_runs(runs: Runs, kind: Kind | None, options: Mapping[str, Any]) -> Answer:
    """Answer a question from the runs of a table.

    Raises:
        UserError: an option that is missing or does not fit the table.
    """
    assert kind is not None
    assert kind.of_table is not None
    finding = kind.of_table(runs, options)
    settings = getattr(finding.result, "nuisance", None) or options.get("nuisance", ())
    texts = [options.get(name) for name in ("x", "by")]
    named = [part for text in texts if text for part in text.split(",")]
    named += [*options.get("config", ()), *settings, *cost_columns(options)]
    return Answer((finding,), read_as=runs.read_as(settings, named))


def table_kinds() -> dict[str, Kind]:
    """Return the kinds that a table can be asked, by name."""
    return {kind.name: kind for kind in KINDS if kind.of_table is not None}


def read_runs(path: Path, kind: Kind | None, options: Mapping[str, Any]) -> Runs:
    """Return the runs of the table at ``path``, which a kind of question will be asked with these
    values of the command's options.

    Raises:
        UserError: an option that is missing or does not fit the table.
    """
    if kind is None:
        names = listed(list(table_kinds()), "or")
        raise UserError(f"a table needs --kind {names}")
    metric, replicate = options["metric"], options["replicate"]
    if metric is None:
        raise UserError("a table needs --metric, the column of the result")
    frame, notes = read_table(path)
    for name in (metric, *filter(None, [replicate])):
        if name not in frame:
            raise unknown_name("column", name, map(str, frame.columns))
    frame = _rows_where(frame, options["where"])
    for name in options["ignore"]:
        if name not in frame:
            raise unknown_name("column in --ignore", name, map(str, frame.columns))
    frame = frame.drop(columns=list(options["ignore"]))
    ends = set(RunColumns.__annotations__) - {"replicate"}
    columns: Any = {column: options[column] for column in ends}
    if replicate is not None:
        columns["replicate"] = replicate or None
    runs = Runs(frame, metric, columns, tuple(notes))
    if (options["pruned"] or options["failed"]) and runs.status_column is None:
        raise UserError(
            "--pruned and --failed need the column of the words: --status-column COLUMN"
        )
    return runs


def _rows_where(frame: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the rows whose columns have one of the values of each COLUMN=VALUE,..."""
    for condition in conditions:
        name, equals, text = condition.partition("=")
        if not equals:
            raise UserError(f"--where is COLUMN=VALUE,VALUE; got {condition!r}")
        if name not in frame:
            raise unknown_name("column in --where", name, map(str, frame.columns))
        column, values = frame[name], [read_value(part, frame[name]) for part in text.split(",")]
        for value in values:
            if not column.eq(value).any():
                known = sorted(map(str, column.dropna().unique()))
                raise UserError(
                    f"--where {name}: no row has {value!r}; there are {first_of(known)}"
                )
        frame = frame.loc[column.isin(values)]
    return frame.reset_index(drop=True)
