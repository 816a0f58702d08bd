"""Running what the analysis of a study lists as missing, within the study's record."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from hsweep.design.question import Missing
from hsweep.design.sweep import DEFAULT_PRESET
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.extension import Extension, plan_extension
from hsweep.planning.options import SweepOptions
from hsweep.planning.prepare import (
    Prepared,
    loaded_sweep,
    own_sweep,
    recorded_options,
    refuse_unread_data,
)
from hsweep.record.study import Study
from hsweep.running.job import Job
from hsweep.running.manifests import extension_entry, sweep_source
from hsweep.running.resume import replanned
from hsweep.tracking.target import TrackingTarget


def study_of(
    sweep_file: Path,
    name: str | None,
    home: Home,
    options: SweepOptions,
    given: Iterable[str],
    console: Console,
) -> Study:
    """Return the study of a sweep file, whose own copy of the sweep is what runs; by default the
    one that ``hsweep run`` would begin.

    Raises:
        UserError: there is no such study, or one of the options given is not as the study has it.
    """
    sweep = loaded_sweep(sweep_file).sweep
    study = Study.open_to_run(home, name or f"{sweep.name}-{options.preset or DEFAULT_PRESET}")
    recorded = recorded_options(study.manifest)
    asked = {what: (getattr(options, what), getattr(recorded, what)) for what in given}
    for what, (now, before) in {"sweep": (sweep.name, study.manifest.sweep), **asked}.items():
        now = list(now) if isinstance(now, tuple) else now
        if now != before:
            raise UserError(
                f"the study {study.name!r} was started with {what} {before!r}, not {now!r}; only "
                "the trials it lacks can be added (leave the option out)"
            )
    if sweep_source(sweep_file) != study.sweep_text():
        console.print(
            f"{sweep_file} has changed since the study began; the study's own copy is run (without "
            "--only-missing the study goes on with the file)",
            style="yellow",
            soft_wrap=True,
        )
    return study


def plan_missing(study: Study, wanted: Iterable[Missing]) -> tuple[Prepared, Extension]:
    """Find the trials that an analysis lists as missing; UserError if the study's trials cannot be
    planned again, or are no longer the same."""
    prepared, _ = replanned(study, own_sweep(study))
    with study.journal() as journal:
        extension = plan_extension(prepared.plan, journal.trials(), wanted)
    return replace(prepared, plan=extension.plan), extension


def extended(study: Study, prepared: Prepared, extension: Extension, target: TrackingTarget) -> Job:
    """Return the job of running the trials of an extension, and no others; UserError for data that
    cannot be read."""
    plan = prepared.plan
    refuse_unread_data(plan)

    def record() -> Study:
        with study.locked(), study.writer() as journal:
            again = {each.trial.key for each in extension.additions if each.is_recorded}
            ended = [
                row.key for row in journal.trials() if row.key in again and row.status.is_final
            ]
            study.extend(journal, extension_entry(extension, prepared.loaded.path))
            journal.reopen(ended, "asked for at its full budget")
        return study

    return Job(
        study.name,
        prepared,
        target,
        record,
        study.manifest.storage,
        new=[each.trial for each in extension.additions],
        only=extension.keys,
    )
