"""What a run takes whatever its sweep is, begun before that is planned."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hsweep.ray_tune.environment import prepare_ray
from hsweep.running.options import RunOptions
from hsweep.terminal import doing
from hsweep.workspace import enter, is_command, worker_environment

if TYPE_CHECKING:
    from hsweep.ray_tune.local import LocalRay


def start_early(
    options: RunOptions, folder: Path, own_folders: Iterable[Path] = ()
) -> "LocalRay | None":
    """Start the Ray that a run will need: its workers import what training needs while the sweep is
    planned here. It is ended once the command has said all it has to say, if not before.

    Args:
        folder: of the sweep file; see ``enter`` for it and the others.

    Returns:
        None where no Ray will be started, or this is a program that only uses this package.

    Raises:
        UserError: Ray does not start, or modules are both here and among the user's.
    """
    if options.runner == "inline" or options.cluster is not None or not is_command():
        return None
    doing("starting Ray")
    prepare_ray()
    environment = worker_environment(enter(folder, own_folders))
    from hsweep.ray_tune.local import LocalRay, shut_down

    # Once a refused plan is told: it shall not wait for Ray's end.
    click.get_current_context().find_root().call_on_close(shut_down)
    # In this thread, which stays: Ray's processes end with the one that starts them.
    return LocalRay.start(environment)
