"""Going on with a study whose sweep was edited: another space, budget, model or question.

What an edit makes of the study is shown before anything is recorded, and recorded before anything
trains. The sweep the study had, its settings and what became of its trials stay in its folder.
"""

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.answerable import refuse_unanswerable
from hsweep.planning.code_changes import acceptance_line, accepted_change, recorded_files
from hsweep.planning.continuation import BudgetHistory, CheckpointUnits
from hsweep.planning.extension import with_extensions
from hsweep.planning.identity import Accepted
from hsweep.planning.plan import apply_settings
from hsweep.planning.prepare import Prepared, Settings, prepare, refuse_unread_data
from hsweep.planning.revision import (
    Revision,
    carried_extensions,
    compare,
    proposed_trials,
    with_keys_of,
)
from hsweep.record.endings import PROPOSALS
from hsweep.record.journal import Journal
from hsweep.record.study import Manifest, Study
from hsweep.running.apply_revision import apply_revision
from hsweep.running.beginnings import new_manifest
from hsweep.running.launch import (
    Conclude,
    RunOptions,
    check_new,
    make_runner,
    prepare_runner,
    sweep_source,
)
from hsweep.running.outcome import Outcome
from hsweep.running.request import train
from hsweep.tracking.target import TrackingTarget
from hsweep.workspace import load_sweep

_REPLACED: Final = (
    *("settings", "limits", "budget", "question", "metrics", "description", "axes"),
    *("sweep_folder", "own_folders", "extensions", "probe"),
)
"""What of a manifest an edited sweep replaces."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an edit consists of.

    Attributes:
        sweep_file: the edited sweep; None for the study's own copy.
        settings: to replace or add to those the study was begun with.
        dropped: names of settings that hold no longer.
        accept_code: whether code that has changed counts as the same.
    """

    sweep_file: Path | None = None
    settings: Settings = field(default_factory=list)
    dropped: Sequence[str] = ()
    accept_code: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """An edited sweep, planned and compared with the study it is for.

    Attributes:
        prepared: the edited sweep and its plan, the study's extensions included.
        revision: what it makes of the study's trials.
        manifest: the study's once it is taken over.
        source: text of the sweep file.
        is_change: whether anything differs from what the study is.
        last_seq: the newest entry of the record that was compared.
    """

    prepared: Prepared
    revision: Revision
    manifest: Manifest
    source: str
    is_change: bool
    last_seq: int


def go_on_edited(
    study: Study,
    asked: Asked,
    options: RunOptions,
    home: Home,
    console: Console,
    conclude: Conclude,
    *,
    dry_run: bool,
) -> tuple[Edit, Outcome | None]:
    """Show what an edited sweep makes of a study, then go on with it.

    Args:
        study: as it is on disk.
        asked: the edit.
        options: how to run it.
        home: where the study lies.
        console: where to say what changes.
        conclude: writes what is to be said at the end.
        dry_run: only show it.

    Returns:
        The edit, and how the run ended; None after a dry run.

    Raises:
        UserError: what stands in the way; nothing is recorded then.
    """
    edit = plan_edit(study, asked, options.target)
    announce(console, study, edit)
    if dry_run:
        return edit, None
    if edit.revision.new:
        refuse_unanswerable(edit.prepared.plan)
    check_new(edit.revision.new, options, console)
    runner = make_runner(options, home, study.name, study.manifest.storage, edit.prepared.loaded)
    try:
        prepare_runner(runner, edit.prepared.plan, conclude)
        with study.locked():
            _refuse_moved_on(study, edit)
            if edit.is_change:
                apply_revision(study, edit.revision, edit.manifest, edit.source)
        outcome = train(study, edit.prepared, runner, options, home, console, conclude)
    finally:
        runner.close()
    return edit, outcome


