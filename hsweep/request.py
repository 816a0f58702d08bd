"""From what a user asked for to a study that runs."""

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.console import Console

from hsweep.calibration import Calibration
from hsweep.errors import UserError
from hsweep.extension import Extension, Wanted, plan_extension, with_extensions
from hsweep.journal import Journal
from hsweep.launch import (
    Conclude,
    Outcome,
    RunOptions,
    extension_entry,
    make_runner,
    new_manifest,
    prepare_runner,
    run_study,
    sweep_source,
)
from hsweep.paths import Home
from hsweep.plan import Limits, Plan, Planner, apply_settings, make_plan
from hsweep.provenance import hardware
from hsweep.study import Study
from hsweep.sweep import DEFAULT_PRESET
from hsweep.tracking import TrackingTarget, tracking_target
from hsweep.workspace import LoadedSweep, load_sweep

if TYPE_CHECKING:
    from hsweep.ray_runner import RayRunner
    from hsweep.runner import InlineRunner

Settings = list[tuple[str, list[Any]]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sweep, planned."""

    loaded: LoadedSweep
    plan: Plan
    settings: Settings
    limits: Limits
    points: Sequence[Mapping[str, Any]] = ()


def prepare(
    sweep_file: Path,
    *,
    preset: str | None,
    settings: Settings,
    seed: int,
    points: Sequence[Mapping[str, Any]] = (),
    siblings: Path | None = None,
    **limits: int | None,
) -> Prepared:
    """Load a sweep file and plan its trials.

    Raises:
        UserError: anything about the file, the preset, the settings or the plan.
    """
    bounds = Limits(**limits)
    # Standard output is for what was asked for: what a sweep file prints must not mix with JSON.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_sweep(sweep_file, siblings=siblings)
        sweep = apply_settings(loaded.sweep, preset, settings).with_points(points)
        plan = make_plan(sweep, preset=preset or DEFAULT_PRESET, study_seed=seed, limits=bounds)
    return Prepared(loaded, plan, list(settings), bounds, list(points))


def prepare_again(study: Study) -> Prepared:
    """Plan a study's trials again from its own record, those added after it began included.

    Raises:
        UserError: its sweep file can no longer be planned.
    """
    manifest = study.manifest
    prepared = prepare(
        study.paths.sweep_source,
        preset=manifest.preset,
        settings=[(name, list(values)) for name, values in manifest.settings],
        seed=manifest.seed,
        points=manifest.points,
        siblings=Path(manifest.sweep_folder),
        **dict(manifest.limits),
    )
    if not manifest.extensions:
        return prepared
    plan = with_extensions(prepared.plan, prepared.limits, manifest.extensions)
    return replace(prepared, plan=plan)


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
) -> RunOptions:
    """Check how a study shall be run.

    Raises:
        UserError: options that do not go together, or a tracking URI of no use.
    """
    if runner == "inline" and address is not None:
        raise UserError(f"--address {address} is for the ray runner; leave out --runner inline")
    if runner == "inline" and max_concurrent not in (None, 1):
        raise UserError(
            f"the inline runner trains one trial at a time; --max-concurrent {max_concurrent} "
            "needs --runner ray"
        )
    return RunOptions(
        runner=cast(Literal["ray", "inline"], runner),
        max_concurrent=max_concurrent,
        address=address,
        time_budget=time_budget,
        target=tracking_target(tracking_uri, home, sweep),
    )


def recorded_tracking_uri(study: Study) -> str:
    """Return the store a study reports to.

    Raises:
        UserError: its URI held a secret, which is not recorded.
    """
    uri = study.manifest.tracking_uri
    if "***" in uri:
        raise UserError(
            f"the study {study.name!r} reports to {uri}, whose password is not kept; give it again "
            "with --tracking-uri"
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
    _refuse_unread_data(plan)
    home.create()
    name = name or f"{plan.sweep.name}-{plan.preset}"
    _refuse_taken(home, name)
    storage = _absolute(storage)
    runner = make_runner(options, home, name, storage, prepared.loaded)
    try:
        prepare_runner(runner, plan)
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
        return study, _train(study, prepared, runner, options, home, console, conclude)
    finally:
        _close(runner)


def go_on(
    study: Study, options: RunOptions, home: Home, console: Console, conclude: Conclude
) -> Outcome:
    """Resume a study from its own record.

    Raises:
        UserError: its code or data have changed, so that its trials are no longer the same.
    """
    manifest = study.manifest
    prepared = prepare_again(study)
    plan = prepared.plan
    _refuse_unread_data(plan)
    if not plan.is_adaptive:
        with study.journal() as journal:
            _refuse_changed(study, plan, journal)
    runner = make_runner(options, home, study.name, manifest.storage, prepared.loaded)
    try:
        prepare_runner(runner, plan)
        return _train(study, prepared, runner, options, home, console, conclude)
    finally:
        _close(runner)


def study_of(
    sweep_file: Path, name: str | None, home: Home, given: Mapping[str, Any], console: Console
) -> Study:
    """Return the study of a sweep file, whose own copy of the sweep is what runs.

    Args:
        sweep_file: as given again.
        name: the study's; None for the one that ``hsweep run`` would begin by default.
        home: where it lies.
        given: the sweep options of the command line, which must be those the study began with.
        console: where to say that the file has changed since.

    Raises:
        UserError: there is no such study, or it was begun otherwise.
    """
    with contextlib.redirect_stdout(sys.stderr):
        sweep = load_sweep(sweep_file).sweep
    preset = given.get("preset") or DEFAULT_PRESET
    study = Study.open(home, name or f"{sweep.name}-{preset}")
    manifest = study.manifest
    recorded: dict[str, Any] = {
        "sweep": manifest.sweep,
        "preset": manifest.preset,
        "settings": [(key, list(values)) for key, values in manifest.settings],
        "points": [dict(point) for point in manifest.points],
        "seed": manifest.seed,
        **manifest.limits,
    }
    now = {**given, "sweep": sweep.name}
    for what in ("settings", "points"):
        if what in now:
            now[what] = list(now[what])
    for what, value in now.items():
        if value != recorded.get(what):
            raise UserError(
                f"the study {study.name!r} was begun with {what} {recorded.get(what)!r}, not "
                f"{value!r}; only the trials it lacks can be added (leave the option out)"
            )
    if sweep_source(sweep_file) != study.paths.sweep_source.read_text():
        console.print(
            f"{sweep_file} has changed since the study began; the study's own copy is run",
            style="yellow",
            soft_wrap=True,
        )
    return study


def plan_missing(study: Study, wanted: Iterable[Wanted]) -> tuple[Prepared, Extension]:
    """Find the trials that an analysis of ``study`` lists as missing.

    Raises:
        UserError: the study's trials cannot be planned again, or are no longer the same.
    """
    prepared = prepare_again(study)
    with study.journal() as journal:
        _refuse_changed(study, prepared.plan, journal)
        recorded = journal.trials()
    extension = plan_extension(prepared.plan, prepared.limits, recorded, wanted)
    return replace(prepared, plan=extension.plan), extension


def run_missing(
    study: Study,
    prepared: Prepared,
    extension: Extension,
    options: RunOptions,
    home: Home,
    console: Console,
    conclude: Conclude,
) -> Outcome:
    """Run the trials of an extension, and no others, within the study's record.

    Raises:
        UserError: anything that stands in the way before the first trial.
    """
    plan = prepared.plan
    _refuse_unread_data(plan)
    storage = study.manifest.storage
    runner = make_runner(options, home, study.name, storage, prepared.loaded)
    try:
        prepare_runner(runner, plan)
        with study.locked(), study.journal(read_only=False) as journal:
            again = {each.trial.key for each in extension.additions if each.is_recorded}
            ended = [
                row.key for row in journal.trials() if row.key in again and row.status.is_final
            ]
            study.extend(extension_entry(extension, prepared.loaded.path), plan.to_json())
            journal.reopen(ended, "asked for at its full budget")
        return _train(
            study, prepared, runner, options, home, console, conclude, only=extension.keys
        )
    finally:
        _close(runner)


def _train(
    study: Study,
    prepared: Prepared,
    runner: "RayRunner | InlineRunner",
    options: RunOptions,
    home: Home,
    console: Console,
    conclude: Conclude,
    only: frozenset[str] | None = None,
) -> Outcome:
    plan = prepared.plan
    _greet(console, study, plan, runner, browse_line(options.target, home), only)
    planner = Planner(plan.sweep, plan.study_seed, prepared.limits)
    return run_study(study, plan, planner, runner, options, console, home, conclude, only)


def _refuse_unread_data(plan: Plan) -> None:
    if plan.data_problems:
        raise UserError("; ".join(plan.data_problems))


def _refuse_taken(home: Home, name: str) -> None:
    if home.study(name).manifest.exists():
        status = Study.open(home, name).status()
        done = status["trials"] - status["planned"] - status["running"]
        raise UserError(
            f"a study called {name!r} exists in {home.root} ({done} of {status['trials']} trials "
            f"done); go on with it by `hsweep resume {name}`, or start another with --study NAME"
        )


def _refuse_changed(study: Study, plan: Plan, journal: Journal) -> None:
    recorded = {row.key: row for row in journal.trials()}
    planned = {trial.key for trial in plan.trials}
    # A study killed before its first trial has nothing on record to differ from.
    gone = [row for key, row in recorded.items() if key not in planned]
    if not gone:
        return
    raise UserError(
        f"{len(gone)} of {len(recorded)} trials of {study.name!r} are no longer the same: the code "
        "of their model, task or training, or their data, has changed since the study began, so "
        "their results could not be compared. Restore it (the study's commit is in "
        f"{study.paths.manifest}), or start a new study with `hsweep run`"
    )


def browse_line(target: TrackingTarget, home: Home) -> str:
    """Return how to look at the tracked runs: a server's address, or the command for a store."""
    if target.is_server:
        return target.shown_uri
    if target.sqlite_file == home.mlflow_database:
        return f"hsweep ui --home {home.root}"
    return f"hsweep ui --tracking-uri {target.shown_uri}"


def _absolute(storage: str | None) -> str | None:
    """A relative folder would mean another place on every node."""
    if storage is None or "://" in storage:
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


def _close(runner: Any) -> None:
    close = getattr(runner, "close", None)
    if close is not None:
        close()
