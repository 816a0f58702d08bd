"""The report of a study: what its page shows, and the page."""

import dataclasses
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from analysis.answer import NO_QUESTION, Answer
from analysis.charts.chart import Chart, uniquely_named
from analysis.charts.learning_curves import curve_chart, drawn_keys
from analysis.charts.picks import link_runs
from analysis.questions.base import Finding, Section, StudyRuns
from analysis.report.explore import explored, growing_style
from analysis.report.page import embed, render, write_page
from analysis.text import endings, tables
from analysis.text import trials as trials_text
from analysis.text.numbers import direction_text, number_text, sentence
from hsweep.command_line import command
from hsweep.design.question import Goal
from hsweep.record.study import StudyFolder
from hsweep.record.summary import composition_lines
from hsweep.record.tables import StudyTables, frame

_TITLE_LENGTH: Final = 120
_NO_LINKS: Final = (
    "did not answer when this page was written, so runs are not linked; `hsweep ui` serves a local "
    "store, and `hsweep report` writes the page again"
)


@dataclass(frozen=True)
class ReportInput:
    """Everything a report shows.

    Attributes:
        study: its name; of a table its file's.
        sweep, preset: empty for a table.
        question: the sweep file's docstring, plain text in paragraphs.
        metric, axes: columns of ``trials``.
        trials: one row a trial: ``key``, axes, ``seed``, ``stratum``, ``status``, ``reason``,
            ``reached``, ``budget``, metrics, costs, ``mlflow_url``; any of them may be missing.
        reports: one row a report: ``key``, ``unit``, ``step``, ``wall_seconds``, metrics.
        provenance: versions, hashes, machine; nested mappings are allowed.
        budget_unit: what ``unit`` counts: epochs or steps.
        orphaned: how many trials are no longer part of the study, by the reason.
        revisions: how the study's sweep was edited while it ran (see ``hsweep.running.change``).
        reported: keys of the trials that have a report, where ``reports`` holds only those of the
            trials whose learning curves are drawn; None where it holds all.
        notes: of the reports, by trial.
        composition: what the trials are.
        counted: the trials that answers rest on; None for all.
        resume_command: what goes on with trials that have not ended; empty without any.
    """

    study: str
    sweep: str
    preset: str
    question: str
    answer: Answer
    metric: str
    goal: Goal
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
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    composition: tuple[str, ...] = ()
    counted: pd.DataFrame | None = None
    resume_command: str = ""

    @property
    def answering(self) -> pd.DataFrame:
        """The trials that answers rest on."""
        return self.trials if self.counted is None else self.counted


def searched_axis(answer: Answer) -> str | None:
    """Return the axis that the leading finding searches; None where it searches none."""
    return None if answer.leading is None else getattr(answer.leading.result, "x", None)


def report_input(
    study: StudyFolder,
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
    runs = StudyRuns(study.manifest, tables)
    trials = runs.every_trial.copy(deep=False)
    if study.manifest.scouts:
        trials["role"] = np.where(trials["seed"] < study.manifest.scouts, "scout", "")
    counted = runs.trials.copy(deep=False)
    if run_urls:
        for each in (trials, counted):
            each["mlflow_url"] = each["key"].map(dict(run_urls))
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
        orphaned=tables.journal.orphaned_counts(),
        revisions=manifest.revisions,
        composition=tuple(composition_lines(tables.rows, manifest, tables.journal.num_runs())),
        counted=counted,
        resume_command=command("resume", study.name, home=study.paths.home)
        if answer.unfinished
        else "",
    )


def report_charts(report_input: ReportInput) -> list[Chart]:
    """Return every chart that the input has numbers for, in the page's order."""
    by_part, _ = _charts_by_part(report_input)
    return [chart for charts in by_part for chart in charts]


