"""Going on with a study whose sweep was edited: another space, budget, model or question.

What an edit makes of the study is shown before anything is recorded, and recorded before anything
trains. The sweep the study had, its settings and what became of its trials stay in its folder.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Console

from hsweep.coordination.coordinator import planned_row
from hsweep.design.sweep import Sweep
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError, unknown_name
from hsweep.planning.answerable import refuse_unanswerable
from hsweep.planning.code_changes import acceptance_line, recorded_files
from hsweep.planning.continuation import BudgetHistory
from hsweep.planning.extension import carried_over
from hsweep.planning.options import SweepOptions, setting_text
from hsweep.planning.plan import Plan
from hsweep.planning.prepare import (
    Prepared,
    accepting_code,
    own_sweep,
    planned,
    recorded_options,
    refuse_unread_data,
    variant,
)
from hsweep.planning.revision import Revision, compare, proposed_trials
from hsweep.record.endings import PROPOSALS
from hsweep.record.journal import Journal
from hsweep.record.journal_reader import JournalReader
from hsweep.record.log import Entry
from hsweep.record.manifest import Manifest, manifest_text
from hsweep.record.study import Study
from hsweep.running.job import Job
from hsweep.running.manifests import new_manifest, sweep_source
from hsweep.tracking.target import TrackingTarget
from hsweep.workspace import LoadedSweep

_REPLACED: Final = (
    *("settings", "budget", "question", "metrics", "metric", "goal", "description", "axes"),
    *("sweep_folder", "own_folders", "extensions", "probe", "keep", "fixed_rate", "scouts"),
)
"""What of a manifest an edited sweep replaces."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edited sweep, planned and compared with the study it is for.

    Attributes:
        prepared: the edited sweep and its plan, the study's extensions included.
        target: the MLflow store that the study reports to.
        manifest: the study's once it is taken over.
        source: text of the sweep file.
        is_change: whether anything differs from what the study is.
        last_seq: the newest entry of the record that was compared.
    """

    prepared: Prepared
    target: TrackingTarget
    revision: Revision
    manifest: Manifest
    source: str
    is_change: bool
    last_seq: int


def edited(study: Study, edit: Edit) -> Job:
    """Return the job of going on as an edited sweep; UserError if its question can never be
    answered."""
    plan = edit.prepared.plan
    if edit.revision.new:
        refuse_unanswerable(plan)

    def record() -> Study:
        with study.locked():
            _refuse_moved_on(study, edit)
            if edit.is_change:
                apply_edit(study, edit)
        return study

    storage = study.manifest.storage
    return Job(
        study.name, edit.prepared, edit.target, record, storage, edit.revision.new, edit.revision
    )


def apply_edit(study: Study, edit: Edit) -> None:
    """Make a study that of an edited sweep, in one transaction; its lock must be held. UserError if
    its folder cannot be written to."""
    try:
        with study.writer() as journal:
            revised = study.revision_entries(journal, edit.manifest, edit.source)
            journal.append([*_entries(journal, edit.revision), *revised])
        study.manifest = edit.manifest
        study.export()
    except OSError as error:
        raise UserError(
            f"the edited sweep cannot be taken over by {study.name!r}: {study.paths.root} cannot "
            f"be written to ({error}). Nothing on record is lost; free space or restore the right "
            "to write there, then give the command again"
        ) from error


def _entries(journal: Journal, revision: Revision) -> list[Entry]:
    """Return what makes a study's trials those of a revision."""
    entries: list[Entry] = []
    for trial in revision.plan.trials:
        row = planned_row(trial)
        if not journal.is_new(row.key):
            # It stays made of what it was made of, also where other code is accepted as the same.
            before = journal.rows[row.key]
            row.parts = before.parts
            if row.plan_entry() == before.plan_entry():
                continue
        entries.append(row.plan_entry())
    for each in revision.continued:
        assert each.status is not None, "it goes on from the shorter training"
        entries += journal.continuation(
            each.trial.key,
            each.source.key,
            through=each.through,
            status=each.status,
            reason=each.reason,
            continues=each.checkpoints,
        )
    entries += journal.orphaning([row.key for row in revision.back], "")
    for why, orphans in revision.reasons().items():
        entries += journal.orphaning([orphan.row.key for orphan in orphans], why)
    return entries


