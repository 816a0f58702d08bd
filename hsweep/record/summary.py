"""A study in words: its trials, and their outcomes besides numbers.

Trials are counted as cells, shapes or points with their seeds and budgets; those that only select a
setting and those that were not needed are named apart. A trial that gave no number is named with
how many of its replicates gave none (2 of 5 diverged), and one whose number came about in another
way than planned says in which.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hsweep.design.labels import counted, first_of, listed, point_label, unit_word
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import without_middle
from hsweep.record.manifest import Manifest
from hsweep.record.rows import LogRow, TrialRow

WAITS_AT_RUNG: Final = "waits at rung"
"""How the reason of a planned trial begins that early stopping has paused."""
INTERRUPTED: Final = "interrupted"
"""The reason of a planned trial that was in training when its run ended."""
PROPOSALS: Final = "proposal:"
"""Prefix of the metas that hold the proposals of an adaptive search."""
BY_ITSELF: Final = "ended by itself at "
"""How the reason of a finished trial begins whose training has ended before its budget."""
EARLIER: Final = "earlier:"
"""Prefix of the meta that holds the results of the study that an adaptive search starts from."""
SEARCH_END: Final = "search-end"
"""Name of the meta that says why a search proposed fewer points than ``num_points``."""

_MAX_SHAPES: Final = 8
_MAX_REASONS: Final = 3
_MAX_REASON_LENGTH: Final = 200
RATES: Final = ("lr", "learning_rate")
"""What an axis is called that holds learning rates."""
_LOST: Final = (
    (TrialStatus.DIVERGED, "diverged"),
    (TrialStatus.FAILED, "failed"),
    (TrialStatus.TOO_LARGE, "too large for the device"),
)


def is_interrupted(row: TrialRow) -> bool:
    return row.status == TrialStatus.PLANNED and row.reason == INTERRUPTED


def is_waiting(row: TrialRow) -> bool:
    """Whether early stopping has paused a trial."""
    return row.status == TrialStatus.PLANNED and row.reason.startswith(WAITS_AT_RUNG)


def rows_at(points: Iterable[Mapping[Any, Any]], statuses: Iterable[Any]) -> list[TrialRow]:
    """Return trials of which only points and statuses are known."""
    pairs = enumerate(zip(points, statuses, strict=True))
    return [TrialRow(f"{at}", at, point, 0, "", 0, {}, status=of) for at, (point, of) in pairs]


class Remark(NamedTuple):
    """A fact that several trials share.

    Attributes:
        what: the words after the number of trials: ``diverged``, ``computed 8 examples at once``.
        trials: number of these trials.
        details: their names, or the reasons.
    """

    what: str
    trials: int
    details: str

    @property
    def line(self) -> str:
        return f"{self.trials} {self.what}: {self.details}"


def remarks(
    rows: Iterable[TrialRow],
    noted: Iterable[LogRow] = (),
    varying: tuple[str, ...] | None = None,
) -> list[Remark]:
    """Return remarks on a study's trials, losses first; none where all went as planned. ``noted``
    are the reports with a note, ``varying`` the axes that name a point."""
    rows = list(rows)
    shapes = {id(row): point_label(row.point, varying) for row in rows}
    sizes = Counter(shapes[id(row)] for row in rows if row.status != TrialStatus.PLANNED)

    def places(group: Iterable[TrialRow], sizes: "Counter[str] | None" = None) -> str:
        return _places(Counter(shapes[id(row)] for row in group), sizes)

    lines = []
    for status, happening in _LOST:
        if losses := [row for row in rows if row.status == status]:
            reasons = _most_common(Counter(row.reason for row in losses), "; ")
            lines.append(Remark(happening, len(losses), f"{places(losses, sizes)}{reasons}"))
    if early := [row for row in rows if row.reason.startswith(BY_ITSELF)]:
        ends = first_of([*dict.fromkeys(row.reason for row in early)], _MAX_REASONS, "; ")
        lines.append(Remark("ended by themselves", len(early), f"{places(early)}: {ends}"))
    if retried := [row for row in rows if row.failures and row.status != TrialStatus.FAILED]:
        number = sum(row.failures for row in retried)
        details = f"{places(retried)}; {counted(number, 'failed attempt')} in all"
        lines.append(Remark("tried again after failing", len(retried), details))
    groups: dict[str, list[TrialRow]] = {}
    for row in sorted(rows, key=lambda row: row.last.get("micro_batch") or 0):
        if size := row.last.get("micro_batch"):
            size = counted(size, "example")
            happening = f"computed {size} at once (memory did not suffice for a whole batch)"
            groups.setdefault(happening, []).append(row)
    for row in sorted(rows, key=lambda row: row.reused_from):
        if row.reused_from:
            happening = f"taken from study {row.reused_from} (trained there)"
            groups.setdefault(happening, []).append(row)
    waiting = "waiting at a rung for the others of their stratum"
    groups[waiting] = [row for row in rows if is_waiting(row)]
    notes: dict[str, dict[str, None]] = {}
    for report in noted:
        notes.setdefault(report.key, {})[report.payload.get("note", "")] = None
    for row in rows:
        for note in filter(None, notes.get(row.key, ())):
            groups.setdefault(f"with the note “{note}”", []).append(row)
    for happening, group in groups.items():
        if group:
            is_all = len(group) == len(rows) > 1
            lines.append(Remark(happening, len(group), "all of them" if is_all else places(group)))
    return lines


def orphaned_lines(counts: Mapping[str, int]) -> list[str]:
    return [
        f"{number} orphaned: {why} (kept; export --orphaned shows them)"
        for why, number in counts.items()
    ]


def loss_line(words: str, reasons: Mapping[str, int]) -> str:
    return f"{sum(reasons.values())} {words}{_most_common(reasons, ': ')}"


def counts_in_words(
    counts: Sequence[tuple[str, int]],
    reused: Mapping[str, int] = MappingProxyType({}),
    rows: Sequence[TrialRow] = (),
) -> str:
    """Return how many trials ended how: ``3 finished (2 taken from study first), 1 diverged``.

    Args:
        counts: words and numbers, in order; zeros are left out.
        reused: how many trials another study trained, by its name.
        rows: the trials, which say of planned ones whether they have begun.
    """
    details: dict[str, dict[str, int]] = {
        TrialStatus.FINISHED: {f"taken from study {name}": reused[name] for name in reused},
        TrialStatus.PLANNED: {
            "waiting at a rung": sum(map(is_waiting, rows)),
            INTERRUPTED: sum(map(is_interrupted, rows)),
        },
    }
    parts = []
    for word, number in counts:
        extra = ", ".join(
            f"{count} {detail}" for detail, count in details.get(word, {}).items() if count
        )
        if number:
            parts.append(f"{number} {word.replace('_', ' ')}{f' ({extra})' if extra else ''}")
    return ", ".join(parts)


def first_line(reason: str) -> str:
    """Return the first line of a reason, without details such as a traceback.

    A very long line loses its middle: an error says what it is first and where it happened last.
    """
    return without_middle(reason.strip().partition("\n")[0].strip(), _MAX_REASON_LENGTH)


def _places(numbers: "Counter[str]", sizes: "Counter[str] | None") -> str:
    parts = [
        (f"{number} of {sizes[shape]} at " if sizes is not None else "")
        + (shape or "the only point")
        + (f" ({number} times)" if sizes is None and number > 1 else "")
        for shape, number in numbers.items()
    ]
    return first_of(parts, _MAX_SHAPES)


def _most_common(reasons: Mapping[str, int], before: str) -> str:
    """Return the most common reasons behind ``before``; nothing where there is none."""
    numbers: Counter[str] = Counter()
    for reason, number in reasons.items():
        if reason.strip():
            numbers[first_line(reason)] += number
    if not numbers:
        return ""
    parts = [
        f"{reason} ({number} times)" if number > 1 else reason
        for reason, number in numbers.most_common()
    ]
    return before + first_of(parts, _MAX_REASONS, "; ")


@dataclass(frozen=True, slots=True)
class Size:
    """How large a study is, in the units of its question.

    Attributes:
        place: the unit: cell of a transition, shape, or point without a question.
        places: number of places.
        seeds: the largest number of counted seeds in one place.
        settings: the largest number of settings of the nuisance axes in one place.
        nuisance: the nuisance axes.
    """

    place: str
    places: int
    seeds: int
    settings: int
    nuisance: tuple[str, ...]

    @classmethod
    def of(
        cls, trials: Iterable[Trial | TrialRow], place: str, nuisance: Iterable[str], scouts: int
    ) -> "Size":
        """Return the size of a study with these trials.

        Args:
            trials: planned or recorded.
            place: what its question compares, in a word.
            nuisance: the question's nuisance axes.
            scouts: how many seeds of a point, the first ones, only select its setting.
        """
        nuisance = tuple(nuisance)
        # Replicates may share their point.
        names: dict[int, tuple[str, str]] = {}
        places: dict[str, set[str]] = {}
        seeds: set[int] = set()
        for trial in trials:
            if id(trial.point) not in names:
                axes = {axis: trial.point[axis] for axis in trial.point if axis not in nuisance}
                names[id(trial.point)] = _text(axes), _text(trial.point)
            name, point = names[id(trial.point)]
            places.setdefault(name, set()).add(point)
            seeds.add(trial.replicate)
        return cls(
            place,
            len(places),
            sum(seed >= scouts for seed in seeds),
            max(map(len, places.values()), default=0),
            nuisance,
        )

    def __str__(self) -> str:
        """Return words such as ``10 cells x 2 seeds, each at its best of 3 learning rates``."""
        words = counted(self.places, self.place)
        if self.seeds > 1:
            words += f" x {self.seeds} seeds"
        if self.settings < 2:
            return words
        is_rate = len(self.nuisance) == 1 and self.nuisance[0] in RATES
        settings = "learning rates" if is_rate else f"settings of {listed(self.nuisance)}"
        return f"{words}, each at its best of {self.settings} {settings}"


def run_counts(counts: Mapping[Any, int], runs: int) -> list[tuple[str, int]]:
    """Return how many of a study's ``runs`` have which status, in order.

    Trials that are not needed are no runs, nor those that are not likely to be; those that a search
    has yet to propose count as planned.

    Args:
        counts: the study's trials by status.
        runs: trials that will have been started when the study is complete.
    """
    numbers = {status: counts[status] for status in TrialStatus}
    del numbers[TrialStatus.NOT_NEEDED]
    num_begun = sum(numbers.values()) - numbers[TrialStatus.PLANNED]
    numbers[TrialStatus.PLANNED] = max(0, runs - num_begun)
    return [(str(status), number) for status, number in numbers.items()]


def num_ended(counts: Mapping[Any, int]) -> int:
    """Return how many trials have ended, without those that were not needed, by the trials of each
    status."""
    final = (status for status in TrialStatus if status.is_final)
    return sum(counts[status] for status in final if status is not TrialStatus.NOT_NEEDED)


def budgets_in_words(amounts: Iterable[int], unit: str) -> str:
    """Return the budgets of some runs: ``of 40 or 80 epochs``."""
    different = sorted(set(amounts))
    return f"of {listed(different, 'or')} {unit_word(unit, different[-1])}"


def composition_lines(trials: Sequence[TrialRow], manifest: Manifest, runs: int) -> list[str]:
    """Return in words how many trials a study has, and how many were not needed; ``runs`` will have
    been started when it is complete."""
    scouts, unit = manifest.scouts, str(manifest.budget["unit"])
    is_searched = manifest.is_sequential
    question = manifest.question or {}
    size = Size.of(trials, manifest.place, question.get("nuisance", ()), scouts)
    size = replace(size, seeds=1) if is_searched else size  # they differ from place to place
    lines = []
    if trials:  # a study may have been killed before they were recorded
        budgets = budgets_in_words((trial.budget for trial in trials), unit)
        lines.append(f"{size}: {counted(runs, 'run')} {budgets}")
    if scouts:
        seeds = "seed 0" if scouts == 1 else f"seeds 0 to {scouts - 1}"
        lines.append(
            f"{seeds} of each setting {'is a scout' if scouts == 1 else 'are scouts'}: only to "
            "choose among the settings, and counted in no answer"
        )
    if unneeded := sum(trial.status == TrialStatus.NOT_NEEDED for trial in trials):
        were = "was" if unneeded == 1 else "were"
        why = "what loses by its scouts, or at a shorter budget, is trained no further"
        if is_searched:
            why = "the search did not ask for more"
        lines.append(f"{counted(unneeded, 'further run')} {were} planned and not needed: {why}")
    return lines


def _text(point: Mapping[str, Any]) -> str:
    return json.dumps(dict(point), default=str, sort_keys=True)
