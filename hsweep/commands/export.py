"""``hsweep export``."""

import contextlib
from pathlib import Path

import click

from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import print_json
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
@json_option
def export(
    study_name: str, file: Path, what: str, orphaned: bool, home: Home, as_json: bool
) -> None:
    """Write the trials of STUDY to FILE (.parquet, .csv or .json)."""
    from hsweep.record.study import StudyFolder
    from hsweep.record.tables import write_table

    study = StudyFolder.open(home, study_name)
    trials, reports = study.tables(orphaned=orphaned)
    table = trials if what == "trials" else reports
    write_table(table, file)
    with contextlib.suppress(UserError):
        study.write_tables()
    if as_json:
        columns = {"columns": table.column_names}
        print_json(
            {"study": study.name, "what": what, "rows": table.num_rows, **columns, "file": file}
        )
    else:
        click.echo(f"{table.num_rows} {what} in {file}")
