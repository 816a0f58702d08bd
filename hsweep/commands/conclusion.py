"""The end of a command that trains: the answer, the report, and the places of the study's files."""

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.command_line import command
from hsweep.commands.model import weights_lines
from hsweep.commands.output import EXIT_NOTHING_USABLE, exit_with, print_json
from hsweep.errors import format_error
from hsweep.paths import Home
from hsweep.secrets import redact
from hsweep.signals import EXIT_INTERRUPTED, EXIT_UNFINISHED

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.answer import Answer
    from analysis.charts.chart import Chart
    from analysis.questions.base import Count, Section
    from hsweep.record.study import StudyFolder
    from hsweep.record.tables import StudyTables
    from hsweep.running.outcome import Outcome
    from hsweep.tracking.target import TrackingTarget

_MODULES: Final = (
    "hsweep.tracking.mlflow_runs",
    "analysis.ask",
    "analysis.report.build",
    "analysis.charts.plotly_page",
    "analysis.charts.matplotlib_print",
)
"""The modules of the answer and the report, in the order of their import. MLflow comes first: the
tracker imports it in another thread, it shares libraries with the other modules, and two threads
must not begin with different parts of one library."""


class Conclusion:
    """Prints the answer of a study that has just run, then writes its report.

    The study is complete on disk before that, so an error only becomes the text ``problem``.
    """

    def __init__(self, target: "TrackingTarget", console: "Console") -> None:
        self.problem = ""
        self._target, self._console = target, console
        self._answer: Answer | None = None
        self._reading = contextlib.ExitStack()
        self._tables: StudyTables | None = None

    def prepare(self) -> None:
        """Import the modules of the answer and the report."""
        for name in _MODULES:
            importlib.import_module(name)

    def answer(self, study: "StudyFolder", outcome: "Outcome", count: "Count") -> None:
        """Find the answer, write it, and print it with how the trials ended."""
        results = None
        with self._note_problem(study):
            from analysis.ask import answer_study
            from analysis.questions.base import StudyRuns
            from analysis.results import results_section
            from hsweep.files import write_json
            from hsweep.planning.prepare import own_question

            self._tables = self._reading.enter_context(study.reading())
            runs = StudyRuns(study.manifest, self._tables)
            results = results_section(runs, self._console.width)
            self._answer = answer_study(study, self._tables, count, own_question(study))
            write_json(study.paths.analysis, self._answer.to_json())
        _print_outcome(self._console, study, outcome, self._answer, results)

    def write(self, study: "StudyFolder") -> list[Path]:
        """Write the report and the figures; return their files."""
        files: list[Path] = []
        with self._reading, self._note_problem(study):
            if self._answer is not None and self._tables is not None:
                files += [study.paths.analysis]
                files += [write_study_report(study, self._answer, self._target, self._tables)]
                _write_figures(study, self._answer)
                files += study.figures()
        return files

    @contextlib.contextmanager
    def _note_problem(self, study: "StudyFolder") -> Iterator[None]:
        """Keep an error of the ``with`` block as ``problem``."""
        try:
            yield
        except Exception as error:
            again = command("report", study.name, home=study.paths.home)
            self.problem = (
                f"the report could not be written ({redact(format_error(error))}); every result "
                f"is kept, and `{again}` tries again"
            )

    def print_places(self, study: "StudyFolder", outcome: "Outcome", home: Home) -> None:
        """Print where the study's files are, and which could not be written."""
        from hsweep.running.outcome import browse_line
        from hsweep.tracking.ui import charts_page

        console, target = self._console, self._target
        if self.problem:
            console.print(self.problem, style="red")
        else:
            console.print(f"report   {study.paths.report}")
        for line in outcome.undelivered:
            console.print(line)
        console.print(f"MLflow   {target.shown_uri}")
        charts = browse_line(target, home, study.name)
        if target.is_server:
            charts = f"{target.page}/{charts_page(study.paths.journal, target, study.manifest)}"
        console.print(f"         its charts: {charts}", soft_wrap=True)

    def to_json(self, study: "StudyFolder") -> dict[str, Any]:
        answer = {"problem": self.problem} if self._answer is None else self._answer.to_json()
        return {**answer, "report": None if self.problem else str(study.paths.report)}


def conclude(
    conclusion: Conclusion,
    study: "StudyFolder",
    outcome: "Outcome",
    home: Home,
    *,
    as_json: bool,
    extra_json: Mapping[str, Any] | None = None,
) -> None:
    """Print where the files of a study that has run are, and choose the exit code; ``extra_json``
    are further entries of the printed JSON."""
    conclusion.print_places(study, outcome, home)
    if as_json:
        seconds = {"wall_seconds": round(outcome.wall_seconds, 2)}
        entries = {**study.status(), **conclusion.to_json(study), **seconds, **(extra_json or {})}
        print_json(entries)
    if outcome.was_interrupted and not (outcome.was_terminated and outcome.is_complete):
        exit_with(EXIT_UNFINISHED if outcome.was_terminated else EXIT_INTERRUPTED)
    if outcome.is_in_trouble or not outcome.has_results:
        exit_with(EXIT_NOTHING_USABLE)


def write_study_report(
    study: "StudyFolder", answer: "Answer", target: "TrackingTarget", tables: "StudyTables"
) -> Path:
    from analysis.report.build import report_input, write_report
    from hsweep.tracking.ui import reachable_run_urls

    run_urls = reachable_run_urls(study.paths.journal, target)
    return write_report(report_input(study, answer, run_urls, tables), study.paths.report)


def _write_figures(study: "StudyFolder", answer: "Answer") -> None:
    """Write the figures behind an answer as PNG and remove those of an earlier answer; without an
    answer there are no figures."""
    charts: Sequence[Chart] = ()
    if answer.leading is not None and answer.instead is None:
        charts = answer.leading.charts()
    for path in study.figures():
        path.unlink()
    if charts:
        from analysis.charts.matplotlib_print import save_figures

        save_figures(charts, study.paths.figures, ("png",))


def _print_outcome(
    console: "Console",
    study: "StudyFolder",
    outcome: "Outcome",
    answer: "Answer | None",
    results: "Section | None",
) -> None:
    """Print how the runs of a study ended, the results table, and the answer."""
    from hsweep.running.outcome import closing_lines

    with study.journal() as journal:
        lines = [*closing_lines(outcome, study), *weights_lines(study, journal)]
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print()
    if answer is None:
        return
    from analysis.terminal import print_table, show_sentences

    if results is not None:
        print_table(console, results.title, results.table)
        console.print()
    if not outcome.is_complete:
        console.print(f"so far, with {outcome.num_ended} of {outcome.num_runs} runs ended:")
    show_sentences(console, answer)
    console.print()
    if answer.settle_command is not None:
        console.print(f"settle   {answer.settle_command}")
    if answer.confirm_command is not None:
        console.print(f"confirm  {answer.confirm_command}")