def _charts_by_part(report_input: ReportInput) -> tuple[list[list[Chart]], str]:
    """Return the charts of each finding, at the end that of the learning curves, and why there is
    none of these."""
    found = [list(finding.charts()) for finding in report_input.answer.findings]
    curves = curve_chart(
        report_input.trials,
        report_input.reports,
        report_input.metric,
        report_input.axes,
        searched_axis(report_input.answer),
        unit=report_input.budget_unit,
        log=report_input.goal == "min",
        reported=report_input.reported,
    )
    found.append([curves] if isinstance(curves, Chart) else [])
    every = link_runs([chart for charts in found for chart in charts], report_input.trials)
    named = iter(uniquely_named(every))
    by_part = [list(islice(named, len(charts))) for charts in found]
    return by_part, "" if isinstance(curves, Chart) else curves


def settings_table(answer: Answer) -> tables.Table:
    """Return every choice that the analyses made."""
    rows = [
        (finding.kind.name, each.name, _shown(getattr(finding.result.settings, each.name)))
        for finding in answer.findings
        if hasattr(finding.result, "settings")
        for each in dataclasses.fields(finding.result.settings)
    ]
    return tables.Table(("analysis", "setting", "value"), tuple(rows))


def _shown(value: object) -> str:
    return number_text(value, 6) if isinstance(value, int | float) else str(value)


class Part(NamedTuple):
    """What the page shows of one finding."""

    finding: Finding
    charts: list[Chart]
    sections: list[Section]

    @property
    def hint(self) -> str:
        """What it holds, in few words."""
        counts = {"figure": len(self.charts), "table": len(self.sections)}
        return ", ".join(
            f"{number} {what}{'' if number == 1 else 's'}"
            for what, number in counts.items()
            if number
        )


@dataclass(frozen=True, slots=True)
class Live:
    """What makes a report the page of a study that may run, served by ``hsweep watch``.

    Attributes:
        now: how the study stands, as `hsweep.watching.now.Now` has it.
        events: where the page hears of what happens.
        version: of the report; where a later event has another there are new results.
    """

    now: Mapping[str, Any]
    events: str
    version: int


def build_report(report_input: ReportInput, live: Live | None = None) -> str:
    """Return the whole page as HTML; ``live`` puts what happens now on top of it."""
    is_training = live is not None and live.now["state"] == "running"
    answer, shown, axes = report_input.answer, report_input.trials, report_input.axes
    leading = answer.leading
    badge, tone = (leading and leading.badge) or ("no verdict", "unknown")
    note = paragraphs(report_input.question)
    counts = trials_text.status_counts(shown)
    endings_shown = endings.endings_table(shown, axes, report_input.orphaned, report_input.notes)
    (*by_finding, curves), no_curves = _charts_by_part(report_input)
    parts = [
        Part(
            finding, charts, [s._replace(table=tables.first_rows(s.table)) for s in finding.tables]
        )
        for finding, charts in zip(answer.findings, by_finding, strict=True)
    ]
    # The picture of the answer stands beside it, and not a second time further down.
    first = next((each for each in parts if each.finding is leading and each.charts), None)
    picture = first.charts.pop(0) if first is not None else next(iter(curves), None)
    answering = report_input.answering
    cells = trials_text.cell_table(answering, axes)
    if len(answering) < len(shown):
        which = f"Counted are the trials that the answer rests on, {len(answering)} of {len(shown)}"
        budgets = "those of the answer's budget, without scouts"
        cells = dataclasses.replace(cells, note=f"{which}: {budgets}. {cells.note}".strip())
    own = [text for text in report_input.warnings if sentence(text) not in answer.sentences]
    swept = tables.varying_columns(shown, axes)
    columns = trials_text.trial_columns(shown, axes, report_input.metric)
    best = trials_text.best_table(shown, axes, report_input.metric, report_input.goal)
    views = explored(columns, swept, report_input.metric, report_input.goal)
    return render(
        "report.html.j2",
        [*chain(*by_finding, curves if first is not None else ()), *filter(None, [picture])],
        ("page", "table", "explore", "figures", *(["live"] if live is not None else [])),
        is_served=live is not None,
        live=None if live is None else embed({**asdict(live), **growing_style()}),
        title=f"{report_input.study} · hsweep report",
        input=report_input,
        badge=badge,
        tone=tone,
        question=_one_line(note) or report_input.study,
        note=note or [Paragraph("No question was written down.", False)],
        is_running=answer.unfinished > 0,
        picture=picture,
        limits=answer.sentences[1:],
        headline=_headline(report_input, best),
        next=[] if is_training else _next_commands(report_input),
        nothing_next="The study is running." if is_training else "No further runs are asked for.",
        swept=swept,
        facts=_facts(report_input, swept),
        counts=counts,
        num_trials=len(shown),
        best=best,
        composition=[sentence(text) for text in report_input.composition],
        endings=tables.first_rows(endings_shown),
        revisions=endings.revisions_table(report_input.revisions),
        answer=answer,
        curves=next(iter(curves), None) if first is not None else None,
        no_curves=no_curves or "They stand beside the answer.",
        parts=parts,
        cells=tables.first_rows(cells),
        warnings=list(dict.fromkeys([*own, *answer.warnings])),
        settings=settings_table(answer),
        provenance=tables.provenance_table(report_input.provenance),
        statuses=[count for count in counts if count.trials],
        explored=views is not None,
        trials_json=embed({**trials_text.embedded(columns), "explored": views}),
    )


