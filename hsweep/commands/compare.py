"""``hsweep compare``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hsweep.commands.options import complete_study, home_option, json_option
from hsweep.commands.output import console_for, print_json
from hsweep.errors import UserError
from hsweep.paths import Home, StudyPaths

if TYPE_CHECKING:
    from hsweep.record.study import StudyFolder


@click.command()
@click.argument(
    "names", metavar="STUDY STUDY ...", shell_complete=complete_study, nargs=-1, required=True
)
@click.option("--cost", "costs", multiple=True, help="Compare the fronts over this cost; repeat.")
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one HTML file with the figures.",
)
@home_option
@json_option
def compare(
    names: tuple[str, ...],
    costs: tuple[str, ...],
    page: Path | None,
    home: Home,
    as_json: bool,
) -> None:
    """Show studies side by side: answers, fronts, and what differs.

    A STUDY is a name under the home, or a study's folder anywhere.
    """
    from analysis.compare.fit import compare_studies
    from analysis.compare.page import build_comparison_page
    from analysis.compare.text import comparison_sentences, comparison_tables
    from analysis.report.page import write_page
    from analysis.terminal import print_table

    studies = [_study(home, name) for name in names]
    comparison = compare_studies(studies, costs=costs)
    console = console_for(as_json=as_json)
    if as_json:
        print_json(comparison.to_json())
    else:
        for sentence in comparison_sentences(comparison):
            console.print(sentence, style="bold")
        for title, table, _ in comparison_tables(comparison):
            console.print()
            print_table(console, title, table)
        for side in comparison.studies:
            console.print()
            console.print(f"{side.label}: {' '.join(side.answer)}")
        for warning in comparison.warnings:
            console.print(f"note: {warning}", style="yellow")
    if page is not None:
        console.print(str(write_page(build_comparison_page(comparison), page)))


def _study(home: Home, name: str) -> "StudyFolder":
    """Return a study by its name under the home, or by its folder."""
    from hsweep.record.study import StudyFolder

    folder = Path(name).expanduser()
    if ("/" in name or not home.studies.joinpath(name).is_dir()) and folder.is_dir():
        paths = StudyPaths(folder.absolute())
        if not paths.manifest.is_file():
            raise UserError(f"{folder} holds no study: it has no {paths.manifest.name}")
        return StudyFolder.at(paths)
    return StudyFolder.open(home, name)
