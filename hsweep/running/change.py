"""The difference between a study on record and its new plan.

A new study, an edited sweep, a study that goes on as it is and runs that its answer lacks take one
way: the sweep, with the runs that answers asked for, is planned and compared with the record. The
difference is shown before anything is recorded, and recorded as one line before anything trains.
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from rich.console import Console

from hsweep.command_line import command
from hsweep.coordination.recording import planned_row
from hsweep.design.missing import Missing
from hsweep.design.search import NOT_ASKED
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError, unknown_name
from hsweep.options import item_text, option_words
from hsweep.paths import Home
from hsweep.planning.code_changes import acceptance_line, accepted_change, recorded_files
from hsweep.planning.extension import Extension, carried_over, plan_extension
from hsweep.planning.options import SweepOptions
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import (
    Prepared,
    own_sweep,
    planned,
    recorded_options,
    refuse_unread_data,
    variant,
)
from hsweep.planning.revision import Revision, compare, continuation_of, proposed_trials
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.journal_reader import LACKING, JournalReader
from hsweep.record.log import Entry
from hsweep.record.manifest import Manifest, manifest_text
from hsweep.record.study import StudyFolder, dated
from hsweep.record.summary import PROPOSALS
from hsweep.running.manifests import extension_entry, new_manifest, sweep_source
from hsweep.running.options import RunOptions
from hsweep.tracking.target import TrackingTarget
from hsweep.workspace import LoadedSweep, another_sweep

_REPLACED: Final = (
    *("settings", "budget", "question", "metrics", "metric", "goal", "description", "axes"),
    *("sweep_folder", "own_folders", "extensions", "probe", "keep", "final", "fixed_rate"),
    *("scouts", "search"),
)
"""Fields of a manifest that an edited sweep replaces."""
_TO_RETRY: Final = (TrialStatus.FAILED, TrialStatus.TOO_LARGE)
_RESULTS: Final = (TrialStatus.FINISHED, TrialStatus.STOPPED_EARLY)
_ADAPTIVE: Final = (
    "the study {name!r} proposes its points one by one, each building on how those before it "
    "ended, so what it has tried must stay what it is: {what}. Its number of points, replicates, "
    "early stopping, resources and question can change; for anything else begin another study "
    "with --study NAME"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a study: its new manifest, its new and removed trials, and the trials to run.

    Attributes:
        prepared: the sweep and its plan, with the runs that answers asked for.
        target: the MLflow store that the study reports to.
        study: the study that changes; None for a new study.
        new: trials to check before anything is recorded.
        again: keys of ended trials that are planned again.
        only: keys of the trials to run; None for all unfinished trials.
        is_over: whether no trial is left to train.
        last_seq: number of the newest log entry that the plan was compared with.
    """

    prepared: Prepared
    target: TrackingTarget
    manifest: Manifest
    source: str
    revision: Revision
    study: StudyFolder | None = None
    new: Sequence[Trial] = ()
    again: Sequence[str] = ()
    only: frozenset[str] | None = None
    is_over: bool = False
    last_seq: int = 0

    @property
    def name(self) -> str:
        return self.manifest.name

    def changes(self, study: StudyFolder) -> bool:
        return self.manifest is not study.manifest or self.revision.changes_trials

    @contextlib.contextmanager
    def recorded(self, home: Home) -> Iterator[tuple[StudyFolder, Journal]]:
        """Hold the study, a new one or the one that changes, with the change on record.

        Raises:
            UserError: it cannot be written, another process holds it or has run it meanwhile.
        """
        study = self.study
        if study is None:
            plan = self.prepared.plan.to_json()
            study = StudyFolder.create(home, self.manifest, sweep_source=self.source, plan=plan)
        with study.writer() as journal:
            if self.study is not None:
                if journal.last_seq() != self.last_seq:
                    raise UserError(
                        f"the study {study.name!r} was run by another process meanwhile; give the "
                        "command again to see what it makes of the study now"
                    )
                self.take_over(study, journal)
            yield study, journal

    def take_over(self, study: StudyFolder, journal: Journal) -> None:
        """Record the change of an existing study as one line of its log."""
        try:
            if self.changes(study) or self.again:
                manifest = study.manifest_entries(journal, self.manifest, self.source)
                journal.append([*self._trial_entries(journal), *manifest])
                study.manifest = self.manifest
            study.export(self.prepared.plan.to_json())
        except OSError as error:
            raise UserError(
                f"what {study.name!r} is to be cannot be recorded: {study.paths.root} cannot be "
                f"written to ({error}). Nothing on record is lost; free space or restore "
                "the right to write there, then give the command again"
            ) from error

    def _trial_entries(self, journal: Journal) -> list[Entry]:
        entries: list[Entry] = []
        for trial in self.revision.plan.trials:
            row = planned_row(trial)
            if not journal.is_new(row.key):
                # The recorded parts stay, also where other code is accepted as the same.
                before = journal.rows[row.key]
                row.parts = before.parts
                if row.plan_entry() == before.plan_entry():
                    continue
            entries.append(row.plan_entry())
        for extension in self.revision.extended:
            assert extension.status is not None, "it goes on from the previous training"
            source = extension.previous.key
            entries += journal.adoption_entries(
                extension.trial.key,
                [
                    entry
                    for entry in journal.reports([source])
                    if (entry.unit or 0) <= extension.through
                ],
                status=extension.status,
                reason=extension.reason,
                continues=source if extension.status is TrialStatus.PLANNED else "",
                origins=journal.origins(source).get(source, []),
            )
        entries += journal.removal_entries([row.key for row in self.revision.restored], "")
        for why, rows in self.revision.removed.items():
            entries += journal.removal_entries([row.key for row in rows], why)
        return [*entries, *journal.reopening_entries(self.again, "asked for again")]

    def announce(self, study: StudyFolder, console: Console) -> None:
        revision = self.revision
        headline, *details = revision.lines()
        if self.prepared.plan.is_adaptive:
            points = self.prepared.plan.sweep.search.num_points
            headline = f"{len(revision.remaining)} trials proposed so far, {points} points in all"
        manner = "with an edited sweep" if self.changes(study) else "as it is recorded"
        console.print(f"study {study.name} {manner}: {headline}", style="bold", soft_wrap=True)
        for line in [*details, *self._setting_lines(study)]:
            console.print(f"  {line}", soft_wrap=True)
        if any("code" in why for why in revision.removed):
            console.print(
                "  Where the change of code changes no result, --accept-code keeps them instead.",
                soft_wrap=True,
            )

    def _setting_lines(self, study: StudyFolder) -> list[str]:
        accepted = self.manifest.accepted[len(study.manifest.accepted) :]
        lines = [f"accepted   {acceptance_line(entry)}" for entry in accepted]
        before = dict(recorded_options(study.manifest).settings)
        now = dict(recorded_options(self.manifest).settings)
        lines += [
            f"set        {item_text(setting)}"
            for setting in now.items()
            if setting not in before.items()
        ]
        lines += [f"set back   {name}" for name in before.keys() - now.keys()]
        for name in ("metric", "goal"):
            was, is_now = (getattr(manifest, name) for manifest in (study.manifest, self.manifest))
            if was != is_now:
                lines.append(f"{name:<9}  {is_now}, before {was}")
        return lines


