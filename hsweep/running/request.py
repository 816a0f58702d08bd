"""From what a user asked for to a study that runs."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.console import Console

from hsweep.command_line import command
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.interrupts import on_record
from hsweep.paths import Home
from hsweep.planning.answerable import refuse_unanswerable
from hsweep.planning.calibration import Calibration
from hsweep.planning.code_changes import acceptance_line, accepted_change, recorded_files
from hsweep.planning.plan import Plan, Planner
from hsweep.planning.prepare import Prepared, prepare_again, refuse_unread_data
from hsweep.planning.revision import compare, proposed_trials
from hsweep.record.journal import Journal
from hsweep.record.provenance import hardware
from hsweep.record.study import Study
from hsweep.redaction import HIDDEN, refuse_secrets
from hsweep.running.beginnings import new_manifest
from hsweep.running.launch import (
    Conclude,
    RunOptions,
    check_new,
    make_runner,
    prepare_runner,
    run_study,
    sweep_source,
)
from hsweep.running.outcome import Outcome, resume_line
from hsweep.running.pending import complete, is_pending
from hsweep.tracking.target import has_login
from hsweep.tracking.tracker import TrackingTarget, tracking_target

if TYPE_CHECKING:
    from hsweep.coordination.runner import InlineRunner
    from hsweep.ray_tune.runner import RayRunner


def estimate(plan: Plan, home: Home) -> float | None:
    """Return the training seconds of a plan by what was measured on this machine, if anything."""
    return Calibration(home.calibration, hardware()).estimate(plan.trials)


def run_options(
    home: Home,
    sweep: str,
    *,
    runner: str,
    max_concurrent: int | None,
    address: str | None,
    time_budget: float | None,
    tracking_uri: str | None,
    reuse: bool = True,
    accept_code: bool = False,
    retry_failed: bool = False,
    report_timeout: float | None = None,
    dashboard: bool = True,
    check: bool = True,
) -> RunOptions:
    """Check how a study shall be run.

    Without ``address`` the ray runner joins the cluster that RAY_ADDRESS names, if it is set.

    Raises:
        UserError: options that do not go together, or a tracking URI of no use.
    """
    if runner == "inline" and address is not None:
        raise UserError(f"--address {address} is for the ray runner; leave out --runner inline")
    named_by = "--address"
    if runner == "ray" and address is None:
        address, named_by = os.environ.get("RAY_ADDRESS") or None, "RAY_ADDRESS"
    if address == "local":  # as Ray calls one that is started here
        address = None
    if not dashboard and (runner == "inline" or address is not None):
        raise UserError(
            "--no-dashboard is for a Ray that is started here; "
            + (
                f"that at {address} (from {named_by}) has its own"
                if address
                else "--runner inline starts none"
            )
            + ": leave it out"
        )
    if runner == "inline" and max_concurrent not in (None, 1):
        raise UserError(
            f"the inline runner trains one trial at a time; --max-concurrent {max_concurrent} "
            "needs --runner ray"
        )
    if runner == "inline" and report_timeout is not None:
        raise UserError(
            "the inline runner trains in this process, which cannot end itself after "
            f"{report_timeout:g} s without a report; --report-timeout needs --runner ray"
        )
    return RunOptions(
        runner=cast(Literal["ray", "inline"], runner),
        max_concurrent=max_concurrent,
        address=address,
        time_budget=time_budget,
        target=tracking_target(tracking_uri, home, sweep),
        reuse=reuse,
        accept_code=accept_code,
        retry_failed=retry_failed,
        report_timeout=report_timeout,
        dashboard=dashboard,
        checks=check,
    )


def recorded_tracking_uri(study: Study) -> str:
    """Return the store a study reports to.

    Raises:
        UserError: its URI held a secret, which is not recorded.
    """
    uri = study.manifest.tracking_uri
    if has_login():
        uri = uri.replace(f"://{HIDDEN}@", "://") if uri.startswith("http") else uri
    if HIDDEN in uri:
        raise UserError(
            f"the study {study.name!r} reports to {uri}, whose password is not kept; give it again "
            "with --tracking-uri, or a server's in MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD"
        )
    return uri


def start(
    prepared: Prepared,
    options: RunOptions,
    home: Home,
    name: str | None,
    storage: str | None,
    console: Console,
    conclude: Conclude,
) -> tuple[Study, Outcome]:
    """Begin a new study and run it.

    Raises:
        UserError: anything that stands in the way before the first trial.
    """
    plan = prepared.plan
    refuse_unread_data(plan)
    concerns = refuse_unanswerable(plan)
    name = f"{plan.sweep.name}-{plan.preset}" if name is None else name
    _refuse_taken(home, name, prepared.loaded.path)
    storage = _absolute(storage)
    check_new(plan.trials, options, console)
    for concern in concerns:
        console.print(concern.line, style="yellow", soft_wrap=True)
    home.create()
    runner = make_runner(options, home, name, storage, prepared.loaded)
    try:
        prepare_runner(runner, plan, conclude)
        study = Study.create(
            home,
            new_manifest(
                name,
                prepared.loaded,
                plan,
                settings=prepared.settings,
                limits=prepared.limits,
                storage=storage,
                target=options.target,
                points=prepared.points,
            ),
            sweep_source=sweep_source(prepared.loaded.path),
            plan=plan.to_json(),
        )
        return study, train(study, prepared, runner, options, home, console, conclude)
    finally:
        runner.close()


def go_on(
    study: Study, options: RunOptions, home: Home, console: Console, conclude: Conclude
) -> Outcome:
    """Resume a study from its own record.

    Raises:
        UserError: its code or data have changed, so that its trials are no longer the same.
    """
    if is_pending(study):
        with study.locked():
            complete(study, console)
    prepared = prepare_again(study)
    entry: dict[str, Any] | None = None
    with study.journal() as journal:
        if options.accept_code:
            trials = [*prepared.plan.trials, *_proposed(prepared, journal)]
            files = recorded_files(journal).get
            entry = accepted_change(journal.trials(), trials, prepared.plan.accepted, files)
        if entry is not None:
            prepared = prepare_again(study, entry["code"])
        refuse_changed(study, prepared, journal)
    plan = prepared.plan
    refuse_unread_data(plan)
    storage = study.manifest.storage
    runner = make_runner(options, home, study.name, storage, prepared.loaded)
    try:
        prepare_runner(runner, plan, conclude)
        if entry is not None:
            with study.locked():
                study.accept(entry)
            console.print(acceptance_line(entry), soft_wrap=True)
        return train(study, prepared, runner, options, home, console, conclude)
    finally:
        runner.close()


def _proposed(prepared: Prepared, journal: Journal) -> list[Trial]:
    plan = prepared.plan
    return proposed_trials(plan, prepared.limits, journal) if plan.is_adaptive else []


def train(
    study: Study,
    prepared: Prepared,
    runner: "RayRunner | InlineRunner",
    options: RunOptions,
    home: Home,
    console: Console,
    conclude: Conclude,
    only: frozenset[str] | None = None,
) -> Outcome:
    """Say what is going to run, and run it; with ``only``, the trials of these keys alone."""
    plan = prepared.plan
    planner = Planner.like(plan, prepared.limits)
    with on_record(f"with all reports on record; go on by: {resume_line(study)}"):
        _greet(console, study, plan, runner, browse_line(options.target, home), only)
        return run_study(study, plan, planner, runner, options, console, home, conclude, only)


def _refuse_taken(home: Home, name: str, file: Path) -> None:
    if home.study(name).manifest.exists():
        status = Study.open(home, name).status()
        done = status["trials"] - status["planned"] - status["running"]
        raise UserError(
            f"a study called {name!r} exists in {home.root} ({done} of {status['trials']} trials "
            f"done); go on with it by `{command('resume', name, home=home.root)}`, with an edited "
            f"sweep by `{command('resume', name, '--sweep', file, home=home.root)}`, or start "
            "another with --study NAME"
        )


def refuse_changed(study: Study, prepared: Prepared, journal: Journal) -> None:
    """Refuse to go on with trials that are no longer the same as those on record.

    Raises:
        UserError: with what has changed, and how to go on all the same.
    """
    plan = prepared.plan
    if plan.is_adaptive:
        plan = replace(plan, trials=tuple(_proposed(prepared, journal)))
    revision = compare(plan, journal.trials(), recorded_files(journal).get)
    # A study killed before its first trial has nothing on record to differ from.
    gone = revision.orphaned
    if not gone:
        return
    finished = sum(orphan.row.status is TrialStatus.FINISHED for orphan in gone)
    reasons = "; ".join(f"{why} ({len(orphans)})" for why, orphans in revision.reasons().items())
    paths = study.paths
    edited = command("resume", paths.name, "--sweep", paths.sweep_source, home=paths.home)
    accepting = command("resume", paths.name, "--accept-code", home=paths.home)
    set_aside = (
        ""
        if plan.is_adaptive
        else (
            f", or go on with what is there now by `{edited}`: these trials are set aside with "
            f"their results, {len(revision.new)} are planned in their place (--dry-run only shows "
            "it)"
        )
    )
    is_code = any("code" in why for why in revision.reasons())
    accept = (
        f", or, if the change of code changes no result, keep them by `{accepting}`, which is "
        "recorded"
        if is_code
        else ""
    )
    raise UserError(
        f"{len(gone)} of {revision.num_before} trials of {study.name!r} are no longer the same, "
        f"{finished} of them finished: {reasons}. Their results could not be compared with what "
        "is trained now. Restore what has changed (the study's commit is in "
        f"{study.paths.manifest}){set_aside}{accept}, or start a new study with `hsweep run`"
    )


def browse_line(target: TrackingTarget, home: Home) -> str:
    """Return how to look at the tracked runs: a server's address, or the command for a store."""
    if target.is_server:
        return target.shown_uri
    if target.sqlite_file == home.mlflow_database:
        return command("ui", home=home.root)
    return command("ui", "--tracking-uri", target.shown_uri, home=home.root)


