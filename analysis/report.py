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
from typing import Any, Final, NamedTuple

import pandas as pd
from markupsafe import Markup

from analysis.charts.chart import Chart, uniquely_named
from analysis.charts.learning_curves import LearningCurves, curve_chart, learning_curves
from analysis.charts.plotly_page import plotly_script
from analysis.findings.against_results import AgainstResult
from analysis.findings.conditioning_results import ConditioningResult
from analysis.findings.effect_results import EffectsResult
from analysis.findings.results import LeanResult, ParetoResult, TransitionResult
from analysis.findings.surrogate_results import SurrogateResult
from analysis.lean_groups import LeanGroups
from analysis.page import (
    TEMPLATES,
    content_policy,
    embed,
    environment,
    figures_data,
    write_page,
)
from analysis.questions.conditioning.charts import conditioning_charts
from analysis.questions.effects.charts import effect_charts
from analysis.questions.lean.charts import Comparison, comparisons, forest_chart, roles_in
from analysis.questions.pareto.charts import front_charts
from analysis.questions.surrogate.charts import surrogate_charts
from analysis.questions.transition.charts import transition_charts
from analysis.words import (
    against_wording,
    conditioning_wording,
    ending_tables,
    tables,
    trial_tables,
)
from analysis.words.shape_sections import shape_sections
from analysis.words.wording import (
    Result,
    answer_sentence,
    groups_badge,
    groups_sentence,
    groups_sentences,
    sentence,
    verdict_badge,
)
from hsweep.design.question import Goal, Scale

__all__ = ["ReportInput", "answer_sentence", "build_report", "write_report"]

_TITLE_LENGTH: Final = 120


@dataclass(frozen=True)
class ReportInput:
    """Everything a report shows.

    Attributes:
        study: the study's name.
        sweep: the sweep file.
        preset: the preset that was run.
        question: the sweep file's docstring, plain text in paragraphs.
        answer: one sentence with its uncertainty (`answer_sentence`).
        metric: the metric column of ``trials`` and ``reports``.
        goal: whether it is minimised or maximised.
        scale: how it is put on an axis.
        axes: the swept axes, columns of ``trials``.
        transition: the transition, where one was asked for.
        pareto: the front, where one was asked for.
        lean: the lean equivalents, where they were asked for.
        lean_groups: the lean comparisons, where the study holds several.
        trials: one row a trial: ``key``, axes, ``seed``, ``stratum``, ``status``, ``reason``,
            ``reached``, ``budget``, metrics, costs, ``mlflow_url``; any of them may be missing.
        reports: one row a report: ``key``, ``unit``, ``step``, ``wall_seconds``, metrics.
        reported: keys of the trials that have a report, where ``reports`` holds only those of the
            trials whose learning curves are drawn; None where it holds all.
        notes: of the reports, by trial; None where ``reports`` has them.
        provenance: versions, hashes, machine; nested mappings are allowed.
        repeat_command: the command lines that repeat the study.
        confirm_command: the one that confirms a lean choice with fresh seeds; None without one.
        settle_command: the one that runs what the answer lacks; None where it lacks nothing.
        qualifications: what limits the answer, shown right below it.
        warnings: what a reader has to know besides.
        budget_unit: what ``unit`` counts: epochs or steps.
        orphaned: how many trials are no longer part of the study, by the reason.
        revisions: how the study's sweep was edited while it ran (see ``hsweep.running.edit``).
        conditioning: what a probe's condition numbers say, where there are any.
        published: the study beside the published results that it repeats, if there are any.
        effects: what each axis does, where at least two of numbers vary.
        surrogate: what untried shapes are expected to do.
    """

    study: str
    sweep: str
    preset: str
    question: str
    answer: str
    metric: str
    goal: Goal
    scale: Scale
    axes: tuple[str, ...]
    transition: TransitionResult | None
    pareto: ParetoResult | None
    lean: LeanResult | None
    trials: pd.DataFrame
    reports: pd.DataFrame
    provenance: Mapping[str, Any]
    repeat_command: str
    warnings: tuple[str, ...] = ()
    budget_unit: str = "budget units"
    lean_groups: LeanGroups | None = None
    conditioning: ConditioningResult | None = None
    published: AgainstResult | None = None
    confirm_command: str | None = None
    settle_command: str | None = None
    qualifications: tuple[str, ...] = ()
    effects: EffectsResult | None = None
    surrogate: SurrogateResult | None = None
    orphaned: Mapping[str, int] = field(default_factory=dict)
    revisions: Sequence[Mapping[str, Any]] = ()
    reported: Collection[str] | None = None
    notes: Mapping[str, tuple[str, ...]] | None = None

    @property
    def comparisons(self) -> list[Comparison]:
        """The lean comparisons: none, one, or one a group."""
        return comparisons(self.lean, self.lean_groups)

    @property
    def fronts(self) -> "list[Front]":
        """The fronts: none, one, or one for each task that the study learns."""
        groups = self.lean_groups
        if groups is None or not groups.fronts:
            return [Front(self.pareto, self.comparisons, self.trials)] if self.pareto else []
        by_value = {each.value: each for each in self.comparisons}
        values = self.trials[groups.within].astype(str)
        return [
            Front(
                front,
                [by_value[value]] if value in by_value else [],
                self.trials.loc[values == value],
                f"{groups.within} = {value}",
            )
            for value, front in groups.fronts.items()
        ]

    @property
    def leading_result(self) -> Result | None:
        """The result that answers the question."""
        return self.transition or self.lean or self.pareto

    def learning_curves(self) -> LearningCurves:
        """Every trial's curve, grouped by the searched axis where a transition was asked for."""
        return learning_curves(
            self.trials,
            self.reports,
            self.metric,
            self.axes,
            self.transition.x if self.transition is not None else None,
            log=self.scale == "error",
            reported=self.reported,
        )


