"""What a study is doing now, in the words of its page: all of it is read from the record."""

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hsweep.design.labels import strata_apart
from hsweep.design.trial import TrialStatus
from hsweep.record.composition import counted, run_counts
from hsweep.record.endings import WAITS_AT_RUNG, first_line
from hsweep.record.journal_reader import JournalReader
from hsweep.record.manifest import Manifest
from hsweep.record.rows import LogRow, TrialRow, labels_of
from hsweep.record.study import StudyFolder
from hsweep.record.study_lock import Held
from hsweep.running.progress import duration, number

_MOST_TRAINING: Final = 24
"""Trials in training that are listed and drawn."""
_MOST_POINTS: Final = 200
"""Of a curve."""
_MOST_RUNGS: Final = 40
_MOST_ENDED: Final = 12
_WORDS: Final = {TrialStatus.PLANNED: "waiting", TrialStatus.RUNNING: "in training"}


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A small table of the page; ``more`` says what it leaves out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """How the metric of a trial in training has gone so far: a value for each unit.

    A value that is not finite is None.
    """

    name: str
    units: tuple[int, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Now:
    """A study at one instant.

    Attributes:
        state: ``running``, ``complete`` or ``interrupted``.
        ended: trials that have run and need no more training.
        share: of the runs, 0 to 1, that have ended.
        counts: how many runs have ended, and how many are in which state, in words.
        time: how long it has run, how long it is likely to run; empty where it does not run.
        cost: of the GPUs; empty where no price was given.
        training: the trials in training.
        curves: theirs.
        metric, unit: of the curves' axes.
        log: whether the metric's axis is logarithmic.
        rungs: who came to which rung, and who went on from there.
        lately: the trials that ended last, the newest first.
    """

    state: str
    ended: int
    share: float
    counts: str
    time: str
    cost: str
    training: LiveTable
    curves: tuple[Curve, ...]
    metric: str
    unit: str
    log: bool
    rungs: LiveTable
    lately: LiveTable

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def study_now(study: StudyFolder, journal: JournalReader, price: float | None = None) -> Now:
    """Return what a study is doing.

    Args:
        journal: its record, within a snapshot.
        price: of a GPU for an hour; None for not to speak of money.
    """
    manifest = study.manifest
    rows = journal.trials()
    labels = labels_of(rows)
    is_running = study.is_running()
    running = [row for row in rows if row.status is TrialStatus.RUNNING] if is_running else []
    curves = tuple(_curves(journal, running[:_MOST_TRAINING], labels, manifest.metric))
    is_open = any(not row.status.is_final for row in rows)
    ended = sum(row.status.is_final and row.status is not TrialStatus.NOT_NEEDED for row in rows)
    runs = journal.num_runs()
    state = "running" if is_running else "interrupted" if is_open else "complete"
    noted = study.running() if is_running else Held()
    values = [value for curve in curves for value in curve.values if value is not None]
    return Now(
        state=state,
        ended=ended,
        share=ended / runs if runs else 0.0,
        counts=_counts(journal.status_counts(), ended, runs, is_running=is_running),
        time=_time(noted, rows, journal.last_time()),
        cost="" if price is None else _cost(rows, running, journal.gpus(), noted, price),
        training=_training(journal, running, labels, manifest),
        curves=curves,
        metric=manifest.metric,
        unit=str(manifest.budget["unit"]),
        log=manifest.goal == "min" and bool(values) and min(values) > 0,
        rungs=_rungs(rows, str(manifest.budget["unit"])),
        lately=_lately(
            journal.last_ends(_MOST_ENDED),
            {row.key: row for row in rows},
            labels,
            manifest.metric,
        ),
    )


def _counts(counts: Mapping[TrialStatus, int], ended: int, runs: int, *, is_running: bool) -> str:
    words = _WORDS if is_running else {**_WORDS, TrialStatus.RUNNING: "interrupted"}
    parts = [
        f"{found:,} {words.get(TrialStatus(status), status.replace('_', ' '))}"
        for status, found in run_counts(counts, runs)
        if found
    ]
    if not runs:
        return "no run yet"
    of = f"{ended:,} of {counted(runs, 'run')} ended"
    return f"{of}: {', '.join(parts)}" if parts else of


def _time(noted: Held, rows: Sequence[TrialRow], last: float | None) -> str:
    trained = sum(row.wall_seconds for row in rows if not row.reused_from)
    parts = [f"{duration(trained)} of training"] if trained else []
    if noted.since is not None:
        parts.insert(0, f"running for {duration(max(0.0, time.time() - noted.since))}")
        left = noted.seconds_left
        parts.append("" if left is None else f"about {duration(left)} left")
        parts.append("" if last is None else f"last news at {_clock(last)}")
    return ", ".join(filter(None, parts))


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def _cost(
    rows: Iterable[TrialRow],
    running: Iterable[TrialRow],
    gpus: Mapping[str, float],
    noted: Held,
    price: float,
) -> str:
    """Return what the GPUs cost: so far what trials held, from here on what they hold now."""
    held = sum(row.wall_seconds * gpus.get(row.key, 0.0) for row in rows if not row.reused_from)
    if not held and not any(row.key in gpus for row in running):
        return "no trial has held a GPU, so none costs anything"
    so_far = price * held / 3600
    text = f"GPUs have cost {_money(so_far)}"
    if noted.seconds_left is not None:
        now = sum(gpus.get(row.key, 0.0) for row in running)
        left = price * noted.seconds_left * now / 3600
        text += f", and about {_money(left)} more to the end"
    return f"{text}, at {_money(price)} an hour each"


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.2g}"


