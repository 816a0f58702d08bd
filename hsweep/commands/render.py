"""Plans, studies and checks as tables for people."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hsweep.coordination.progress import STATUS_STYLES, duration, number
from hsweep.design.labels import point_label, varying_axes, varying_in
from hsweep.design.trial import TrialStatus
from hsweep.planning.answerable import analysable
from hsweep.planning.checking import Checked
from hsweep.planning.code_changes import acceptance_line
from hsweep.planning.plan import Plan
from hsweep.record.endings import (
    INTERRUPTED,
    TrialEnd,
    counts_in_words,
    first_line,
    happenings,
    loss_line,
    orphaned_counts_lines,
    orphaned_lines,
    trial_ends,
)
from hsweep.record.journal import Journal
from hsweep.record.journal_rows import TrialRow
from hsweep.record.origins import mixed_versions_lines
from hsweep.record.study import CLOSELY, Study
from hsweep.running.outcome import errors_line

_MAX_ROWS: Final = 200
_BEST_ROWS: Final = 20
_MOST_POINTS: Final = 20_000
"""Points that are looked at to see which axes vary."""
_SEE_ALL: Final = "--all lists all, --json too"
_CHECK_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


def print_json(content: Any) -> None:
    """Write plain content to standard output, alone."""
    json.dump(content, sys.stdout, indent=1, default=str, allow_nan=False)
    sys.stdout.write("\n")


def quantity(value: float, unit: str = "") -> str:
    """Return a large number as people write it: 86.568 M, 1.2 G."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3f} {prefix}{unit}".rstrip()
    return f"{value:g} {unit}".rstrip()


def show_plan(console: Console, plan: Plan, seconds: float | None) -> None:
    """Print a plan."""
    totals = plan.totals()
    trials = list(plan.trials)
    axes = varying_axes(trials)
    table = Table(box=None, pad_edge=False)
    table.add_column("point")
    for heading in ("seeds", "params", "FLOPs/example", "training memory"):
        table.add_column(heading, justify="right")
    points: dict[str, list[Any]] = {}
    for trial in trials:
        points.setdefault(point_label(trial.point, axes), []).append(trial)
    for label, group in list(points.items())[:_MAX_ROWS]:
        counts = group[0].counts
        table.add_row(
            label,
            str(len(group)),
            quantity(counts.num_params),
            quantity(counts.forward_flops),
            quantity(group[0].train_memory_bytes, "B"),
        )
    console.print(table)
    if len(points) > _MAX_ROWS:
        console.print(f"... and {len(points) - _MAX_ROWS} more points (--json lists all)")
    for skipped in plan.skipped[:_MAX_ROWS]:
        console.print(
            f"skipped {point_label(skipped.point)}: {skipped.reason}",
            style="yellow",
            soft_wrap=True,
        )
    if plan.is_adaptive:
        console.print("points are proposed during the run; these are random draws for orientation")
    budget = plan.sweep.budget
    console.print(
        f"{totals['trials']} trials ({totals['points']} points) of {budget.amount} {budget.unit}; "
        f"{totals['skipped']} points skipped, {totals['merged']} doubles merged"
    )
    if seconds is not None:
        console.print(f"about {duration(seconds)} of training in all, by what was measured here")
    for concern in analysable(plan):
        style = "red" if concern.kind == "impossible" else "yellow"
        console.print(concern.line, style=style, soft_wrap=True)
    for problem in plan.data_problems:
        console.print(f"data: {problem}", style="yellow", soft_wrap=True)
    preset = plan.sweep.presets.get(plan.preset)
    if preset is not None and preset.note:
        console.print(f"preset {plan.preset}: {preset.note}", soft_wrap=True)


def show_checked(console: Console, checked: Checked) -> None:
    """Print what was tried out of a plan."""
    shapes = "; ".join(checked.shapes)
    console.print(f"tried out in {duration(checked.seconds)}: {shapes}", soft_wrap=True)
    for line in checked.lines():
        console.print(line, style="yellow", soft_wrap=True)


def show_studies(console: Console, studies: Sequence[Mapping[str, Any]]) -> None:
    """Print one line a study."""
    table = Table(box=None, pad_edge=False)
    headings = ("study", "state", "finished", "stopped early", "lost", "trials", "created")
    for heading in headings:
        left = heading in ("study", "state", "created")
        table.add_column(heading, justify="left" if left else "right")
    for study in studies:
        if "error" in study:
            table.add_row(study["study"], "unreadable", "", "", "", "", study["error"])
            continue
        table.add_row(
            study["study"],
            study["state"],
            _with(study["finished"], study["reused"], "({} reused)"),
            str(study["stopped_early"]),
            _lost_in_words(study),
            _with(study["trials"], study["orphaned"], "(+{} orphaned)"),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(study["created"])),
        )
    console.print(table)


