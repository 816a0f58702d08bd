"""A journal and its second copy, held against each other: what one lacks comes from the other.

The database is right as long as every row has its checksum and nothing is missing that the copy
has, which is never ahead of it. Then the copy is given what it lacks. Otherwise the database is
rebuilt, from both if it can be read and from the copy alone if not: numbers and times of all
entries stay, so whoever follows the log finds what it had. A trial whose lines have a gap goes on
from before the gap.

The caller holds the study's lock.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from hsweep.record.journal import Journal
from hsweep.record.journal_file import DamagedJournalError
from hsweep.record.text_copy import (
    NOT_BEGUN,
    Line,
    LogLine,
    MetaLine,
    RecordCopy,
    TrialLine,
    copy_of,
    log_checksum,
    read_lines,
    row_checksum,
    write_lines,
)

_OWN_VALUES: Final = ("schema_version",)
"""Values that say something of the file rather than of the study."""


def repair_journal(path: Path) -> list[str]:
    """Bring a journal and its copy to what both together hold.

    Returns:
        What was wrong and what was done, for people; nothing if all was well.

    Raises:
        UserError: the journal cannot be read and there is no copy, or either cannot be written.
        OSError: either cannot be written.
    """
    known = _known(copy_of(path))
    try:
        lost, is_complete = _compare(path, known)
        if not lost:
            return [] if is_complete else _complete(path, known)
        with closing(Journal(path, read_only=True)) as journal:
            lines = list(_lines_of(journal))
    except DamagedJournalError as damage:
        if not known.trials and not known.values:
            raise
        lost, lines = damage.what, []
    # The copy is newer than what it is added to; what is given later counts.
    found = _gather([*lines, *read_lines(copy_of(path))])
    said = _rebuild(path, lost, found)
    if found.left_out:
        kept = keep_aside(copy_of(path))
        said.append(
            f"{found.left_out} log entries of {found.shortened} trials follow a lost or garbled "
            "line and are left out: these trials go on from before it"
            + (f" (the lines are kept in {kept.name})" if kept is not None else "")
        )
    completed = _complete(path, _known(copy_of(path)))
    return said if found.left_out else [*said, *completed]


@dataclass(slots=True)
class _Known:
    """What a copy holds, by checksums: of each trial's plan, and of each log entry.

    Attributes:
        broken: how many of its lines are torn or garbled.
        is_there: whether there is a line in it.
    """

    trials: dict[str, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    values: dict[str, str | None] = field(default_factory=dict)
    broken: int = 0
    is_there: bool = False


def _known(copy: Path) -> _Known:
    known = _Known()
    if not copy.exists():
        return known
    for line in read_lines(copy):
        known.is_there = True
        match line:
            case TrialLine(row):
                known.trials[row[0]] = row_checksum(row)
            case LogLine(key, _, log, _):
                known.entries.update((entry[0], log_checksum(key, entry)) for entry in log)
            case MetaLine(values):
                known.values.update(values)
            case None:
                known.broken += 1
    return known


def _compare(path: Path, known: _Known) -> tuple[str, bool]:
    """Return what the database lacks of what its copy holds (empty if nothing), and whether the
    copy has all that the database holds.

    Raises:
        DamagedJournalError: it cannot be read to its end, or a row has another checksum.
    """
    with closing(Journal(path, read_only=True)) as journal:
        if problem := journal.check():
            raise DamagedJournalError(problem, problem)
        trials = {
            row.key: row_checksum(row.planned_columns()) for row in journal.trials(orphaned=True)
        }
        values = journal.metas("")
        entries = dict(journal.log_checksums())
    lacking = {
        "trials": len(known.trials.keys() - trials.keys()),
        "log entries": len(known.entries.keys() - entries.keys()),
        "values": sum(
            value is not None and name not in values for name, value in known.values.items()
        ),
    }
    differing = sum(known.entries.get(seq, sums) != sums for seq, sums in entries.items())
    said = [f"lacks {number} {what}" for what, number in lacking.items() if number]
    if differing:
        said.append(f"has {differing} log entries otherwise")
    is_complete = (
        known.is_there
        and not known.broken
        and all(known.trials.get(key) == sums for key, sums in trials.items())
        and entries.keys() <= known.entries.keys()
        and all(
            known.values.get(name) == value
            for name, value in values.items()
            if name not in _OWN_VALUES
        )
    )
    return f"it {', '.join(said)} that its copy holds" if said else "", is_complete


def _complete(path: Path, known: _Known) -> list[str]:
    """Give the copy of a sound journal what it lacks."""
    copy = copy_of(path)
    with closing(Journal(path, read_only=True)) as journal:
        if known.broken or not known.is_there:
            write_lines(copy, _lacking(journal, _Known()))
            if not known.is_there:
                return [f"{copy.name} was missing or empty: written from {path.name}"]
            lines = "a torn or garbled line" if known.broken == 1 else (
                f"{known.broken} torn or garbled lines"
            )  # fmt: skip
            return [f"{copy.name} had {lines}: written anew from {path.name}"]
        with closing(RecordCopy(copy)) as file:
            file.append(_lacking(journal, known))
            if file.problem:
                raise OSError(None, file.problem, str(copy))
    return []


def _lacking(journal: Journal, known: _Known) -> Iterator[Line]:
    """Yield lines for all of a journal that is not known; each trial's log in one."""
    rows = {row.key: row for row in journal.trials(orphaned=True)}
    for key, row in rows.items():
        if known.trials.get(key) != row_checksum(row.planned_columns()):
            yield TrialLine(row.planned_columns())
    log = sorted(journal.log(), key=lambda entry: entry.key)
    for key, entries in groupby(log, key=lambda entry: entry.key):
        before, added = 0, list[tuple[Any, ...]]()
        for entry in entries:
            if added or entry.seq not in known.entries:
                added.append(entry.columns())
            else:
                before = entry.seq
        if added and key in rows:
            yield LogLine(key, before, tuple(added), rows[key].state_columns())
    values = {
        name: value
        for name, value in journal.metas("").items()
        if name not in _OWN_VALUES and known.values.get(name) != value
    }
    if values:
        yield MetaLine(values)