def _training(
    journal: JournalReader, running: Sequence[TrialRow], labels: Mapping[str, str], of: Manifest
) -> LiveTable:
    shown = running[:_MOST_TRAINING]
    since = journal.begun([row.key for row in shown])
    unit = str(of.budget["unit"])
    found = tuple(
        (
            labels[row.key],
            f"{row.unit:,} of {row.budget:,} {unit}",
            number(row.metrics.get(of.metric)),
            _clock(since[row.key]) if row.key in since else "",
            str(row.attempt),
        )
        for row in shown
    )
    more = len(running) - len(shown)
    return LiveTable(
        ("trial", "done", of.metric, "since", "attempt"),
        found,
        f"and {more:,} more" if more else "",
    )


def _curves(
    journal: JournalReader, rows: Sequence[TrialRow], labels: Mapping[str, str], metric: str
) -> Iterable[Curve]:
    found: dict[str, list[tuple[int, float | None]]] = {row.key: [] for row in rows}
    for report in journal.reports_of(found):
        value = report.payload["metrics"].get(metric)
        is_finite = value is not None and math.isfinite(value)
        found[report.key].append((int(report.unit or 0), value if is_finite else None))
    for row in rows:
        points = found[row.key]
        # The newest one is always among them.
        step = -(-len(points) // _MOST_POINTS) or 1
        points = points[::-1][::step][::-1]
        units, values = zip(*points, strict=True) if points else ((), ())
        yield Curve(labels[row.key], units, values)


def _rungs(rows: Sequence[TrialRow], unit: str) -> LiveTable:
    """Return who came to each rung at which a trial was stopped or waits.

    On a ladder of budgets the rungs are the shorter budgets: there what goes on, or not, is the
    trial of the next budget.
    """
    budgets = sorted({row.budget for row in rows})
    strata: dict[str, list[TrialRow]] = {}
    for row in rows:
        strata.setdefault(row.stratum, []).append(row)
    ladder = len(budgets) > 1
    named = strata_apart(strata)
    found: list[tuple[str, ...]] = []
    for stratum, group in strata.items():
        of_stratum = _ladder_rungs(group, budgets) if ladder else _trial_rungs(group)
        for at, (came, waits, stopped, went_on) in of_stratum:
            if waits or stopped:
                numbers = (f"{each:,}" for each in (came, waits, stopped, went_on))
                found.append((named[stratum], f"{at:,} {unit}", *numbers))
    more = len(found) - _MOST_RUNGS
    return LiveTable(
        ("those that compete", "rung", "came to it", "wait there", "went no further", "went on"),
        tuple(found[:_MOST_RUNGS]),
        f"and {more:,} more rungs" if more > 0 else "",
    )


_Rung = tuple[int, tuple[int, int, int, int]]


def _trial_rungs(rows: Sequence[TrialRow]) -> list[_Rung]:
    at = {row.unit for row in rows if _waits(row) or (_is_stopped(row) and row.attempt)}
    return [
        (
            unit,
            (
                sum(row.unit >= unit for row in rows),
                sum(_waits(row) and row.unit == unit for row in rows),
                sum(_is_stopped(row) and row.unit == unit for row in rows),
                sum(row.unit > unit for row in rows),
            ),
        )
        for unit in sorted(at - {0})
    ]


def _ladder_rungs(rows: Sequence[TrialRow], budgets: Sequence[int]) -> list[_Rung]:
    found = []
    for shorter, longer in itertools.pairwise(budgets):
        after = [row for row in rows if row.budget == longer]
        counts = (
            sum(row.budget == shorter and row.status is TrialStatus.FINISHED for row in rows),
            sum(map(_waits, after)),
            sum(map(_is_stopped, after)),
            sum(row.attempt > 0 for row in after),
        )
        found.append((shorter, counts))
    return found


def _waits(row: TrialRow) -> bool:
    return row.status is TrialStatus.PLANNED and row.reason.startswith(WAITS_AT_RUNG)


def _is_stopped(row: TrialRow) -> bool:
    return row.status in (TrialStatus.STOPPED_EARLY, TrialStatus.NOT_NEEDED)


def _lately(
    ends: Iterable[LogRow], rows: Mapping[str, TrialRow], labels: Mapping[str, str], metric: str
) -> LiveTable:
    found = tuple(
        (
            _clock(entry.time),
            labels[entry.key],
            str(entry.payload["status"]).replace("_", " "),
            number(rows[entry.key].metrics.get(metric)),
            first_line(str(entry.payload.get("reason") or "")),
        )
        for entry in ends
        if entry.key in rows
    )
    return LiveTable(("at", "trial", "ended", "value", "why"), found)
