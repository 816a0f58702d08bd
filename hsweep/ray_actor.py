"""What runs in Ray's worker processes; imports no more than training needs."""

from typing import Any, Final

from ray import tune
from ray.tune.execution.placement_groups import PlacementGroupFactory

from hsweep.trial import Assignment
from hsweep.worker import TrialSession

PARCEL: Final = "parcel"
REPORT: Final = "report"


class Parcel:
    """An assignment on its way to a worker, opaque to Tune.

    Tune copies, flattens and prints configurations; this one is neither copied nor spelled out.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parcel":
        return self

    def __repr__(self) -> str:
        return f"{self.assignment.trial.key}-{self.assignment.attempt}"


class TrialActor(tune.Trainable):
    """The process that trains trials, one after another."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Return what a trial occupies, as its sweep says."""
        resources = config[PARCEL].assignment.trial.resources
        bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
        return PlacementGroupFactory([{name: n for name, n in bundle.items() if n > 0}])

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial."""
        self._session: TrialSession | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in the same process."""
        self.cleanup()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._session = TrialSession(config[PARCEL].assignment)

    def step(self) -> dict[str, Any]:
        """Train up to the next report."""
        assert self._session is not None
        return {REPORT: self._session.next_report()}

    def cleanup(self) -> None:
        """End the trial, writing a checkpoint if its work is not yet on disk."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __repr__(self) -> str:
        # Shown in Ray's dashboard. An actor outlives its trials, so it is named as what it is.
        return "hsweep-worker"
