"""``python -m results STUDY``: a study beside the published results that it repeats."""

import click

from analysis.ask import answer_study
from analysis.questions.base import StudyRuns
from analysis.terminal import print_table
from hsweep.commands.options import home_option, json_option, study_argument
from hsweep.commands.output import console_for, print_json
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from results.printed.numbers import setups
from results.printed.result import PublishedResult
from results.printed.study import beside_published
from results.printed.text import published_sentence, published_tables


@click.command()
@study_argument
@click.option("--as", "setup", metavar="NAME", help="What STUDY repeats, if it does not show.")
@click.option("--same-data", is_flag=True, help="STUDY's data are the paper's: you vouch for it.")
@home_option
@json_option
def main(study_name: str, setup: str | None, same_data: bool, home: Home, as_json: bool) -> None:
    """Show STUDY beside the published results that it repeats."""
    try:
        result = _compare(StudyFolder.open(home, study_name), setup, same_data=same_data)
    except UserError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(result.to_json())
        return
    console = console_for(as_json=False)
    console.print(published_sentence(result), style="bold")
    for title, table, _ in published_tables(result):
        console.print()
        print_table(console, title, table)


def _compare(study: StudyFolder, setup: str | None, *, same_data: bool) -> PublishedResult:
    with study.reading() as tables:
        findings = answer_study(study, tables).findings
        runs = StudyRuns(study.manifest, tables)
        result = beside_published(runs, findings, setup, same_data=same_data)
    if result is None:
        raise UserError(
            f"no published result is known to be about the sweep {study.manifest.sweep!r}; name "
            f"what it repeats by --as: {', '.join(known.name for known in setups())}"
        )
    return result


if __name__ == "__main__":
    main()
