"""``hsweep data``: what tasks learn from, whether it is here and readable, and its caches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hsweep.errors import UserError
from hsweep.options import console_for, data_root_option, exit_with, json_option, sweep_options

if TYPE_CHECKING:
    from hsweep.plan import Plan
    from tasks.base import Task

EXIT_DATA_PROBLEM: Final = 2

_SWEEP = click.argument("sweep_file", metavar="SWEEP", type=click.Path(path_type=Path))


@click.group("data")
def data_verbs() -> None:
    """List, check and prepare the data that sweeps need. Nothing is downloaded unasked."""


@data_verbs.command("list")
@data_root_option
@json_option
def list_data(as_json: bool) -> None:
    """List the public data sets that tasks know, and where they were found."""
    from hsweep.render import print_json, show_data_sets
    from tasks.sources.catalogue import CATALOGUE, find
    from tasks.sources.hub import data_root, downloads_allowed

    found = [find(data_set) for data_set in CATALOGUE]
    rows = [
        {
            "name": each.data_set.name,
            "content": each.data_set.content,
            "tasks": list(each.data_set.tasks),
            "licence": each.data_set.licence,
            "source": each.data_set.source,
            "folder": None if each.folder is None else str(each.folder),
            "num_files": each.num_files,
            "num_bytes": each.num_bytes,
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
    else:
        show_data_sets(console_for(as_json=False), rows, data_root(), downloads_allowed())


@data_verbs.command()
@_SWEEP
@sweep_options
@json_option
def check(sweep_file: Path, as_json: bool, **chosen: Any) -> None:
    """Read what SWEEP's trials learn from, as far as planning does, and fingerprint it."""
    from hsweep import request
    from hsweep.render import print_json, show_task_data

    rows = [_checked(task) for task in _tasks(request.prepare(sweep_file, **chosen).plan)]
    if as_json:
        print_json(rows)
    else:
        show_task_data(console_for(as_json=False), rows)
    if any(row["problem"] for row in rows):
        exit_with(EXIT_DATA_PROBLEM)


@data_verbs.command()
@_SWEEP
@sweep_options
def prepare(sweep_file: Path, **chosen: Any) -> None:
    """Build every cache that SWEEP's trials need, so that none of them waits for it.

    What is complete is not built again, so a preparation that was interrupted goes on.
    """
    import torch
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from hsweep import request
    from hsweep.seeding import replicate_seeds
    from tasks.base import DataError
    from tasks.sources.cache import cache_folder
    from tasks.sources.progress import telling

    plan = request.prepare(sweep_file, **chosen).plan
    tasks = _tasks(plan)
    console = console_for(as_json=False)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[now]}"), console=console) as progress:
        bar = progress.add_task("preparing", total=len(tasks), now="")

        def show(what: str, done: int, wanted: int) -> None:
            progress.update(bar, now=f"{_label(task)}: {done:,} of {wanted:,} {what}")

        for task in tasks:
            progress.update(bar, now=_label(task))
            # What is generated is generated anew for every replicate.
            for replicate in range(plan.sweep.replicates):
                seeds = replicate_seeds(plan.study_seed, replicate)
                try:
                    with telling(show):
                        task.open(
                            data_seed=seeds.data,
                            sampling_seed=seeds.sampling,
                            batch_size=1,
                            device=torch.device("cpu"),
                        )
                except DataError as error:
                    raise UserError(f"{_label(task)}: {error}") from error
            progress.advance(bar)
        progress.update(bar, now="")
    console.print(f"ready: {len(tasks)} of {len(tasks)} tasks; caches lie in {cache_folder()}")


def _tasks(plan: "Plan") -> "list[Task]":
    """Return the distinct tasks of a plan, in its order."""
    from hsweep.identity import content_hash

    return list({content_hash(trial.task): trial.task for trial in plan.trials}.values())


def _checked(task: "Task") -> dict[str, Any]:
    from tasks.base import DataError

    row = {"task": _label(task), "name": task.name, "data": getattr(task, "data", None)}
    try:
        return {**row, "fingerprint": task.fingerprint(), "problem": None}
    except DataError as error:
        return {**row, "fingerprint": None, "problem": str(error)}


def _label(task: Any) -> str:
    """Return a task's class and what it sets itself, defaults left out."""
    from dataclasses import MISSING, fields, is_dataclass

    changed = (
        f"{field.name}={getattr(task, field.name)!r}"
        for field in (fields(task) if is_dataclass(task) else ())
        if field.default is MISSING or getattr(task, field.name) != field.default
    )
    return f"{type(task).__name__}({', '.join(changed)})"
