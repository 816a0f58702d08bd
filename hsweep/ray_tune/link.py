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
from hsweep.design.trial import Assignment, Report, Resources
from hsweep.ray_tune.actor import PARCEL, WORDS, Parcel, Place
from hsweep.ray_tune.dispatch import Dispatch, Lane
from hsweep.ray_tune.failures import Circumstances, failure_of, hang_trace, heard_of
from hsweep.training.lane import Begun, BrokenLaneError, Failure, Word

GRACE_SECONDS: Final = 15.0
"""How much later than a worker's own watch the driver ends it: its watch can say where it was."""

_LONGEST_TICK: Final = 1.0
_HALTING_SECONDS: Final = 60.0
"""How long a run that was asked to end waits for what its lanes are at."""

_EXPLAINING_SECONDS: Final = 0.5


@dataclass(slots=True)
class Link:
    """The coordinator and what is known of its lanes; Tune pickles it into files nobody reads.

    Attributes:
        coordinator: of this run; None in a pickled copy, which leads nowhere.
        places: lanes that there can be at once.
        num_live: lanes that have a process.
        waiting: parcels of those that have none yet.
    """

    coordinator: Coordinator
    places: int = 1
    num_live: int = 0
    waiting: frozenset[Parcel] = frozenset()
    _dispatch: Dispatch = field(init=False)
    _lanes: dict[str, Lane] = field(default_factory=dict)
    _readers: list[threading.Thread] = field(default_factory=list)
    _ticked: float = field(default_factory=time.monotonic)
    _halting_since: float | None = None

    def __post_init__(self) -> None:
        self._dispatch = Dispatch(self.coordinator, _has_happened, self.places)

    def __reduce__(self) -> tuple[Any, ...]:
        return Link, (None,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Link":
        return self

    def next_parcel(self, trial_id: str) -> Parcel | None:
        """Return what shall run next in a lane of its own, None if there is nothing now."""
        with self.coordinator.recording():
            lane = self._dispatch.opening()
        if lane is None:
            return None
        self._lanes[trial_id] = lane
        first = next(iter(lane.undone.values()))
        left = self._dispatch.left.get(first.trial.key)
        avoided = _avoidable(left, first.resources) if left else frozenset()
        return Parcel(tuple(lane.undone.values()), avoided)

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
            lane = self._lanes.get(trial.trial_id)
            if lane is None or lane.was_silenced:
                continue
            lane.silent += passed
            patience = lane.patience
            if patience is not None and lane.silent > patience + GRACE_SECONDS:
                lane.was_silenced = True
                ray.kill(live[tracked][0])
        self.num_live, self.waiting = num_live, frozenset(waiting)

    def _lane(self, trial: TuneTrial) -> Lane:
        lane = self._lanes.get(trial.trial_id)
        if lane is None:
            parcel: Parcel = trial.config[PARCEL]
            lane = self._lanes[trial.trial_id] = Lane(parcel.first.resources)
            lane.add(parcel.assignments)
        return lane

    def began(self, trial: TuneTrial) -> None:
        """Note that a lane's process is there."""
        lane = self._lane(trial)
        lane.has_begun, lane.silent = True, 0.0
        lane.actor = trial.temporary_state.ray_actor
        lane.place = lane.actor.where.remote()
        if self._halting_since is not None:
            lane.actor.halt.remote()

    def said(self, trial: TuneTrial, result: Mapping[str, Any]) -> bool:
        """Pass on what a lane's trials said, and return whether the lane goes on."""
        lane = self._lane(trial)
        lane.silent = 0.0
        actor = trial.temporary_state.ray_actor
        dropped: list[str] = []
        more: list[Assignment] = []
        with self.coordinator.recording():
            for word in result[WORDS]:
                if self._is_last_word(lane, word):
                    dropped.append(word.key)
            if not result[WORDS]:
                # It has run dry, so whatever is not done with there is not trained there either.
                if not self.coordinator.stop_requested:
                    self.coordinator.all_said(lane.undone.values())
                lane.undone.clear()
            # A broken lane ends when it is asked once more; what it had not begun goes elsewhere.
            if actor is not None and not lane.is_broken:
                waiting = [each.first.resources for each in self.waiting]
                more = self._dispatch.more(lane, waiting)
                lane.add(more)
        if actor is not None:
            for key in dropped:
                # It may be handed out again, and must not before its checkpoint is there.
                self._dispatch.close(key, actor.drop.remote(key), lane)
            if more:
                actor.give.remote(more)
        return lane.is_broken or bool(lane.undone)

    def _is_last_word(self, lane: Lane, word: Word) -> bool:
        """Pass on what a trial said, and return whether it must be told to end."""
        assignment = lane.undone.get(word.key)
        if assignment is None or assignment.attempt != word.attempt:
            # It was ended here, and had said more before it learned so.
            return False
        said = word.said
        if isinstance(said, Begun):
            lane.begun.add(word.key)
            return False
        if isinstance(said, Failure):
            lane.is_done_with(word.key)
            lane.is_broken = True
            self.coordinator.failed(assignment, said.text)
            return False
        if self.coordinator.report(assignment, said):
            return False
        lane.is_done_with(word.key)
        if isinstance(said, Report) and said.is_last:
            self._dispatch.note_duration(said.wall_seconds)
            return False
        return True

    def may_stop(self) -> bool:
        """Return whether the run can end now that it was asked to.

        Lanes are told to end first, and what they said until then is recorded: a report that was
        not heard would be lost, and with it a trial's end. Where something does not work nobody
        waits for that.
        """
        if not self.coordinator.stop_requested:
            return False
        at_work = [lane for lane in self._lanes.values() if lane.has_begun]
        if self._halting_since is None:
            self._halting_since = time.monotonic()
            for lane in at_work:
                lane.actor.halt.remote()
        waited = time.monotonic() - self._halting_since
        return self.coordinator.is_in_trouble or not at_work or waited > _HALTING_SECONDS

    def ended(self, trial: TuneTrial) -> None:
        """Forget a lane."""
        self._lanes.pop(trial.trial_id, None)

    def failed(self, trial: TuneTrial) -> None:
        """Find out why a lane's process failed, and pass that on."""
        error = heard_of(trial)
        lane = self._lane(trial)
        self.ended(trial)
        if lane.is_broken or isinstance(error, BrokenLaneError):
            # Whoever broke it has said so, or had ended: these are not to blame. Of a trial that
            # ended the last word may not have been heard before others came into its process.
            for assignment in reversed(lane.undone.values()):
                self.coordinator.give_back(assignment)
            return
        folder = trial.storage.trial_working_directory if trial.storage else None
        if isinstance(error, RayActorError):
            # Asking other machines takes time that other trials shall not wait.
            reader = threading.Thread(target=self._explain, args=(lane, error, folder))
            self._readers = [each for each in self._readers if each.is_alive()] + [reader]
            reader.daemon = True
            reader.start()
            reader.join(_EXPLAINING_SECONDS)
        else:
            self._explain(lane, error, None)

    def _explain(self, lane: Lane, error: BaseException | None, folder: str | None) -> None:
        place: Place | None = None
        traces: dict[str, str] = {}
        is_alive = True
        undone = list(lane.undone.values())
        try:
            if lane.place is not None:
                with contextlib.suppress(RayError):
                    place = ray.get(lane.place, timeout=1)
            is_alive = place is None or place.node in {node["NodeID"] for node in alive_nodes()}
            if folder and is_alive:
                own_node = ray.get_runtime_context().get_node_id()
                for assignment in undone:
                    if assignment.report_timeout is not None:
                        trace = hang_trace(folder, assignment, place, own_node)
                        traces[assignment.trial.key] = trace
        except Exception:
            # Ray itself does not answer.
            is_alive = False
        hung = {key for key, trace in traces.items() if trace}
        for assignment in undone:
            key = assignment.trial.key
            failure = failure_of(
                Circumstances(
                    assignment=assignment,
                    error=error,
                    # Of several nobody knows how far the process had come.
                    has_begun=lane.has_begun and (len(undone) > 1 or key in lane.begun),
                    place=place,
                    is_node_alive=is_alive,
                    was_silenced=lane.was_silenced,
                    trace=traces.get(key, ""),
                )
            )
            if failure.leaves_node and place is not None:
                self._dispatch.left.setdefault(key, set()).add(place.node)
            is_known = len(undone) == 1 or key in hung
            if failure.is_own_fault and not is_known:
                # One of them did it, or none. Each goes on in a lane of its own, which tells.
                self._dispatch.suspect(key)
            self.coordinator.failed(
                assignment, failure.text, is_own_fault=failure.is_own_fault and is_known
            )

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
        parcel = self._link.next_parcel(trial_id)
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
        return self._link.may_stop()


def alive_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of every node that is there."""
    return [node for node in ray.nodes() if node["Alive"]]


def slots_of(available: Mapping[str, float], request: Resources) -> int:
    """Return how many trials of this size fit one node."""
    fits = []
    if request.cpus > 0:
        fits.append(int(available.get("CPU", 0) / request.cpus + 1e-9))
    if request.devices > 0:
        # A share never spans two devices.
        fits.append(int(available.get("GPU", 0)) * int(1 / request.devices + 1e-9))
    return min(fits)


def _has_happened(reference: Any) -> bool:
    ready, _ = ray.wait([reference], timeout=0)
    return bool(ready)


def _avoidable(left: Iterable[str], request: Resources) -> frozenset[str]:
    """Return those of ``left`` that are there, if another node has room for the request."""
    nodes = {node["NodeID"]: node["Resources"] for node in alive_nodes()}
    avoided = nodes.keys() & set(left)
    others = nodes.keys() - avoided
    has_room = any(slots_of(nodes[node], request) for node in others)
    return frozenset(avoided) if has_room else frozenset()
