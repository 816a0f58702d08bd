"""Compares a plan with a study's record: trials that stay, are new, are extended or drop out.

Two trials are the same if their keys are. What is on record and no longer planned is orphaned: it
keeps its results and counts again if it is ever planned again.

The budget is part of a trial's key, so another budget makes every trial a new one. As far as the
learning rate does not depend on the length of the training, the longer trial begins with exactly
the steps of the shorter one: it takes over those reports and goes on from the checkpoint there.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from hsweep.design.budget import Budget
from hsweep.design.labels import first_of, listed, point_label, varying_axes
from hsweep.design.space import recorded_point
from hsweep.design.trial import Trial, TrialStatus
from hsweep.planning.code_changes import Files, changed_code, part_in_words
from hsweep.planning.identity import CONTENT_PARTS, Accepted, content_hash, key_of
from hsweep.planning.plan import Plan, Planner
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow
from hsweep.record.summary import PROPOSALS

NOT_IN_SPACE: Final = "no longer in the space"
_NOT_A_REPLICATE: Final = "its seed is no longer one of the sweep's"
_UNKNOWN: Final = "its code, data or settings have changed"
_TRAINED_OTHERWISE: Final = "it is trained in another way (train=)"
_EXAMPLES: Final = 4
_GOES_ON: Final = (TrialStatus.FINISHED, TrialStatus.PLANNED, TrialStatus.RUNNING)
_STAYS: Final = (TrialStatus.DIVERGED, TrialStatus.STOPPED_EARLY)

_AnyTrial: TypeAlias = Trial | TrialRow


@dataclass(frozen=True, slots=True)
class Continuation:
    """A trial that was trained with another budget before.

    Attributes:
        trial: the trial with its present budget.
        previous: the trial on record with the earlier budget; a trial that continues it takes over
            its reports.
        status: status of ``trial`` after that; None if it does not continue ``previous``.
        through: the last unit whose report is taken over.
        why: why ``trial`` does not continue ``previous``; empty if it does, or if there is nothing
            to continue.
    """

    trial: Trial
    previous: TrialRow
    status: TrialStatus | None = None
    through: int = 0
    why: str = ""

    @property
    def reason(self) -> str:
        """Reason of the trial's status, for the record."""
        if self.status is TrialStatus.PLANNED:
            return f"goes on from {self.through} {self.trial.budget.unit}"
        return self.previous.reason

    @property
    def how(self) -> str:
        """How the trial continues the previous one, in words."""
        if self.status is not TrialStatus.PLANNED:
            return f"{str(self.status).replace('_', ' ')}, as before"
        whole = self.previous.status is TrialStatus.FINISHED
        return "finished, now longer" if whole else "unfinished, goes on"


@dataclass(frozen=True, slots=True)
class Revision:
    """The difference between a plan and a study's record.

    Attributes:
        plan: all trials that the study shall have.
        num_before: number of trials that the study had.
        remaining: trials of the study that stay in it.
        restored: trials that an earlier change removed and that return.
        new: trials that are not on record, the extended ones included.
        removed: trials that leave the study, by the reason.
        extended: new trials that continue a training with the previous budget.
    """

    plan: Plan
    num_before: int
    remaining: tuple[TrialRow, ...]
    restored: tuple[TrialRow, ...]
    new: tuple[Trial, ...]
    removed: Mapping[str, Sequence[TrialRow]]
    extended: tuple[Continuation, ...]

    @property
    def changes_trials(self) -> bool:
        return bool(self.restored or self.new or self.removed)

    @property
    def orphaned(self) -> dict[str, list[TrialRow]]:
        """The trials that leave the study and that no other continues, by the reason."""
        previous = {continuation.previous.key for continuation in self.extended}
        return {
            why: [row for row in rows if row.key not in previous]
            for why, rows in self.removed.items()
        }

    def lines(self) -> list[str]:
        """Return the difference in words."""
        groups = self._groups()
        trials = [trial for group in groups.values() for trial, _ in group]
        varying = varying_axes(trial.point for trial in trials)
        now = len(self.remaining) + len(self.restored) + len(self.new)
        lines = [f"{now} trials, {self.num_before} before"]
        if self.remaining:
            lines.append(f"kept       {len(self.remaining)} ({_statuses(self.remaining)})")
        ways = Counter(continuation.how for continuation in self.extended)
        text = ", ".join(f"{number} {way}" for way, number in ways.items())
        longer = f" with a budget of {self.plan.sweep.budget} ({text})"
        orphaned = self.orphaned
        entries: list[tuple[str, Sequence[_AnyTrial], str]] = [
            ("restored", self.restored, f" ({_statuses(self.restored)})"),
            ("new", [trial for trial, _ in groups["new"]], ""),
            ("extended", [continuation.trial for continuation in self.extended], longer),
            *(("orphaned", o, f" ({_statuses(o)}), {why}") for why, o in orphaned.items()),
        ]
        for group, some, about in entries:
            labels = list(dict.fromkeys(point_label(trial.point, varying) for trial in some))
            if some:
                lines.append(f"{group:<9}  {len(some)}{about}: {first_of(labels, _EXAMPLES)}")
        if any(orphaned.values()):
            lines.append(
                "Orphaned trials keep their results on record and count again when they are "
                "planned again."
            )
        return lines

    def counts(self) -> dict[str, int]:
        """Return the number of trials of each kind, for the record."""
        groups = self._groups().items()
        return {"before": self.num_before, **{what: len(trials) for what, trials in groups}}

    def to_json(self) -> dict[str, Any]:
        trials = []
        for what, group in self._groups().items():
            for trial, detail in group:
                entry = {"key": trial.key, "what": what, "point": dict(trial.point)}
                status = {"status": str(trial.status)} if isinstance(trial, TrialRow) else {}
                trials.append({**entry, "replicate": trial.replicate, **status, **detail})
        reasons = {why: len(rows) for why, rows in self.removed.items()}
        return {**self.counts(), "reasons": reasons, "trials": trials}

    def _groups(self) -> dict[str, list[tuple[_AnyTrial, dict[str, str]]]]:
        """Return the trials by kind, each with the extra fields of its kind."""
        extended = {continuation.trial.key for continuation in self.extended}
        return {
            "kept": [(row, {}) for row in self.remaining],
            "restored": [(row, {}) for row in self.restored],
            "new": [(trial, {}) for trial in self.new if trial.key not in extended],
            "extended": [
                (new.trial, {"from": new.previous.key, "how": new.how}) for new in self.extended
            ],
            "orphaned": [(row, {"why": why}) for why, rows in self.removed.items() for row in rows],
        }


