"""What became of a study's trials besides their numbers, in words: for the terminal and the report.

A trial that gave no number is named with how many of its replicates gave none (2 of 5 diverged),
and one whose number came about in another way than planned says in which.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.rows import LogRow, TrialRow

WAITS_AT_RUNG: Final = "waits at rung"
"""How the reason of a planned trial begins that early stopping has paused."""
INTERRUPTED: Final = "interrupted"
"""The reason of a planned trial that was in training when its run ended."""
PROPOSALS: Final = "proposal:"
"""How the names of the record's notes begin that hold what a search has proposed."""
SEARCH_END: Final = "search-end"
"""Name of the record's note that a search proposed fewer points than it was asked for, and why."""

_MOST_SHAPES: Final = 8
_MOST_REASONS: Final = 3
_LONGEST_REASON: Final = 200

_LOST: Final = (
    (TrialStatus.DIVERGED, "diverged"),
    (TrialStatus.FAILED, "failed"),
    (TrialStatus.TOO_LARGE, "too large for the device"),
)


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial stands.

    Attributes:
        shape: its point in words, the same for all its replicates.
        failures: attempts that failed.
        micro_batch: examples computed at once in the last report; None for whole batches.
        reused_from: the study that trained it, if another one did; else empty.
        notes: of its reports.
    """

    shape: str
    status: str
    reason: str = ""
    failures: int = 0
    micro_batch: int | None = None
    reused_from: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_interrupted(self) -> bool:
        return self.status == TrialStatus.PLANNED and self.reason == INTERRUPTED

    @property
    def is_waiting(self) -> bool:
        return self.status == TrialStatus.PLANNED and self.reason.startswith(WAITS_AT_RUNG)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that befell several trials.

    Attributes:
        what: it is, after a number of trials: ``diverged``, ``computed 8 examples at once``.
        trials: how many.
        details: which, and why.
    """

    what: str
    trials: int
    details: str

    @property
    def line(self) -> str:
        return f"{self.trials} {self.what}: {self.details}"


def trial_ends(
    rows: Iterable[TrialRow],
    remarked: Iterable[LogRow],
    label: Callable[[Mapping[str, Any]], str],
) -> list[TrialEnd]:
    """Return how trials stand, given their ``remarked`` reports in the order of the record."""
    micro_batches: dict[tuple[str, int | None], int | None] = {}
    notes: dict[str, list[str]] = {}
    for entry in remarked:
        micro_batches[entry.key, entry.unit] = entry.payload.get("micro_batch")
        if note := entry.payload.get("note"):
            notes.setdefault(entry.key, []).append(note)
    return [
        TrialEnd(
            shape=label(row.point),
            status=row.status,
            reason=row.reason,
            failures=row.failures,
            micro_batch=micro_batches.get((row.key, row.unit)),
            reused_from=row.reused_from,
            notes=tuple(notes.get(row.key, ())),
        )
        for row in rows
    ]


def remarks(ends: Iterable[TrialEnd]) -> list[Remark]:
    """Return what befell the trials of a study, what was lost first; nothing where all went as
    planned."""
    ends = list(ends)
    sizes = Counter(end.shape for end in ends if end.status != TrialStatus.PLANNED)
    found = []
    for status, what in _LOST:
        lost = [end for end in ends if end.status == status]
        if lost:
            reasons = _most_common(Counter(end.reason for end in lost), "; ")
            found.append(Remark(what, len(lost), f"{_shapes(lost, sizes)}{reasons}"))
    again = [end for end in ends if end.failures and end.status != TrialStatus.FAILED]
    if again:
        failures = sum(end.failures for end in again)
        times = f"{failures} failed attempt{'' if failures == 1 else 's'} in all"
        found.append(Remark("tried again after failing", len(again), f"{_shapes(again)}; {times}"))
    groups: dict[str, list[TrialEnd]] = {}
    for size in sorted({end.micro_batch for end in ends if end.micro_batch is not None}):
        examples = f"{size} example{'' if size == 1 else 's'}"
        what = f"computed {examples} at once (memory did not suffice for a whole batch)"
        groups[what] = [end for end in ends if end.micro_batch == size]
    for study in sorted({end.reused_from for end in ends} - {""}):
        what = f"taken from study {study} (trained there)"
        groups[what] = [end for end in ends if end.reused_from == study]
    groups["waiting at a rung for the others of their stratum"] = [
        end for end in ends if end.is_waiting
    ]
    for end in ends:
        for note in dict.fromkeys(end.notes):
            groups.setdefault(f"with the note “{note}”", []).append(end)
    for what, group in groups.items():
        if group:
            which = "all of them" if len(group) == len(ends) > 1 else _shapes(group)
            found.append(Remark(what, len(group), which))
    return found


def orphaned_lines(counts: Mapping[str, int]) -> list[str]:
    return [
        f"{number} orphaned: {why} (kept; export --orphaned shows them)"
        for why, number in counts.items()
    ]


def loss_line(what: str, reasons: Mapping[str, int]) -> str:
    return f"{sum(reasons.values())} {what}{_most_common(reasons, ': ')}"


def counts_in_words(
    counts: Sequence[tuple[str, int]],
    reused_from: Iterable[str] = (),
    waiting: int = 0,
    interrupted: int = 0,
) -> str:
    """Return how many trials ended how: ``3 finished (2 taken from study first), 1 diverged``.

    Args:
        counts: words and numbers, in order; zeros are left out.
        reused_from: the study that trained it, of each trial that another one trained.
        waiting, interrupted: how many of the planned trials are that.
    """
    taken = {f"taken from study {study}": number for study, number in Counter(reused_from).items()}
    among: dict[str, dict[str, int]] = {
        TrialStatus.FINISHED: taken,
        TrialStatus.PLANNED: {"waiting at a rung": waiting, INTERRUPTED: interrupted},
    }
    parts = []
    for word, number in counts:
        more = ", ".join(f"{some} {how}" for how, some in among.get(word, {}).items() if some)
        if number:
            parts.append(f"{number} {word.replace('_', ' ')}{f' ({more})' if more else ''}")
    return ", ".join(parts)


def first_line(reason: str) -> str:
    """Return what a reason says before it goes into details, such as a traceback.

    A very long line loses its middle: an error says what it is first and where it happened last.
    """
    line = reason.strip().partition("\n")[0].strip()
    if len(line) <= _LONGEST_REASON:
        return line
    half = _LONGEST_REASON // 2
    return f"{line[: half - 1]}…{line[-half:]}"


def _shapes(ends: Sequence[TrialEnd], sizes: "Counter[str] | None" = None) -> str:
    counted = Counter(end.shape for end in ends)
    parts = [
        (f"{number} of {sizes[shape]} at " if sizes is not None else "")
        + (shape or "the only point")
        + (f" ({number} times)" if sizes is None and number > 1 else "")
        for shape, number in list(counted.items())[:_MOST_SHAPES]
    ]
    left = len(counted) - len(parts)
    return ", ".join([*parts, *([f"and {left} more points"] if left else [])])


def _most_common(reasons: Mapping[str, int], before: str) -> str:
    """Return the most common reasons behind ``before``; nothing where there is none."""
    counted: Counter[str] = Counter()
    for reason, number in reasons.items():
        if reason.strip():
            counted[first_line(reason)] += number
    if not counted:
        return ""
    parts = [
        f"{reason} ({number} times)" if number > 1 else reason
        for reason, number in counted.most_common(_MOST_REASONS)
    ]
    left = len(counted) - len(parts)
    return before + "; ".join([*parts, *([f"and {left} other reasons"] if left else [])])
