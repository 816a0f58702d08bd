"""``hsweep delete``."""

import shutil
import sys

import click

from hsweep.commands.options import home_option, study_argument
from hsweep.errors import UserError
from hsweep.paths import Home


@click.command()
@study_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def delete(study_name: str, yes: bool, home: Home) -> None:
    """Remove STUDY from the home: its record, report, checkpoints and kept weights.

    Its runs in MLflow stay, and so do the trials that other studies have taken from it.
    """
    from hsweep.record.lease import refuse_held
    from hsweep.record.removal import loss_lines, remove
    from hsweep.record.study import existing
    from hsweep.terminal import visible

    paths = existing(home, study_name)
    refuse_held(paths)  # before the question
    for line in loss_lines(paths):
        click.echo(visible(line))
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("delete asks first, and there is no terminal to ask on; give --yes")
        click.confirm(f"Delete {study_name} for good?", abort=True)
    remove(paths)
    shutil.rmtree(home.submissions(study_name), ignore_errors=True)
    click.echo(f"{study_name} is deleted")
