"""Starts Ray while the trials are planned."""

from pathlib import Path
from typing import TYPE_CHECKING

from hsweep.ray_tune.environment import prepare_ray
from hsweep.running.options import RunOptions
from hsweep.terminal import print_step
from hsweep.workspace import is_command, worker_environment

if TYPE_CHECKING:
    from hsweep.ray_tune.local import StartingRay


def start_early(options: RunOptions, folder: Path) -> "StartingRay | None":
    """Start Ray in a thread, and its workers, which import what training needs, while the caller
    plans the sweep. A process that ends because the plan is refused does not wait for it.

    Args:
        folder: of the sweep, which is loaded: workers have what it has set in the environment.

    Returns:
        None where no Ray will be started, or this is a program that only uses this package.
    """
    if options.runner == "inline" or options.cluster is not None or not is_command():
        return None
    print_step("starting Ray")
    prepare_ray()
    from hsweep.ray_tune.local import StartingRay

    return StartingRay(worker_environment(folder))
