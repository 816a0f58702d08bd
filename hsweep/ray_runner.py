"""Ray Tune as a stateless executor: it places, starts and stops trials, and remembers nothing.

Every start of a study, first or resumed, is a fresh Tuner under a new run name. Which trials run
comes from the coordinator through a searcher; whether they go on is the coordinator's decision
through a scheduler; checkpoints lie where the trial's key says. Tune's own experiment state is
never read back.
"""

import contextlib
import logging
import os
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import ray
from ray import tune
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from hsweep.coordinator import Coordinator
from hsweep.errors import UserError
from hsweep.ray_actor import PARCEL, REPORT, Parcel, TrialActor
from hsweep.trial import Assignment, Resources
from hsweep.workspace import worker_environment

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class _Link:
    """The coordinator, held by objects that Tune pickles into files nobody reads back."""

    def __init__(self, coordinator: Coordinator | None) -> None:
        self._coordinator = coordinator

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of this process."""
        assert self._coordinator is not None, "a pickled link leads nowhere"
        return self._coordinator

    def __reduce__(self) -> tuple[Any, ...]:
        return _Link, (None,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Link":
        return self


class _CoordinatedSearcher(Searcher):
    """Lets Tune run what the coordinator hands out."""

    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Accept Tune's properties: none of them matters here."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the next assignment, None for "not now", or that there will be no more."""
        assignment = self._link.coordinator.take()
        if assignment is not None:
            return {PARCEL: Parcel(assignment)}
        return Searcher.FINISHED if self._link.coordinator.is_exhausted else None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: the coordinator knows from the reports."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the record has everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Refuse: a run is never restored."""
        raise NotImplementedError("hsweep resumes from its own record")


class _CoordinatedScheduler(FIFOScheduler):
    """Asks the coordinator, and so the rungs, whether a trial goes on."""

    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: Any) -> str:
        """Record a report and return Tune's word for the decision."""
        goes_on = self._link.coordinator.report(_assignment(trial), result[REPORT])
        decision: str = TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP
        return decision


class _FailureCallback(tune.Callback):
    """Tells the coordinator of trials whose process failed."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def on_trial_error(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Record the failure; the coordinator decides on another attempt."""
        try:
            # Where Tune has just written it; its own reader looks where it will be copied later.
            written = Path(trial.error_file).read_text()
            text = _COLOURS.sub("", written.partition("\n")[2])
        except Exception as unreadable:
            text = f"the worker failed, and its error could not be read: {unreadable}"
        self._link.coordinator.failed(_assignment(trial), text)


class _StopWhenAsked(tune.Stopper):
    """Ends the experiment once the coordinator was asked to stop."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Return whether the run shall end now; workers then write their checkpoints."""
        return self._link.coordinator.stop_requested


def _assignment(trial: TuneTrial) -> Assignment:
    assignment: Assignment = trial.config[PARCEL].assignment
    return assignment


