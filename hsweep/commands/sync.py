"""``hsweep sync``: bringing a tracking store up to date with what studies recorded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import home_option, json_option
from hsweep.commands.output import console_for, exit_with, print_json
from hsweep.errors import UserError
from hsweep.paths import Home

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.study import Study
    from hsweep.tracking.tracker import TrackingSummary

EXIT_NOT_ALL_DELIVERED: Final = 1
_REFUSALS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Synced:
    """How delivery of one study went.

    Attributes:
        study: its name.
        store: the store's URI, without secrets; empty if the study could not be read.
        is_running: whether it is being trained now.
        summary: what was delivered; None if the study could not be read.
        problem: why it could not.
    """

    study: str
    store: str
    is_running: bool
    summary: "TrackingSummary | None"
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left."""
        return self.summary is not None and self.summary.is_complete

    def to_json(self) -> dict[str, Any]:
        """Return plain content."""
        summary = self.summary
        return {
            "study": self.study,
            "store": self.store,
            "running": self.is_running,
            "complete": self.is_complete,
            "delivered": summary.delivered if summary else 0,
            "pending": summary.pending if summary else None,
            "files_left": [str(path) for path in summary.unattached] if summary else None,
            "refused": [
                {"trial": each.key, "run": each.run, "why": each.why}
                for each in (summary.refused if summary else ())
            ],
            "error": self.problem or (summary.error if summary else None),
        }

    def lines(self) -> Iterator[str]:
        """Say it, what is left last."""
        summary = self.summary
        if summary is None:
            yield f"{self.study}: {self.problem}"
            return
        said = f"{summary.delivered} records delivered to {self.store}"
        if self.is_complete and not summary.delivered:
            said = f"up to date in {self.store}"
        yield f"{self.study}: {said}"
        if summary.pending or summary.unattached or summary.error:
            files = f" and {len(summary.unattached)} files" if summary.unattached else ""
            why = f" ({summary.error})" if summary.error else ""
            yield f"  {summary.pending} records{files} are left{why}"
        for refused in summary.refused[:_REFUSALS_SHOWN]:
            yield f"  the store refuses part of {refused.run}: {refused.why}"
        if len(summary.refused) > _REFUSALS_SHOWN:
            yield f"  ... {len(summary.refused)} trials in all of which it refuses something"


@click.command()
@click.argument("names", metavar="[STUDY ...]", nargs=-1)
@click.option(
    "--tracking-uri", metavar="URI", help="Another MLflow store than the one a study reports to."
)
@home_option
@json_option
def sync(names: tuple[str, ...], home: Home, tracking_uri: str | None, as_json: bool) -> None:
    """Deliver to MLflow what it has not got of the studies; without a STUDY, of all of the home.

    What a study records waits in the study while its store is down, slow or locked. Delivering
    again changes nothing. Exit code 1 says that something is left.
    """
    from hsweep.record.recovery import open_readable
    from hsweep.record.study import list_studies

    console = console_for(as_json=as_json)
    for name in names:
        # What is misspelt is said before the first delivery, which may take long.
        open_readable(home, name, console.print)
    wanted = list(dict.fromkeys(names)) or [paths.name for paths in list_studies(home)]
    found: list[Synced] = []
    for name in wanted:
        found.append(_sync(home, name, tracking_uri, console))
        if not as_json:
            style = None if found[-1].is_complete else "yellow"
            for line in found[-1].lines():
                console.print(line, style=style, soft_wrap=True, markup=False)
    if as_json:
        print_json([each.to_json() for each in found])
    elif not found:
        click.echo(f"{home.root} holds no study yet; begin one with: hsweep run SWEEP")
    if not all(each.is_complete for each in found):
        exit_with(EXIT_NOT_ALL_DELIVERED)


def _sync(home: Home, name: str, uri: str | None, console: "Console") -> Synced:
    """Deliver one study; what is wrong with it must not keep the others from theirs."""
    from hsweep.record.recovery import open_readable
    from hsweep.running.resume import target_of
    from hsweep.tracking.tracker import study_tags, sync

    store, is_running = "", False
    try:
        study = open_readable(home, name, console.print)
        is_running = study.is_running()
        manifest = study.manifest
        target = target_of(study, home, uri)
        store = target.shown_uri
        with console.status(f"{name}: delivering to {store}") as status:
            summary = sync(
                study.paths.journal,
                target,
                study=name,
                tags=study_tags(manifest),
                metric=manifest.metric,
                artifacts=_files(study),
                is_running=is_running,
                progressed=lambda count: status.update(f"{name}: {count} records delivered"),
            )
    except UserError as error:
        return Synced(name, store, is_running, None, str(error))
    return Synced(name, store, is_running, summary)


def _files(study: "Study") -> list[Any]:
    paths = study.paths
    return [path for path in (paths.plan, paths.analysis, paths.report) if path.exists()]
