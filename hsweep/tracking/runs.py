"""The runs of a study in an MLflow store: one for the study and one for each trial.

MLflow chooses the ids of runs, and creating one is not idempotent: a process may die, or stop
waiting, after the request was sent and before the answer came. So each connection first looks the
study's runs up by their tag, takes what is there, and deletes the empty twin that a late answer
left. A run that a user has deleted stays deleted.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest
from hsweep.record.rows import TrialRow
from hsweep.tracking.client import MlflowClient, MlflowException, entities
from hsweep.tracking.contents import NOTE, WEIGHTS
from hsweep.tracking.study import STUDY_ID, milliseconds, study_tags, tag_value
from hsweep.tracking.target import PARENT, StoreState, TrackingTarget

# Lets MLflow's pages open on training runs rather than on traces of language models.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}


class Runs:
    """The runs of one study in one store. Every method raises what the store raises.

    Args:
        state: where ids are kept; the caller saves it.

    Attributes:
        tags: of each run.
        weights: where final weights are, by the key of the trial whose run says so.
    """

    def __init__(
        self, client: MlflowClient, state: StoreState, target: TrackingTarget, study: Manifest
    ) -> None:
        self._client = client
        self._state = state
        self._study = study
        common = {"hsweep.study": study.name, "hsweep.sweep": target.experiment}
        self.tags = {**study_tags(study), **common}
        self.weights: dict[str, str] = {}
        self._active: set[str] = set()
        experiment = self._find_experiment(target)
        self._adopt(experiment)
        state.experiment = experiment

    @property
    def parent_id(self) -> str:
        """The id of the study's own run."""
        return self._state.runs[PARENT]

    def is_active(self, run_id: str) -> bool:
        """Whether the store has a run and no user had deleted it when this object was made."""
        return run_id in self._active

    def open_study(self, started: float, tags: Mapping[str, str], *, reopen: bool) -> None:
        """Create the study's own run with these tags, or show it as running again."""
        run_id = self._state.runs.get(PARENT)
        if run_id is None:
            self._create(PARENT, self._study.name, tags, started)
        elif reopen and self.is_active(run_id):
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
        if trial.replicate < self._study.scouts:
            tags["hsweep.role"] = "scout"
        return self._create(trial.key, label, tags, started), True

    def _create(self, key: str, name: str, tags: Mapping[str, str], started: float) -> str:
        run = self._client.create_run(
            self._state.experiment,
            start_time=milliseconds(started),
            tags={**self.tags, **tags},
            run_name=name,
        )
        self._state.runs[key] = run_id = str(run.info.run_id)
        self._active.add(run_id)
        return run_id

    def _adopt(self, experiment: str) -> None:
        """Take over runs that the store holds and the state does not know, and delete twins."""
        found = list(self._search(experiment))
        parents = {run.data.tags.get("mlflow.parentRunId") for run in found}
        if self._state.runs.get(PARENT) not in {run.info.run_id for run in found}:
            # The store is new, or was emptied or replaced.
            self._state.reset()

        def is_empty(run: entities.Run) -> bool:
            return not (run.data.metrics or run.data.params or run.info.run_id in parents)

        def is_deleted(run: entities.Run) -> bool:
            return bool(run.info.lifecycle_stage == "deleted")

        for run in sorted(found, key=lambda run: (is_deleted(run), is_empty(run))):
            key, run_id = run.data.tags.get("hsweep.trial", PARENT), str(run.info.run_id)
            if is_deleted(run):
                self._state.runs.setdefault(key, run_id)
            elif self._state.runs.setdefault(key, run_id) != run_id and is_empty(run):
                self._client.delete_run(run_id)
            else:
                self._active.add(run_id)
                if WEIGHTS in run.data.tags and self._state.runs[key] == run_id:
                    self.weights[key] = run.data.tags[WEIGHTS]

    def _search(self, experiment: str) -> Iterator[entities.Run]:
        page_token = None
        while page_token != "":
            page = self._client.search_runs(
                [experiment],
                f"tags.`{STUDY_ID}` = '{self.tags[STUDY_ID]}'",
                entities.ViewType.ALL,
                order_by=["attributes.start_time ASC"],
                page_token=page_token,
            )
            yield from page
            page_token = page.token or ""

    def _find_experiment(self, target: TrackingTarget) -> str:
        name = target.experiment
        found = self._client.get_experiment_by_name(name)
        if found is None:
            tags = _EXPERIMENT_TAGS | {NOTE: tag_value(self._study.description)}
            try:
                self._client.create_experiment(name, target.artifact_location, tags)
            except MlflowException as error:
                # Another process may be quicker.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = self._client.get_experiment_by_name(name)
        if found is None or found.lifecycle_stage == "deleted":
            raise RuntimeError(
                f"the MLflow experiment {name!r} was deleted; restore it, or remove it for good "
                "with `mlflow gc`"
            )
        return str(found.experiment_id)
