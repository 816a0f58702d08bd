"""The report of a study: its content, and the page written from it."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from analysis.answer import NO_QUESTION, Answer
from analysis.charts import palette
from analysis.charts.chart import Axis, Chart, uniquely_named
from analysis.charts.learning_curves import curve_chart
from analysis.charts.picks import link_runs
from analysis.questions.base import Finding, Section, StudyRuns
from analysis.report.page import embed, render, write_page
from analysis.runs.statuses import NOT_NEEDED
from analysis.text import tables
from analysis.text import trials as trials_text
from analysis.text.numbers import direction_text, number_text, sentence
from analysis.values import describe
from hsweep.command_line import command
from hsweep.design.labels import counted, varying_axes
from hsweep.design.scales import Goal
from hsweep.record.study import StudyFolder
from hsweep.record.summary import SEARCH_END, composition_lines, remarks
from hsweep.record.tables import StudyTables, mixed_versions_lines

_TITLE_LENGTH: Final = 120
_NO_LINKS: Final = (
    "did not answer when this page was written, so runs are not linked; `hsweep ui` serves a local "
    "store, and `hsweep report` writes the page again"
)


@dataclass(frozen=True)
class ReportInput:
    """Everything a report shows.

    Attributes:
        study: the study's name, or the name of a table's file.
        question: the sweep file's docstring, plain text in paragraphs.
        metric, axes: columns of ``trials``.
        trials: one row a trial: ``key``, axes, ``seed``, ``stratum``, ``status``, ``reason``,
            ``reached``, ``budget``, metrics, costs, ``mlflow_url``; any of them may be missing.
        curves: the learning curves, or why there are none.
        provenance: versions, hashes, machine; nested mappings are allowed.
        sweep, preset: empty for a table.
        endings: trials that did not simply train to the end, by what happened to them.
        revisions: how the study's sweep was edited.
        composition: sentences on how many trials the study has and how many were not needed.
        resume_command: the command that continues unfinished trials; empty if all have ended.
        unasked: statuses of trials that no search asked for: the table lists them on request.
        runs: how many trials will have been started at the end; None for all of them.
    """

    study: str
    question: str
    answer: Answer
    metric: str
    goal: Goal
    axes: tuple[str, ...]
    trials: pd.DataFrame
    curves: Chart | str
    provenance: Mapping[str, Any]
    repeat_command: str
    sweep: str = ""
    preset: str = ""
    warnings: tuple[str, ...] = ()
    endings: tables.Table = tables.NO_TABLE
    revisions: tables.Table = tables.NO_TABLE
    composition: tuple[str, ...] = ()
    resume_command: str = ""
    unasked: tuple[str, ...] = (NOT_NEEDED,)
    runs: int | None = None


def searched_axis(answer: Answer) -> str | None:
    """Return the axis along which the leading finding searches; None if there is no such axis."""
    return None if answer.leading is None else getattr(answer.leading.result, "x", None)


def report_input(
    study: StudyFolder, answer: Answer, run_urls: Mapping[str, str], tables: StudyTables
) -> ReportInput:
    """Return everything a study's report shows; ``tables`` are the tables behind the answer."""
    manifest = study.manifest
    runs = StudyRuns(manifest, tables)
    trials = runs.every_trial.copy(deep=False)
    if manifest.scouts:
        trials["role"] = np.where(trials["seed"] < manifest.scouts, "scout", "")
    if run_urls:
        trials["mlflow_url"] = trials["key"].map(dict(run_urls))
    axes, accepted = tuple(manifest.axes), list(manifest.accepted)
    varying = varying_axes(row.point for row in tables.rows)
    outcomes = remarks(tables.rows, tables.journal.noted_reports(), varying)
    resume = command("resume", study.name, home=study.paths.home)
    return ReportInput(
        study=study.name,
        sweep=manifest.sweep,
        preset=manifest.preset,
        question=manifest.description,
        answer=answer,
        metric=manifest.metric,
        goal=runs.goal,
        axes=axes,
        trials=trials,
        curves=curve_chart(
            trials,
            tables.reported,
            tables.reports_of,
            manifest.metric,
            axes,
            searched_axis(answer),
            unit=str(manifest.budget["unit"]),
            log=runs.goal == "min",
        ),
        provenance={
            **manifest.provenance,
            **({"accepted changes of code": accepted} if accepted else {}),
        },
        repeat_command="\n".join([manifest.command, *manifest.later_commands]),
        warnings=(
            *filter(None, (answer.problem, tables.journal.meta(SEARCH_END))),
            *mixed_versions_lines(tables.journal, [row.key for row in tables.rows]),
        ),
        endings=trials_text.outcomes_table(outcomes, tables.journal.orphaned_counts()),
        revisions=trials_text.revisions_table(manifest.revisions),
        composition=tuple(composition_lines(tables.rows, manifest, tables.journal.num_runs())),
        resume_command=resume if answer.unfinished else "",
        unasked=(NOT_NEEDED, *(["planned"] if manifest.is_sequential else [])),
        runs=tables.journal.num_runs(),
    )