@dataclass(slots=True)
class RayRunner:
    """Runs trials on Ray, local or on an existing cluster.

    Attributes:
        scratch: folder or URI for Tune's own files; on several nodes one they all see.
        address: an existing cluster; None starts one on this machine.
        max_concurrent: trials at once; None for as many as the resources allow.
        own_modules: modules that travel to workers whole.
        sweep_folder: put last on the workers' import path.
        dashboard_url: set by ``connect``.
    """

    scratch: str
    address: str | None = None
    max_concurrent: int | None = None
    own_modules: tuple[Any, ...] = ()
    sweep_folder: Path | None = None
    dashboard_url: str | None = field(default=None, init=False)
    _checked: set[Resources] = field(default_factory=set, init=False)

    def connect(self) -> None:
        """Start Ray, or join the cluster.

        Raises:
            UserError: the cluster cannot be reached.
        """
        if ray.is_initialized():
            return
        environment = {**worker_environment(self.sweep_folder), "RAY_CHDIR_TO_TRIAL_DIR": "0"}
        local: dict[str, Any] = {"include_dashboard": True, "dashboard_host": "127.0.0.1"}
        if self.address is None:
            local["num_cpus"] = len(os.sched_getaffinity(0))
        try:
            context = ray.init(
                address=self.address or "local",
                runtime_env={
                    "worker_process_setup_hook": "hsweep.workspace.set_up_worker",
                    "env_vars": environment,
                },
                log_to_driver=False,
                logging_level=logging.WARNING,
                **({} if self.address else local),
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = f"the cluster at {self.address}" if self.address else "a local Ray"
            raise UserError(
                f"cannot connect to {where}: {error}. Is it running, and does RAY_AUTH_TOKEN or "
                "~/.ray/auth_token hold its token?"
            ) from error
        url = context.dashboard_url
        self.dashboard_url = f"http://{url}" if url else None

    def check(self, requests: Mapping[str, Resources]) -> None:
        """Refuse requests that no node can meet, and storage that some node cannot see.

        Args:
            requests: what trials need, by trial key.

        Raises:
            UserError: naming the trial or the node.
        """
        nodes = _alive_nodes()
        for key, request in requests.items():
            if not any(_slots(node["Resources"], request) for node in nodes):
                largest = {
                    name: max(node["Resources"].get(name, 0) for node in nodes)
                    for name in ("CPU", "GPU")
                }
                raise UserError(
                    f"trial {key} needs {request.cpus:g} cpus and {request.gpus:g} gpus, but the "
                    f"largest node has {largest['CPU']:g} cpus and {largest['GPU']:g} gpus; lower "
                    "the sweep's resources (--set cpus=..., --set gpus=...) or join a larger node"
                )
        if len(nodes) > 1:
            _check_shared(self.scratch, nodes)
        self._checked = set(requests.values())

    def slots(self, request: Resources) -> int:
        """Return how many trials of this size fit the cluster at once."""
        return sum(_slots(node["Resources"], request) for node in _alive_nodes())

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""
        self.connect()
        _keep_memory_kills_local()
        for module in self.own_modules:
            ray.cloudpickle.register_pickle_by_value(module)
        run_name = f"run-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        # An adaptive search has no trial before it starts, but draws of it were checked.
        requests = {trial.resources for trial in coordinator.planned_trials()} | self._checked
        concurrent = self.max_concurrent or max(
            (self.slots(request) for request in requests), default=1
        )
        link = _Link(coordinator)
        with _quiet_tune():
            tune.Tuner(
                TrialActor,
                tune_config=tune.TuneConfig(
                    search_alg=_CoordinatedSearcher(link),
                    scheduler=_CoordinatedScheduler(link),
                    num_samples=-1,
                    max_concurrent_trials=max(1, concurrent),
                    reuse_actors=True,
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                ),
                run_config=tune.RunConfig(
                    name=run_name,
                    storage_path=self.scratch,
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=0),
                    # Asked for by default, which fails every trial as it ends: ours are our own.
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                    callbacks=[_FailureCallback(link)],
                    stop=_StopWhenAsked(link),
                    log_to_file=False,
                ),
            ).fit()

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        if ray.is_initialized():
            ray.shutdown()


def _trial_name(trial: TuneTrial) -> str:
    return f"{trial.config[PARCEL]!r}-{trial.trial_id}"


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _slots(available: Mapping[str, float], request: Resources) -> int:
    """Return how many trials of this size fit one node."""
    fits = []
    if request.cpus > 0:
        fits.append(int(available.get("CPU", 0) / request.cpus + 1e-9))
    if 0 < request.gpus < 1:
        # A share never spans two devices.
        fits.append(int(available.get("GPU", 0)) * int(1 / request.gpus + 1e-9))
    elif request.gpus >= 1:
        fits.append(int(available.get("GPU", 0) / request.gpus + 1e-9))
    return min(fits)


def _check_shared(scratch: str, nodes: list[dict[str, Any]]) -> None:
    """Write a marker and let every node read it."""
    from hsweep.checkpoints import file_system

    files, base = file_system(scratch)
    files.create_dir(base, recursive=True)
    marker = f"{base}/.seen-by-all-{uuid.uuid4().hex[:8]}"
    with files.open_output_stream(marker) as stream:
        stream.write(b"hsweep")

    @ray.remote(num_cpus=0, max_retries=0)
    def can_read(root: str, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(file_system(root)[0].get_file_info(path).type is FileType.File)

    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    try:
        seen = {
            node["NodeManagerHostname"]: can_read.options(
                scheduling_strategy=strategy(node["NodeID"], soft=False)
            ).remote(scratch, marker)
            for node in nodes
        }
        for host, answer in seen.items():
            if not ray.get(answer):
                raise UserError(
                    f"node {host} does not see {scratch}; give --storage a folder or URI that "
                    "every node reaches (a shared file system, s3://bucket/folder, ...)"
                )
    finally:
        files.delete_file(marker)


def _keep_memory_kills_local() -> None:
    """Let a trial killed by Ray's memory monitor fail alone.

    In Ray 2.60 such a kill arrives as OutOfMemoryError, which Tune's actor manager knows neither
    as an actor's nor as a task's error, so it aborts the whole experiment. Wrapped in the error of
    a dead actor, which is what it is, it takes the ordinary way.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager

    original = RayActorManager._actor_task_failed
    if getattr(original, "_wraps_memory_kills", False):
        return

    def wrapped(self: Any, tracked_actor_task: Any, exception: BaseException) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=str(exception))
        original(self, tracked_actor_task=tracked_actor_task, exception=exception)

    wrapped._wraps_memory_kills = True  # type: ignore[attr-defined]
    RayActorManager._actor_task_failed = wrapped


@contextlib.contextmanager
def _quiet_tune() -> Any:
    """Keep Tune's own messages off the terminal; failures reach the record."""
    loggers = [logging.getLogger(name) for name in ("ray.tune", "ray.air", "ray.train")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
