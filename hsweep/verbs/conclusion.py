"""How a verb that trains ends: the answer, the report, and where everything is."""

import contextlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands import command
from hsweep.errors import UserError
from hsweep.interrupts import EXIT_INTERRUPTED
from hsweep.paths import Home
from hsweep.redaction import redact
from hsweep.tracking.store import import_client
from hsweep.verbs.options import exit_with

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.answer import Answer
    from hsweep.planning.extension import Extension, Wanted
    from hsweep.record.reading import StudyTables
    from hsweep.record.study import Study
    from hsweep.running.outcome import Outcome
    from hsweep.tracking.tracker import TrackingTarget

EXIT_NOTHING_USABLE: Final = 1


class Conclusion:
    """Analyses a study that has just run and writes its analysis and report.

    The study is whole by then: whatever goes wrong here is said, not raised.
    """

    def __init__(self, target: "TrackingTarget") -> None:
        self.target = target
        self.answer: Answer | None = None
        self.problem = ""

    def import_ahead(self) -> None:
        """Import what tracking and analysis need: seconds of computing in all."""
        # What goes wrong here goes wrong again where it is called, and is said there.
        with contextlib.suppress(Exception):
            import_client(self.target)
        with contextlib.suppress(Exception):
            importlib.import_module("analysis.report")

    def __call__(self, study: "Study") -> list[Path]:
        """Return the files written."""
        try:
            from analysis.answer import answer_study
            from hsweep.record.reading import reading
            from hsweep.record.study import write_json

            with reading(study) as tables:
                self.answer = answer_study(study, tables)
                write_json(study.paths.analysis, self.answer.to_json())
                report = write_study_report(study, self.answer, self.target, tables)
            return [study.paths.analysis, report]
        except Exception as error:
            again = command("report", study.name, home=study.paths.home)
            self.problem = (
                f"the report could not be written ({redact(repr(error))}); every result "
                f"is kept, and `{again}` tries again"
            )
            return []


def write_study_report(
    study: "Study", answer: "Answer", target: "TrackingTarget", tables: "StudyTables"
) -> Path:
    """Write the report of a study into its folder, and return its path."""
    from analysis.report import report_input, write_report
    from hsweep.tracking.tracker import run_urls

    with study.journal() as journal:
        urls = run_urls(journal, target)
    return write_report(report_input(study, answer, urls, tables), study.paths.report)


def finish(
    study: "Study",
    outcome: "Outcome",
    conclusion: Conclusion,
    home: Home,
    as_json: bool,
    console: "Console",
    besides: Mapping[str, Any] | None = None,
) -> None:
    """Say the answer and where everything is, and choose the exit code.

    ``besides`` is added to what is printed as JSON.
    """
    from hsweep.running.outcome import closing_lines
    from hsweep.running.request import browse_line
    from hsweep.verbs.render import print_json

    answer = conclusion.answer
    for line in closing_lines(outcome, study, conclusion.target):
        console.print(line, soft_wrap=True)
    console.print()
    if answer is not None:
        if not outcome.is_complete:
            total = sum(outcome.counts.values())
            console.print(f"so far, with {outcome.num_ended} of {total} trials ended:")
        _say_answer(console, answer)
        console.print()
        if answer.settle_command is not None:
            console.print(f"settle   {answer.settle_command}", soft_wrap=True)
        if answer.confirm_command is not None:
            console.print(f"confirm  {answer.confirm_command}", soft_wrap=True)
    if conclusion.problem:
        console.print(conclusion.problem, style="red", soft_wrap=True)
    else:
        console.print(f"report   {study.paths.report}", soft_wrap=True)
    console.print(f"MLflow   {conclusion.target.shown_uri}", soft_wrap=True)
    if not conclusion.target.is_server:
        how = browse_line(conclusion.target, home)
        console.print(f"         browse it with: {how}", soft_wrap=True)
    if as_json:
        said = answer.to_json() if answer is not None else {"problem": conclusion.problem}
        content = {**study.status(), **said, "report": str(study.paths.report)}
        print_json({**content, **(besides or {})})
    if outcome.was_interrupted:
        exit_with(EXIT_INTERRUPTED)
    if outcome.is_in_trouble or not outcome.has_results:
        exit_with(EXIT_NOTHING_USABLE)


def _say_answer(console: "Console", answer: "Answer") -> None:
    """Print an answer and, right below it, what limits it."""
    from analysis.text.numbers import sentence

    console.print(answer.sentence, style="bold", soft_wrap=True)
    for text in answer.qualifications:
        console.print(sentence(text), soft_wrap=True)


def fill_missing(
    sweep_file: Path,
    study_name: str | None,
    storage: str | None,
    home: Home,
    how: dict[str, Any],
    given: Mapping[str, Any],
    console: "Console",
    as_json: bool,
) -> None:
    """Run what the analysis of a study lists as missing, and answer its question again.

    Raises:
        UserError: a study of another sweep or request, or one that is running.
    """
    from analysis.answer import answer_study
    from hsweep.running import missing, request
    from hsweep.verbs.render import print_json

    if storage is not None:
        raise UserError("--storage is chosen when a study begins; leave it out")
    study = missing.study_of(sweep_file, study_name, home, _only_given(given), console)
    how["tracking_uri"] = how["tracking_uri"] or request.recorded_tracking_uri(study)
    options = request.run_options(home, study.manifest.sweep, **how)
    answer = answer_study(study)
    wanted = _wanted(study, answer)
    if not wanted:
        console.print(f"{study.name} lacks no trial; there is nothing to run.", soft_wrap=True)
        _say_answer(console, answer)
        if as_json:
            print_json({**study.status(), **answer.to_json(), "added": None})
        return
    prepared, extension = missing.plan_missing(study, wanted)
    _announce(console, study, answer, extension)
    if not extension.additions:
        raise UserError("none of the missing trials can be run; the reasons are above")
    conclusion = Conclusion(options.target)
    outcome = missing.run_missing(study, prepared, extension, options, home, console, conclusion)
    added = {"added": extension.to_json()}
    finish(study, outcome, conclusion, home, as_json, console, added)


def _only_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that stand on the command line, their defaults left out."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in given.items()
        if context.get_parameter_source(name) is not default
    }


def _wanted(study: "Study", answer: "Answer") -> "list[Wanted]":
    """Return the runs that a study's findings lack, by the axis values on record."""
    from analysis.questions.commands import recorded_point
    from hsweep.planning.extension import Wanted

    with study.journal() as journal:
        points = list(journal.points())
    wanted = []
    for each in (missing for finding in answer.findings for missing in finding.missing):
        point = recorded_point(points, each.at) or each.at
        wanted.append(Wanted({axis: point[axis] for axis in each.at}, each.trials, each.why))
    return wanted


def _announce(console: "Console", study: "Study", answer: "Answer", extension: "Extension") -> None:
    number = len(extension.additions)
    console.print(answer.text, soft_wrap=True)
    console.print(
        f"{number} trial{'' if number == 1 else 's'} will be run in {study.name}, each to its full "
        "budget; what has finished stays:",
        style="bold",
        soft_wrap=True,
    )
    for line in extension.lines():
        console.print(f"  {line}", soft_wrap=True)
