"""The runner that a study is run with, refused before anything is recorded where it cannot run."""

import threading
from typing import TYPE_CHECKING

from hsweep.coordination.runner import InlineRunner
from hsweep.errors import UserError
from hsweep.paths import StudyPaths
from hsweep.planning.plan import Plan
from hsweep.ray_tune.environment import prepare_ray
from hsweep.running.options import RunOptions
from hsweep.terminal import doing
from hsweep.training.checkpoints import file_system
from hsweep.training.compiler import cannot_be_compiled
from hsweep.workspace import LoadedSweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from hsweep.ray_tune.runner import RayRunner


def make_runner(
    options: RunOptions, paths: StudyPaths, storage: str | None, loaded: LoadedSweep
) -> "RayRunner | InlineRunner":
    """Return the runner that the options ask for.

    Raises:
        UserError: a storage that cannot be used.
    """
    if storage is not None:
        file_system(paths.checkpoint_root(storage))
    if options.runner == "inline":
        return InlineRunner()
    address = options.cluster
    doing(f"joining the Ray at {address}" if address else "starting Ray")
    prepare_ray(joins_cluster=address is not None)
    from hsweep.ray_tune.runner import RayRunner

    return RayRunner(
        scratch=paths.ray(storage),
        address=address,
        has_dashboard=options.dashboard,
        max_concurrent=options.max_concurrent,
        own_modules=tuple(loaded.own_modules()),
        sweep_folder=loaded.folder,
    )


def connect(
    runner: "RayRunner | InlineRunner", plan: Plan, import_ahead: "Callable[[], None]"
) -> None:
    """Connect a runner, and refuse what it cannot run.

    What the end of the run takes is imported meanwhile: starting Ray's processes leaves this one
    idle for seconds. It is all there when this returns, before any thread needs it.

    Raises:
        UserError: the cluster cannot be reached or cannot hold a trial, a trial needs a process
            of its own where there is one, or a compiler that is not there.
    """
    is_here = isinstance(runner, InlineRunner) or runner.address is None
    if is_here and (missing := cannot_be_compiled(plan.trials)):
        raise UserError(missing)
    if isinstance(runner, InlineRunner):
        if plan.sweep.isolate:
            raise UserError(
                "isolate gives every trial a process of its own, and the inline runner has but "
                "this one; leave out --runner inline, or set isolate=false"
            )
        import_ahead()
        return
    # No daemon: an interpreter that ends waits for it, rather than ending it within an import.
    importing = threading.Thread(target=import_ahead, name="import-ahead")
    importing.start()
    runner.connect()
    runner.check({trial.key: trial.resources for trial in plan.trials})
    importing.join()