class Front(NamedTuple):
    """A front of a study, and what belongs to it.

    Attributes:
        result: the front.
        comparisons: the lean comparisons over its shapes.
        trials: its trials.
        heading: which of several it is; empty for a study's only one.
    """

    result: ParetoResult
    comparisons: list[Comparison]
    trials: pd.DataFrame
    heading: str = ""

    def named(self, name: str) -> str:
        """Return an identifier made this front's own."""
        own = re.sub(r"\W+", "-", self.heading).strip("-")
        return f"{name}-{own}" if own else name

    def titled(self, title: str) -> str:
        """Return a heading made this front's own."""
        return f"{title}, {self.heading}" if self.heading else title


def report_charts(report_input: ReportInput) -> list[Chart]:
    """Return every chart that the input has numbers for, in the page's order."""
    found: list[Chart] = []
    if report_input.transition is not None:
        found += transition_charts(report_input.transition, report_input.trials)
    for front in report_input.fronts:
        found += [
            dataclasses.replace(
                chart, name=front.named(chart.name), title=front.titled(chart.title)
            )
            for chart in front_charts(front.result, front.trials, roles_in(front.comparisons))
        ]
    if forest := forest_chart(report_input.comparisons):
        found.append(forest)
    if report_input.conditioning is not None:
        found += conditioning_charts(report_input.conditioning)
    if report_input.effects is not None:
        found += effect_charts(report_input.effects)
    if report_input.surrogate is not None:
        found += surrogate_charts(report_input.surrogate)
    curves = report_input.learning_curves()
    if drawn := curve_chart(curves, report_input.metric, report_input.budget_unit):
        found.append(drawn)
    return uniquely_named(found)


def all_warnings(report_input: ReportInput) -> list[str]:
    """Return the warnings of the study and of every result, each once."""
    groups = report_input.lean_groups
    found = groups.found.values() if groups is not None else ()
    results = (
        *(report_input.transition, *(front.result for front in report_input.fronts)),
        report_input.lean,
        *(*found, report_input.conditioning, report_input.effects, report_input.surrogate),
    )
    inner = [text for result in results if result is not None for text in result.warnings]
    every = dict.fromkeys([*report_input.warnings, *inner])
    return [text for text in every if text not in report_input.qualifications]


