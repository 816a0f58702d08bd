"""The parts that Tune asks to be given: searcher, scheduler, callback and stopper.

Tune calls them in the thread that runs it. None of them decides anything.
"""

from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from hsweep.ray_tune.actor import START
from hsweep.ray_tune.link import Link


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
        """Return what a new worker starts with, None for "not now", or that none will come."""
        start = self._link.open_worker(trial_id)
        if start is not None:
            return {START: start}
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
    """Asks the coordinator, and so the rungs, whether a worker goes on."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Note what a worker is to Tune."""
        super().on_trial_add(tune_controller, trial)
        self._link.added(trial)

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: Any) -> str:
        """Record what happened and return Tune's name for the decision."""
        goes_on = self._link.take_messages(trial, result)
        decision: str = TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP
        return decision

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Look after the running processes: Tune asks this at every turn, many times a second."""
        self._link.tick()
        chosen: TuneTrial | None = super().choose_trial_to_run(tune_controller)
        return chosen


class ProcessCallback(tune.Callback):
    """Follows the processes of workers."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Note that a worker has a process."""
        self._link.ready(trial)

    def on_trial_complete(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """Forget the worker."""
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
        """Stop no worker by itself."""
        return False

    def stop_all(self) -> bool:
        """Return whether the run shall end now; workers then write their checkpoints."""
        return self._link.may_stop()
