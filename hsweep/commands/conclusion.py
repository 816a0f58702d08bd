"""How a command that trains ends: the answer, the report, and where everything is."""

import contextlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep.command_line import command
from hsweep.commands.model import weights_lines
from hsweep.commands.output import EXIT_NOTHING_USABLE, exit_with, print_json
from hsweep.errors import told
from hsweep.interrupts import EXIT_INTERRUPTED
from hsweep.paths import Home
from hsweep.redaction import redact
from hsweep.tracking.store import import_client

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.answer import Answer
    from analysis.charts.chart import Chart
    from analysis.report.build import ReportInput
    from hsweep.record.reading import StudyTables
    from hsweep.record.study import Study
    from hsweep.running.outcome import Outcome
    from hsweep.tracking.target import TrackingTarget


class Conclusion:
    """Analyses a study that has just run and writes its analysis and report.

    The study is whole by then: what goes wrong here becomes ``problem``.
    """

    def __init__(self, target: "TrackingTarget") -> None:
        self.target = target
        self.answer: Answer | None = None
        self.problem = ""

    def import_ahead(self) -> None:
        """Import what tracking and analysis need: seconds of computing in all."""
        # What goes wrong here goes wrong again where it is called, and becomes the problem there.
        with contextlib.suppress(Exception):
            import_client(self.target)
        with contextlib.suppress(Exception):
            importlib.import_module("analysis.ask")
            importlib.import_module("analysis.report.build")
            importlib.import_module("analysis.charts.plotly_page")

    def __call__(self, study: "Study") -> list[Path]:
        """Return the files that were written."""
        written: list[Path] = []
        try:
            from analysis.ask import answer_study
            from analysis.report.build import write_report
            from hsweep.files import write_json

            with study.reading() as tables:
                self.answer = answer_study(study, tables)
                write_json(study.paths.analysis, self.answer.to_json())
                written += [study.paths.analysis]
                shown = _shown(study, self.answer, self.target, tables)
                written += [write_report(shown, study.paths.report)]
                write_figures(study, shown)
                written += study.figures()
        except Exception as error:
            again = command("report", study.name, home=study.paths.home)
            self.problem = (
                f"the report could not be written ({redact(told(error))}); every result "
                f"is kept, and `{again}` tries again"
            )
        return written


def write_study_report(
    study: "Study", answer: "Answer", target: "TrackingTarget", tables: "StudyTables"
) -> Path:
    from analysis.report.build import write_report

    return write_report(_shown(study, answer, target, tables), study.paths.report)


def _shown(
    study: "Study", answer: "Answer", target: "TrackingTarget", tables: "StudyTables"
) -> "ReportInput":
    from analysis.report.build import report_input
    from hsweep.tracking.pages import reachable_run_urls

    return report_input(study, answer, reachable_run_urls(study.paths.journal, target), tables)


def write_figures(study: "Study", shown: "ReportInput") -> None:
    """Write the figures behind an answer as PNG, in place of those of an earlier one; none where
    nothing is answered."""
    answer = shown.answer
    charts: list[Chart] = []
    if answer.leading is not None and answer.is_answered:
        charts = answer.leading.charts(shown.answering)
    for path in study.figures():
        path.unlink()
    if charts:
        from analysis.charts.matplotlib_print import save_figures

        save_figures(charts, study.paths.figures, ("png",), each_once=True)


def conclude(
    conclusion: Conclusion,
    study: "Study",
    outcome: "Outcome",
    home: Home,
    console: "Console",
    as_json: bool,
    besides: Mapping[str, Any],
) -> None:
    """Print the answer of a study that has run and where everything is; choose the exit code.

    ``besides`` is added to what is printed as JSON.
    """
    print_end(console, study, outcome, conclusion, home)
    if as_json:
        answer = conclusion.answer
        content = answer.to_json() if answer is not None else {"problem": conclusion.problem}
        report = {"report": None if conclusion.problem else str(study.paths.report)}
        print_json({**study.status(), **content, **report, **besides})
    if outcome.was_interrupted:
        exit_with(EXIT_INTERRUPTED)
    if outcome.is_in_trouble or not outcome.has_results:
        exit_with(EXIT_NOTHING_USABLE)


def print_end(
    console: "Console", study: "Study", outcome: "Outcome", conclusion: Conclusion, home: Home
) -> None:
    """Print the answer of a study that has run, and where everything is."""
    from hsweep.running.outcome import browse_line, closing_lines
    from hsweep.tracking.pages import charts_url

    answer = conclusion.answer
    for line in closing_lines(outcome, study, conclusion.target):
        console.print(line)
    with study.journal() as journal:
        for line in weights_lines(study, journal):
            console.print(line, soft_wrap=True)
    console.print()
    if answer is not None:
        if not outcome.is_complete:
            total = sum(outcome.counts.values())
            console.print(f"so far, with {outcome.num_ended} of {total} trials ended:")
        print_answer(console, answer)
        console.print()
        if answer.settle_command is not None:
            console.print(f"settle   {answer.settle_command}")
        if answer.confirm_command is not None:
            console.print(f"confirm  {answer.confirm_command}")
    if conclusion.problem:
        console.print(conclusion.problem, style="red")
    else:
        console.print(f"report   {study.paths.report}")
    console.print(f"MLflow   {conclusion.target.shown_uri}")
    if not conclusion.target.is_server:
        how = browse_line(conclusion.target, home)
        console.print(f"         browse it with: {how}")
    if (url := charts_url(study.paths.journal, conclusion.target, study.manifest)) is not None:
        console.print(f"         its charts: {url}", soft_wrap=True)


def print_answer(console: "Console", answer: "Answer") -> None:
    """Print an answer and, right below it, what limits it."""
    from analysis.text.numbers import sentence

    console.print(answer.sentence, style="bold")
    for text in answer.qualifications:
        console.print(sentence(text))