def plan_edit(study: Study, asked: Asked, target: TrackingTarget) -> Edit:
    """Plan an edited sweep and compare it with the record; nothing is written.

    Raises:
        UserError: the sweep cannot be planned, or is not one this study can go on with.
    """
    manifest = study.manifest
    before = study.sweep_text()
    path = study.sweep_file() if asked.sweep_file is None else asked.sweep_file
    is_kept = path.resolve().parent == study.paths.root.resolve()
    if path.resolve() == study.paths.sweep_source.resolve() and sweep_source(path) != before:
        raise UserError(
            f"{path} is the study's own copy, which stays what is on record, and it was changed; "
            "give it another name and try again"
        )

    def prepared_with(accepted: Accepted) -> Prepared:
        return prepare(
            path,
            preset=manifest.preset,
            settings=_merged(study, asked),
            seed=manifest.seed,
            points=manifest.points,
            siblings=Path(manifest.sweep_folder) if is_kept else None,
            own_folders=map(Path, manifest.own_folders) if is_kept else (),
            accepted=accepted,
            **dict(manifest.limits),
        )

    prepared = prepared_with(manifest.accepted_code)
    sweep = prepared.plan.sweep
    _refuse_another(study, sweep)
    refuse_unread_data(prepared.plan)
    source = sweep_source(path)
    is_same = source == before and not (asked.settings or asked.dropped)
    old_sweep = sweep if is_same else _old_sweep(study)
    entry: dict[str, Any] | None = None
    with study.journal() as journal:
        last_seq = journal.last_seq()
        rows = journal.trials(orphaned=True)
        files = recorded_files(journal).get
        proposed = _proposed(study, prepared, journal, old_sweep)
        if asked.accept_code:
            entry = accepted_change(
                [row for row in rows if not row.orphaned],
                [*prepared.plan.trials, *proposed],
                manifest.accepted_code,
                files,
            )
        if entry is not None:
            prepared = prepared_with({**manifest.accepted_code, **entry["code"]})
            proposed = _proposed(study, prepared, journal, old_sweep)
    if prepared.plan.is_adaptive:
        extensions: Sequence[Mapping[str, Any]] = manifest.extensions
        revision = compare(replace(prepared.plan, trials=tuple(proposed)), rows, files)
        _refuse_reproposed(study, revision)
    else:
        extensions = carried_extensions(manifest.extensions, prepared.plan)
        plan = with_extensions(prepared.plan, prepared.limits, extensions)
        extensions = with_keys_of(extensions, plan)
        prepared = replace(prepared, plan=plan)
        history = BudgetHistory(
            [manifest.budget, *(each["before"]["budget"] for each in manifest.revisions)],
            {row.key: row for row in rows},
            CheckpointUnits(study.checkpoints()),
            same_rungs=old_sweep is not None and old_sweep.early_stopping == sweep.early_stopping,
            accepted=prepared.plan.accepted,
        )
        revision = compare(plan, rows, files, history.shorter)
    revised = _revised(study, prepared, revision, extensions, target, entry)
    is_change = (
        revision.changes_trials
        or entry is not None
        or source != before
        or any(
            _plain(getattr(revised, name)) != _plain(getattr(manifest, name)) for name in _REPLACED
        )
    )
    return Edit(prepared, revision, revised, source, is_change, last_seq)


def announce(console: Console, study: Study, edit: Edit) -> None:
    """Say what an edit makes of a study."""
    first, *rest = edit.revision.lines()
    if edit.prepared.plan.is_adaptive:
        search = edit.prepared.plan.sweep.search
        kept = len(edit.revision.kept)
        first = f"{kept} trials proposed so far, {search.num_points} points in all"
    what = "with an edited sweep" if edit.is_change else "as it is recorded"
    console.print(f"study {study.name} {what}: {first}", style="bold", soft_wrap=True)
    for line in rest:
        console.print(f"  {line}", soft_wrap=True)
    for entry in edit.manifest.accepted[len(study.manifest.accepted) :]:
        console.print(f"  accepted   {acceptance_line(entry)}", soft_wrap=True)
    for name, values in edit.manifest.settings:
        shown = ",".join(map(str, values))
        if (name, list(values)) not in [(n, list(v)) for n, v in study.manifest.settings]:
            console.print(f"  set        {name}={shown}", soft_wrap=True)