def plan_edit(
    study: Study,
    loaded: LoadedSweep,
    options: SweepOptions,
    target: TrackingTarget,
    *,
    accepts_code: bool = False,
) -> Edit:
    """Plan an edited sweep and compare it with the record; nothing is written. UserError if the
    sweep cannot be planned, or is not one this study can go on with."""
    manifest = study.manifest
    before, path = study.sweep_text(), loaded.path
    if path.resolve() == study.paths.sweep_source.resolve() and sweep_source(path) != before:
        raise UserError(
            f"{path} is the study's own copy, which stays what is on record, and it was changed; "
            "give it another name and try again"
        )
    prepared = planned(loaded, options, accepted=manifest.accepted_code)
    sweep = prepared.plan.sweep
    if sweep.name != manifest.sweep:
        raise UserError(
            f"the study {study.name!r} is of the sweep {manifest.sweep!r}, and this one is called "
            f"{sweep.name!r}: call it so again, or begin another study with --study NAME"
        )
    refuse_unread_data(prepared.plan)
    source = sweep_source(path)
    is_same = source == before and list(options.settings) == _settings(manifest)
    old_sweep = sweep if is_same else _old_sweep(study)
    entry: dict[str, Any] | None = None
    with study.journal() as journal:
        last_seq = journal.last_seq()
        rows = journal.trials(orphaned=True)
        files = recorded_files(journal).get
        _refuse_another_search(study, prepared, journal, old_sweep)
        if accepts_code:
            prepared, entry = accepting_code(prepared, journal)
        proposed = proposed_trials(prepared.plan, journal)
    if prepared.plan.is_adaptive:
        extensions: Sequence[Mapping[str, Any]] = manifest.extensions
        revision = compare(replace(prepared.plan, trials=tuple(proposed)), rows, files)
        if reasons := revision.reasons():
            whys = "; ".join(f"{len(orphans)} trials: {why}" for why, orphans in reasons.items())
            raise UserError(_ADAPTIVE.format(name=study.name, what=whys))
    else:
        plan, extensions = carried_over(manifest.extensions, prepared.plan, manifest.budget)
        prepared = replace(prepared, plan=plan)
        history = BudgetHistory(
            [manifest.budget, *(each["before"]["budget"] for each in manifest.revisions)],
            {row.key: row for row in rows},
            study.checkpoints(),
            same_rungs=old_sweep is not None and old_sweep.early_stopping == sweep.early_stopping,
            accepted=plan.accepted,
        )
        revision = compare(plan, rows, files, history.shorter)
    with study.journal() as journal:
        _refuse_another_metric(study, prepared.plan, revision, journal)
    revised = _revised(study, prepared, revision, extensions, target, entry)
    is_change = (
        revision.changes_trials
        or entry is not None
        or source != before
        or _replaced(revised) != _replaced(manifest)
    )
    return Edit(prepared, target, revision, revised, source, is_change, last_seq)


def announce(console: Console, study: Study, edit: Edit) -> None:
    first, *rest = edit.revision.lines()
    if edit.prepared.plan.is_adaptive:
        search = edit.prepared.plan.sweep.search
        first = (
            f"{len(edit.revision.kept)} trials proposed so far, {search.num_points} points in all"
        )
    what = "with an edited sweep" if edit.is_change else "as it is recorded"
    console.print(f"study {study.name} {what}: {first}", style="bold", soft_wrap=True)
    for line in rest:
        console.print(f"  {line}", soft_wrap=True)
    for entry in edit.manifest.accepted[len(study.manifest.accepted) :]:
        console.print(f"  accepted   {acceptance_line(entry)}", soft_wrap=True)
    before, now = dict(_settings(study.manifest)), dict(_settings(edit.manifest))
    for name, values in now.items():
        if values != before.get(name):
            console.print(f"  set        {setting_text(name, values)}", soft_wrap=True)
    for name in before.keys() - now.keys():
        console.print(f"  set back   {name}", soft_wrap=True)
    for name in ("metric", "goal"):
        was, is_now = (getattr(each, name) for each in (study.manifest, edit.manifest))
        if was != is_now:
            console.print(f"  {name:<9}  {is_now}, before {was}", soft_wrap=True)
    if any("code" in why for why in edit.revision.reasons()):
        console.print(
            "  Where the change of code changes no result, --accept-code keeps them instead.",
            soft_wrap=True,
        )