def edit(
    study: StudyFolder,
    loaded: LoadedSweep,
    options: SweepOptions,
    target: TrackingTarget,
    run_options: RunOptions,
) -> Change:
    """Return the change of an existing study to a sweep; nothing is written.

    Raises:
        UserError: the sweep cannot be planned, or is not one this study can go on with.
    """
    manifest, path = study.manifest, loaded.path
    before, source = study.sweep_text(), sweep_source(path)
    if path.resolve() == study.paths.sweep_source.resolve() and source != before:
        raise UserError(
            f"{path} is the study's own copy, which stays what is on record, and it was changed; "
            "give it another name and try again"
        )
    refuse_another_sweep(study, loaded.sweep)
    change = _compared(study, loaded, options, target, source, run_options)
    plan = change.prepared.plan
    if plan.is_adaptive and change.revision.removed:
        removed = change.revision.removed.items()
        reasons = "; ".join(f"{len(rows)} trials: {why}" for why, rows in removed)
        raise UserError(_ADAPTIVE.format(name=study.name, what=reasons))
    _refuse_another_metric(study, plan, change.revision)
    revised = _revised(study, change)
    is_other = (
        change.manifest.accepted != manifest.accepted
        or source != before
        or change.revision.changes_trials
        or _replaced(revised) != _replaced(manifest)
    )
    return replace(change, manifest=revised if is_other else manifest)


