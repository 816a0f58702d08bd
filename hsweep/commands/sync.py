"""``hsweep sync``: bringing a tracking store up to date with what studies recorded."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import StudyName, home_option, json_option
from hsweep.commands.output import console_for, exit_with, print_json
from hsweep.errors import UserError
from hsweep.options import option_of
from hsweep.paths import Home
from hsweep.running.options import RunOptions

if TYPE_CHECKING:
    from rich.console import Console

EXIT_NOT_ALL_DELIVERED: Final = 1
_REFUSALS_SHOWN: Final = 5


@click.command()
@click.argument("names", metavar="[STUDY ...]", type=StudyName(), nargs=-1)
@click.option(
    "--tracking-uri", metavar="URI", help="Another MLflow store than the one a study reports to."
)
@option_of(RunOptions, "log_weights")
@home_option
@json_option
def sync(
    names: tuple[str, ...], home: Home, tracking_uri: str | None, log_weights: bool, as_json: bool
) -> None:
    """Deliver to MLflow what it has not got of the studies; without a STUDY, of all of the home.

    What a study records waits in the study while its store is down, slow or locked. Delivering
    again changes nothing. Exit code 1 says that something is left.
    """
    from hsweep.record.study import StudyFolder, list_studies

    console = console_for(as_json=as_json)
    for name in names:
        # A misspelt name is reported before the first delivery, which may take long.
        StudyFolder.open(home, name)
    wanted = list(dict.fromkeys(names)) or [paths.name for paths in list_studies(home)]
    found: list[dict[str, Any]] = []
    for name in wanted:
        found.append(_sync(home, name, tracking_uri, log_weights, console))
        if not as_json:
            style = None if found[-1]["complete"] else "yellow"
            for line in _lines(found[-1]):
                console.print(line, style=style)
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"{home.root} holds no study yet; begin one with: hsweep run SWEEP")
    if not all(each["complete"] for each in found):
        exit_with(EXIT_NOT_ALL_DELIVERED)


def _sync(
    home: Home, name: str, uri: str | None, log_weights: bool, console: "Console"
) -> dict[str, Any]:
    """Deliver one study and return how that went; a problem with it is returned, so that the others
    are delivered too."""
    from hsweep.record.study import StudyFolder
    from hsweep.running.resume import target_of
    from hsweep.tracking.tracker import Tracker, TrackingSummary

    store, is_running, problem = "", False, None
    summary: TrackingSummary | None = None
    try:
        study = StudyFolder.open(home, name)
        is_running = study.is_running()
        target = target_of(study, home, uri)
        store = target.shown_uri
        paths = study.paths
        with (
            contextlib.ExitStack() as copies,
            console.status(f"{name}: delivering to {store}") as status,
        ):
            weights = None
            try:
                weights = copies.enter_context(study.final_weights(with_files=log_weights))
            except OSError as error:
                problem = str(error)
            tracker = Tracker(paths.journal, target, study.manifest)
            summary = tracker.sync(
                artifacts=(paths.plan, paths.analysis, paths.report, *study.figures()),
                weights=weights,
                is_running=is_running,
                progressed=lambda count: status.update(f"{name}: {count} records delivered"),
            )
    except (UserError, OSError) as error:
        problem = str(error)
    pending = None if summary is None else summary.pending
    summary = summary or TrackingSummary(0, 0)
    return {
        "study": name,
        "store": store,
        "running": is_running,
        "complete": summary.is_complete and problem is None,
        "delivered": summary.delivered,
        "pending": pending,
        "files_left": [str(path) for path in summary.unattached],
        "refused": [
            {"trial": each.key, "run": each.run, "why": each.why} for each in summary.refused
        ],
        "error": problem or summary.error,
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    study, store, error = found["study"], found["store"], found["error"]
    pending, files, refused = found["pending"], found["files_left"], found["refused"]
    if pending is None:
        yield f"{study}: {error}"
        return
    is_new = found["delivered"] or not found["complete"]
    done = f"{found['delivered']} records delivered to" if is_new else "up to date in"
    yield f"{study}: {done} {store}"
    if pending or files or error:
        more = f" and {len(files)} files" if files else ""
        yield f"  {pending} records{more} are left{f' ({error})' if error else ''}"
    for each in refused[:_REFUSALS_SHOWN]:
        yield f"  the store refuses part of {each['run']}: {each['why']}"
    if len(refused) > _REFUSALS_SHOWN:
        yield f"  ... {len(refused)} trials in all of which it refuses something"