def report_charts(report_input: ReportInput) -> list[Chart]:
    """Return every chart that the input has numbers for, in the page's order."""
    return list(chain(*_charts_by_part(report_input)))


def _charts_by_part(report_input: ReportInput) -> list[list[Chart]]:
    """Return the charts of each finding, and last those of the learning curves."""
    charts_of = [list(finding.charts()) for finding in report_input.answer.findings]
    curves = report_input.curves
    charts_of.append([curves] if isinstance(curves, Chart) else [])
    named = iter(uniquely_named(link_runs(list(chain(*charts_of)), report_input.trials)))
    return [list(islice(named, len(charts))) for charts in charts_of]


class Part(NamedTuple):
    """One finding's section of the page."""

    finding: Finding
    charts: list[Chart]
    sections: list[Section]

    @property
    def hint(self) -> str:
        """How many figures and tables the part has, in words."""
        counts = {"figure": len(self.charts), "table": len(self.sections)}
        return ", ".join(counted(number, noun) for noun, number in counts.items() if number)


@dataclass(frozen=True, slots=True)
class Live:
    """The state of a running study, for its page as ``hsweep watch`` serves it.

    Attributes:
        now: the study's state, the fields of `hsweep.watching.now.Now`.
        events: address from which the page receives events.
        version: of the report; an event with another version announces new results.
    """

    now: Mapping[str, Any]
    events: str
    version: int


def build_report(report_input: ReportInput, live: Live | None = None) -> str:
    """Return the whole page as HTML; ``live`` adds the study's present state at the top."""
    is_training = live is not None and live.now["state"] == "running"
    answer, trials, axes = report_input.answer, report_input.trials, report_input.axes
    leading = answer.leading
    badge, tone = (leading and leading.badge) or ("no verdict", "unknown")
    note = paragraphs(report_input.question)
    counts = trials_text.status_counts(trials, report_input.runs)
    *by_finding, curves = _charts_by_part(report_input)
    parts = [
        Part(
            finding, charts, [s._replace(table=tables.first_rows(s.table)) for s in finding.tables]
        )
        for finding, charts in zip(answer.findings, by_finding, strict=True)
    ]
    # The picture of the answer stands beside it, and not a second time further down.
    first = next((part for part in parts if part.finding is leading and part.charts), None)
    beside = first.charts if first is not None else curves
    picture = beside.pop(0) if beside else None
    further_warnings = [
        text for text in report_input.warnings if sentence(text) not in answer.sentences
    ]
    swept = tables.varying_columns(trials, axes)
    best = trials_text.best_table(trials, axes, report_input.metric, report_input.goal)
    why_none = report_input.curves
    return render(
        "report.html.j2",
        [*chain(*by_finding, curves), *filter(None, [picture])],
        ("page", "table", "figures", *(["live"] if live is not None else [])),
        is_served=live is not None,
        live=None if live is None else embed({**asdict(live), **_growing_style()}),
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
        num_trials=len(trials),
        best=best,
        composition=[sentence(text) for text in report_input.composition],
        endings=tables.first_rows(report_input.endings),
        answer=answer,
        curves=curves,
        no_curves=why_none if isinstance(why_none, str) else "They stand beside the answer.",
        parts=parts,
        warnings=list(dict.fromkeys([*further_warnings, *answer.warnings])),
        provenance=tables.provenance_table(report_input.provenance),
        statuses=[count for count in counts if count.trials],
        trials_json=embed(
            {
                **trials_text.embedded(
                    trials_text.trial_columns(trials, axes, report_input.metric)
                ),
                "unasked": report_input.unasked,
            }
        ),
    )


