"""An edited sweep beside what a study has on record: what stays, what is new, what falls out.

Two trials are the same if their keys are. What is on record and no longer planned is orphaned: it
keeps its results and counts again if it is ever planned again.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.labels import listed, point_label, varying_axes
from hsweep.design.space import recorded_point
from hsweep.design.trial import Trial
from hsweep.planning.code_changes import Files, changed_code, part_in_words
from hsweep.planning.continuation import Shorter
from hsweep.planning.identity import CONTENT_PARTS
from hsweep.planning.plan import Plan, Planner
from hsweep.record.endings import PROPOSALS
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow

NOT_IN_SPACE: Final = "no longer in the space"
_NOT_A_REPLICATE: Final = "its seed is no longer one of the sweep's"
_UNKNOWN: Final = "its code, data or settings have changed"
_TRAINED_OTHERWISE: Final = "it is trained in another way (train=)"
_EXAMPLES: Final = 4


@dataclass(frozen=True, slots=True)
class Orphan:
    """A trial on record that is no longer part of the study, and why."""

    row: TrialRow
    why: str


@dataclass(frozen=True, slots=True)
class Revision:
    """What an edited sweep makes of a study.

    Attributes:
        plan: of the edited sweep, recorded extensions included.
        num_before: trials that were part of the study.
        kept: trials on record that are part of it as they were.
        back: orphans of before that are part of it again.
        new: trials that are not on record, those that continue others included.
        orphaned: trials that fall out of it.
        continued: new trials that begin with what a shorter one has trained.
    """

    plan: Plan
    num_before: int
    kept: tuple[TrialRow, ...]
    back: tuple[TrialRow, ...]
    new: tuple[Trial, ...]
    orphaned: tuple[Orphan, ...]
    continued: tuple[Shorter, ...]

    @property
    def changes_trials(self) -> bool:
        return bool(self.back or self.new or self.orphaned)

    @property
    def untouched(self) -> tuple[Trial, ...]:
        """The new trials that begin at the beginning."""
        continued = {each.trial.key for each in self.continued}
        return tuple(trial for trial in self.new if trial.key not in continued)

    def reasons(self) -> dict[str, list[Orphan]]:
        return _by_reason(self.orphaned)

    def lines(self) -> list[str]:
        varying = varying_axes([*self.plan.trials, *(orphan.row for orphan in self.orphaned)])
        now = len(self.kept) + len(self.back) + len(self.new)
        lines = [f"{now} trials, {self.num_before} before"]
        if self.kept:
            lines.append(f"kept       {len(self.kept)} ({_statuses(self.kept)})")
        if self.back:
            shown = _examples(self.back, varying)
            lines.append(f"back       {len(self.back)} ({_statuses(self.back)}): {shown}")
        if self.untouched:
            lines.append(f"new        {len(self.untouched)}: {_examples(self.untouched, varying)}")
        if self.continued:
            ways = Counter(each.how for each in self.continued)
            how = ", ".join(f"{number} {way}" for way, number in ways.items())
            shown = _examples([each.trial for each in self.continued], varying)
            lines.append(
                f"continued  {len(self.continued)} with a budget of {_length(self.plan)} ({how}): "
                f"{shown}"
            )
        sources = {each.source.key for each in self.continued}
        fallen_out = [orphan for orphan in self.orphaned if orphan.row.key not in sources]
        for why, orphans in _by_reason(fallen_out).items():
            rows = [orphan.row for orphan in orphans]
            shown = _examples(rows, varying)
            lines.append(f"orphaned   {len(rows)} ({_statuses(rows)}), {why}: {shown}")
        if fallen_out:
            lines.append(
                "Orphaned trials keep their results on record and count again when they are "
                "planned again."
            )
        return lines

    def counts(self) -> dict[str, int]:
        return {"before": self.num_before} | {
            what: len(entries) for what, entries in self._entries().items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.counts(),
            "reasons": {why: len(orphans) for why, orphans in self.reasons().items()},
            "trials": [
                {**_entry(trial, what), **more}
                for what, entries in self._entries().items()
                for trial, more in entries
            ],
        }

    def _entries(self) -> dict[str, list[tuple[Trial | TrialRow, dict[str, str]]]]:
        """Return the trials of each kind, with what there is to say of each."""
        return {
            "kept": [(row, {}) for row in self.kept],
            "back": [(row, {}) for row in self.back],
            "new": [(trial, {}) for trial in self.untouched],
            "continued": [
                (each.trial, {"from": each.source.key, "how": each.how}) for each in self.continued
            ],
            "orphaned": [(each.row, {"why": each.why}) for each in self.orphaned],
        }


def compare(
    plan: Plan,
    rows: Sequence[TrialRow],
    files: Files,
    shorter: Callable[[Trial], Shorter | None] = lambda _trial: None,
) -> Revision:
    """Compare a plan with the record, orphans included, by the trials' keys.

    Args:
        plan: everything the study shall consist of.
        rows: the record.
        files: behind digests of code on record.
        shorter: finds what a new trial can go on from.
    """
    planned = {trial.key for trial in plan.trials}
    recorded = {row.key for row in rows}
    present = [row for row in rows if not row.orphaned]
    new = tuple(trial for trial in plan.trials if trial.key not in recorded)
    found = [each for each in map(shorter, new) if each is not None]
    gone = [row for row in present if row.key not in planned]
    return Revision(
        plan=plan,
        num_before=len(present),
        kept=tuple(row for row in present if row.key in planned),
        back=tuple(row for row in rows if row.orphaned and row.key in planned),
        new=new,
        orphaned=tuple(_orphans(gone, plan, files, found)),
        continued=tuple(each for each in found if each.status is not None),
    )


def _orphans(
    rows: Iterable[TrialRow], plan: Plan, files: Files, found: Iterable[Shorter]
) -> Iterator[Orphan]:
    """Yield trials on record that are not planned any more, with the reason why."""
    planned = {(each.point, each.replicate): each for each in plan.trials}
    at_budget = {(each.point, each.replicate, each.budget.amount): each for each in plan.trials}
    points = {point for point, _ in planned}
    skipped = {each.point: each.reason for each in plan.skipped}
    lengthened = {each.source.key: each for each in found}
    for row in rows:
        point = recorded_point(row.point)
        if row.key in lengthened:
            why = _why_of_another_length(lengthened[row.key], plan)
        elif (point, row.replicate) in planned:
            like = at_budget.get((point, row.replicate, row.budget), planned[point, row.replicate])
            why = _what_changed(row, like, plan, files)
        elif point in skipped:
            why = f"skipped, {skipped[point]}"
        else:
            why = _NOT_A_REPLICATE if point in points else NOT_IN_SPACE
        yield Orphan(row, why)


def _why_of_another_length(shorter: Shorter, plan: Plan) -> str:
    if shorter.status is not None:
        return f"continued with a budget of {_length(plan)}"
    again = f", and it is trained from the start: {shorter.why}" if shorter.why else ""
    return f"its budget is now {_length(plan)}{again}"


def _what_changed(row: TrialRow, trial: Trial, plan: Plan, files: Files) -> str:
    if row.parts and row.parts.keys() != trial.parts.keys():
        return _TRAINED_OTHERWISE
    content = [part for part in CONTENT_PARTS if row.parts.get(part) != trial.parts.get(part)]
    code = changed_code(row.parts, trial.parts, files, plan.accepted)
    parts = [*map(part_in_words, content), *(part_in_words(*each) for each in code.items())]
    if not parts:
        return _UNKNOWN
    has = "has" if len(parts) == 1 and parts[0] not in ("data", "seeds") else "have"
    return f"its {listed(parts)} {has} changed"


def _length(plan: Plan) -> str:
    return str(plan.sweep.budget)


def proposed_trials(plan: Plan, journal: JournalReader) -> list[Trial]:
    """Return the trials that an adaptive search's recorded proposals lead to; none of a search
    that lists or draws its points."""
    if not plan.is_adaptive:
        return []
    planner = Planner.like(plan)
    trials: list[Trial] = []
    for _, text in sorted(journal.metas(PROPOSALS).items()):
        trials += planner.plan_point(recorded_point(json.loads(text)["point"]))
    return trials


def _by_reason(orphans: Iterable[Orphan]) -> dict[str, list[Orphan]]:
    found: dict[str, list[Orphan]] = {}
    for orphan in orphans:
        found.setdefault(orphan.why, []).append(orphan)
    return found


def _statuses(rows: Iterable[TrialRow]) -> str:
    counts = Counter(str(row.status).replace("_", " ") for row in rows)
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def _examples(trials: Sequence[Trial | TrialRow], varying: tuple[str, ...]) -> str:
    labels = list(dict.fromkeys(point_label(trial.point, varying) for trial in trials))
    shown = ", ".join(labels[:_EXAMPLES])
    return shown if len(labels) <= _EXAMPLES else f"{shown}, ... ({len(labels)} points)"


def _entry(trial: Trial | TrialRow, what: str) -> dict[str, Any]:
    entry = {
        "key": trial.key,
        "what": what,
        "point": dict(trial.point),
        "replicate": trial.replicate,
    }
    return entry if isinstance(trial, Trial) else {**entry, "status": str(trial.status)}