def _settings(manifest: Manifest) -> list[tuple[str, list[Any]]]:
    return list(recorded_options(manifest).settings)


def _refuse_another_metric(
    study: Study, plan: Plan, revision: Revision, journal: JournalReader
) -> None:
    """Refuse another metric or goal where the old one has decided, or the new one is not there."""
    manifest, sweep = study.manifest, plan.sweep
    if (sweep.metric, sweep.goal) == (manifest.metric, manifest.goal):
        return
    reported = [row for row in (*revision.kept, *revision.back) if row.unit]
    stopped = sum(row.status is TrialStatus.STOPPED_EARLY for row in reported)
    last = {entry.key: entry.payload["metrics"] for entry in journal.reports()}
    lacking = [row.key for row in reported if last[row.key].get(sweep.metric) is None]
    if stopped:
        why = f"{stopped} of its trials were stopped early by that"
    elif plan.is_adaptive and reported:
        why = "its search learned from that which points to propose"
    elif lacking:
        names = {name for key in lacking for name in last[key]}
        error = unknown_name("metric", sweep.metric, names)
        why = f"{len(lacking)} of its trials have not reported the new one: {error}"
    else:
        return
    raise UserError(
        f"the study {study.name!r} decides by {manifest.metric!r} ({manifest.goal}), the edited "
        f"sweep by {sweep.metric!r} ({sweep.goal}), and {why}. Begin another study with --study "
        "NAME; it takes from this one what has finished and can be judged by the new metric"
    )


def _refuse_moved_on(study: Study, edit: Edit) -> None:
    with study.journal() as journal:
        if journal.last_seq() != edit.last_seq:
            raise UserError(
                f"the study {study.name!r} was run by another process meanwhile; give the command "
                "again to see what the edited sweep makes of it now"
            )


def _old_sweep(study: Study) -> Sweep | None:
    """Return the sweep as the study has it; None if its code can no longer be loaded."""
    try:
        return variant(own_sweep(study).sweep, recorded_options(study.manifest))
    except UserError:
        return None


_ADAPTIVE: Final = (
    "the study {name!r} proposes its points one by one, each building on how those before it "
    "ended, so what it has tried must stay what it is: {what}. Its number of points, replicates, "
    "early stopping, resources and question can change; for anything else begin another study "
    "with --study NAME"
)


def _refuse_another_search(
    study: Study, prepared: Prepared, journal: JournalReader, old_sweep: Sweep | None
) -> None:
    """Refuse another search where a study has trials, and another space of an adaptive one."""
    plan = prepared.plan
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


def _revised(
    study: Study,
    prepared: Prepared,
    revision: Revision,
    extensions: Sequence[Mapping[str, Any]],
    target: TrackingTarget,
    accepted: Mapping[str, Any] | None,
) -> Manifest:
    before = study.manifest
    fresh = new_manifest(study.name, prepared, storage=before.storage, target=target)
    number = len(before.revisions) + 1
    entry = {
        "time": fresh.created,
        "command": fresh.command,
        "provenance": fresh.provenance,
        "counts": revision.counts(),
        "reasons": {why: len(orphans) for why, orphans in revision.reasons().items()},
        "sweep_file": study.paths.earlier_sweep_source(number).name,
        "before": {name: getattr(before, name) for name in _REPLACED},
    }
    changes: dict[str, Any] = {name: getattr(fresh, name) for name in _REPLACED}
    changes["extensions"] = list(extensions)
    if accepted is not None:
        dated = {"time": fresh.created, "command": fresh.command, **accepted}
        changes["accepted"] = [*before.accepted, dated]
    return replace(before, **changes, revisions=[*before.revisions, entry])


def _replaced(manifest: Manifest) -> Any:
    """Return what an edited sweep may replace, as it is on record."""
    content = json.loads(manifest_text(manifest))
    return [content[name] for name in _REPLACED]
