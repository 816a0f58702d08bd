"""``hsweep report``."""

from pathlib import Path

import click

from hsweep.commands.options import (
    from_option,
    home_of,
    home_option,
    json_option,
    study_argument,
    tracking_option,
)
from hsweep.commands.output import print_json
from hsweep.paths import Home


@click.command()
@study_argument
@click.option("--figures", type=click.Path(path_type=Path), help="Also write PNG, SVG and PDF.")
@from_option
@home_option
@tracking_option
@json_option
def report(
    study_name: str,
    figures: Path | None,
    storage: str | None,
    home: Home,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Write the report of STUDY: one HTML file that needs no network."""
    from analysis.ask import answer_study
    from hsweep.commands.conclusion import write_study_report
    from hsweep.planning.prepare import own_question
    from hsweep.record.study import StudyFolder
    from hsweep.tracking.target import target_of

    home = home_of(study_name, home, storage)
    study = StudyFolder.open(home, study_name)
    target = target_of(study, home, tracking_uri)
    with study.reading() as tables:
        answer = answer_study(study, tables, own=own_question(study))
        files = [write_study_report(study, answer, target, tables)]
        if figures is not None:
            from analysis.charts.matplotlib_print import save_figures
            from analysis.report.build import report_charts, report_input

            charts = report_charts(report_input(study, answer, {}, tables))
            files += save_figures(charts, figures)
    if as_json:
        print_json({"study": study.name, "report": files[0], "figures": files[1:]})
    else:
        click.echo("\n".join(map(str, files)))