def _growing_style() -> dict[str, Any]:
    """Return the colours and layout for the curves of trials that train now."""
    from analysis.charts.plotly_page import figure_json

    layout = figure_json(Chart("", "", "", Axis(""), Axis(""), ()))["layout"]
    return {
        "shades": [shade.light for shade in palette.CATEGORIES],
        "layout": layout | {"height": 340},
    }


def _one_line(note: Sequence["Paragraph"]) -> str:
    """Return a docstring's first paragraph, shortened to the length of a heading."""
    text = note[0].text if note else ""
    if len(text) > _TITLE_LENGTH:
        text = re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]
    return textwrap.shorten(text, _TITLE_LENGTH, placeholder=" …")


def _headline(report_input: ReportInput, best: tables.Table) -> str:
    """Return the answer's first sentence, or the best point if the sweep asks no question."""
    answer = report_input.answer
    has_answer = answer.instead != NO_QUESTION if answer.instead else answer.leading is not None
    if has_answer or not best.rows:
        return answer.sentences[0]
    metric, trials = report_input.metric, report_input.trials
    swept = tables.varying_columns(trials, report_input.axes)
    finished = trials.loc[trials["status"].eq("finished") & trials[metric].notna()]
    values: dict[str, list[float]] = {}
    for row in finished.to_dict("records"):
        point = describe({name: row[name] for name in swept})
        values.setdefault(point, []).append(row[metric])
    # Not the best trial, nor a point with few seeds beside others with many: these are lucky ones.
    most = max(map(len, values.values()))
    medians = {point: median(seeds) for point, seeds in values.items() if 2 * len(seeds) > most}
    at = (min if report_input.goal == "min" else max)(medians, key=medians.__getitem__)
    number = len(values[at])
    what = f"point, by the median of its {number} seeds," if number > 1 else "trial"
    result = f"{metric} {number_text(medians[at], 4)}{at and f', with {at}'}"
    return f"The sweep asks no question. Its best {what} has {result}."


def _next_commands(report_input: ReportInput) -> list[tuple[str, str]]:
    """Return the commands that a study asks for, each with its purpose."""
    answer = report_input.answer
    commands = (
        ("Go on, unless it runs already", report_input.resume_command or None),
        ("Train what the answer lacks", answer.settle_command),
        ("Confirm the choice with fresh seeds", answer.confirm_command),
    )
    return [(purpose, command) for purpose, command in commands if command is not None]


def _facts(report_input: ReportInput, swept: Sequence[str]) -> list[tuple[str, str]]:
    metric, goal = report_input.metric, report_input.goal
    fixed = trials_text.fixed_axes(report_input.trials, report_input.axes)
    is_linked = "mlflow_url" in report_input.trials or not report_input.sweep
    facts = {
        "sweep": report_input.sweep,
        "preset": report_input.preset,
        "metric": report_input.answer.direction or direction_text(metric, goal),
        "swept": ", ".join(swept) or "nothing",
        "fixed": ", ".join(f"{name} = {value}" for name, value in fixed),
        "MLflow": "" if is_linked else _NO_LINKS,
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
    """Return the blocks of a docstring, split at empty lines."""
    blocks = []
    for block in re.split(r"\n[ \t]*\n", textwrap.dedent(text.replace("\r\n", "\n"))):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        if all(line[0].isspace() for line in lines):
            blocks.append(Paragraph(textwrap.dedent("\n".join(lines)), True))
        else:
            blocks.append(Paragraph(" ".join(line.strip() for line in lines), False))
    return blocks