def build_report(report_input: ReportInput) -> str:
    """Return the whole page as HTML."""
    drawn = report_charts(report_input)
    figures = figures_data(drawn)
    table_script, figures_script = (
        (TEMPLATES / name).read_text("utf-8") for name in ("report_table.js", "report_figures.js")
    )
    groups = report_input.lean_groups
    badge, tone = groups_badge(groups) if groups else verdict_badge(report_input.leading_result)
    measured = report_input.conditioning
    measured_leads = groups is None and report_input.leading_result is None
    if measured is not None and measured_leads:
        badge, tone = conditioning_wording.conditioning_badge(measured)
    trials = trial_tables.trial_table(report_input.trials, report_input.axes, report_input.metric)
    note = paragraphs(report_input.question) or [Paragraph("No question was written down.", False)]
    # A docstring's first paragraph is often no more than its title.
    shown = 2 if len(note[0].text) < _TITLE_LENGTH else 1
    transition, lean = report_input.transition, report_input.lean
    missing = tables.missing_table(transition) if transition is not None else None
    sections = [
        ("Numbers of the transition", tables.reading_table(transition) if transition else None),
        ("Trials that would settle it", missing if missing and missing.rows else None),
        ("Candidates", tables.lean_table(tables.established_first(lean)) if lean else None),
        *_group_sections(groups),
        *_missing_runs_sections(lean, groups),
        *(
            (front.titled("Shapes"), tables.pareto_table(tables.likeliest_first(front.result)))
            for front in report_input.fronts
        ),
        *_conditioning_sections(measured, leads=measured_leads),
        *shape_sections(report_input.effects, report_input.surrogate),
        *_published_sections(report_input.published),
    ]
    page = environment().get_template("report.html.j2")
    return page.render(
        input=report_input,
        badge=badge,
        tone=tone,
        question=note[:shown],
        question_rest=note[shown:],
        swept=tables.varying_columns(report_input.trials, report_input.axes),
        fixed=trial_tables.fixed_axes(report_input.trials, report_input.axes),
        counts=trial_tables.status_counts(report_input.trials),
        num_trials=len(report_input.trials),
        endings=tables.first_rows(
            ending_tables.endings_table(
                report_input.trials,
                report_input.reports,
                report_input.axes,
                report_input.orphaned,
                report_input.notes,
            )
        ),
        revisions=ending_tables.revisions_table(report_input.revisions),
        charts=drawn,
        figures=figures["figures"],
        answer=groups_sentences(groups)
        if groups is not None and report_input.answer == groups_sentence(groups)
        else [report_input.answer],
        result_tables=[
            (title, tables.first_rows(table)) for title, table in sections if table is not None
        ],
        cells=tables.first_rows(
            trial_tables.cell_table(transition, report_input.trials, report_input.axes)
        ),
        qualifications=[sentence(text) for text in report_input.qualifications],
        warnings=all_warnings(report_input),
        settings=tables.settings_table(
            transition,
            report_input.fronts[0].result if report_input.fronts else None,
            lean,
            measured,
            report_input.effects,
            report_input.surrogate,
        ),
        provenance=tables.provenance_table(report_input.provenance),
        statuses=[
            count for count in trial_tables.status_counts(report_input.trials) if count.count
        ],
        css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        policy=content_policy(plotly_script(), table_script, figures_script),
        plotly_script=Markup(plotly_script()),
        table_script=Markup(table_script),
        figures_script=Markup(figures_script),
        trials_json=embed(
            {
                **trial_tables.embedded(trials),
                "statusLabels": trial_tables.STATUS_LABELS,
            }
        ),
        figures_json=embed(figures),
    )


def _group_sections(groups: LeanGroups | None) -> list[tuple[str, tables.Table]]:
    if groups is None:
        return []
    return [
        ("Candidates", tables.group_candidates_table(groups)),
        ("Baselines", tables.group_baselines_table(groups)),
    ]


def _missing_runs_sections(
    lean: LeanResult | None, groups: LeanGroups | None
) -> list[tuple[str, tables.Table]]:
    results = {"": lean} if lean is not None else groups.found if groups is not None else {}
    table = tables.missing_runs_table(results, groups.within if groups is not None else "")
    return [("Trials that would settle it", table)] if table.rows else []


def _conditioning_sections(
    result: ConditioningResult | None, *, leads: bool
) -> list[tuple[str, tables.Table]]:
    if result is None:
        return []
    tests = conditioning_wording.correlations_table(result)
    if not leads:  # else the page's answer has said it
        said = conditioning_wording.conditioning_sentence(result)
        tests = dataclasses.replace(tests, note=f"{said} {tests.note}")
    return [
        ("Conditioning", tests),
        ("Condition numbers", conditioning_wording.shapes_table(result)),
    ]


def _published_sections(result: AgainstResult | None) -> list[tuple[str, tables.Table]]:
    if result is None:
        return []
    said = against_wording.against_sentence(result)
    if not result.comparable:
        return [("Beside the paper", tables.Table(("outcome",), ((said,),)))]
    compared = against_wording.against_table(result)
    missing = against_wording.missing_printed_table(result)
    sections = [("Beside the paper", dataclasses.replace(compared, note=f"{said} {compared.note}"))]
    if missing.rows:
        sections.append(("Published, not run", missing))
    return sections


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
