"""A study goes on as it is on record."""

from dataclasses import replace
from typing import Any

from rich.console import Console

from hsweep.command_line import command
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.code_changes import acceptance_line, recorded_files
from hsweep.planning.prepare import (
    Prepared,
    accepting_code,
    prepare_again,
    recorded_options,
    refuse_unread_data,
)
from hsweep.planning.revision import compare, proposed_trials
from hsweep.record.journal_reader import JournalReader
from hsweep.record.study import Study
from hsweep.redaction import HIDDEN
from hsweep.running.job import Job
from hsweep.running.options import RunOptions
from hsweep.tracking.target import TrackingTarget, has_login, tracking_target
from hsweep.workspace import LoadedSweep


def resumed(
    study: Study,
    loaded: LoadedSweep,
    target: TrackingTarget,
    options: RunOptions,
    console: Console,
) -> Job:
    """Return the job of training what is left of a study; UserError if its code or data have
    changed, so that its trials are no longer the same."""
    prepared, entry = replanned(study, loaded, accepts_code=options.accept_code)
    refuse_unread_data(prepared.plan)

    def record() -> Study:
        if entry is not None:
            with study.locked(), study.writer() as journal:
                study.accept(journal, entry)
            console.print(acceptance_line(entry), soft_wrap=True)
        return study

    return Job(study.name, prepared, target, record, study.manifest.storage)


def replanned(
    study: Study, loaded: LoadedSweep, *, accepts_code: bool = False
) -> tuple[Prepared, dict[str, Any] | None]:
    """Plan a study's trials again; return the plan, and the change of code to be recorded as
    accepted, if there is one. UserError if the trials are no longer the same as those on record."""
    prepared = prepare_again(study, loaded)
    entry = None
    with study.journal() as journal:
        if accepts_code:
            prepared, entry = accepting_code(prepared, journal)
        refuse_changed(study, prepared, journal)
    return prepared, entry


def refuse_changed(study: Study, prepared: Prepared, journal: JournalReader) -> None:
    """Refuse to go on with trials that are no longer the same as those on record, and say what has
    changed and how to go on all the same."""
    plan = prepared.plan
    if plan.is_adaptive:
        plan = replace(plan, trials=tuple(proposed_trials(plan, journal)))
    revision = compare(plan, journal.trials(), recorded_files(journal).get)
    # A study killed before its first trial has nothing on record to differ from.
    gone = revision.orphaned
    if not gone:
        return
    finished = sum(orphan.row.status is TrialStatus.FINISHED for orphan in gone)
    reasons = "; ".join(f"{why} ({len(orphans)})" for why, orphans in revision.reasons().items())
    paths = study.paths
    set_aside = accept = ""
    if not plan.is_adaptive:
        words = recorded_options(study.manifest).words()
        asked = (paths.sweep_source, "--study", paths.name, *words)
        edited = command("run", *asked, home=paths.home)
        set_aside = (
            f", or go on with what is there now by `{edited}`: these trials are set aside with "
            f"their results, {len(revision.new)} are planned in their place (--dry-run only shows "
            "it)"
        )
    if any("code" in why for why in revision.reasons()):
        accepting = command("resume", paths.name, "--accept-code", home=paths.home)
        accept = (
            f", or, if the change of code changes no result, keep them by `{accepting}`, which is "
            "recorded"
        )
    raise UserError(
        f"{len(gone)} of {revision.num_before} trials of {study.name!r} are no longer the same, "
        f"{finished} of them finished: {reasons}. Their results could not be compared with what "
        "is trained now. Restore what has changed (the study's commit is in "
        f"{study.paths.manifest}){set_aside}{accept}"
    )


def target_of(study: Study, home: Home, uri: str | None = None) -> TrackingTarget:
    """Return the MLflow store at ``uri``, else the one that a study reports to; UserError for a URI
    of no use, or if the study's held a secret, which is not recorded."""
    manifest = study.manifest
    if not uri:
        uri = manifest.tracking_uri
        if has_login() and uri.startswith("http"):
            uri = uri.replace(f"://{HIDDEN}@", "://")
        if HIDDEN in uri:
            raise UserError(
                f"the study {study.name!r} reports to {uri}, whose password is not kept; give it "
                "again with --tracking-uri, or a server's in MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD"
            )
    return tracking_target(uri, home, manifest.sweep)
