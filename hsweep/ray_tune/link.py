"""What stands between Tune and the coordinator: searcher, scheduler, callbacks and a stopper.

They are called by Tune in the thread that runs it. None of them decides anything.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from ray import tune
from ray.exceptions import RayActorError, RayError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment, Resources
from hsweep.ray_tune.actor import PARCEL, REPORT, START_SECONDS, Parcel, Place
from hsweep.ray_tune.failures import Circumstances, failure_of, hang_trace, heard_of

GRACE_SECONDS: Final = 15.0
"""How much later than a worker's own watch the driver ends it: its watch can say where it was."""

_LONGEST_TICK: Final = 1.0
_CLOSING_SECONDS: Final = 60.0
_EXPLAINING_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Running:
    """A Tune trial that has a process.

    Attributes:
        has_begun: the process has said that it is there.
        place: a reference to where it runs.
        silent: seconds since its last word, as far as this process was awake to hear one.
        was_silenced: it was ended because of that.
    """

    has_begun: bool = False
    place: Any = None
    silent: float = 0.0
    was_silenced: bool = False


@dataclass(slots=True)
class _Closing:
    """A trial that ended its work in some process, which may still be writing its checkpoint."""

    reference: Any
    since: float


@dataclass(slots=True)
class Link:
    """The coordinator and what is known of its attempts; Tune pickles it into files nobody reads.

    Attributes:
        coordinator: of this run; None in a pickled copy, which leads nowhere.
    """

    coordinator: Coordinator
    _running: dict[str, _Running] = field(default_factory=dict)
    _closing: dict[str, _Closing] = field(default_factory=dict)
    _held: list[Assignment] = field(default_factory=list)
    _left: dict[str, set[str]] = field(default_factory=dict)
    _readers: list[threading.Thread] = field(default_factory=list)
    _ticked: float = field(default_factory=time.monotonic)
    num_live: int = 0
    waiting: frozenset[Parcel] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        return Link, (None,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Link":
        return self

    def next_parcel(self) -> Parcel | None:
        """Return what shall run next, None if there is nothing now."""
        for number, held in enumerate(self._held):
            if self._has_closed(held.trial.key):
                del self._held[number]
                return self._parcel(held)
        while (assignment := self.coordinator.take()) is not None:
            if self._has_closed(assignment.trial.key):
                return self._parcel(assignment)
            # Its last process is still writing the checkpoint it shall go on from.
            self._held.append(assignment)
        return None

    def _has_closed(self, key: str) -> bool:
        closing = self._closing.get(key)
        if closing is not None:
            ready, _ = ray.wait([closing.reference], timeout=0)
            if not ready and time.monotonic() - closing.since < _CLOSING_SECONDS:
                return False
            del self._closing[key]
        return True

    def _parcel(self, assignment: Assignment) -> Parcel:
        left = self._left.get(assignment.trial.key)
        return Parcel(assignment, _avoidable(left, assignment.resources) if left else frozenset())

    def tick(self, controller: Any) -> None:
        """End processes that have been silent for too long.

        Only time in which this process ran counts: a driver that was stopped itself hears first
        what was said meanwhile.
        """
        now = time.monotonic()
        passed, self._ticked = min(now - self._ticked, _LONGEST_TICK), now
        live = controller._actor_manager._live_actors_to_ray_actors_resources
        num_live, waiting = 0, []
        for trial, tracked in list(controller._trial_to_actor.items()):
            if tracked not in live:
                waiting.append(trial.config[PARCEL])
                continue
            num_live += 1
            running = self._running.setdefault(trial.trial_id, _Running())
            running.silent += passed
            timeout = assignment_of(trial).report_timeout
            if timeout is None or running.was_silenced:
                continue
            allowed = timeout if running.has_begun else max(timeout, START_SECONDS)
            if running.silent > allowed + GRACE_SECONDS:
                running.was_silenced = True
                ray.kill(live[tracked][0])
        self.num_live, self.waiting = num_live, frozenset(waiting)

    def began(self, trial: TuneTrial) -> None:
        """Note that a trial's process is there."""
        running = self._running.setdefault(trial.trial_id, _Running())
        running.has_begun, running.silent = True, 0.0
        running.place = trial.temporary_state.ray_actor.where.remote()

    def said(self, trial: TuneTrial, result: Mapping[str, Any]) -> bool:
        """Pass on what a trial said, and return whether it goes on where it is."""
        assignment = assignment_of(trial)
        running = self._running.setdefault(trial.trial_id, _Running())
        running.silent = 0.0
        if self.coordinator.report(assignment, result[REPORT]):
            return True
        actor = trial.temporary_state.ray_actor
        if actor is not None:
            # The process may wait long for its next trial, and this one may be handed out again.
            self._closing[assignment.trial.key] = _Closing(actor.finish.remote(), time.monotonic())
        return False

    def ended(self, trial: TuneTrial) -> None:
        """Forget a trial's process."""
        self._running.pop(trial.trial_id, None)

    def failed(self, trial: TuneTrial) -> None:
        """Find out why a trial's process failed, and pass that on."""
        error = heard_of(trial)
        running = self._running.pop(trial.trial_id, None) or _Running()
        folder = trial.storage.trial_working_directory if trial.storage else None
        if isinstance(error, RayActorError):
            # Asking other machines takes time that other trials shall not wait.
            reader = threading.Thread(
                target=self._explain, args=(assignment_of(trial), error, running, folder)
            )
            self._readers = [each for each in self._readers if each.is_alive()] + [reader]
            reader.daemon = True
            reader.start()
            reader.join(_EXPLAINING_SECONDS)
        else:
            self._explain(assignment_of(trial), error, running, None)

    def _explain(
        self,
        assignment: Assignment,
        error: BaseException | None,
        running: _Running,
        folder: str | None,
    ) -> None:
        place: Place | None = None
        trace, is_alive = "", True
        try:
            if running.place is not None:
                with contextlib.suppress(RayError):
                    place = ray.get(running.place, timeout=1)
            is_alive = place is None or place.node in {node["NodeID"] for node in alive_nodes()}
            if folder and is_alive and assignment.report_timeout is not None:
                own_node = ray.get_runtime_context().get_node_id()
                trace = hang_trace(folder, assignment, place, own_node)
        except Exception:
            # Ray itself does not answer.
            is_alive = False
        failure = failure_of(
            Circumstances(
                assignment=assignment,
                error=error,
                has_begun=running.has_begun,
                place=place,
                is_node_alive=is_alive,
                was_silenced=running.was_silenced,
                trace=trace,
            )
        )
        if failure.leaves_node and place is not None:
            self._left.setdefault(assignment.trial.key, set()).add(place.node)
        self.coordinator.failed(assignment, failure.text, is_own_fault=failure.is_own_fault)

    def wait_for_explanations(self, seconds: float) -> None:
        """Wait until every failure so far has been passed on."""
        deadline = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))


