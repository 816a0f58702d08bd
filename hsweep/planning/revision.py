"""A plan beside what a study has on record: what stays, what is new, what falls out.

Two trials are the same if their keys are. What is on record and no longer planned is orphaned: it
keeps its results and counts again if it is ever planned again.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.labels import listed, point_label, varying_axes
from hsweep.design.space import recorded_point
from hsweep.design.trial import Trial
from hsweep.planning.code_changes import Files, changed_code, part_in_words
from hsweep.planning.continuation import Continuation
from hsweep.planning.identity import CONTENT_PARTS
from hsweep.planning.plan import Plan, Planner
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow
from hsweep.record.summary import PROPOSALS

NOT_IN_SPACE: Final = "no longer in the space"
_NOT_A_REPLICATE: Final = "its seed is no longer one of the sweep's"
_UNKNOWN: Final = "its code, data or settings have changed"
_TRAINED_OTHERWISE: Final = "it is trained in another way (train=)"
_EXAMPLES: Final = 4


@dataclass(frozen=True, slots=True)
class Revision:
    """What a plan makes of a study.

    Attributes:
        plan: everything the study shall consist of.
        num_before: trials that were part of the study.
        kept: trials on record that are part of it as they were.
        restored: trials orphaned before that are part of it again.
        new: trials that are not on record, the extended ones included.
        orphaned: trials that are no longer part of it, by the reason why.
        extended: new trials that begin with what was trained with the previous budget.
    """

    plan: Plan
    num_before: int
    kept: tuple[TrialRow, ...]
    restored: tuple[TrialRow, ...]
    new: tuple[Trial, ...]
    orphaned: Mapping[str, Sequence[TrialRow]]
    extended: tuple[Continuation, ...]

    @property
    def changes_trials(self) -> bool:
        return bool(self.restored or self.new or self.orphaned)

    def lines(self) -> list[str]:
        """Return what becomes of the study's trials, in words."""
        gone = [row.point for rows in self.orphaned.values() for row in rows]
        varying = varying_axes([*(trial.point for trial in self.plan.trials), *gone])

        def line(what: str, trials: Sequence[Trial | TrialRow], about: str = "") -> str:
            return f"{what:<9}  {len(trials)}{about}: {_examples(trials, varying)}"

        now = len(self.kept) + len(self.restored) + len(self.new)
        lines = [f"{now} trials, {self.num_before} before"]
        if self.kept:
            lines.append(f"kept       {len(self.kept)} ({_statuses(self.kept)})")
        if self.restored:
            lines.append(line("restored", self.restored, f" ({_statuses(self.restored)})"))
        if new := [trial for trial, _ in self._entries()["new"]]:
            lines.append(line("new", new))
        if self.extended:
            ways = Counter(each.how for each in self.extended)
            how = ", ".join(f"{number} {way}" for way, number in ways.items())
            about = f" with a budget of {self.plan.sweep.budget} ({how})"
            lines.append(line("extended", [each.trial for each in self.extended], about))
        previous = {each.previous.key for each in self.extended}
        orphans = {
            why: [row for row in rows if row.key not in previous]
            for why, rows in self.orphaned.items()
        }
        lines += [
            line("orphaned", rows, f" ({_statuses(rows)}), {why}")
            for why, rows in orphans.items()
            if rows
        ]
        if any(orphans.values()):
            lines.append(
                "Orphaned trials keep their results on record and count again when they are "
                "planned again."
            )
        return lines

    def counts(self) -> dict[str, int]:
        entries = self._entries().items()
        return {"before": self.num_before, **{what: len(trials) for what, trials in entries}}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.counts(),
            "reasons": {why: len(rows) for why, rows in self.orphaned.items()},
            "trials": [
                {**_entry(trial, what), **more}
                for what, trials in self._entries().items()
                for trial, more in trials
            ],
        }

    def _entries(self) -> dict[str, list[tuple[Trial | TrialRow, dict[str, str]]]]:
        """Return the trials of each kind, with what there is to say of each."""
        extended = {each.trial.key for each in self.extended}
        return {
            "kept": [(row, {}) for row in self.kept],
            "restored": [(row, {}) for row in self.restored],
            "new": [(trial, {}) for trial in self.new if trial.key not in extended],
            "extended": [
                (each.trial, {"from": each.previous.key, "how": each.how}) for each in self.extended
            ],
            "orphaned": [
                (row, {"why": why}) for why, rows in self.orphaned.items() for row in rows
            ],
        }


def compare(
    plan: Plan,
    rows: Sequence[TrialRow],
    files: Files,
    continuation: Callable[[Trial], Continuation | None] = lambda _trial: None,
) -> Revision:
    """Compare a plan with the record, orphaned trials included, by the trials' keys.

    Args:
        plan: everything the study shall consist of.
        rows: the record.
        files: behind digests of code on record.
        continuation: finds what a new trial can go on from.
    """
    planned = {trial.key for trial in plan.trials}
    recorded = {row.key for row in rows}
    present = [row for row in rows if not row.orphaned]
    new = tuple(trial for trial in plan.trials if trial.key not in recorded)
    previous = [each for each in map(continuation, new) if each is not None]
    gone = [row for row in present if row.key not in planned]
    return Revision(
        plan=plan,
        num_before=len(present),
        kept=tuple(row for row in present if row.key in planned),
        restored=tuple(row for row in rows if row.orphaned and row.key in planned),
        new=new,
        orphaned=_orphaned(gone, plan, files, previous),
        extended=tuple(each for each in previous if each.status is not None),
    )


def _orphaned(
    rows: Iterable[TrialRow], plan: Plan, files: Files, continuations: Iterable[Continuation]
) -> dict[str, list[TrialRow]]:
    """Return trials on record that are not planned any more, by the reason why."""
    planned = {(each.point, each.replicate): each for each in plan.trials}
    at_budget = {(each.point, each.replicate, each.budget.amount): each for each in plan.trials}
    points = {point for point, _ in planned}
    other_budget = {each.previous.key: each for each in continuations}
    orphaned: dict[str, list[TrialRow]] = {}
    for row in rows:
        point = recorded_point(row.point)
        if row.key in other_budget:
            why = _why_of_another_budget(other_budget[row.key], plan)
        elif (point, row.replicate) in planned:
            like = at_budget.get((point, row.replicate, row.budget), planned[point, row.replicate])
            why = _what_changed(row, like, plan, files)
        elif point in plan.skipped:
            why = f"skipped, {plan.skipped[point]}"
        else:
            why = _NOT_A_REPLICATE if point in points else NOT_IN_SPACE
        orphaned.setdefault(why, []).append(row)
    return orphaned


def _why_of_another_budget(continuation: Continuation, plan: Plan) -> str:
    if continuation.status is not None:
        return f"extended to a budget of {plan.sweep.budget}"
    why = continuation.why
    again = f", and it is trained from the start: {why}" if why else ""
    return f"its budget is now {plan.sweep.budget}{again}"


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


def _statuses(trials: Iterable[Trial | TrialRow]) -> str:
    counts = Counter(
        str(row.status).replace("_", " ") for row in trials if isinstance(row, TrialRow)
    )
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def _examples(trials: Iterable[Trial | TrialRow], varying: tuple[str, ...]) -> str:
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
