"""Arguments and options that several commands share."""

import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from hsweep.design.domain import is_text
from hsweep.errors import UserError
from hsweep.options import STORAGE, HeadedOption, OptionType, option_of, options_of
from hsweep.paths import Home
from hsweep.planning.options import SweepOptions
from hsweep.running.options import RunOptions
from hsweep.streams import json_alone
from hsweep.workspace import shipped_sweeps, sweep_path

Command = TypeVar("Command", bound=Callable[..., Any])

NOTHING_NEW: Final = (
    "before the first trial, so nothing new is on record; give the same command again to begin"
)
"""The text of an interrupt before a study trains."""


def _read_home(value: Any) -> Home:
    if isinstance(value, Home):
        return value
    folder = str(value)
    if not folder or "\0" in folder or not is_text(folder):
        raise click.BadParameter(f"the home is a folder named in UTF-8 text; got {folder!r}")
    path = Path(folder).expanduser().absolute()
    place = next((place for place in (path, *path.parents) if place.exists()), path)
    if place.exists() and not place.is_dir():
        remedy = "give another with --home or HSWEEP_HOME"
        raise click.BadParameter(f"the home is a folder, but {place} is none; {remedy}")
    return Home(path)


def complete_study(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the studies of the home that begin with the word, newest first."""
    from hsweep.record.study import list_studies

    home = ctx.params.get("home")
    studies = list_studies(home) if isinstance(home, Home) else ()
    return [paths.name for paths in studies if paths.name.startswith(incomplete)]


def _complete_sweep(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the shipped sweeps and the files here that begin with the word; if no shipped sweep
    does, let the shell complete a file."""
    names = [name for name in shipped_sweeps() if name.startswith(incomplete)]
    if not names:
        return [CompletionItem(incomplete, type="file")]
    names += sorted(path.name for path in Path().glob(f"{incomplete}*.py"))
    return [CompletionItem(name) for name in names]


sweep_argument = click.argument(
    "sweep_file",
    metavar="SWEEP",
    type=OptionType("sweep", lambda value: sweep_path(Path(value))),
    shell_complete=_complete_sweep,
)
study_argument = click.argument("study_name", metavar="STUDY", shell_complete=complete_study)

home_option = click.option(
    "--home",
    type=OptionType("folder", _read_home),
    default="hsweep-home",
    envvar="HSWEEP_HOME",
    help="Where studies, the MLflow store and measured speeds are kept.  [default: HSWEEP_HOME, "
    "else ./hsweep-home]",
)


from_option = click.option(
    "--from",
    "storage",
    type=STORAGE,
    metavar="URI",
    help="Begin from the study's copy in this storage (a folder or URI).",
)


def home_of(study_name: str, home: Home, storage: str | None) -> Home:
    """Return the home to read a study from: that given, or one with its copy in a storage."""
    if storage is None:
        return home
    from hsweep.record.mirror import copied_home

    return copied_home(storage, study_name)


def _keep_json_alone(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        ctx.find_root().with_resource(json_alone())
    return value


json_option = click.option(
    "--json",
    "as_json",
    cls=HeadedOption,
    heading="Output",
    is_flag=True,
    callback=_keep_json_alone,
    help="Print JSON alone; messages go to standard error.",
)

tracking_option = option_of(RunOptions, "tracking_uri")


def _use_data_root(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Set the folder in which tasks look for data. They look when they are made, which is never in
    workers."""
    if value is not None:
        os.environ["HSWEEP_DATA"] = str(value.expanduser().absolute())


data_root_option = click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    expose_value=False,
    callback=_use_data_root,
    help="Folder in which data are looked for by name; else HSWEEP_DATA.",
)


def sweep_options(command: Command) -> Command:
    """Decorate a command with the options of a sweep, which it receives as ``chosen``."""
    return options_of(SweepOptions, "chosen")(data_root_option(command))


def explicit_options(names: Iterable[str]) -> list[str]:
    """Return the names of the options that the user gave to the running command."""
    context = click.get_current_context()
    default = ParameterSource.DEFAULT
    return [name for name in names if context.get_parameter_source(name) is not default]


def refuse_options(options: Iterable[str], *, but: Container[str], why: str) -> None:
    """Refuse all options that the user gave to the running command, except those in ``but``: a
    UserError says of the first ``why``."""
    context = click.get_current_context()
    flags = {param.name: param.opts[0] for param in context.command.get_params(context)}
    for name in explicit_options(options):
        if name not in but:
            raise UserError(f"{flags[name]} {why}")
