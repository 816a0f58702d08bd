"""``hsweep export``."""

import contextlib
from pathlib import Path

import click

from hsweep.commands.options import home_option, study_argument
from hsweep.errors import UserError
from hsweep.paths import Home


@click.command()
@study_argument
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--what",
    type=click.Choice(["trials", "reports"]),
    default="trials",
    show_default=True,
    help="One row a trial, or one a report.",
)
@click.option(
    "--orphaned", is_flag=True, help="Also trials that an edit of the sweep took out of the study."
)
@home_option
def export(study_name: str, file: Path, what: str, orphaned: bool, home: Home) -> None:
    """Write the trials of STUDY to FILE (.parquet, .csv or .json)."""
    from hsweep.record.study import Study
    from hsweep.record.tables import write_table

    study = Study.open(home, study_name)
    trials, reports = study.tables(orphaned=orphaned)
    table = trials if what == "trials" else reports
    write_table(table, file)
    with contextlib.suppress(UserError):
        study.write_tables()
    click.echo(f"{table.num_rows} {what} in {file}")