def _lines_of(journal: Journal) -> Iterator[Line]:
    """Yield a journal's content, each log entry in a line of its own."""
    rows = {row.key: row for row in journal.trials(orphaned=True)}
    yield from (TrialLine(row.planned_columns()) for row in rows.values())
    last = {entry.key: entry.seq for entry in journal.log()}
    before: dict[str, int] = {}
    for entry in journal.log():
        is_last = entry.seq == last[entry.key]
        state = rows[entry.key].state_columns() if is_last and entry.key in rows else ()
        yield LogLine(entry.key, before.get(entry.key, 0), (entry.columns(),), state)
        before[entry.key] = entry.seq
    yield MetaLine(dict(journal.metas("")))


@dataclass(slots=True)
class _Gathered:
    """What lines hold, put together.

    Attributes:
        left_out: log entries that follow a gap, or are of trials that are not known.
        shortened: trials that these are of.
    """

    trials: list[tuple[Any, ...]] = field(default_factory=list)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    shortened: int = 0
    last_seq: int = 0


def _gather(lines: Iterable[Line | None]) -> _Gathered:
    planned: dict[str, tuple[Any, ...]] = {}
    chains: dict[str, list[LogLine]] = {}
    values: dict[str, str | None] = {}
    found = _Gathered()
    for line in lines:
        match line:
            case TrialLine(row):
                planned[row[0]] = row
            case LogLine():
                chains.setdefault(line.key, []).append(line)
            case MetaLine(changed):
                values.update(changed)
    found.values = {
        name: value
        for name, value in values.items()
        if value is not None and name not in _OWN_VALUES
    }
    for key, row in planned.items():
        entries, state, left_out = _followed(chains.pop(key, []))
        found.trials.append((*row, *state))
        found.log += ((key, *entry) for entry in entries)
        found.left_out += left_out
        found.shortened += left_out > 0
        found.last_seq = max((found.last_seq, *(entry[0] for entry in entries)))
    for chain in chains.values():
        found.left_out += sum(len(line.log) for line in chain)
        found.shortened += 1
    found.log.sort(key=lambda entry: entry[1])
    return found


def _followed(chain: list[LogLine]) -> tuple[list[tuple[Any, ...]], tuple[Any, ...], int]:
    """Return a trial's entries up to the first gap, its state there, and how many are left out."""
    entries: list[tuple[Any, ...]] = []
    state: tuple[Any, ...] = NOT_BEGUN
    last = 0
    # Of two lines that begin alike the one that was given last counts.
    ordered = [line for _, line in sorted(enumerate(chain), key=_place)]
    seen = {entry[0] for line in ordered for entry in line.log}
    for line in ordered:
        if line.log[0][0] <= last:
            continue
        if line.after != last:
            break
        entries += line.log
        last = line.log[-1][0]
        state = line.state or state
    return entries, state, len(seen) - len(entries)


def _place(numbered: tuple[int, LogLine]) -> tuple[int, int]:
    number, line = numbered
    return line.log[0][0], -number


def _rebuild(path: Path, what: str, found: _Gathered) -> list[str]:
    """Put a journal of what was gathered in the place of a damaged one, which is kept."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _remove(draft)
        with closing(Journal(draft, create=True, is_copied=False)) as journal:
            journal.restore(found.trials, found.log, found.values, found.last_seq)
        kept = keep_aside(path)
        for ending in ("-wal", "-shm"):
            beside = path.with_name(path.name + ending)
            if beside.exists():
                keep_aside(beside)
        draft.replace(path)
    finally:
        _remove(draft)
    reports = [entry for entry in found.log if entry[4] == "report"]
    newest = max((entry[2] for entry in reports), default=None)
    when = "" if newest is None else f", the last of {_clock(newest)}"
    aside = f"; the damaged file is kept as {kept.name}" if kept is not None else ""
    return [
        f"{path.name} was damaged ({what}): rebuilt with {len(found.trials)} trials and "
        f"{len(reports)} reports{when}{aside}"
    ]


def keep_aside(path: Path) -> Path | None:
    """Give a damaged file another name, and return that; None if there is no such file."""
    if not path.exists():
        return None
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.rename(kept)


def _remove(draft: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        draft.with_name(draft.name + ending).unlink(missing_ok=True)


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
