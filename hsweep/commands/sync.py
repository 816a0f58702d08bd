"""``hsweep sync``: delivers the records of studies to a tracking store."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import complete_study, home_option, json_option
from hsweep.commands.output import NO_STUDY, console_for, exit_with, print_json
from hsweep.errors import UserError
from hsweep.options import option_of
from hsweep.paths import Home
from hsweep.running.options import RunOptions

if TYPE_CHECKING:
    from rich.console import Console

EXIT_NOT_ALL_DELIVERED: Final = 1
_MAX_REFUSALS: Final = 5


@click.command()
@click.argument("names", metavar="[STUDY ...]", shell_complete=complete_study, nargs=-1)
@click.option(
    "--tracking-uri", metavar="URI", help="Another MLflow store than the one a study reports to."
)
@option_of(RunOptions, "track")
@option_of(RunOptions, "log_weights")
@home_option
@json_option
def sync(
    names: tuple[str, ...],
    home: Home,
    tracking_uri: str | None,
    track: Sequence[str],
    log_weights: bool,
    as_json: bool,
) -> None:
    """Deliver the records of each STUDY that MLflow, or another place that shows its runs, lacks.

    Without a STUDY, those of all studies of the home. Records wait in the study while its store is
    down, slow or locked. Delivering them again changes nothing. Exit code 1 means that some records
    are left.
    """
    from hsweep.record.study import StudyFolder, list_studies
    from hsweep.tracking.tracker import refuse_unusable

    console = console_for(as_json=as_json)
    refuse_unusable(track)
    for name in names:
        # A misspelt name is reported before the first delivery, which may take long.
        StudyFolder.open(home, name)
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names) or [paths.name for paths in list_studies(home)]:
        for row in _sync(home, name, tracking_uri, track, log_weights, console):
            rows.append(row)
            for line in () if as_json else _lines(row):
                console.print(line, style=None if row["complete"] else "yellow")
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(NO_STUDY.format(home=home.root))
    if not all(row["complete"] for row in rows):
        exit_with(EXIT_NOT_ALL_DELIVERED)


def _sync(
    home: Home,
    name: str,
    uri: str | None,
    track: Sequence[str],
    log_weights: bool,
    console: "Console",
) -> Iterator[dict[str, Any]]:
    """Deliver the records of one study to each of its places and yield the results; a problem is
    part of a result, so that the others are delivered too."""
    from hsweep.record.lease import read_holder
    from hsweep.record.study import StudyFolder
    from hsweep.tracking.target import target_of
    from hsweep.tracking.tracker import trackers_of

    row: dict[str, Any] = {
        "study": name,
        "store": "",
        "running": False,
        "complete": False,
        "delivered": 0,
        "pending": None,
        "files_left": [],
        "refused": [],
        "error": None,
    }
    try:
        study = StudyFolder.open(home, name)
        row["running"] = study.is_running()
        holder = read_holder(study.paths)
        if row["running"] and holder is not None and not holder.is_here:
            raise UserError(
                f"{holder} runs the study and delivers its records; wait for it, or give the "
                "command on that machine"
            )
        trackers, paths = trackers_of(study, target_of(study, home, uri), track), study.paths
    except (UserError, OSError) as error:
        yield row | {"error": str(error)}
        return
    for tracker in trackers:
        problem, weights, store = None, None, tracker.target.shown_uri
        with (
            contextlib.ExitStack() as copies,
            console.status(f"{name}: delivering to {store}") as status,
        ):
            try:
                weights = copies.enter_context(study.final_weights(with_files=log_weights))
            except OSError as error:
                problem = str(error)
            summary = tracker.sync(
                artifacts=(paths.plan, paths.analysis, paths.report, *study.figures()),
                weights=weights,
                is_running=row["running"],
                progressed=lambda count: status.update(f"{name}: {count} records delivered"),
            )
        yield row | {
            "store": store,
            "complete": summary.is_complete and problem is None,
            "delivered": summary.delivered,
            "pending": summary.pending,
            "files_left": [str(path) for path in summary.unattached],
            "refused": [
                {"trial": refusal.key, "run": refusal.run, "why": refusal.why}
                for refusal in summary.refused
            ],
            "error": problem or summary.error,
        }


def _lines(row: dict[str, Any]) -> Iterator[str]:
    study, error, pending = row["study"], row["error"], row["pending"]
    files, refused = row["files_left"], row["refused"]
    if pending is None:
        yield f"{study}: {error}"
        return
    is_new = row["delivered"] or not row["complete"]
    result = f"{row['delivered']} records delivered to" if is_new else "up to date in"
    yield f"{study}: {result} {row['store']}"
    if pending or files or error:
        files_text = f" and {len(files)} files" if files else ""
        yield f"  {pending} records{files_text} are left{f' ({error})' if error else ''}"
    for refusal in refused[:_MAX_REFUSALS]:
        yield f"  the store refuses part of {refusal['run']}: {refusal['why']}"
    if len(refused) > _MAX_REFUSALS:
        yield f"  ... {len(refused)} trials in all of which it refuses something"
