"""``hsweep model``: the final weights of a trial."""

from pathlib import Path

import click

from hsweep.commands.options import home_option, study_argument
from hsweep.paths import Home


@click.command()
@study_argument
@click.argument("key", metavar="TRIAL")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Where to: a safetensors file; a folder where a function of your own trained.",
)
@click.option("--force", is_flag=True, help="Replace what is there.")
@home_option
def model(study_name: str, key: str, out: Path, force: bool, home: Home) -> None:
    """Write the final weights of TRIAL, the beginning of a key, of STUDY to a file.

    A study keeps them where its sweep says keep="best" or "last", or --set keep=best is given. In
    Python, hsweep.load(STUDY).trial(TRIAL).load_model() returns the model.
    """
    from hsweep.notebook import load

    trial = load(study_name, home.root).trial(key)
    trial.save_weights(out, replace=force)
    click.echo(f"{out}: weights of trial {trial.key} ({dict(trial.point)}, {trial.value})")
