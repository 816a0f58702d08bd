"""The page of a table from another tool, for which there is no study's record."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.answer import Answer
from analysis.charts.learning_curves import curve_chart
from analysis.report.build import ReportInput, searched_axis
from analysis.runs.table import Runs
from analysis.text.trials import frame_remarks, outcomes_table


def report_place(table: Path) -> Path:
    """Return the path of a table's page, beside the table."""
    return table.with_name(f"{table.stem}.report.html")


def table_input(
    path: Path,
    runs: Runs,
    answer: Answer,
    question: str,
    options: Mapping[str, Any],
    command: Sequence[str],
) -> ReportInput:
    """Return everything that the page of a table shows.

    A table may hold several rows a run, told apart by its budget column: the row that the answer
    counts is listed as the run, and all rows make the run's learning curve.

    Args:
        question: in a sentence.
        options: values of the options of ``hsweep analyze``.
        command: the command line that asked the question.
    """
    budget, replicate = runs.columns.get("budget_column"), runs.replicate
    named = [options.get(name) for name in ("x", "by")]
    named += [*options.get("config", ()), *options.get("nuisance", ())]
    read_as = answer.read_as
    cell = [] if read_as is None else [*read_as.shape, *read_as.settings]
    axes = tuple(dict.fromkeys(str(name) for name in (*named, *cell) if name in runs.frame))
    cell = cell or list(axes)
    counted, _ = runs.rows(cell)
    trials = runs.frame.reset_index(drop=True)
    at = cell if budget is None else [*cell, budget]
    numbered = trials.groupby(at, dropna=False, sort=False).cumcount()
    seeds = numbered if replicate is None else trials[replicate]
    runs_of = trials.groupby([*(trials[name] for name in cell), seeds], dropna=False, sort=False)
    trials["key"] = [f"row {int(number) + 1}" for number in runs_of.ngroup()]
    reports = pd.DataFrame({"key": []})
    if budget is not None:
        reports = trials[["key", runs.metric]].assign(unit=trials[budget])
    trials = trials.loc[counted.runs.index].assign(status=counted.runs["status"])
    trials = trials.reset_index(drop=True)
    if replicate is not None:
        trials = trials.rename(columns={replicate: "seed"})
    result = answer.leading.result if answer.leading is not None else None
    goal = options.get("goal") or getattr(result, "goal", "min")
    return ReportInput(
        study=path.name,
        question=question,
        answer=answer,
        metric=runs.metric,
        goal="max" if goal == "max" else "min",
        axes=axes,
        trials=trials,
        curves=curve_chart(
            trials,
            set(reports["key"]),
            lambda keys: reports[reports["key"].isin(keys)],
            runs.metric,
            axes,
            searched_axis(answer),
            unit=str(budget),
            log=goal != "max",
        ),
        provenance={
            "table": str(path.absolute()),
            "rows": len(runs.frame),
            **({"read as": read_as.text} if read_as is not None else {}),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        },
        repeat_command=shlex.join(command),
        endings=outcomes_table(frame_remarks(trials, axes), {}),
    )
