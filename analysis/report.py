"""The report: one HTML file that answers the sweep's question offline, on a phone and in print.

The page fetches nothing. Its content security policy allows exactly the scripts written here, by
their hashes; whatever came from data is escaped.
"""

import dataclasses
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
from markupsafe import Markup

from analysis.answer import Answer
from analysis.charts.chart import Chart, uniquely_named
from analysis.charts.learning_curves import LearningCurves, curve_chart, drawn_keys, learning_curves
from analysis.charts.plotly_page import plotly_script
from analysis.page import (
    TEMPLATES,
    content_policy,
    embed,
    environment,
    figures_data,
    write_page,
)
from analysis.questions.base import Section
from analysis.text import endings, tables, trials
from analysis.text.numbers import number_text, sentence
from hsweep.design.question import Goal, Scale
from hsweep.record.reading import StudyTables
from hsweep.record.study import Study
from hsweep.record.tables import frame

_TITLE_LENGTH: Final = 120


@dataclass(frozen=True)
class ReportInput:
    """Everything a report shows.

    Attributes:
        study: the study's name.
        sweep: the sweep file.
        preset: the preset that was run.
        question: the sweep file's docstring, plain text in paragraphs.
        answer: what every kind of question found.
        metric: the metric column of ``trials`` and ``reports``.
        goal: whether it is minimised or maximised.
        scale: how it is put on an axis.
        axes: the swept axes, columns of ``trials``.
        trials: one row a trial: ``key``, axes, ``seed``, ``stratum``, ``status``, ``reason``,
            ``reached``, ``budget``, metrics, costs, ``mlflow_url``; any of them may be missing.
        reports: one row a report: ``key``, ``unit``, ``step``, ``wall_seconds``, metrics.
        provenance: versions, hashes, machine; nested mappings are allowed.
        repeat_command: the command lines that repeat the study.
        warnings: what a reader has to know besides.
        budget_unit: what ``unit`` counts: epochs or steps.
        orphaned: how many trials are no longer part of the study, by the reason.
        revisions: how the study's sweep was edited while it ran (see ``hsweep.running.edit``).
        reported: keys of the trials that have a report, where ``reports`` holds only those of the
            trials whose learning curves are drawn; None where it holds all.
        notes: of the reports, by trial; None where ``reports`` has them.
    """

    study: str
    sweep: str
    preset: str
    question: str
    answer: Answer
    metric: str
    goal: Goal
    scale: Scale
    axes: tuple[str, ...]
    trials: pd.DataFrame
    reports: pd.DataFrame
    provenance: Mapping[str, Any]
    repeat_command: str
    warnings: tuple[str, ...] = ()
    budget_unit: str = "budget units"
    orphaned: Mapping[str, int] = field(default_factory=dict)
    revisions: Sequence[Mapping[str, Any]] = ()
    reported: Collection[str] | None = None
    notes: Mapping[str, tuple[str, ...]] | None = None

    def learning_curves(self) -> LearningCurves:
        """Every trial's curve, grouped by the searched axis where there is one."""
        return learning_curves(
            self.trials,
            self.reports,
            self.metric,
            self.axes,
            searched_axis(self.answer),
            log=self.scale == "error",
            reported=self.reported,
        )


def searched_axis(answer: Answer) -> str | None:
    """Return the axis that a finding searches; None where none does."""
    return next((each.searched_axis for each in answer.findings if each.searched_axis), None)


def report_input(
    study: Study,
    answer: Answer,
    run_urls: Mapping[str, str],
    tables: StudyTables | None = None,
) -> ReportInput:
    """Return everything a study's report shows.

    ``tables`` are those that the answer comes from, if they are at hand.
    """
    if tables is None:
        with study.reading() as tables:
            return report_input(study, answer, run_urls, tables)
    trials = tables.trials_frame()
    if run_urls:
        trials["mlflow_url"] = trials["key"].map(dict(run_urls))
    manifest = study.manifest
    axes, accepted = tuple(manifest.axes), list(manifest.accepted)
    drawn = drawn_keys(trials, tables.reported, axes, searched_axis(answer))
    return ReportInput(
        study=study.name,
        sweep=manifest.sweep,
        preset=manifest.preset,
        question=manifest.description,
        answer=answer,
        metric=manifest.metric,
        goal="max" if manifest.goal == "max" else "min",
        scale=manifest.question["scale"] if manifest.question else "loss",
        axes=axes,
        trials=trials,
        reports=frame(tables.reports_of(drawn)),
        reported=tables.reported,
        notes=tables.notes(),
        provenance={
            **manifest.provenance,
            **({"accepted changes of code": accepted} if accepted else {}),
        },
        repeat_command="\n".join([manifest.command, *manifest.later_commands]),
        warnings=(
            *(each for each in (answer.problem, tables.search_end) if each),
            *tables.mixed_versions(),
        ),
        budget_unit=str(manifest.budget["unit"]),
        orphaned=tables.orphaned_counts(),
        revisions=manifest.revisions,
    )


