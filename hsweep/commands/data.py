"""``hsweep data``: the data sets of tasks, where they are, and their caches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.commands.options import data_root_option, json_option, sweep_argument, sweep_options
from hsweep.commands.output import console_for, print_json, quantity
from hsweep.errors import UserError
from hsweep.options import HeadedGroup
from hsweep.planning.options import SweepOptions

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.planning.plan import Plan
    from tasks.base import Task

_OF_DATA_SETS: Final = ("name", "content", "tasks", "licence", "origin", "source")
_OF_PLACES: Final = ("is_there", "folder", "num_files", "num_bytes")


@click.group(cls=HeadedGroup)
def data() -> None:
    """List and prepare the data that sweeps need. Nothing is downloaded unasked."""


@data.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--fingerprint",
    is_flag=True,
    help="Also hash what was found, which reads every byte of it.",
)
@data_root_option
@json_option
def list_data(names: tuple[str, ...], fingerprint: bool, as_json: bool) -> None:
    """List the data sets that tasks know, which tasks need them, and where they were found."""
    from tasks.base import DataError
    from tasks.sources.catalogue import CATALOGUE, by_name, find
    from tasks.sources.hub import data_root, downloads_allowed

    try:
        places = [find(by_name(name)) for name in names] or [
            find(data_set) for data_set in CATALOGUE
        ]
        hashes = [place.fingerprint() if fingerprint else None for place in places]
    except DataError as error:
        raise UserError(str(error)) from error
    rows: list[dict[str, Any]] = []
    for place, hashed in zip(places, hashes, strict=True):
        row = {name: getattr(place.data_set, name) for name in _OF_DATA_SETS}
        row |= {name: getattr(place, name) for name in _OF_PLACES}
        rows.append(row | ({"fingerprint": hashed} if fingerprint else {}))
    if as_json:
        print_json(rows)
    else:
        _show_data_sets(console_for(as_json=False), rows, data_root(), downloads_allowed())


@data.command()
@sweep_argument
@sweep_options
@json_option
def prepare(sweep_file: Path, chosen: SweepOptions, as_json: bool) -> None:
    """Build every cache that SWEEP's trials need, so that none of them waits for it.

    Complete caches are not built again, so an interrupted preparation goes on where it ended.
    """
    import torch
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from hsweep.planning.prepare import prepare as prepare_sweep
    from hsweep.seeding import replicate_seeds
    from tasks.sources.cache import cache_folder
    from tasks.sources.progress import progress_to

    plan = prepare_sweep(sweep_file, chosen).plan
    tasks = _tasks(plan)
    console = console_for(as_json=as_json)
    if not tasks:
        console.print("nothing to prepare: the sweep's own training reads its data itself")
        if as_json:
            print_json({"ready": []})
        return
    columns = Progress.get_default_columns()[:2]
    now = TextColumn("{task.fields[now]}", markup=False)
    with Progress(
        *columns, MofNCompleteColumn(), TimeElapsedColumn(), now, console=console
    ) as progress:
        bar = progress.add_task("preparing", total=len(tasks), now="")

        def show(label: str, done: int, total: int) -> None:
            progress.update(bar, now=f"{done:,} of {total:,} {label}")

        for task, batch_size in tasks:
            progress.update(bar, now=task.name)
            # What is generated is generated again for every replicate.
            for replicate in range(plan.sweep.replicates):
                seeds = replicate_seeds(plan.study_seed, replicate)
                try:
                    with progress_to(show):
                        task.open(
                            data_seed=seeds.data,
                            sampling_seed=seeds.sampling,
                            batch_size=batch_size,
                            device=torch.device("cpu"),
                        )
                except ValueError as error:
                    raise UserError(f"{_label(task)}: {error}") from error
            progress.advance(bar)
        progress.update(bar, now="")
    console.print(f"ready: {len(tasks)} of {len(tasks)} tasks; caches lie in {cache_folder()}")
    if as_json:
        print_json({"ready": [_label(task) for task, _ in tasks]})


def _tasks(plan: "Plan") -> "list[tuple[Task, int]]":
    """Return the distinct tasks of a plan, in its order, each with the batch size of one of its
    trials."""
    from hsweep.planning.identity import content_hash

    trials = {content_hash(trial.task): trial for trial in plan.trials}
    return [
        (trial.built[0], trial.recipe.batch_size)
        for trial in trials.values()
        if trial.model is not None
    ]


def _label(task: Any) -> str:
    """Return a task's class and the fields that differ from their defaults."""
    from dataclasses import MISSING, fields, is_dataclass

    changed = (
        f"{field.name}={getattr(task, field.name)!r}"
        for field in (fields(task) if is_dataclass(task) else ())
        if field.default is MISSING or getattr(task, field.name) != field.default
    )
    return f"{type(task).__name__}({', '.join(changed)})"


def _show_data_sets(
    console: "Console", rows: Sequence[Mapping[str, Any]], root: Path | None, downloads: bool
) -> None:
    """Print the catalogue of data sets, and where they were looked for.

    Each data set has a few short lines instead of a table row: paths and licences are too long for
    a column.
    """
    width = max((len(row["name"]) for row in rows), default=0) + 2
    for row in rows:
        style = "bold" if row["is_there"] else "dim"
        console.print(f"{row['name']:{width}}{_where(row)}", style=style)
        console.print(f"    {row['content']}; for {', '.join(row['tasks'])}")
        if row["origin"] != "generated":
            console.print(f"    {row['source']}; licence: {row['licence']}")
        if row.get("fingerprint"):
            console.print(f"    fingerprint {row['fingerprint']}")
    looked = "nowhere: give --data-root, or set HSWEEP_DATA"
    if root is not None:
        looked = f"under {root}" + ("" if root.is_dir() else ", which is no folder")
    console.print(f"looked {looked}")
    hub = "on (HSWEEP_HUB=1)" if downloads else "off; HSWEEP_HUB=1 turns them on"
    console.print(f"downloads from the Hugging Face hub are {hub}")


def _where(row: Mapping[str, Any]) -> str:
    if row["folder"]:
        from hsweep.design.labels import counted

        files = counted(row["num_files"], "file")
        return f"{quantity(row['num_bytes'], 'B')} in {files}, {row['folder']}"
    if row["origin"] == "generated":
        return "generated from the task's settings and seeds"
    if row["origin"] == "installed":
        return f"comes with {row['source']}"
    return "not found"