def refuse_another_sweep(study: StudyFolder, sweep: Sweep) -> None:
    if sweep.name != study.manifest.sweep:
        raise UserError(
            f"the study {study.name!r} is of the sweep {study.manifest.sweep!r}, and this one is "
            f"called {sweep.name!r}: call it so again, or begin another study with --study NAME"
        )


def resume(
    study: StudyFolder, loaded: LoadedSweep, target: TrackingTarget, run_options: RunOptions
) -> Change:
    """Return the change of a study that goes on with its own sweep.

    Raises:
        UserError: its code or data have changed, so that its trials are no longer the same.
    """
    options, source = recorded_options(study.manifest), study.sweep_text()
    change = _compared(study, loaded, options, target, source, run_options)
    _refuse_changed(study, change)
    return change


def missing(
    study: StudyFolder, runs: Iterable[Missing], target: TrackingTarget, options: RunOptions
) -> tuple[Change, Extension]:
    """Return the change that adds the runs an analysis lists as missing, and trains no others.

    Raises:
        UserError: the study's trials cannot be planned again, or are no longer the same.
    """
    change = resume(study, own_sweep(study), target, options)
    with study.journal() as journal:
        rows = journal.trials(orphaned=True)
    plan = change.prepared.plan
    recorded = [row for row in rows if not row.orphaned]
    extension = plan_extension(plan, recorded, runs, study.manifest.added_keys)
    if not extension.additions:
        return change, extension
    manifest = change.manifest
    entry = extension_entry(extension, change.prepared.loaded.path)
    ended_keys = {row.key for row in rows if row.status.is_final}
    keys = frozenset(trial.key for trial in extension.trials)
    extended = replace(
        change,
        prepared=replace(change.prepared, plan=extension.plan),
        manifest=replace(manifest, extensions=[*manifest.extensions, entry]),
        revision=compare(extension.plan, rows),
        new=extension.trials,
        again=sorted({*change.again, *(ended_keys & keys)}),
        only=keys,
        is_over=False,
    )
    return extended, extension


class Lacking:
    """Counts the trials that `missing` would add for the runs that an answer lacks, and notes the
    counts for readers, who do not plan."""

    def __init__(self, plan: Plan, added: Collection[str], journal: Journal) -> None:
        self._plan, self._added, self._journal = plan, added, journal
        self._counts: dict[str, int] = {}

    def count(self, lacking: Sequence[Missing]) -> list[int]:
        additions: Sequence[Any] = ()
        # Where nothing more can be planned, nothing more is promised.
        with contextlib.suppress(UserError):
            rows = self._journal.trials()
            additions = plan_extension(self._plan, rows, lacking, self._added).additions
        counts = [sum(each is runs for each, *_ in additions) for runs in lacking]
        self._counts |= {runs.name: number for runs, number in zip(lacking, counts, strict=True)}
        return counts

    def note(self) -> None:
        """Put the counts on record; a record that cannot be written ends the run elsewhere."""
        if self._counts != self._journal.lacking():
            with contextlib.suppress(OSError):
                self._journal.set_meta(LACKING, json.dumps(self._counts))


