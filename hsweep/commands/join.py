"""``hsweep join``."""

import os
from typing import Final

import click

from hsweep.commands.options import home_option, study_argument
from hsweep.errors import UserError
from hsweep.options import DURATION
from hsweep.paths import Home

_LOOK_SECONDS: Final = 3.0


@click.command()
@study_argument
@click.option(
    "--wait",
    type=DURATION,
    default=600.0,
    show_default="10m",
    help="How long to wait for the study to run, at the start and after its driver has ended.",
)
@home_option
def join(study_name: str, wait: float, home: Home) -> None:
    """Let this machine train trials of STUDY, which runs elsewhere, until it is done.

    In a SLURM job it gives what the job has of this node, as in
    `sbatch --array=1-20 --wrap "hsweep join STUDY"`. It can be killed at any time.
    """
    from hsweep.clusters.membership import read_membership
    from hsweep.clusters.node import join as join_ray
    from hsweep.clusters.node import listens, looks
    from hsweep.record.study import StudyFolder, holds_a_study
    from hsweep.terminal import print_step

    paths = home.study(study_name)
    is_expected = home.submissions(study_name).is_dir()
    if not holds_a_study(paths) and not is_expected:
        StudyFolder.open(home, study_name)  # which says what there is
    while True:
        print_step(f"waiting for {study_name} to run")
        for _ in looks(wait, _LOOK_SECONDS):
            membership = read_membership(paths)
            if membership is not None and listens(membership.address):
                break
            if holds_a_study(paths) and _is_complete(home, study_name):
                click.echo(f"{study_name} is complete")
                return
        else:
            raise UserError(
                f"no driver of {study_name} has offered its Ray within {wait:g} s; run the study "
                "in a SLURM job (hsweep submit slurm) or on a cluster (--address), or --wait longer"
            )
        membership.check_versions()
        os.environ["RAY_AUTH_MODE"] = "token"
        if membership.token is not None:
            os.environ["RAY_AUTH_TOKEN"] = membership.token
        print_step(f"joining the Ray of {study_name} at {membership.address}")
        join_ray(membership.address)


def _is_complete(home: Home, name: str) -> bool:
    from hsweep.record.study import StudyFolder

    return bool(StudyFolder.open(home, name).status()["state"] == "complete")