def _merged(study: Study, asked: Asked) -> Settings:
    recorded = {name: list(values) for name, values in study.manifest.settings}
    for name in asked.dropped:
        if name not in recorded:
            known = ", ".join(recorded) if recorded else "none"
            raise UserError(
                f"the study {study.name!r} was not begun with --set {name}; its settings: {known}"
            )
        del recorded[name]
    return list((recorded | dict(asked.settings)).items())


def _refuse_another(study: Study, sweep: Sweep) -> None:
    manifest = study.manifest
    for what, now, before in (
        ("is called", sweep.name, manifest.sweep),
        ("decides by", sweep.metric, manifest.metric),
        ("has the goal", sweep.goal, manifest.goal),
    ):
        if now != before:
            raise UserError(
                f"the edited sweep {what} {now!r}, that of the study {study.name!r} {before!r}: "
                "what is on record would mean something else. Change it back, or begin a new study "
                "with `hsweep run`"
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
    manifest = study.manifest
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = load_sweep(
                study.sweep_file(),
                siblings=Path(manifest.sweep_folder),
                own_folders=map(Path, manifest.own_folders),
            )
        settings = [(name, list(values)) for name, values in manifest.settings]
        return apply_settings(loaded.sweep, manifest.preset, settings).with_points(manifest.points)
    except UserError:
        return None


def _proposed(
    study: Study, prepared: Prepared, journal: Journal, old_sweep: Sweep | None
) -> list[Trial]:
    """Return the trials of the points that an adaptive search has proposed.

    Raises:
        UserError: the search, or its space, is another.
    """
    plan = prepared.plan
    was_adaptive = bool(journal.metas(PROPOSALS))
    if was_adaptive != plan.is_adaptive and journal.trials(orphaned=True):
        raise UserError(
            f"the study {study.name!r} {'learns' if was_adaptive else 'does not learn'} from its "
            "trials which points to propose, unlike the edited sweep's search; begin a new study "
            "with `hsweep run`"
        )
    if not plan.is_adaptive:
        return []
    if old_sweep is not None and old_sweep.space.parameters() != plan.sweep.space.parameters():
        raise UserError(_ADAPTIVE.format(name=study.name, what="its space has changed"))
    return proposed_trials(plan, prepared.limits, journal)


_ADAPTIVE: Final = (
    "the study {name!r} proposes its points one by one, each building on how those before it "
    "ended, so what it has tried must stay what it is: {what}. Its number of points, replicates, "
    "early stopping, resources and question can change; for anything else begin a new study with "
    "`hsweep run`"
)


def _refuse_reproposed(study: Study, revision: Revision) -> None:
    if revision.orphaned:
        whys = "; ".join(
            f"{len(orphans)} trials: {why}" for why, orphans in revision.reasons().items()
        )
        raise UserError(_ADAPTIVE.format(name=study.name, what=whys))


def _revised(
    study: Study,
    prepared: Prepared,
    revision: Revision,
    extensions: Sequence[Mapping[str, Any]],
    target: TrackingTarget,
    accepted: Mapping[str, Any] | None,
) -> Manifest:
    before = study.manifest
    asked = new_manifest(
        study.name,
        prepared.loaded,
        prepared.plan,
        settings=prepared.settings,
        limits=prepared.limits,
        storage=before.storage,
        target=target,
        points=prepared.points,
    )
    after = replace(asked, extensions=list(extensions))
    number = len(before.revisions) + 1
    entry = {
        "time": asked.created,
        "command": asked.command,
        "provenance": asked.provenance,
        "counts": revision.counts(),
        "reasons": {why: len(orphans) for why, orphans in revision.reasons().items()},
        "sweep_file": study.paths.earlier_sweep_source(number).name,
        "before": {name: getattr(before, name) for name in _REPLACED},
    }
    changes: dict[str, Any] = {name: getattr(after, name) for name in _REPLACED}
    if accepted is not None:
        dated = {"time": asked.created, "command": asked.command, **accepted}
        changes["accepted"] = [*before.accepted, dated]
    return replace(before, **changes, revisions=[*before.revisions, entry])


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