def _compared(
    study: StudyFolder,
    loaded: LoadedSweep,
    options: SweepOptions,
    target: TrackingTarget,
    source: str,
    run_options: RunOptions,
) -> Change:
    """Plan a sweep, with the runs that the study's answers asked for, and compare it with the
    record."""
    manifest, before = study.manifest, recorded_options(study.manifest)
    prepared = planned(loaded, options, accepted=manifest.accepted_code)
    plan = prepared.plan
    refuse_unread_data(plan)
    sweep = plan.sweep
    is_same = source == study.sweep_text() and list(options.settings) == before.settings
    old_sweep = sweep if is_same else _old_sweep(study)
    with study.journal() as journal:
        last_seq, rows = journal.last_seq(), journal.trials(orphaned=True)
        files = recorded_files(journal).get
        _refuse_another_search(study, plan, journal, old_sweep)
        if run_options.accept_code:
            trials = [*plan.trials, *proposed_trials(plan, journal)]
            present = [row for row in rows if not row.orphaned]
            accepted = accepted_change(present, trials, plan.accepted, files)
            if accepted is not None:
                plan = plan.accepting(accepted["code"])
                manifest = replace(manifest, accepted=[*manifest.accepted, dated(accepted)])
        to_come = 0
        if plan.is_adaptive:
            to_come = (sweep.search.num_points or 0) - len(journal.metas(PROPOSALS))
            proposed = proposed_trials(plan, journal)
            revision = compare(replace(plan, trials=tuple(proposed)), rows, files)
        else:
            plan, extensions = carried_over(manifest.extensions, plan, manifest.budget)
            if extensions != list(manifest.extensions):
                manifest = replace(manifest, extensions=extensions)
            budgets = [manifest.budget, *(e["before"]["budget"] for e in manifest.revisions)]
            continuation = partial(
                continuation_of,
                budgets=budgets,
                rows={row.key: row for row in rows},
                checkpoints=study.checkpoints(),
                accepted=plan.accepted,
                same_rungs=old_sweep is not None
                and old_sweep.early_stopping == sweep.early_stopping,
            )
            revision = compare(plan, rows, files, continuation)
    current = [*revision.remaining, *revision.restored]
    again = _failed(current, is_asked=run_options.retry_failed)
    if not is_same or revision.changes_trials:
        # Another search, or the same one among other trials, may ask for them.
        again += [row.key for row in current if row.status.is_final and row.reason == NOT_ASKED]
    is_ended = all(row.status.is_final for row in current)
    return Change(
        replace(prepared, plan=plan),
        target,
        manifest,
        source,
        revision,
        study,
        new=revision.new if not plan.is_adaptive else (),
        again=again,
        is_over=is_ended and not (again or revision.new or to_come > 0),
        last_seq=last_seq,
    )


def _failed(rows: Sequence[TrialRow], *, is_asked: bool) -> list[str]:
    """Return the keys of failed trials that are tried again: if the user asks for it, or if the
    study has no result, since its user must have mended something."""
    has_results = any(row.status in _RESULTS for row in rows)
    return [row.key for row in rows if row.status in _TO_RETRY and (is_asked or not has_results)]


def _refuse_changed(study: StudyFolder, change: Change) -> None:
    """Refuse to go on if trials on record are no longer planned; the error says what has changed
    and how to go on all the same."""
    revision, paths = change.revision, study.paths
    # A study killed before its first trial has nothing on record to differ from.
    removed = [row for rows in revision.removed.values() for row in rows]
    if not removed:
        return
    finished = sum(row.status is TrialStatus.FINISHED for row in removed)
    reasons = "; ".join(f"{why} ({len(rows)})" for why, rows in revision.removed.items())
    ways = [f"restore what has changed (the study's commit is in {paths.manifest})"]
    if not change.prepared.plan.is_adaptive:
        words = option_words(recorded_options(study.manifest))
        arguments = (paths.sweep_source, "--study", paths.name, *words)
        edited = command("run", *arguments, home=paths.home)
        ways.append(
            f"go on with what is there now by `{edited}` (--dry-run only shows it): these trials "
            f"are set aside with their results, {len(revision.new)} are planned in their place"
        )
    if any("code" in why for why in revision.removed):
        accepting = command("resume", paths.name, "--accept-code", home=paths.home)
        ways.append(f"keep them by `{accepting}`, if the change of code changes no result")
    raise UserError(
        f"{len(removed)} of {revision.num_before} trials of {study.name!r} are no longer the same, "
        f"{finished} of them finished: {reasons}. Their results could not be compared with what "
        f"is trained now; {', or '.join(ways)}"
    )