def report_charts(report_input: ReportInput) -> list[Chart]:
    """Return every chart that the input has numbers for, in the page's order."""
    found = [
        chart
        for finding in report_input.answer.findings
        for chart in finding.charts(report_input.trials)
    ]
    curves = report_input.learning_curves()
    if drawn := curve_chart(curves, report_input.metric, report_input.budget_unit):
        found.append(drawn)
    return uniquely_named(found)


def all_warnings(report_input: ReportInput) -> list[str]:
    """Return the warnings of the study and of every finding, each once."""
    answer = report_input.answer
    own = [text for text in report_input.warnings if text not in answer.qualifications]
    return list(dict.fromkeys([*own, *answer.warnings_of(answer.findings)]))


def sections(answer: Answer) -> list[Section]:
    """Return the tables of every finding, in the page's order."""
    return [
        section._replace(table=tables.first_rows(section.table))
        for finding in answer.findings
        for section in finding.page_tables(beside=finding is not answer.leading)
    ]


def settings_table(answer: Answer) -> tables.Table:
    """Return every choice that the analyses made."""
    rows = [
        (analysis, each.name, _shown(getattr(settings, each.name)))
        for finding in answer.findings
        for analysis, settings in finding.settings.items()
        for each in dataclasses.fields(settings)
    ]
    return tables.Table(("analysis", "setting", "value"), tuple(rows))


def _shown(value: object) -> str:
    return number_text(value, 6) if isinstance(value, int | float) else str(value)


def _cells(report_input: ReportInput) -> tables.Table:
    """Return how the trials of each cell ended, as a finding counts them or by shape."""
    counted = (finding.cells() for finding in report_input.answer.findings)
    own = next((table for table in counted if table is not None), None)
    return own or trials.cell_table(report_input.trials, report_input.axes)


def build_report(report_input: ReportInput) -> str:
    """Return the whole page as HTML."""
    answer = report_input.answer
    drawn = report_charts(report_input)
    figures = figures_data(drawn)
    table_script, figures_script = (
        (TEMPLATES / name).read_text("utf-8") for name in ("report_table.js", "report_figures.js")
    )
    leading = answer.leading
    badge, tone = ("no verdict", "unknown") if leading is None else leading.badge
    note = paragraphs(report_input.question) or [Paragraph("No question was written down.", False)]
    # A docstring's first paragraph is often no more than its title.
    shown = 2 if len(note[0].text) < _TITLE_LENGTH else 1
    counts = trials.status_counts(report_input.trials)
    endings_shown = endings.endings_table(
        report_input.trials,
        report_input.reports,
        report_input.axes,
        report_input.orphaned,
        report_input.notes,
    )
    page = environment().get_template("report.html.j2")
    return page.render(
        input=report_input,
        badge=badge,
        tone=tone,
        question=note[:shown],
        question_rest=note[shown:],
        swept=tables.varying_columns(report_input.trials, report_input.axes),
        fixed=trials.fixed_axes(report_input.trials, report_input.axes),
        counts=counts,
        num_trials=len(report_input.trials),
        endings=tables.first_rows(endings_shown),
        revisions=endings.revisions_table(report_input.revisions),
        charts=drawn,
        figures=figures["figures"],
        answer=answer,
        sections=sections(answer),
        cells=tables.first_rows(_cells(report_input)),
        qualifications=[sentence(text) for text in answer.qualifications],
        warnings=all_warnings(report_input),
        settings=settings_table(answer),
        provenance=tables.provenance_table(report_input.provenance),
        statuses=[count for count in counts if count.count],
        css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        policy=content_policy(plotly_script(), table_script, figures_script),
        plotly_script=Markup(plotly_script()),
        table_script=Markup(table_script),
        figures_script=Markup(figures_script),
        trials_json=embed(
            trials.embedded(
                trials.trial_table(report_input.trials, report_input.axes, report_input.metric)
            )
        ),
        figures_json=embed(figures),
    )


def write_report(report_input: ReportInput, path: Path) -> Path:
    """Write the page to ``path``, whole or not at all, and return ``path``."""
    return write_page(build_report(report_input), path)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A block of a docstring: prose without its line breaks, or indented text as it stands."""

    text: str
    is_code: bool


def paragraphs(text: str) -> list[Paragraph]:
    """Return the blocks of a docstring, which empty lines part."""
    found = []
    for block in re.split(r"\n[ \t]*\n", textwrap.dedent(text.replace("\r\n", "\n"))):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        if all(line[0].isspace() for line in lines):
            found.append(Paragraph(textwrap.dedent("\n".join(lines)), True))
        else:
            found.append(Paragraph(" ".join(line.strip() for line in lines), False))
    return found