class CoordinatedSearcher(Searcher):
    """Lets Tune run what the coordinator hands out."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Accept Tune's properties: none of them matters here."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the next assignment, None for "not now", or that there will be no more."""
        parcel = self._link.next_parcel()
        if parcel is not None:
            return {PARCEL: parcel}
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


class CoordinatedScheduler(FIFOScheduler):
    """Asks the coordinator, and so the rungs, whether a trial goes on."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: Any) -> str:
        """Record a report and return Tune's word for the decision."""
        goes_on = self._link.said(trial, result)
        decision: str = TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP
        return decision

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Look after the running processes: Tune asks this at every turn, many times a second."""
        self._link.tick(getattr(tune_controller, "_tune_controller", tune_controller))
        chosen: TuneTrial | None = super().choose_trial_to_run(tune_controller)
        return chosen


class ProcessCallback(tune.Callback):
    """Follows the processes of trials."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Note that a trial has a process, a new one or one that had others before."""
        self._link.began(trial)

    def on_trial_complete(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Forget the process."""
        self._link.ended(trial)

    def on_trial_error(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Record the failure; the coordinator decides on another attempt."""
        self._link.failed(trial)


class StopWhenAsked(tune.Stopper):
    """Ends the experiment once the coordinator was asked to stop."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Stop no trial by itself."""
        return False

    def stop_all(self) -> bool:
        """Return whether the run shall end now; workers then write their checkpoints."""
        return self._link.coordinator.stop_requested


def assignment_of(trial: TuneTrial) -> Assignment:
    """Return the attempt that a Tune trial is."""
    assignment: Assignment = trial.config[PARCEL].assignment
    return assignment


def alive_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of every node that is there."""
    return [node for node in ray.nodes() if node["Alive"]]


def slots_of(available: Mapping[str, float], request: Resources) -> int:
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


def _avoidable(left: Iterable[str], request: Resources) -> frozenset[str]:
    """Return those of ``left`` that are there, if another node has room for the request."""
    nodes = {node["NodeID"]: node["Resources"] for node in alive_nodes()}
    avoided = nodes.keys() & set(left)
    others = nodes.keys() - avoided
    has_room = any(slots_of(nodes[node], request) for node in others)
    return frozenset(avoided) if has_room else frozenset()
