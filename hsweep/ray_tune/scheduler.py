"""Connects the coordinator with the worker processes, through Tune's callbacks in its thread.

Nothing is decided here: events of workers go to the coordinator, and its decisions to them.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment, Ended, Report
from hsweep.ray_tune.failures import failure_of, is_on_live_node
from hsweep.ray_tune.messages import MESSAGES, PLACE, START
from hsweep.ray_tune.private import error_of, keep_idle_process, name_next_task, working_folder
from hsweep.ray_tune.workers import Worker, Workers
from hsweep.record.summary import first_line
from hsweep.threads import in_thread
from hsweep.training.worker_queue import BrokenWorkerError, EndedProcess, Message, TrialError

GRACE_SECONDS: Final = 15.0
"""How much later than a worker's own watch the driver ends it: its watch can say where it was."""

_LONGEST_TICK: Final = 1.0
_EXPLAINING_SECONDS: Final = 0.5


class CoordinatedScheduler(FIFOScheduler, tune.Stopper):
    """Asks the coordinator which trials go on, and whether the run does."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__()
        self.coordinator = coordinator
        self.workers = Workers(coordinator)
        self._explaining: list[Future[object]] = []
        self._ticked = time.monotonic()
        self._halting_since: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Tune pickles it into files that are never read.
        return FIFOScheduler, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> "CoordinatedScheduler":
        return self

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        self.workers.by_id[trial.trial_id].tune_trial = trial

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: Any) -> None:
        self.workers.by_id.pop(trial.trial_id, None)

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Look after the running processes: Tune asks this at every turn, many times a second."""
        self.tick()
        keep_idle_process(tune_controller, self.workers.max_workers - len(self.workers.by_id))
        trial: TuneTrial | None = super().choose_trial_to_run(tune_controller)
        return trial

    def tick(self) -> None:
        """End processes that have been silent for too long, and those in which a trial goes on
        after the time that it has for ending. Only time in which this process ran counts as
        silence: a driver that was stopped itself hears first what was sent meanwhile."""
        now = time.monotonic()
        seconds, self._ticked = min(now - self._ticked, _LONGEST_TICK), now
        for worker in self.workers.with_process():
            worker.silent_seconds += seconds
            patience = worker.patience
            is_silent = patience is not None and worker.silent_seconds > patience + GRACE_SECONDS
            if is_silent and not worker.was_silenced:
                worker.was_silenced = True
                ray.kill(worker.actor)
            is_leaving = (
                worker.place is not None and worker.place.node in self.workers.roster.draining
            )
            if is_leaving and not worker.is_broken:
                worker.is_broken = True
                worker.actor.retire.remote()
        self.workers.kill_stuck()

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]
    ) -> str:
        """Pass a worker's messages to the coordinator; return whether the worker goes on."""
        worker = self.workers.by_id.get(trial.trial_id)
        if worker is None:
            return str(TrialScheduler.STOP)
        worker.silent_seconds, worker.place = 0.0, result[PLACE]
        actor = worker.actor
        ended: list[Assignment] = []
        for message in result[MESSAGES]:
            assignment = worker.unfinished.get(message.key)
            if assignment is not None and self._ends_trial(worker, assignment, message):
                ended.append(assignment)
        if not result[MESSAGES]:
            # It is idle, so no trial that is left there will report any more.
            if not self.coordinator.stop_requested:
                self.coordinator.no_more_events(worker.unfinished.values())
            worker.unfinished.clear()
        if actor is not None:
            # A broken worker ends when it is asked once more; others train what it had not started.
            assignments = [] if worker.is_broken else self.workers.add_assignments(worker)
            for assignment in ended:
                # It may be handed out again, and must not before its checkpoint is there.
                self.workers.close(assignment, actor)
            if assignments:
                actor.give.remote(assignments)
            if self._halting_since is not None:
                actor.halt.remote()
            if name := worker.task_name:
                name_next_task(actor, name)
        goes_on = worker.is_broken or bool(worker.unfinished)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def _ends_trial(self, worker: Worker, assignment: Assignment, message: Message) -> bool:
        """Pass a trial's message to the coordinator; return whether the worker must end the
        trial."""
        if assignment.attempt != message.attempt:
            # It was ended here, and had reported more before it learned so.
            return False
        event = message.event
        if event is None:
            worker.started.add(message.key)
        elif isinstance(event, TrialError | EndedProcess):
            worker.is_done_with(message.key)
            worker.is_broken = True
            if isinstance(event, TrialError):
                node = "" if event.is_final else self._note_failure(worker, assignment, event.text)
                self.coordinator.failed(assignment, event.text, is_final=event.is_final, node=node)
            else:
                self._explain(worker, [assignment], event)
        elif not self.coordinator.report(assignment, event):
            worker.is_done_with(message.key)
            if isinstance(event, Report | Ended) and worker.place is not None:
                self.workers.roster.succeeded(worker.place.node)
            if isinstance(event, Ended):
                return False
            if not isinstance(event, Report) or not event.is_last:
                return True
            self.workers.note_duration(event.wall_seconds)
        return False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether Tune has to stop a single worker: never, as a stopper."""
        return False

    def stop_all(self) -> bool:
        """Return whether the run can end now that it was asked to.

        Workers are told to end first, and what they report until then is recorded: a report that
        was not heard would be lost, and with it a trial's end. Where something does not work the
        run does not wait for that.
        """
        if not self.coordinator.stop_requested:
            return False
        at_work = self.workers.with_process()
        if self._halting_since is None:
            self._halting_since = time.monotonic()
            for worker in at_work:
                worker.actor.halt.remote()
        waited = time.monotonic() - self._halting_since
        is_late = waited > self.coordinator.ending_seconds
        return self.coordinator.is_in_trouble or not at_work or is_late

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Find out why a worker's process failed; the coordinator decides on other attempts."""
        error = error_of(trial)
        worker = self.workers.by_id.pop(trial.trial_id, None)
        if worker is None:
            return
        if worker.is_broken or isinstance(error, BrokenWorkerError):
            # The trial that broke it has reported so, or had ended: these did nothing. Of a trial
            # that ended the error may not have been heard before others came into its process.
            for assignment in reversed(worker.unfinished.values()):
                self.coordinator.requeue(assignment)
        else:
            folder, was_silenced = working_folder(trial), worker.was_silenced
            process = EndedProcess(error, worker.place, folder=folder, was_silenced=was_silenced)
            self._explain(worker, list(worker.unfinished.values()), process)

    def _explain(
        self, worker: Worker, unfinished: Sequence[Assignment], process: EndedProcess
    ) -> None:
        """Tell the coordinator why trials ended with their process; other trials need not wait for
        what other machines say to that."""
        pass_on = functools.partial(self._pass_on, worker, unfinished, process)
        self._explaining.append(in_thread("explaining", pass_on))
        wait(self._explaining[-1:], _EXPLAINING_SECONDS)

    def _pass_on(
        self, worker: Worker, unfinished: Sequence[Assignment], process: EndedProcess
    ) -> None:
        is_node_alive = is_on_live_node(process.place)
        for assignment in unfinished:
            key = assignment.trial.key
            failure = failure_of(
                assignment,
                process,
                has_started=process.rank > 0 or worker.may_have_started(key),
                is_node_alive=is_node_alive,
            )
            leaves_node = failure.leaves_node and process.place is not None
            # A process that never began on a cluster may owe that to a node that has just joined.
            is_unknown = process.place is None and self.workers.roster.probe is not None
            is_own_fault = failure.is_own_fault and not is_unknown
            # One of several did it, or none. Each goes on in a worker of its own, which tells.
            is_suspect = is_own_fault and len(unfinished) > 1 and not failure.hung
            node = self._note_failure(worker, assignment, failure.text) if is_own_fault else ""
            self.coordinator.failed(
                assignment,
                failure.text,
                is_own_fault=is_own_fault and not is_suspect,
                needs_new_worker=leaves_node or is_suspect,
                node=node,
            )

    def _note_failure(self, worker: Worker, assignment: Assignment, error: str) -> str:
        """Note that a trial failed; return its worker's node if it may run on another."""
        node, key = worker.place.node if worker.place else "", assignment.trial.key
        failed = self.workers.roster.failed
        return node if node and failed(key, node, first_line(error), worker.resources) else ""

    def wait_for_explanations(self, seconds: float) -> None:
        """Wait until the coordinator knows of every failure so far."""
        wait(self._explaining, seconds)


class NamingTasks(tune.Callback):
    """Names the first task of a process after its trial; the scheduler names those that follow."""

    def __init__(self, scheduler: CoordinatedScheduler) -> None:
        self._scheduler = scheduler  # and not its workers, which cannot be copied

    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Name the task that a process is given now."""
        worker = self._scheduler.workers.by_id.get(trial.trial_id)
        if worker is not None and worker.actor is not None:
            name_next_task(worker.actor, worker.task_name)


class CoordinatedSearcher(Searcher):
    """Lets Tune run what the coordinator hands out."""

    def __init__(self, scheduler: CoordinatedScheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Accept Tune's properties: none of them matters here."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of a new worker, None for "not now", or ``FINISHED`` for no
        more."""
        coordinator = self._scheduler.coordinator
        start = self._scheduler.workers.open(trial_id)
        if start is not None:
            return {START: start}
        return Searcher.FINISHED if coordinator.is_exhausted else None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: the coordinator knows from the reports."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the record has everything."""
