"""Ray Tune as a stateless executor: it places, starts and stops trials, and remembers nothing.

Every start of a study, first or resumed, is a fresh Tuner under a new run name. Which trials run
comes from the coordinator through a searcher; whether they go on is the coordinator's decision
through a scheduler; checkpoints lie where the trial's key says. Tune's own experiment state is
never read back.
"""

import functools
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Resources, Trial
from hsweep.errors import UserError
from hsweep.ray_tune.actor import TrialActor
from hsweep.ray_tune.local import QUIET, StartingRay, shut_down, start_local
from hsweep.ray_tune.messages import START, Placement, placement_of
from hsweep.ray_tune.nodes import (
    Demand,
    Node,
    alive_nodes,
    can_train,
    name_of,
    problems_of,
    setup_hook,
    slots_of,
)
from hsweep.ray_tune.pickling import check_sent, send_whole
from hsweep.ray_tune.private import (
    add_no_variables,
    dashboard_token,
    exchange,
    nodes_elsewhere,
    problem_of_head,
    repair_tune,
    shorten_messages,
    start_dashboard,
)
from hsweep.ray_tune.scheduler import CoordinatedScheduler, CoordinatedSearcher, NamingTasks
from hsweep.ray_tune.sharing import Sharing
from hsweep.ray_tune.workers import Worker, Workers
from hsweep.signals import holding_sigterm
from hsweep.terminal import print_step, warn
from hsweep.threads import in_thread
from hsweep.workspace import worker_environment

ROOMLESS_SECONDS: Final = 600.0
"""How long to wait for a node that could hold a trial, where there is none."""

_LOOK_SECONDS: Final = 1.0
_PATIENCE: Final = 600.0
"""How long to wait for the nodes that a run is to have, unless the user says."""
_MOST_WANTED: Final = 16
"""For how many trials a cluster is asked for nodes at once."""
_UNLIMITED: Final = 10_000
_UNTIL_DASHBOARD: Final = 15
"""Looks before a dashboard is started: who runs a study of seconds is not made to wait for one."""

_LEAVE_SECONDS: Final = 15.0
_EXPLAINING_SECONDS: Final = 25.0