def _absolute(storage: str | None) -> str | None:
    """A relative folder would mean another place on every node."""
    if storage == "":
        raise UserError("--storage is a folder or a URI, not an empty text; leave it out for none")
    if storage is None or "://" in storage:
        refuse_secrets(
            [storage],
            "--storage",
            "Give keys to every node another way: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
            "profile, or the role of the machine.",
        )
        return storage
    return str(Path(storage).expanduser().absolute())


def _greet(
    console: Console,
    study: Study,
    plan: Plan,
    runner: Any,
    browse: str,
    only: frozenset[str] | None,
) -> None:
    budget = plan.sweep.budget
    of_all = "" if only is None else f"{len(only)} of "
    console.print(
        f"study {study.name}: {of_all}{len(plan.trials)} trials of {budget.amount} {budget.unit}"
        f"{', proposed one by one' if plan.is_adaptive else ''}",
        style="bold",
        soft_wrap=True,
    )
    for skipped in plan.skipped[:5]:
        console.print(f"skipped {dict(skipped.point)}: {skipped.reason}", soft_wrap=True)
    if len(plan.skipped) > 5:
        console.print(f"... {len(plan.skipped)} points skipped in all (hsweep plan lists them)")
    url = getattr(runner, "dashboard_url", None)
    if url:
        console.print(
            f"Ray dashboard  {url}  (it asks for a token: ray get-auth-token)", soft_wrap=True
        )
    console.print(f"MLflow UI      {browse}", soft_wrap=True)
