"""``hsweep watch``."""

import contextlib
import functools

import click

from hsweep.commands.options import complete_study, home_option, tracking_option
from hsweep.paths import Home
from hsweep.serving import announce, listen, token_for


@click.command()
@click.argument("study_name", metavar="[STUDY]", shell_complete=complete_study, required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8050, show_default=True)
@home_option
@tracking_option
def watch(
    study_name: str | None, host: str, port: int, home: Home, tracking_uri: str | None
) -> None:
    """Serve the page of STUDY while it runs, or of all studies of the home.

    The page is the report with the present state on top: trials in training, their curves, and the
    time left. It reloads itself and changes nothing in the study, which may have ended.
    """
    from hsweep.record.study import StudyFolder
    from hsweep.watching.pages import StudyPages, home_page
    from hsweep.watching.server import serve

    @functools.cache
    def study_pages(name: str) -> StudyPages:
        pages = StudyPages(home, name, tracking_uri)
        pages.now()  # refuses an unknown study
        return pages

    if study_name is not None:
        StudyFolder.open(home, study_name)
    token, page = token_for(host), "" if study_name is None else f"studies/{study_name}"
    with listen(host, port) as bound:
        announce("watch it", host, port, page, token)
        with contextlib.suppress(KeyboardInterrupt):
            serve(functools.partial(home_page, home), study_pages, token, bound)