class OwnCluster(Protocol):
    """A Ray on several machines that runs for one study."""

    def start(self) -> str: ...  # the address of its head
    def wait_for_nodes(self, names: Callable[[], Iterable[str]]) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class RayRunner:
    """Runs trials on Ray, local or on an existing cluster.

    Attributes:
        scratch: folder or URI for Tune's own files; on several nodes one they all see.
        address: an existing cluster; None starts one on this machine.
        cluster: one to be started, which ends with the runner.
        has_dashboard: whether one that is started here gets a dashboard, as soon as a run
            has taken some time: it takes seconds to start.
        max_concurrent: trials at once; None for as many as the resources allow.
        study: its name, for the users of other studies on the cluster.
        priority: studies of a higher one get the cluster's resources first.
        num_nodes: nodes to wait for before trials start.
        patience: seconds that nodes may take to come; a cluster that adds nodes by itself is asked
            for them. None for no waiting, but where it is for ``num_nodes``.
        own_modules: modules that travel to workers whole.
        sweep_folder: put last on the workers' import path.
        announce: called when a run has started a dashboard.
        dashboard_url: set by ``connect`` where a cluster has one, and by ``start_dashboard``.
    """

    scratch: str
    address: str | None = None
    cluster: OwnCluster | None = None
    has_dashboard: bool = False
    max_concurrent: int | None = None
    study: str = ""
    priority: int = 0
    num_nodes: int = 1
    patience: float | None = None
    own_modules: tuple[Any, ...] = ()
    sweep_folder: Path | None = None
    announce: Callable[[], None] | None = None
    dashboard_url: str = field(default="", init=False)
    _probe: Callable[[Iterable[Node]], dict[str, str]] | None = field(default=None, init=False)
    _checked: set[Resources] = field(default_factory=set, init=False)
    _starting_dashboard: Future[None] | None = field(default=None, init=False)

    def connect(self) -> None:
        """Start Ray, or join the cluster.

        Raises:
            UserError: the cluster cannot be reached.
        """
        shorten_messages()
        if self.cluster is not None and self.address is None:
            self.address = self.cluster.start()
            self._join(self.address)
            self.cluster.wait_for_nodes(lambda: [node["NodeName"] for node in alive_nodes()])
        elif self.address is None:
            self._start()
        elif not ray.is_initialized():
            self._join(self.address)

    def _start(self) -> None:
        if StartingRay.unused is not None:
            StartingRay.unused.wait()
        elif not ray.is_initialized():
            start_local(worker_environment(self.sweep_folder))

    def _join(self, address: str) -> None:
        source = "RAY_ADDRESS" if os.environ.get("RAY_ADDRESS") == address else "--address"
        why = ""
        if "://" in address:
            why = (
                "this is the address of another service of Ray; give HOST:PORT of the cluster's "
                "head (port 6379 unless another was chosen) or auto, on a node of the cluster"
            )
        elif problem := problem_of_head(address):
            why = (
                f"no cluster of this Ray version answers there ({problem}); see that it is up and "
                "that RAY_AUTH_TOKEN or ~/.ray/auth_token holds its token"
            )
        elif nodes := nodes_elsewhere(address):
            why = (
                "this machine is no node of that cluster; run the command on one "
                f"({', '.join(nodes[:3])}), hand it to one by `ray job submit`"
            )
        if why:
            drop = "unset" if source == "RAY_ADDRESS" else "leave out"
            raise UserError(f"{source}={address}: {why}, or {drop} {source}: Ray then starts here")
        environment = {**worker_environment(self.sweep_folder), "RAY_CHDIR_TO_TRIAL_DIR": "0"}
        runtime = {"worker_process_setup_hook": setup_hook(), "env_vars": environment}
        try:
            with holding_sigterm():
                context = ray.init(address=address, runtime_env=runtime, **QUIET)
        except Exception as error:  # Ray raises it itself, without a class of its own
            raise UserError(
                f"cannot connect to the cluster at {address}: {error}. Is it running, and does "
                "RAY_AUTH_TOKEN or ~/.ray/auth_token hold its token?"
            ) from error
        url = context.dashboard_url
        self.dashboard_url = f"http://{url}" if url else ""

    def start_dashboard(self) -> None:
        """Start the dashboard of the Ray of this process, if the runner is to have one."""
        if not self.has_dashboard or self.address is not None:
            return
        try:
            self.dashboard_url = start_dashboard()
        except RuntimeError as error:
            warn(str(error))
        if self.announce is not None and self.dashboard_url:
            self.announce()

    @property
    def token(self) -> str:
        """What the dashboard asks for before it shows anything; empty where that is nothing."""
        return dashboard_token()

    def check(self, requests: Mapping[str, Resources]) -> None:
        """Refuse requests (by trial) that no node can meet, once nodes have had time to come.

        Raises:
            UserError: naming the trial, or the number of nodes.
        """
        self._checked, demand = set(requests.values()), Demand()
        patience = self.patience or (_PATIENCE if self.num_nodes > 1 else 0.0)
        begin, told = time.monotonic(), ""
        while problem := self._problem(requests):
            if time.monotonic() - begin >= patience or self.address is None:
                raise UserError(problem)
            if problem != told:
                print_step(f"waiting up to {patience:g} s for nodes: {problem.partition(';')[0]}")
                told = problem
            unmet = [request for request in self._checked if not self.slots(request)]
            bundles, _ = _placement(self._largest)
            nodes = [(bundles[:1] * self.num_nodes, "STRICT_SPREAD")] * (self.num_nodes > 1)
            demand.ask([*map(_placement, unmet), *nodes])
            time.sleep(_LOOK_SECONDS)
        demand.ask(())

    def _problem(self, requests: Mapping[str, Resources]) -> str:
        """Return what the cluster lacks for the requests, empty if nothing."""
        nodes = [node for node in alive_nodes() if can_train(node)]
        if 1 < self.num_nodes > len(nodes):
            return f"{len(nodes)} of {self.num_nodes} nodes (--wait-for-nodes) are there"
        amounts = [node["Resources"] for node in nodes]
        for key, request in requests.items():
            if not slots_of(amounts, request):
                return f"trial {key} needs {_amounts(request)}{_lacking(amounts, request)}"
        return ""

    def check_nodes(self, sample: Trial) -> None:
        """Refuse nodes that lack what a trial needs: this code, the sweep's modules, the storage.

        Raises:
            UserError: naming each node, and what it lacks.
        """
        if self.address is not None:
            self._probe = functools.partial(problems_of, sample=sample, scratch=self.scratch)
            nodes = {node["NodeID"]: node for node in alive_nodes() if can_train(node)}
            problems = self._probe(nodes.values())
            if lines := [f"node {name_of(nodes[node])} {problems[node]}" for node in problems]:
                raise UserError("; ".join(lines))

    def check_sent(self, function: Any) -> None:
        """Refuse a sweep's function that cannot be sent to workers; UserError says why."""
        send_whole(self.own_modules)
        check_sent(function)

    def slots(self, request: Resources) -> int:
        """Return how many trials of this size fit the cluster at once."""
        return slots_of((node["Resources"] for node in alive_nodes()), request)

    def room(self, request: Resources) -> int:
        """Return how many trials of this size train at once."""
        slots = self.slots(request)
        return min(slots, self.max_concurrent or slots)

    def num_workers(self, workers: Workers, sharing: Sharing | None) -> int:
        """Return how many processes train at once: as many as fit of the smallest trial, or as are
        the study's part of a cluster."""
        coordinator = workers.coordinator
        # An adaptive search has no trial before it starts, but draws of it were checked.
        requests = {trial.resources for trial in coordinator.planned_trials()} | self._checked
        fitting = max(map(workers.roster.slots, requests), default=0) or 1
        most = min(fitting, self.max_concurrent or fitting)
        if sharing is None:
            return most
        before, to_come = sharing.rivals, coordinator.num_waiting + coordinator.num_to_come
        wanted = min(most, max(1, len(workers.by_id) + to_come))
        device = "GPU" if any(request.gpus for request in requests) else "CPU"
        part = sharing.slots(device, wanted, fitting)
        if sharing.rivals not in ([], before):
            coordinator.say(f"the cluster is shared with {', '.join(sharing.rivals)}")
        return min(most, part)

    def run(self, coordinator: Coordinator) -> None:
        self.connect()
        repair_tune()
        if self.address is None:
            add_no_variables()
        for name in ("ray.tune", "ray.air", "ray.train"):
            # Their own messages stay off the terminal: failures reach the record.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        send_whole(self.own_modules)
        scheduler, demand = CoordinatedScheduler(coordinator), Demand()
        sharing = None if self.address is None else Sharing(self.study, self.priority)
        workers, roster = scheduler.workers, scheduler.workers.roster
        roster.nodes = {node["NodeID"]: node for node in alive_nodes()}
        roster.probe, roster.is_ours = self._probe, self.address is None
        coordinator.record_left_out(())

        def size_up() -> None:
            workers.max_workers = self.num_workers(workers, sharing)
            if self.patience and self.address is not None:
                demand.ask(self._wanted(workers))

        size_up()
        roster.answered = size_up
        tuning = in_thread("tune", lambda: _tuner(self.scratch, scheduler).fit())
        try:
            self._wait(tuning, workers)
        except BaseException:
            # An interrupt that was not turned into a request: Tune shall not go on by itself.
            coordinator.request_stop("interrupted")
            raise
        roster.end()
        if sharing is not None and not coordinator.is_in_trouble:
            exchange(sharing.key, "")
        scheduler.wait_for_explanations(_EXPLAINING_SECONDS)
        error = tuning.exception() if tuning.done() else None
        if error is not None and not coordinator.is_exhausted:
            coordinator.request_stop(_ending(error), is_trouble=True)

    def _wait(self, tuning: Future[object], workers: Workers) -> None:
        """Wait until Tune ends; where Ray can never go on, ask Tune to end, and give it up at
        last."""
        without_room, until_dashboard = 0.0, _UNTIL_DASHBOARD
        while not tuning.done():
            wait([tuning], _LOOK_SECONDS)
            until_dashboard -= 1
            if until_dashboard == 0:
                self._starting_dashboard = in_thread("dashboard", self.start_dashboard, stays=True)
            trouble = workers.roster.trouble()
            waiting = workers.without_process()
            has_room = not waiting or bool(workers.with_process()) or workers.any_fits(waiting)
            without_room = 0.0 if has_room else without_room + _LOOK_SECONDS
            if trouble is None and without_room > max(self.patience or 0.0, ROOMLESS_SECONDS):
                trouble = _no_room(waiting, without_room)
            if trouble is not None:
                workers.coordinator.request_stop(trouble, is_trouble=True)
                wait([tuning], _LEAVE_SECONDS)
                return

    def _wanted(self, workers: Workers) -> list[Placement]:
        """Return what nodes are to be added for: waiting trials that all workers leave over."""
        number, most = len(workers.by_id), self.max_concurrent or sys.maxsize
        if workers.without_process() or number < workers.max_workers:
            return []
        left = min(workers.coordinator.num_waiting, most - number, number, _MOST_WANTED)
        return [_placement(self._largest)] * left

    @property
    def _largest(self) -> Resources:
        return max(self._checked, key=lambda size: (size.gpus, size.all_cpus))

    def close(self) -> None:
        if self._starting_dashboard is not None:
            # Its thread asks Ray's head where it is, and would end this process without an answer.
            wait([self._starting_dashboard])
        shut_down()
        if self.cluster is not None:
            self.cluster.close()