def _one_line(note: Sequence["Paragraph"]) -> str:
    """Return a docstring's first paragraph, or as much of it as a heading holds."""
    text = note[0].text if note else ""
    if len(text) > _TITLE_LENGTH:
        text = re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]
    return textwrap.shorten(text, _TITLE_LENGTH, placeholder=" …")


def _headline(report_input: ReportInput, best: tables.Table) -> str:
    """Return the answer, and the best trial where nothing was asked."""
    answer = report_input.answer
    is_asked = answer.instead != NO_QUESTION if answer.instead else answer.leading is not None
    if is_asked or not best.rows:
        return answer.sentences[0]
    row = dict(zip(best.header, best.rows[0], strict=True))
    swept = tables.varying_columns(report_input.trials, report_input.axes)
    where = ", ".join(f"{name}={row[name]}" for name in swept if name in row)
    found = f"{report_input.metric} {row[report_input.metric]}"
    return f"The sweep asks no question. Its best trial has {found}{where and f', with {where}'}."


def _next_commands(report_input: ReportInput) -> list[tuple[str, str]]:
    """Return the commands that a study asks for, each with what it does."""
    answer = report_input.answer
    commands = (
        ("Go on, unless it runs already", report_input.resume_command or None),
        ("Train what the answer lacks", answer.settle_command),
        ("Confirm the choice with fresh seeds", answer.confirm_command),
    )
    return [(what, text) for what, text in commands if text is not None]


def _facts(report_input: ReportInput, swept: Sequence[str]) -> list[tuple[str, str]]:
    metric, goal = report_input.metric, report_input.goal
    fixed = trials_text.fixed_axes(report_input.trials, report_input.axes)
    facts = {
        "sweep": report_input.sweep,
        "preset": report_input.preset,
        "metric": report_input.answer.direction or direction_text(metric, goal),
        "swept": ", ".join(swept) or "nothing",
        "fixed": ", ".join(f"{name} = {value}" for name, value in fixed),
        "MLflow": ""
        if "mlflow_url" in report_input.trials or not report_input.sweep
        else _NO_LINKS,
    }
    return [(name, value) for name, value in facts.items() if value]


def write_report(report_input: ReportInput, path: Path) -> Path:
    """Write the page to ``path``, whole or not at all, and return ``path``."""
    return write_page(build_report(report_input), path)


class Paragraph(NamedTuple):
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
