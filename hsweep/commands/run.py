"""``hsweep run``."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hsweep.commands.options import (
    NOTHING_NEW,
    complete_study,
    explicit_options,
    home_option,
    json_option,
    refuse_options,
    sweep_argument,
    sweep_options,
)
from hsweep.commands.output import console_for, print_json
from hsweep.errors import UserError
from hsweep.options import HeadedCommand, HeadedOption, options_of
from hsweep.paths import Home
from hsweep.planning.options import SweepOptions
from hsweep.running.options import RunOptions, StudyOptions
from hsweep.signals import explain_interrupt

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.planning.extension import Extension
    from hsweep.record.study import StudyFolder
    from hsweep.running.start import Request


@click.command(cls=HeadedCommand)
@sweep_argument
@click.option(
    "--study",
    "study_name",
    cls=HeadedOption,
    heading="Study",
    shell_complete=complete_study,
    metavar="NAME",
    help="The study's name.",
)
@click.option(
    "--only-missing",
    is_flag=True,
    help="In a study that has run: train what its analysis lists as missing, and nothing else.",
)
@click.option(
    "--more-seeds",
    type=click.IntRange(1),
    metavar="N",
    help="In a study that has run: give each --point N more runs to the end, and nothing else.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="In a study that has run: show what would be kept, new and set aside, or with "
    "the two before these trials and their cost, and stop.",
)
@sweep_options
@options_of(RunOptions, "options")
@options_of(StudyOptions, "beginning")
@home_option
@json_option
@explain_interrupt(NOTHING_NEW)
def run(
    sweep_file: Path,
    study_name: str | None,
    only_missing: bool,
    more_seeds: int | None,
    dry_run: bool,
    chosen: SweepOptions,
    options: RunOptions,
    beginning: StudyOptions,
    home: Home,
    as_json: bool,
) -> None:
    """Plan SWEEP, train it and answer its question. SWEEP is code and runs with your rights.

    A study of that name goes on: finished trials stay, the others continue from their checkpoints.
    Where SWEEP or its settings have changed since, the changes are printed first: new points are
    added, trials whose model, task, recipe, budget and code are unchanged stay, the others are set
    aside with their results.
    """
    from hsweep.terminal import print_step

    # Before the imports, which take seconds.
    print_step(f"planning {sweep_file}")
    console = console_for(as_json=as_json)
    if only_missing and more_seeds:
        raise UserError("--only-missing says itself how many seeds; leave out --more-seeds")
    if only_missing or more_seeds:
        why = "is for a study that begins, or one with other settings; leave it out"
        refuse_options(StudyOptions.__dataclass_fields__, but=(), why=why)
        study = sweep_file, study_name, chosen, more_seeds
        _run_missing(*study, options, home, console, as_json, dry_run)
        return
    from hsweep.running.start import request

    order = request(sweep_file, chosen, options, home, study_name, beginning, to_run=not dry_run)
    if dry_run:
        _show_edit(order, options, console, as_json)
        return
    from hsweep.running.start import start_early

    if not order.is_answered:
        start_early(options, order.loaded.folder)
    from hsweep.commands.conclusion import Conclusion, conclude
    from hsweep.planning.answerable import analysable
    from hsweep.running.run import run as run_job

    job = order.change(options, console)
    order.confirm(job)
    extra: dict[str, Any] = {}
    if as_json:
        extra["concerns"] = [asdict(concern) for concern in analysable(job.prepared.plan)]
        if job.study is not None:
            extra["revision"] = job.revision.to_json()
    conclusion = Conclusion(job.target, console)
    outcome = run_job(job, options, home, console, conclusion)
    conclude(conclusion, *outcome, home, as_json=as_json, extra_json=extra)


def _show_edit(order: "Request", options: RunOptions, console: "Console", as_json: bool) -> None:
    """Print how a sweep would change the study that is there."""
    if order.study is None:
        raise UserError(
            f"there is no study called {order.name!r} yet; `hsweep plan` shows the trials of a new "
            "one"
        )
    change = order.change(options, console)
    if as_json:
        content = {"study": order.name, "dry_run": True, "revision": change.revision.to_json()}
        print_json(content)


def _run_missing(
    sweep_file: Path,
    study_name: str | None,
    chosen: SweepOptions,
    more_seeds: int | None,
    options: RunOptions,
    home: Home,
    console: "Console",
    as_json: bool,
    dry_run: bool,
) -> None:
    """Run the trials that the analysis of a study lists as missing, or ``more_seeds`` further seeds
    of each ``--point``, and answer its question again; UserError for a study of another sweep or
    request, or one that is running."""
    from analysis.ask import answer_study
    from analysis.questions.commands import recorded_point
    from analysis.terminal import show_sentences
    from hsweep.commands.conclusion import Conclusion, conclude
    from hsweep.design.missing import ASKED, Missing
    from hsweep.planning.prepare import own_question
    from hsweep.running.change import missing
    from hsweep.running.run import run as run_job
    from hsweep.running.start import study_of
    from hsweep.tracking.target import target_of

    names = explicit_options(SweepOptions.__dataclass_fields__)
    if more_seeds:
        if not chosen.points:
            raise UserError(
                "--more-seeds needs the points that get them: --point heads=4,seq_len=8; "
                "`--set replicates=N` is for all of them"
            )
        names.remove("points")
    study = study_of(sweep_file, study_name, home, chosen, names, console)
    target = target_of(study, home, options.tracking_uri)
    answer = answer_study(study, own=own_question(study))
    if more_seeds:
        runs = [Missing(at, more_seeds, ASKED) for at in chosen.points]
    else:
        with study.journal() as journal:
            points = list(journal.points())
        # By the axis values on record: those of an answer may be of another type.
        run_points = [(run, recorded_point(points, run.at) or run.at) for run in answer.missing]
        runs = [replace(run, at={axis: at[axis] for axis in run.at}) for run, at in run_points]
    if not runs:
        console.print(f"{study.name} lacks no trial; there is nothing to run.")
        show_sentences(console, answer)
        if as_json:
            print_json({**study.status(), **answer.to_json(), "added": None})
        return
    job, extension = missing(study, runs, target, options)
    console.print(answer.text)
    for line in _extension_lines(study, extension, home):
        console.print(line)
    if not extension.additions:
        raise UserError("none of the missing trials can be run; the reasons are above")
    added = {"added": extension.to_json()}
    if dry_run:
        if as_json:
            print_json({"study": study.name, "dry_run": True, **added})
        return
    conclusion = Conclusion(job.target, console)
    outcome = run_job(job, options, home, console, conclusion)
    conclude(conclusion, *outcome, home, as_json=as_json, extra_json=added)


def _extension_lines(study: "StudyFolder", extension: "Extension", home: Home) -> Iterator[str]:
    """Yield lines about the runs that are added to a study, and their cost."""
    from hsweep.design.labels import counted
    from hsweep.planning.calibration import Calibration
    from hsweep.record.provenance import hardware
    from hsweep.running.progress import duration

    budget, trials = extension.plan.sweep.budget, extension.trials
    cost = f"together as much training as {extension.cost:.3g} of {budget.of(budget.amount)}"
    seconds = Calibration(home.calibration, hardware()).estimate(
        (trial, trial.units_to_train) for trial in trials
    )
    if seconds is not None:
        cost += f", about {duration(seconds)} by what was measured here"
    yield (
        f"{counted(len(trials), 'run')} will be trained in {study.name}, each to its full budget, "
        f"{cost}; what has finished stays:"
    )
    for line in extension.lines():
        yield f"  {line}"
