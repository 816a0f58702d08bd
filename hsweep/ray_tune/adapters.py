"""What Tune asks for trials, and whether to end."""

from typing import Any

from ray import tune
from ray.tune.search import Searcher

from hsweep.ray_tune.actor import START
from hsweep.ray_tune.scheduler import CoordinatedScheduler


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
        """Return what a new worker starts with, None for "not now", or that none will come."""
        coordinator = self._scheduler.coordinator
        with coordinator.recording():
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

    def restore(self, checkpoint_path: str) -> None:
        """Refuse: a run is never restored."""
        raise NotImplementedError("hsweep resumes from its own record")


class StopWhenAsked(tune.Stopper):
    """Ends the experiment once the coordinator was asked to stop."""

    def __init__(self, scheduler: CoordinatedScheduler) -> None:
        self._scheduler = scheduler

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Stop no worker by itself."""
        return False

    def stop_all(self) -> bool:
        """Return whether the run shall end now; workers then write their checkpoints."""
        return self._scheduler.may_stop()