def _refuse_another_metric(study: StudyFolder, plan: Plan, revision: Revision) -> None:
    """Refuse another metric or goal where the old one has decided, or the new one is not there."""
    manifest, sweep = study.manifest, plan.sweep
    there, here = (f"{some.metric!r} ({some.goal}, {some.final})" for some in (manifest, sweep))
    if here == there:
        return
    reported = [row for row in (*revision.remaining, *revision.restored) if row.unit]
    num_stopped = sum(row.status is TrialStatus.STOPPED_EARLY for row in reported)
    lacking = [row for row in reported if row.metrics.get(sweep.metric) is None]
    if num_stopped:
        why = f"{num_stopped} of its trials were stopped early by that"
    elif plan.is_adaptive and reported:
        why = "its search learned from that which points to propose"
    elif "best" in (sweep.final, manifest.final) and reported:
        why = "which report counts is on record with each of its trials"
    elif lacking:
        names = {name for row in lacking for name in row.metrics}
        error = unknown_name("metric", sweep.metric, names)
        why = f"{len(lacking)} of its trials have not reported the new one: {error}"
    else:
        return
    raise UserError(
        f"the study {study.name!r} decides by {there}, the edited sweep by {here}, and {why}. "
        "Begin another study with --study NAME; it takes from this one what has finished and can "
        "be judged by the new metric"
    )


def _old_sweep(study: StudyFolder) -> Sweep | None:
    """Return the sweep as the study has it; None if its code can no longer be loaded."""
    try:
        with another_sweep():
            return variant(own_sweep(study).sweep, recorded_options(study.manifest))
    except UserError:
        return None


def _refuse_another_search(
    study: StudyFolder, plan: Plan, journal: JournalReader, old_sweep: Sweep | None
) -> None:
    """Refuse another search where a study has trials, and another space of an adaptive one."""
    was_adaptive = bool(journal.metas(PROPOSALS))
    if was_adaptive != plan.is_adaptive and journal.trials(orphaned=True):
        raise UserError(
            f"the study {study.name!r} {'learns' if was_adaptive else 'does not learn'} from its "
            "trials which points to propose, unlike the edited sweep's search; begin another "
            "study with --study NAME"
        )
    has_another_space = (
        old_sweep is not None and old_sweep.space.parameters() != plan.sweep.space.parameters()
    )
    if plan.is_adaptive and has_another_space:
        raise UserError(_ADAPTIVE.format(name=study.name, what="its space has changed"))


def _revised(study: StudyFolder, change: Change) -> Manifest:
    """Return the study's manifest after an edit, with the values that the edit replaced."""
    before, revision = study.manifest, change.revision
    fresh = new_manifest(study.name, change.prepared, change.target)
    entry = {
        "time": fresh.created,
        "command": fresh.command,
        "provenance": fresh.provenance,
        "counts": revision.counts(),
        "reasons": {why: len(rows) for why, rows in revision.removed.items()},
        "sweep_file": study.paths.earlier_sweep_source(len(before.revisions) + 1).name,
        "before": {name: getattr(before, name) for name in _REPLACED},
    }
    changes: dict[str, Any] = {name: getattr(fresh, name) for name in _REPLACED}
    changes["extensions"] = list(change.manifest.extensions)
    revisions = [*before.revisions, entry]
    return replace(before, **changes, accepted=change.manifest.accepted, revisions=revisions)


def _replaced(manifest: Manifest) -> Any:
    """Return the values of a manifest that an edited sweep may replace."""
    content = json.loads(manifest_text(manifest))
    return [content[name] for name in _REPLACED]
