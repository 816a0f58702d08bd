"""``hsweep submit``: studies as jobs of a cluster."""

import shutil
from dataclasses import replace
from pathlib import Path

import click

from hsweep.clusters.kuberay import HOME, SWEEP_FOLDER, Pods, manifest
from hsweep.clusters.sbatch import LIMIT
from hsweep.command_line import command
from hsweep.commands.options import complete_study, home_option, sweep_argument, sweep_options
from hsweep.errors import UserError
from hsweep.options import HeadedCommand, HeadedGroup, option_words, options_of
from hsweep.paths import Home, check_study_name
from hsweep.planning.options import SweepOptions
from hsweep.running.options import RunOptions, StudyOptions
from hsweep.secrets import refuse_secrets
from hsweep.workspace import shipped_sweeps


@click.group(cls=HeadedGroup)
def submit() -> None:
    """Run a study as a job of a cluster."""


@submit.command(cls=HeadedCommand, context_settings={"ignore_unknown_options": True})
@sweep_argument
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[SBATCH OPTIONS]")
@click.option(
    "--time", "limit", type=LIMIT, help="Time limit, as 24:00:00; after it the job comes back."
)
@click.option("--dry-run", is_flag=True, help="Print the script, and submit nothing.")
@click.option(
    "--study", "study_name", shell_complete=complete_study, metavar="NAME", help="The study's name."
)
@sweep_options
@options_of(RunOptions, "options")
@options_of(StudyOptions, "beginning")
@home_option
def slurm(
    sweep_file: Path,
    more: tuple[str, ...],
    limit: tuple[str, int] | None,
    dry_run: bool,
    study_name: str | None,
    chosen: SweepOptions,
    options: RunOptions,
    beginning: StudyOptions,
    home: Home,
) -> None:
    """Submit `hsweep run SWEEP` to SLURM, as a job that comes back until the study is done.

    The options are those of `hsweep run`, and any of sbatch: `--nodes 4 --gpus-per-node 8
    --cpus-per-node 64 --partition=gpu`. The home has to be a folder that all nodes see.
    """
    from hsweep.clusters.sbatch import script_of
    from hsweep.clusters.slurm import Submissions
    from hsweep.commands.output import console_for
    from hsweep.files import write_text
    from hsweep.running.start import request
    from hsweep.terminal import print_step

    if options.cluster is not None:
        raise UserError(
            "the job starts a Ray of its own on its nodes; leave out the address "
            f"{options.cluster} (--address, RAY_ADDRESS)"
        )
    print_step(f"planning {sweep_file}")
    order = request(sweep_file, chosen, options, home, study_name, beginning, to_run=False)
    change = order.change(options, console_for(as_json=True))  # standard output is the script's
    if not dry_run and order.confirm(change):
        beginning = replace(beginning, yes=True)
    submissions = Submissions(home.submissions(order.name))
    words = [*option_words(options), "--home", str(home.root)]
    script = script_of(
        *(home.study(order.name), limit),
        run=[
            *(str(sweep_file.absolute()), "--study", order.name),
            *(*option_words(chosen), *option_words(beginning), *words),
        ],
        resume=[order.name, *words],
        grace=options.grace,
        output=submissions.folder / "%j.out",
        more=more,
    )
    if dry_run:
        click.echo(script, nl=False)
        return
    if shutil.which("sbatch") is None:
        raise UserError(
            "there is no sbatch on this machine; submit on one of a SLURM cluster, or print the "
            "script by --dry-run"
        )
    for job, stand in submissions.queued().items():
        raise UserError(
            f"job {job} of the study {order.name!r} is {stand}, and goes on with it; "
            f"`scancel {job}` ends it"
        )
    home.create()
    submissions.folder.mkdir(parents=True, exist_ok=True)
    write_text(submissions.folder / "new.sbatch", script)
    job = submissions.submit(submissions.folder / "new.sbatch")
    click.echo(f"job {job} is submitted: {submissions.folder / job}.sbatch")
    click.echo(f"how it stands: {command('show', order.name, home=home.root)}")


@submit.command(cls=HeadedCommand)
@sweep_argument
@options_of(Pods, "pods")
@click.option("--study", "study_name", metavar="NAME", help="The study's name.")
@options_of(SweepOptions, "chosen")
@options_of(RunOptions, "options")
@options_of(StudyOptions, "beginning")
def kuberay(
    sweep_file: Path,
    pods: Pods,
    study_name: str | None,
    chosen: SweepOptions,
    options: RunOptions,
    beginning: StudyOptions,
) -> None:
    """Print the manifest of a KubeRay job that does `hsweep run SWEEP`; hand it to `kubectl apply
    -f -`.

    The options are those of `hsweep run`. SWEEP and the modules beside it travel in the manifest.
    """
    from hsweep.planning.prepare import loaded_sweep, variant
    from hsweep.running.start import default_name

    if pods.claim is None and beginning.storage is None:
        raise UserError(
            "pods keep nothing: give --claim NAME for a volume with the home, or --storage URI"
        )
    loaded = loaded_sweep(sweep_file, None)
    variant(loaded.sweep, chosen)
    name = check_study_name(study_name or default_name(loaded.sweep, chosen))
    files, place = {}, sweep_file.stem
    if sweep_file not in shipped_sweeps().values():
        place = f"{SWEEP_FOLDER}/{sweep_file.name}"
        for file in (Path(str(module.__file__)) for module in loaded.own_modules()):
            if file.resolve().parent != loaded.folder.resolve():
                raise UserError(
                    f"{file} is not beside the sweep, and a manifest holds files of one folder; "
                    "install it in the image, or move it"
                )
            files[file.name] = file.read_text("utf-8")
    words = [word for part in (chosen, options, beginning) for word in option_words(part)]
    words += ["--home", HOME if pods.claim else "/tmp/hsweep-home"]
    refuse_secrets(words, "a manifest", "Put it into a Secret (--storage-secret).")
    click.echo(
        manifest(name, pods, ["hsweep", "run", place, "--study", name, *words], files), nl=False
    )
