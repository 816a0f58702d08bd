"""``hsweep resume``."""

from pathlib import Path

import click

from hsweep.commands.options import (
    NOTHING_NEW,
    data_root_option,
    home_option,
    json_option,
    study_argument,
)
from hsweep.commands.output import console_for, print_json
from hsweep.interrupts import on_record
from hsweep.options import options_of
from hsweep.paths import Home
from hsweep.running.options import EditOptions, RunOptions


@click.command()
@study_argument
@data_root_option
@options_of(EditOptions, "edit")
@click.option(
    "--dry-run", is_flag=True, help="Show what would be kept, new and set aside, and stop."
)
@options_of(RunOptions, "options")
@home_option
@json_option
@on_record(NOTHING_NEW)
def resume(
    study_name: str,
    edit: EditOptions,
    dry_run: bool,
    options: RunOptions,
    home: Home,
    as_json: bool,
) -> None:
    """Go on with STUDY: finished trials stay, the others continue from their checkpoints.

    With --sweep or --set it goes on as an edited sweep: new points are added, trials whose model,
    task, recipe, budget and code are unchanged stay, the others are set aside. What that comes to
    is shown first; with --dry-run nothing else happens.
    """
    from hsweep.terminal import doing

    # Before the imports, which take seconds.
    doing(f"planning the trials of {study_name}")
    from hsweep.record.study import Study
    from hsweep.running.early import start_early

    study = Study.open(home, study_name) if dry_run else Study.open_to_run(home, study_name)
    manifest = study.manifest
    folders = Path(manifest.sweep_folder), [*map(Path, manifest.own_folders)]
    started = None if dry_run else start_early(options, *folders)
    from hsweep.commands.conclusion import Conclusion, conclude
    from hsweep.running.edit import announce, edited, plan_edit
    from hsweep.running.resume import resumed, target_of
    from hsweep.running.run import run as run_job

    console = console_for(as_json=as_json)
    revision = {}
    if edit.is_empty and not dry_run:
        job = resumed(study, options, home, console)
    else:
        target = target_of(study, home, options.tracking_uri)
        planned = plan_edit(study, edit, target, accepts_code=options.accept_code)
        announce(console, study, planned)
        revision = {"revision": planned.revision.to_json()}
        if dry_run:
            if as_json:
                print_json({"study": study.name, "dry_run": True, **revision})
            return
        job = edited(study, planned, target)
    conclusion = Conclusion(job.target, console)
    ended = run_job(job, options, home, console, conclusion, started=started)
    conclude(conclusion, *ended, home, console, as_json, revision)