def compare(
    plan: Plan,
    rows: Sequence[TrialRow],
    files: Files = lambda _digest: None,
    continuation: Callable[[Trial], Continuation | None] = lambda _trial: None,
) -> Revision:
    """Compare a plan with the record, orphaned trials included, by the trials' keys; ``files`` are
    those behind digests of code on record, ``continuation`` finds what a new trial can go on
    from."""
    planned = {trial.key for trial in plan.trials}
    recorded = {row.key for row in rows}
    present = [row for row in rows if not row.orphaned]
    new = tuple(trial for trial in plan.trials if trial.key not in recorded)
    continuations = [result for result in map(continuation, new) if result is not None]
    removed_rows = [row for row in present if row.key not in planned]
    return Revision(
        plan=plan,
        num_before=len(present),
        remaining=tuple(row for row in present if row.key in planned),
        restored=tuple(row for row in rows if row.orphaned and row.key in planned),
        new=new,
        removed=_removed(removed_rows, plan, files, continuations),
        extended=tuple(result for result in continuations if result.status is not None),
    )


def _removed(
    rows: Iterable[TrialRow], plan: Plan, files: Files, continuations: Iterable[Continuation]
) -> dict[str, list[TrialRow]]:
    """Return trials on record that are not planned any more, by the reason why."""
    by_place = {(trial.point, trial.replicate): trial for trial in plan.trials}
    at_budget = {
        (trial.point, trial.replicate, trial.budget.amount): trial for trial in plan.trials
    }
    points = {point for point, _ in by_place}
    other_budget = {result.previous.key: result for result in continuations}
    removed: dict[str, list[TrialRow]] = {}
    for row in rows:
        point = recorded_point(row.point)
        if (continued := other_budget.get(row.key)) is not None:
            again = continued.why and f", and it is trained from the start: {continued.why}"
            is_longer = continued.status is not None
            how = "extended to a budget of" if is_longer else "its budget is now"
            why = f"{how} {plan.sweep.budget}{again}"
        elif (point, row.replicate) in by_place:
            like = at_budget.get((point, row.replicate, row.budget), by_place[point, row.replicate])
            why = _what_changed(row, like, plan, files)
        elif point in plan.skipped:
            why = f"skipped, {plan.skipped[point]}"
        else:
            why = _NOT_A_REPLICATE if point in points else NOT_IN_SPACE
        removed.setdefault(why, []).append(row)
    return removed