def _placement(request: Resources) -> Placement:
    return placement_of(request, request.processes)


def _tuner(scratch: str, scheduler: CoordinatedScheduler) -> tune.Tuner:
    return tune.Tuner(
        TrialActor,
        tune_config=tune.TuneConfig(
            search_alg=CoordinatedSearcher(scheduler),
            scheduler=scheduler,
            num_samples=-1,
            # The searcher has as many as there is room for, which changes with the nodes.
            max_concurrent_trials=_UNLIMITED,
            reuse_actors=not scheduler.coordinator.sweep.isolate,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
        ),
        run_config=tune.RunConfig(
            name=f"run-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}",
            storage_path=scratch,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
            # Asked for by default, which fails every trial as it ends: ours are our own.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            stop=scheduler,
            callbacks=[NamingTasks(scheduler)],
            log_to_file=False,
        ),
    )


def _no_room(workers: Iterable[Worker], seconds: float = ROOMLESS_SECONDS) -> str:
    needs = " or ".join(sorted({_amounts(worker.resources) for worker in workers}) or ["nothing"])
    return (
        f"no node of the cluster has been able to hold a trial for {seconds / 60:.0f} "
        f"minutes (one needs {needs}): nodes were lost and none came back"
    )


def _amounts(request: Resources) -> str:
    needs = f"{request.all_cpus:g} cpus and {request.gpus:g} gpus"
    if request.processes > 1:
        needs += f" for its {request.processes} processes"
    return needs


def _lacking(nodes: Sequence[Mapping[str, float]], request: Resources) -> str:
    """Describe the resources of nodes that cannot hold a trial, and the remedy."""
    has = {name: [0.0, *(node.get(name, 0) for node in nodes)] for name in ("CPU", "GPU")}
    largest = f"the largest node has {max(has['CPU']):g} cpus and {max(has['GPU']):g} gpus"
    options = "--set cpus=..., --set gpus=..."
    if request.processes > 1:
        options += ", --set processes=..."
    lower = f"lower the sweep's resources ({options})"
    if not request.spread and slots_of(nodes, replace(request, spread=True)):
        on_several = "let its processes run on several nodes (--set spread=true)"
        return f" on one node, but {largest}; {on_several}, or {lower}"
    sums = f"all have {sum(has['CPU']):g} and {sum(has['GPU']):g}"
    return f", but {largest}, {sums}; {lower}, or --wait for more or larger nodes"


def _ending(error: BaseException) -> str:
    """Return why a run ended, for people: Tune wraps errors in whole tracebacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"Ray ended the run: {lines[-1] if lines else type(error).__name__}"


def _trial_name(trial: TuneTrial) -> str:
    return f"{trial.config[START]!r}-{trial.trial_id}"
