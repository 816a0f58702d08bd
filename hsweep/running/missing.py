"""Running what the analysis of a study lists as missing, within the study's record."""

import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from hsweep.command_line import command
from hsweep.design.sweep import DEFAULT_PRESET
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.extension import Extension, Wanted, plan_extension
from hsweep.planning.prepare import Prepared, prepare_again, refuse_unread_data
from hsweep.record.recovery import open_whole
from hsweep.record.study import Study
from hsweep.running.beginnings import extension_entry
from hsweep.running.launch import (
    Conclude,
    RunOptions,
    check_new,
    make_runner,
    prepare_runner,
    sweep_source,
)
from hsweep.running.outcome import Outcome
from hsweep.running.pending import finish, is_pending
from hsweep.running.request import refuse_changed, train
from hsweep.workspace import load_sweep


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
    study = open_whole(home, name or f"{sweep.name}-{preset}", console.print)
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
            f"{sweep_file} has changed since the study began; the study's own copy is run "
            f"(`{command('resume', study.name, '--sweep', sweep_file, home=home.root)}` goes on "
            "with the file)",
            style="yellow",
            soft_wrap=True,
        )
    return study


def plan_missing(study: Study, wanted: Iterable[Wanted]) -> tuple[Prepared, Extension]:
    """Find the trials that an analysis of ``study`` lists as missing.

    Raises:
        UserError: the study's trials cannot be planned again, or are no longer the same.
    """
    if is_pending(study):
        with study.locked():
            finish(study)
    prepared = prepare_again(study)
    with study.journal() as journal:
        refuse_changed(study, prepared, journal)
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
    refuse_unread_data(plan)
    check_new([each.trial for each in extension.additions], options, console)
    storage = study.manifest.storage
    runner = make_runner(options, home, study.name, storage, prepared.loaded)
    try:
        prepare_runner(runner, plan, conclude)
        with study.locked(), study.journal(read_only=False) as journal:
            again = {each.trial.key for each in extension.additions if each.is_recorded}
            ended = [
                row.key for row in journal.trials() if row.key in again and row.status.is_final
            ]
            study.extend(extension_entry(extension, prepared.loaded.path), plan.to_json())
            journal.reopen(ended, "asked for at its full budget")
        return train(study, prepared, runner, options, home, console, conclude, only=extension.keys)
    finally:
        runner.close()