def _what_changed(row: TrialRow, trial: Trial, plan: Plan, files: Files) -> str:
    if row.parts and row.parts.keys() != trial.parts.keys():
        return _TRAINED_OTHERWISE
    content = [part for part in CONTENT_PARTS if row.parts.get(part) != trial.parts.get(part)]
    code = changed_code(row.parts, trial.parts, files, plan.accepted)
    parts = [*map(part_in_words, content), *(part_in_words(*item) for item in code.items())]
    if not parts:
        return _UNKNOWN
    has = "has" if len(parts) == 1 and parts[0] not in ("data", "seeds") else "have"
    return f"its {listed(parts)} {has} changed"


def proposed_trials(plan: Plan, journal: JournalReader) -> list[Trial]:
    """Return the trials of an adaptive search's recorded proposals; no trials for other
    searches."""
    if not plan.is_adaptive:
        return []
    planner = Planner(replace(plan, trials=()))
    for _, text in sorted(journal.metas(PROPOSALS).items()):
        planner.plan_point(recorded_point(json.loads(text)["point"]))
    return [*planner.trials.values()]


def continuation_of(
    trial: Trial,
    budgets: Sequence[Mapping[str, Any]],
    rows: Mapping[str, TrialRow],
    checkpoints: str,
    accepted: Accepted,
    *,
    same_rungs: bool,
) -> Continuation | None:
    """Return the recorded training that a planned trial can go on from.

    None if it was trained with no other budget, or if its previous budget is part of the same
    ladder: then the coordinator lets it go on from there.

    Args:
        trial: one that is not on record.
        budgets: those that the study has had, as it recorded them.
        rows: all of its record by key, orphaned trials included.
        checkpoints: folder or URI of its checkpoints.
        accepted: code that is taken for other code in keys.
        same_rungs: whether early stopping is as it was.
    """
    if trial.previous in rows:
        return None
    earlier: list[tuple[Budget, TrialRow]] = []
    for content in budgets:
        fields = (content[name] for name in ("amount", "unit", "report_every", "ladder"))
        for budget in Budget(*fields).rungs:
            key = key_of({**trial.parts, "budget": content_hash(budget)}, accepted)
            if budget != trial.budget and key in rows:
                earlier.append((budget, rows[key]))
    if not earlier:
        return None
    earlier.sort(key=lambda pair: (not pair[1].orphaned, pair[1].unit, pair[0].amount))
    obstacles = [(_obstacle(budget, trial), row) for budget, row in earlier]
    usable = [row for obstacle, row in obstacles if not obstacle]
    if not usable:
        why, row = obstacles[-1]
        return Continuation(trial, row, why=why)
    shared = {row.key: trial.shared_with(row.budget) for row in usable}
    previous = max(usable, key=lambda row: (min(row.unit, shared[row.key]), row.budget))
    through, status = min(previous.unit, shared[previous.key]), previous.status
    if previous.unit == 0:
        why = ""
    elif status is TrialStatus.STOPPED_EARLY and not same_rungs:
        why = "it was stopped early, and early stopping has changed"
    # What ended a training after the part in common does not end the longer one.
    elif previous.unit == through and status in _STAYS:
        return Continuation(trial, previous, status, through=through)
    elif status not in (*_GOES_ON, *_STAYS):
        why = f"it had ended as {str(status).replace('_', ' ')}"
    elif status is not TrialStatus.FINISHED or _has_checkpoint(checkpoints, previous.key, through):
        return Continuation(trial, previous, TrialStatus.PLANNED, through)
    else:
        why = "its last checkpoint is gone"
    return Continuation(trial, previous, why=why)


def _obstacle(before: Budget, trial: Trial) -> str:
    """Return the reason why a trial cannot go on from another budget; empty if it can."""
    after = trial.budget
    if before.unit != after.unit:
        return f"{before.unit} and {after.unit} are not the same measure"
    if after.amount <= before.amount:
        return "a shorter training is not cut out of a longer one, whose last report came later"
    if trial.length_dependence:
        return trial.length_dependence
    if before.report_every != after.report_every:
        return (
            f"reports every {after.report_every} {after.unit} instead of every "
            f"{before.report_every} divide the training otherwise"
        )
    if not trial.shared_with(before.amount):
        return (
            f"reports every {before.report_every} {before.unit} leave none that both trainings "
            f"have, of {before.amount} {before.unit}"
        )
    return ""


def _has_checkpoint(root: str, key: str, through: int) -> bool:
    """Whether a trial has a checkpoint that a longer training can go on from."""
    from hsweep.training.checkpoints import CheckpointStore

    try:
        units = CheckpointStore(root, key, attempt=0).units()
    except OSError:
        return False
    return any(unit <= through for unit in units)


def _statuses(trials: Iterable[_AnyTrial]) -> str:
    counts = Counter(
        str(row.status).replace("_", " ") for row in trials if isinstance(row, TrialRow)
    )
    return ", ".join(f"{number} {status}" for status, number in counts.items())
