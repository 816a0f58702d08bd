"""The present state of a study for its page, read from the record."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from hsweep.design.labels import counted
from hsweep.design.trial import TrialStatus
from hsweep.record.journal_reader import MOST, ROUND, JournalReader
from hsweep.record.lease import Holder, read_holder
from hsweep.record.rows import TrialRow, labels_of
from hsweep.record.study import StudyFolder
from hsweep.record.summary import first_line, num_ended, run_counts
from hsweep.running.progress import duration, number

_MAX_TRAINING: Final = 24
"""Trials in training that are listed and drawn."""
_MAX_POINTS: Final = 200
"""Of a curve."""
_MAX_ENDED: Final = 12
_WORDS: Final = {TrialStatus.PLANNED: "waiting", TrialStatus.RUNNING: "in training"}


Now: TypeAlias = dict[str, Any]
"""The present state of a study as plain JSON:

state: ``running``, ``complete`` or ``interrupted``.
ended: trials that have run and need no more training.
share: of the runs, 0 to 1, that have ended.
counts: how many runs have ended, and how many are in which state, in words.
round: that a search is in, in words; empty where none runs.
time: how long it has run, how long it is likely to run; empty where it does not run.
training: the table of the trials in training: its ``header``, its ``rows``, and in ``more`` what
    it leaves out.
curves: of the trials in training, each with its ``name`` and a value for each of its ``units``; a
    value that is not finite is None.
metric, unit: of the curves' axes.
log: whether the metric's axis is logarithmic.
lately: the table of the trials that ended last, the newest first.
"""


def study_now(study: StudyFolder, journal: JournalReader) -> Now:
    """Return the present state of a study, from its journal within a snapshot."""
    metric, unit = study.manifest.metric, str(study.manifest.budget["unit"])
    rows = journal.trials()
    labels = labels_of(rows)
    is_running = study.is_running()
    running = [row for row in rows if row.status is TrialStatus.RUNNING] if is_running else []
    curves = _curves(journal, running[:_MAX_TRAINING], labels, metric)
    is_open = not rows or any(not row.status.is_final for row in rows)
    counts, runs = journal.status_counts(), journal.num_runs()
    ended = num_ended(counts)
    holder = read_holder(study.paths) if is_running else None
    values = [value for curve in curves for value in curve["values"] if value is not None]
    return {
        "state": "running" if is_running else "interrupted" if is_open else "complete",
        "ended": ended,
        "share": ended / runs if runs else 0.0,
        "counts": _counts(counts, ended, runs, int(journal.meta(MOST) or 0), is_running=is_running),
        "round": (is_running and journal.meta(ROUND)) or "",
        "time": _time(holder, rows, journal.last_time()),
        "training": _training(journal, running, labels, metric, unit),
        "curves": curves,
        "metric": metric,
        "unit": unit,
        "log": study.manifest.goal == "min" and bool(values) and min(values) > 0,
        "lately": _lately(journal, {row.key: row for row in rows}, labels, metric),
    }


def _counts(
    counts: Mapping[TrialStatus, int], ended: int, runs: int, most: int, *, is_running: bool
) -> str:
    if not runs:
        return "no run yet"
    words = _WORDS if is_running else {**_WORDS, TrialStatus.RUNNING: "interrupted"}
    parts = [
        f"{count:,} {words.get(TrialStatus(status), status.replace('_', ' '))}"
        for status, count in run_counts(counts, runs)
        if count
    ]
    text = f"{ended:,} of {counted(runs, 'run')} ended"
    if is_running and most > runs:
        text = f"{ended:,} of about {counted(runs, 'run')} ended (rarely more than {most:,})"
    return f"{text}: {', '.join(parts)}" if parts else text


def _time(holder: Holder | None, rows: Sequence[TrialRow], last: float | None) -> str:
    trained = sum(row.wall_seconds for row in rows if not row.reused_from)
    parts = [f"{duration(trained)} of training"] if trained else []
    if holder is not None:
        parts.insert(0, f"running for {duration(max(0.0, time.time() - holder.since))}")
        if holder.seconds_left is not None:
            left = holder.seconds_left - max(0.0, time.time() - holder.time)
            parts.append(f"about {duration(max(0.0, left))} left")
        if last is not None:
            parts.append(f"last news at {_clock(last)}")
    return ", ".join(parts)


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def _training(
    journal: JournalReader,
    running: Sequence[TrialRow],
    labels: Mapping[str, str],
    metric: str,
    unit: str,
) -> dict[str, Any]:
    listed, num_more = running[:_MAX_TRAINING], len(running) - _MAX_TRAINING
    since = journal.status_times([row.key for row in listed])
    rows = [
        (
            labels[row.key],
            f"{row.unit:,} of {row.budget:,} {unit}",
            number(row.metrics.get(metric)),
            _clock(since[row.key]) if row.key in since else "",
            str(row.attempt),
        )
        for row in listed
    ]
    header = ("trial", "done", metric, "since", "attempt")
    more = f"and {num_more:,} more" if num_more > 0 else ""
    return {"header": header, "rows": rows, "more": more}


def _curves(
    journal: JournalReader, rows: Sequence[TrialRow], labels: Mapping[str, str], metric: str
) -> list[dict[str, Any]]:
    points: dict[str, list[tuple[int, float | None]]] = {row.key: [] for row in rows}
    for report in journal.reports(points):
        value = report.payload["metrics"].get(metric)
        is_finite = value is not None and math.isfinite(value)
        points[report.key].append((int(report.unit or 0), value if is_finite else None))
    curves = []
    for key, curve in points.items():
        # The newest one is always among them.
        step = -(-len(curve) // _MAX_POINTS) or 1
        shown = curve[::-1][::step][::-1]
        units, values = zip(*shown, strict=True) if shown else ((), ())
        curves.append({"name": labels[key], "units": units, "values": values})
    return curves


def _lately(
    journal: JournalReader, rows: Mapping[str, TrialRow], labels: Mapping[str, str], metric: str
) -> dict[str, Any]:
    cells = [
        (
            _clock(entry.time),
            labels[entry.key],
            str(entry.payload["status"]).replace("_", " "),
            number(rows[entry.key].metrics.get(metric)),
            first_line(str(entry.payload.get("reason") or "")),
        )
        for entry in journal.last_ends(_MAX_ENDED)
        if entry.key in rows
    ]
    return {"header": ("at", "trial", "ended", "value", "why"), "rows": cells, "more": ""}
