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
    help="How long to wait for the study to run, at first and when its driver has ended.",
)
@home_option
def join(study_name: str, wait: float, home: Home) -> None:
    """Let this machine train trials of STUDY, which runs elsewhere, until it is done.

    In a SLURM job it gives what the job has of this node, as in
    `sbatch --array=1-20 --wrap "hsweep join STUDY"`. It can be killed at any time.
    """
    from hsweep.clusters.node import join as join_ray
    from hsweep.clusters.node import listens, looks, offer_of
    from hsweep.record.study import StudyFolder, existing, holds_a_study
    from hsweep.terminal import print_step

    paths = home.study(study_name)
    if not home.submissions(study_name).is_dir():  # a job that will begin it
        existing(home, study_name)
    while True:
        print_step(f"waiting for {study_name} to run")
        for _ in looks(wait, _LOOK_SECONDS):
            offer = offer_of(paths)
            if offer is not None and listens(offer[0]):
                break
            if holds_a_study(paths) and StudyFolder.at(paths).status()["state"] == "complete":
                click.echo(f"{study_name} is complete")
                return
        else:
            raise UserError(
                f"{study_name} has offered no Ray within {wait:g} s; run it in a SLURM job (hsweep "
                "submit slurm) or on a cluster (--address), or --wait longer"
            )
        address, token = offer
        os.environ["RAY_AUTH_MODE"] = "token"
        if token is not None:
            os.environ["RAY_AUTH_TOKEN"] = token
        print_step(f"joining the Ray of {study_name} at {address}")
        join_ray(address)
