"""``hsweep resume``."""

import contextlib

import click

from hsweep.commands.options import (
    NOTHING_NEW,
    data_root_option,
    from_option,
    home_option,
    json_option,
    study_argument,
)
from hsweep.commands.output import console_for
from hsweep.errors import UserError
from hsweep.options import HeadedCommand, options_of
from hsweep.paths import Home
from hsweep.running.options import RunOptions
from hsweep.signals import explain_interrupt


@click.command(cls=HeadedCommand)
@study_argument
@data_root_option
@options_of(RunOptions, "options")
@from_option
@home_option
@json_option
@explain_interrupt(NOTHING_NEW)
def resume(
    study_name: str, options: RunOptions, storage: str | None, home: Home, as_json: bool
) -> None:
    """Go on with STUDY as it is on record: finished trials stay, the others continue from their
    checkpoints. `hsweep run` goes on with an edited sweep."""
    from hsweep.terminal import print_step, warn

    # Before the imports, which take seconds.
    print_step(f"planning the trials of {study_name}")
    from hsweep.planning.code_changes import acceptance_line
    from hsweep.planning.prepare import own_sweep
    from hsweep.record.study import StudyFolder
    from hsweep.running.change import resume as resume_study
    from hsweep.running.manifests import sweep_source
    from hsweep.running.outcome import mended_line
    from hsweep.running.start import start_early
    from hsweep.tracking.target import target_of

    if storage is not None:
        from hsweep.record.mirror import bring

        bring(storage, study_name, home)
    study = StudyFolder.open_to_run(home, study_name)
    file = study.origin()
    with contextlib.suppress(UserError):
        if file is not None and sweep_source(file) != study.sweep_text():
            warn(
                f"{file} has changed since; the study's own copy is resumed. The study goes on "
                f"with the file by: {mended_line(study)}"
            )
    loaded = own_sweep(study)
    target = target_of(study, home, options.tracking_uri)
    start_early(options, loaded.folder)
    from hsweep.commands.conclusion import Conclusion, conclude
    from hsweep.running.run import run as run_job

    console = console_for(as_json=as_json)
    job = resume_study(study, loaded, target, options)
    for entry in job.manifest.accepted[len(study.manifest.accepted) :]:
        console.print(acceptance_line(entry), soft_wrap=True)
    conclusion = Conclusion(job.target, console)
    outcome = run_job(job, options, home, console, conclusion)
    conclude(conclusion, *outcome, home, as_json=as_json)
