"""``hsweep ui``."""

import contextlib

import click

from hsweep.commands.options import complete_study, home_option, tracking_option
from hsweep.paths import Home


@click.command()
@click.argument("study_name", metavar="[STUDY]", shell_complete=complete_study, required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@home_option
@tracking_option
def ui(study_name: str | None, host: str, port: int, home: Home, tracking_uri: str | None) -> None:
    """Serve MLflow's pages of the home's runs.

    They open on the charts of STUDY, or of the home's only study, else on the list of experiments.
    """
    from hsweep.record.study import StudyFolder, list_studies
    from hsweep.tracking.target import target_of, tracking_target
    from hsweep.tracking.ui import EXPERIMENTS, charts_page, serve_ui

    home.create()
    names = [study_name] if study_name else [paths.name for paths in list_studies(home)]
    if len(names) == 1:
        study = StudyFolder.open(home, names[0])
        target = target_of(study, home, tracking_uri)
        page = charts_page(study.paths.journal, target, study.manifest)
    else:
        target, page = tracking_target(tracking_uri, home, "hsweep"), EXPERIMENTS
    with contextlib.suppress(KeyboardInterrupt):
        serve_ui(target, page, host=host, port=port)
