"""How a study and its trials stand, as a table."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hsweep.design.labels import point_label, varying_axes, varying_in
from hsweep.design.trial import TrialStatus
from hsweep.planning.code_changes import acceptance_line
from hsweep.record.endings import (
    INTERRUPTED,
    TrialEnd,
    counts_in_words,
    first_line,
    loss_line,
    orphaned_lines,
    remarks,
    trial_ends,
)
from hsweep.record.journal import Journal
from hsweep.record.reading import mixed_versions_lines
from hsweep.record.rows import TrialRow
from hsweep.record.study import CLOSELY, Study
from hsweep.running.outcome import errors_line
from hsweep.running.progress import STATUS_STYLES, duration, number

_MAX_ROWS: Final = 200
_BEST_ROWS: Final = 20
_MOST_POINTS: Final = 20_000
"""Points that are looked at to see which axes vary."""
_SEE_ALL: Final = "--all lists all, --json too"


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
        rows, orphaned = journal.trials(), journal.orphaned_counts()
        remarked = list(journal.remarked_reports())
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
    console.print(f"{counts}; folder {status['folder']}")
    for line in [*(each.line for each in remarks(ends)), *orphaned_lines(orphaned), *lines]:
        console.print(line)
    if any(end.failures for end in ends):
        console.print(errors_line(study))
    _show_remarks(console, status)


def _code_and_versions(study: Study, journal: Journal, keys: Sequence[str]) -> list[str]:
    """Return lines on the code and the versions that trained a study's trials."""
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
    num_more = status["trials"] - len(best)
    more = "more trials" if best else "trials"
    console.print(f"{'... and ' if best else ''}{num_more} {more} ({_SEE_ALL})")
    counts = counts_in_words(
        _counted(status),
        [name for name, number in reused.items() for _ in range(number)],
    )
    console.print(f"{counts}; folder {status['folder']}")
    for lost, reasons in losses.items():
        console.print(loss_line(str(lost).replace("_", " "), reasons))
    if status["tried_again"]:
        console.print(f"{status['tried_again']} tried again after failing")
    if status["tried_again"] or status["failed"]:
        console.print(errors_line(study))
    for line in [*orphaned_lines(orphaned), *lines]:
        console.print(line)
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
        console.print(status["search_end"])
    if status["data_wait_share"] is not None:
        console.print(f"{status['data_wait_share']:.1%} of the training time was waiting for data")


def _how(end: TrialEnd) -> str:
    """Return in which other way than planned a trial came to its number, if it did."""
    if end.reused_from:
        return f"taken from study {end.reused_from}"
    return f"{end.micro_batch} examples at once: memory" if end.micro_batch else ""