def show_study(
    console: Console, study: Study, status: Mapping[str, Any], *, every: bool = False
) -> None:
    """Print a study and its trials: the first ones, or of very many the best; ``every`` one."""
    console.print(
        f"{status['study']} ({status['sweep']}, preset {status['preset']}): {status['state']}",
        style="bold",
    )
    if status["trials"] + status["orphaned"] > CLOSELY and not every:
        _show_many(console, study, status)
        return
    with study.journal() as journal:
        everything = journal.trials(orphaned=True)
        remarked = list(journal.remarked_reports())
        rows = [row for row in everything if not row.orphaned]
        lines = _code_and_versions(study, journal, [row.key for row in rows])
    varying = varying_axes(rows)
    ends = trial_ends(rows, remarked, lambda point: point_label(point, varying))
    shown = rows if every else rows[:_MAX_ROWS]
    console.print(_trials_table(study, status, shown, ends, varying))
    if len(rows) > len(shown):
        console.print(f"... and {len(rows) - len(shown)} more trials ({_SEE_ALL})")
    counts = counts_in_words(
        _counted(status),
        [end.reused_from for end in ends if end.reused_from],
        sum(end.is_waiting for end in ends),
        sum(end.is_interrupted for end in ends),
    )
    console.print(f"{counts}; folder {status['folder']}", soft_wrap=True)
    for line in [*(each.line for each in happenings(ends)), *orphaned_lines(everything), *lines]:
        console.print(line, soft_wrap=True)
    if any(end.failures for end in ends):
        console.print(errors_line(study), soft_wrap=True)
    _show_remarks(console, status)


def _code_and_versions(study: Study, journal: Journal, keys: Sequence[str]) -> list[str]:
    """Return what is to be said of the code and the versions that trained a study's trials."""
    accepted = [
        f"accepted {time.strftime('%Y-%m-%d %H:%M', time.localtime(entry['time']))}: "
        f"{acceptance_line(entry)}"
        for entry in study.manifest.accepted
    ]
    return [*accepted, *mixed_versions_lines(journal, keys)]


def _show_many(console: Console, study: Study, status: Mapping[str, Any]) -> None:
    """Print how a study of very many trials stands, without reading each."""
    with study.journal() as journal, journal.snapshot():
        best = journal.best_trials(_BEST_ROWS, highest=study.manifest.goal == "max")
        varying = varying_in(journal.points(_MOST_POINTS))
        losses, reused = journal.losses(), journal.reused_from()
        orphaned = journal.orphaned_counts()
        lines = _code_and_versions(study, journal, [key for key, _, _ in journal.finished_trials()])
    ends = trial_ends(best, (), lambda point: point_label(point, varying))
    if best:
        console.print(f"the best by {study.manifest.metric}:")
        console.print(_trials_table(study, status, best, ends, varying))
    left = status["trials"] - len(best)
    more = "more trials" if best else "trials"
    console.print(f"{'... and ' if best else ''}{left} {more} ({_SEE_ALL})")
    counts = counts_in_words(
        _counted(status),
        [name for name, number in reused.items() for _ in range(number)],
    )
    console.print(f"{counts}; folder {status['folder']}", soft_wrap=True)
    for lost, reasons in losses.items():
        console.print(loss_line(str(lost).replace("_", " "), reasons), soft_wrap=True)
    if status["tried_again"]:
        console.print(f"{status['tried_again']} tried again after failing", soft_wrap=True)
    if status["tried_again"] or status["failed"]:
        console.print(errors_line(study), soft_wrap=True)
    for line in [*orphaned_counts_lines(orphaned), *lines]:
        console.print(line, soft_wrap=True)
    _show_remarks(console, status)


