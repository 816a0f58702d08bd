"""The runs of a study in an MLflow store: one for the study and one for each trial.

MLflow chooses the ids of runs, and creating one is not idempotent: a process may die, or stop
waiting, after the request was sent and before the answer came. So each connection first looks the
study's runs up by their tag, takes what is there, and deletes the empty twin that a late answer
left.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.rows import TrialRow
from hsweep.tracking.names import NOTE, SCOUTS, STUDY_ID, acceptable
from hsweep.tracking.state import PARENT, StoreState
from hsweep.tracking.store import is_missing, is_refusal, milliseconds
from hsweep.tracking.study import TrackedStudy
from hsweep.tracking.target import TrackingTarget

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import MlflowClient, Run

# Lets MLflow's pages open on training runs rather than on traces of language models.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}


class Runs:
    """The runs of one study in one store. Every method raises what the store raises.

    Args:
        state: where ids are kept; the caller saves it.
    """

    def __init__(
        self,
        client: "MlflowClient",
        state: StoreState,
        target: TrackingTarget,
        study: TrackedStudy,
    ) -> None:
        self._client = client
        self._state = state
        self._target = target
        self._study = study
        experiment = self._find_experiment()
        if PARENT in state.runs and not self._exists(state.runs[PARENT]):
            # The store was emptied or replaced.
            state.reset()
        state.experiment = experiment
        self._adopt_found()

    @property
    def parent_id(self) -> str:
        return self._state.runs[PARENT]

    def open_study(self, started: float, tags: Mapping[str, str], *, reopen: bool) -> None:
        """Create the study's own run with these tags, or show it as running again."""
        run_id = self._state.runs.get(PARENT)
        if run_id is None:
            self._create(PARENT, self._study.name, tags, started)
        elif reopen and not self._is_deleted(run_id):
            self._client.update_run(run_id, "RUNNING")

    def of_trial(self, trial: TrialRow, label: str, started: float) -> tuple[str, bool]:
        """Return the id of the trial's run, and whether it was created just now."""
        run_id = self._state.runs.get(trial.key)
        if run_id is not None:
            return run_id, False
        tags = {
            "mlflow.parentRunId": self.parent_id,
            "hsweep.trial": trial.key,
            "hsweep.status": TrialStatus.RUNNING.value,
        }
        if trial.stratum:
            tags["hsweep.stratum"] = trial.stratum
        if trial.replicate < int(self._study.tags.get(SCOUTS, 0)):
            tags["hsweep.role"] = "scout"
        self._state.labels[trial.key] = label
        return self._create(trial.key, label, tags, started), True

    def rename(self, key: str, label: str) -> None:
        """Give a trial's run another name, unless a user has done so."""
        run_id = self._state.runs[key]
        if self._client.get_run(run_id).info.run_name == self._state.labels[key]:
            self._client.update_run(run_id, name=label)

    def unless_deleted(self, run_id: str, action: Callable[[], object]) -> None:
        """Do it, but let a run that the user deleted in the store stay deleted."""
        try:
            action()
        except Exception as error:
            # A store that did not answer is not asked again.
            may_be_deleted = is_refusal(error) or is_missing(error)
            if not may_be_deleted or not self._is_deleted(run_id):
                raise

    def _is_deleted(self, run_id: str) -> bool:
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "deleted")
        except Exception as error:
            if not is_missing(error):
                raise
            # Gone for good, unless the whole store is: then delivery starts over.
            return self._exists(self.parent_id)

    def _exists(self, run_id: str) -> bool:
        try:
            self._client.get_run(run_id)
        except Exception as error:
            if not is_missing(error):
                raise
            return False
        return True

    def _adopt_found(self) -> None:
        """Take over runs that the store holds and the state does not know, and delete twins."""
        found = list(self._search())
        parents = {run.data.tags.get("mlflow.parentRunId") for run in found}

        def is_empty(run: "Run") -> bool:
            return not (run.data.metrics or run.data.params or run.info.run_id in parents)

        for run in sorted(found, key=is_empty):
            key = run.data.tags.get("hsweep.trial", PARENT)
            known = self._state.runs.setdefault(key, run.info.run_id)
            if known != run.info.run_id and is_empty(run):
                self._client.delete_run(run.info.run_id)

    def _search(self) -> "Iterator[Run]":
        page_token = None
        while page_token != "":
            page = self._client.search_runs(
                [self._state.experiment],
                f"tags.`{STUDY_ID}` = '{self._study.tags[STUDY_ID]}'",
                order_by=["attributes.start_time ASC"],
                page_token=page_token,
            )
            yield from page
            page_token = page.token or ""

    def _create(self, key: str, name: str, tags: Mapping[str, str], started: float) -> str:
        common = {
            "hsweep.study": self._study.name,
            "hsweep.sweep": self._target.experiment,
        }
        run = self._client.create_run(
            self._state.experiment,
            start_time=milliseconds(started),
            tags={**self._study.tags, **common, **tags},
            run_name=name,
        )
        self._state.runs[key] = run_id = str(run.info.run_id)
        return run_id

    def _find_experiment(self) -> str:
        from hsweep.tracking.mlflow_api import MlflowException

        target = self._target
        found = self._client.get_experiment_by_name(target.experiment)
        if found is None:
            try:
                return str(
                    self._client.create_experiment(
                        target.experiment,
                        artifact_location=target.artifact_location,
                        tags=_EXPERIMENT_TAGS | {NOTE: acceptable(self._study.description)},
                    )
                )
            except MlflowException as error:
                # Another process was quicker.
                found = self._client.get_experiment_by_name(target.experiment)
                if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise RuntimeError(
                f"the MLflow experiment {target.experiment!r} was deleted; restore it, or "
                "remove it for good with `mlflow gc`"
            )
        return str(found.experiment_id)