def _trials_table(
    study: Study,
    status: Mapping[str, Any],
    rows: Sequence[TrialRow],
    ends: Sequence[TrialEnd],
    varying: tuple[str, ...],
) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("trial", "seed", "status", "done", study.manifest.metric, "time", "reason"):
        left = heading in ("trial", "status", "reason")
        table.add_column(heading, justify="left" if left else "right")
    for row, end in zip(rows, ends, strict=False):
        shown = row.status
        is_left = status["state"] != "running" and (
            shown is TrialStatus.RUNNING or end.is_interrupted
        )
        word = (
            INTERRUPTED
            if is_left
            else "waiting"
            if end.is_waiting
            else str(shown).replace("_", " ")
        )
        table.add_row(
            point_label(row.point, varying),
            str(row.replicate),
            Text(word, STATUS_STYLES[shown]),
            f"{row.unit}/{row.budget}",
            number(row.value),
            duration(row.wall_seconds),
            _how(end) if word == row.reason else first_line(row.reason) or _how(end),
        )
    return table


def _counted(status: Mapping[str, Any]) -> list[tuple[str, int]]:
    words = {TrialStatus.RUNNING: "running" if status["state"] == "running" else "interrupted"}
    return [(words.get(each, str(each)), status[str(each)]) for each in TrialStatus]


def _show_remarks(console: Console, status: Mapping[str, Any]) -> None:
    if status["search_end"] is not None:
        console.print(status["search_end"], soft_wrap=True)
    if status["data_wait_share"] is not None:
        console.print(f"{status['data_wait_share']:.1%} of the training time was waiting for data")


def _how(end: TrialEnd) -> str:
    """Return in which other way than planned a trial came to its number, if it did."""
    if end.reused_from:
        return f"taken from study {end.reused_from}"
    return f"{end.micro_batch} examples at once: memory" if end.micro_batch else ""


def _with(number: int, others: int, words: str) -> str:
    """Return a number, and behind it that of others, if there are any."""
    return f"{number} {words.format(others)}" if others else str(number)


def _lost_in_words(study: Mapping[str, Any]) -> str:
    """Return how many trials gave no number, and why: ``3: 2 diverged, 1 too large``."""
    lost = [(word, study[word]) for word in ("failed", "diverged", "too_large") if study[word]]
    number = sum(count for _, count in lost)
    return f"{number}: {counts_in_words(lost)}" if lost else "0"


def show_checks(console: Console, checks: Sequence[Any]) -> None:
    """Print what the doctor found."""
    table = Table(box=None, pad_edge=False)
    for heading in ("check", "", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        style = _CHECK_STYLES[check.status]
        table.add_row(check.name, Text(check.status, style), check.detail, check.remedy)
    console.print(table)


def show_data_sets(
    console: Console, rows: Sequence[Mapping[str, Any]], root: Path | None, downloads: bool
) -> None:
    """Print the catalogue of data sets, and where they were looked for.

    A few short lines each instead of a table: paths and terms fit into no column.
    """
    width = max((len(row["name"]) for row in rows), default=0) + 2
    for row in rows:
        where = _where(row)
        console.print(
            f"{row['name']:{width}}{where}",
            style="bold" if row["is_there"] else "dim",
            soft_wrap=True,
        )
        details = [f"{row['content']}; for {', '.join(row['tasks'])}"]
        if row["origin"] != "generated":
            details.append(f"{row['source']}; licence: {row['licence']}")
        if row.get("fingerprint"):
            details.append(f"fingerprint {row['fingerprint']}")
        for detail in details:
            # A line of its own for each, so that what is found in it is found whole.
            console.print(f"    {detail}", soft_wrap=True)
    if root is None:
        looked = "nowhere: give --data-root, or set HSWEEP_DATA"
    else:
        looked = f"under {root}" + ("" if root.is_dir() else ", which is no folder")
    console.print(f"looked {looked}", soft_wrap=True)
    console.print(
        "downloads from the Hugging Face hub are "
        + ("on (HSWEEP_HUB=1)" if downloads else "off; HSWEEP_HUB=1 turns them on"),
        soft_wrap=True,
    )


def _where(row: Mapping[str, Any]) -> str:
    """Return where a data set of the catalogue is, in a few words."""
    if row["folder"]:
        files = f"{row['num_files']} file" + ("" if row["num_files"] == 1 else "s")
        return f"{quantity(row['num_bytes'], 'B')} in {files}, {row['folder']}"
    if row["origin"] == "generated":
        return "generated from the task's settings and seeds"
    if row["origin"] == "installed":
        return f"comes with {row['source']}"
    return "not found"


def show_task_data(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what each task of a sweep learns from, and what is wrong with it."""
    for row in rows:
        if row["problem"]:
            console.print(f"problem  {row['task']}", style="red", soft_wrap=True)
            console.print(f"         {row['problem']}", soft_wrap=True)
        else:
            console.print(f"ok       {row['fingerprint'][:16]}  {row['task']}", soft_wrap=True)
