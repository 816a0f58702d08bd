"""Which runs of an MLflow store belong to a study: one for the study and one for each trial.

MLflow chooses the ids of runs, and creating one is not idempotent: a process may die, or stop
waiting, after the request was sent and before the answer came. So the journal notes the intent
before and the id after; whoever connects next looks the study's runs up by tag, takes what is
there, and deletes the empty twin that a late answer left.
"""

import json
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.tracking.names import run_name
from hsweep.tracking.store import is_missing, is_refusal, milliseconds
from hsweep.tracking.target import TrackingTarget

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import MlflowClient, Run

PARENT: Final = "parent"
"""Stands for the study's own run where runs are listed by trial key."""

# Lets MLflow's pages open on training runs rather than on traces of language models.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}
_DOUBT_SECONDS: Final = 3600.0
"""After so long no server still works on a request."""


class Runs:
    """The runs of one study in one store. Every method raises what the store raises.

    Args:
        client: of the store.
        journal: of the study, where ids are kept.
        target: the store.
        study: the study's name.
        tags: tags of every run.
    """

    def __init__(
        self,
        client: "MlflowClient",
        journal: Journal,
        target: TrackingTarget,
        study: str,
        tags: Mapping[str, str],
    ) -> None:
        self._client = client
        self._journal = journal
        self._target = target
        self._study = study
        self._tags = dict(tags)
        self._experiment_id = self._find_experiment()
        self._study_id = self._find_study_id()
        self._ids = journal.metas(target.run_prefix)
        if PARENT in self._ids and not self.exists(self._ids[PARENT]):
            # The store was emptied or replaced: all of the study is new to it.
            for prefix in target.prefixes:
                journal.clear_metas(prefix)
            journal.set_cursor(target.cursor_name, 0)
            self._ids = {}
        self.reconcile()

    @property
    def parent_id(self) -> str:
        """Id of the study's own run."""
        return self._ids[PARENT]

    @property
    def are_doubtful(self) -> bool:
        """Whether a request to create a run may still be answered late."""
        return bool(self._journal.metas(self._target.doubt_prefix))

    def reconcile(self) -> None:
        """Take over runs that the store holds and the journal does not know, and delete twins."""
        found = self._search()
        known = dict(self._ids)
        for key, run in found:
            if key not in known:
                known[key] = run.info.run_id
                self._journal.set_metas(
                    {self._target.run_prefix + key: run.info.run_id, **self._requests(key, -1)}
                )
        self._ids = known
        parents = {run.data.tags.get("mlflow.parentRunId") for _, run in found}
        for key, run in found:
            is_empty = not run.data.metrics and not run.data.params
            if run.info.run_id != known[key] and is_empty and run.info.run_id not in parents:
                self._client.delete_run(run.info.run_id)
                self._note_request(key, -1)
        for key, note in self._journal.metas(self._target.doubt_prefix).items():
            if time.time() - json.loads(note)["since"] > _DOUBT_SECONDS:
                self._journal.clear_metas(self._target.doubt_prefix + key)

    def of_study(self, *, metric: str, reopen: bool) -> None:
        """Create the study's own run, or show it as running again."""
        run_id = self._ids.get(PARENT)
        if run_id is None:
            first = self._journal.log_after(0, 1)
            started = first[0].time if first else time.time()
            self._create(PARENT, self._study, {"hsweep.metric": metric}, started)
        elif reopen and not self.is_deleted(run_id):
            self._client.update_run(run_id, "RUNNING")

    def of_trial(self, trial: TrialRow, first_time: float) -> tuple[str, bool]:
        """Return the trial's run, and whether it was created just now."""
        run_id = self._ids.get(trial.key)
        if run_id is None:
            # Another process may have created it since this connection was opened.
            run_id = self._journal.meta(self._target.run_prefix + trial.key)
        if run_id is not None:
            self._ids[trial.key] = run_id
            return run_id, False
        tags = {
            "mlflow.parentRunId": self.parent_id,
            "hsweep.trial": trial.key,
            "hsweep.stratum": trial.stratum,
            "hsweep.status": TrialStatus.RUNNING.value,
        }
        return self._create(trial.key, run_name(trial), tags, first_time), True

    def exists(self, run_id: str) -> bool:
        """Whether the store knows the run, be it deleted or not."""
        try:
            self._client.get_run(run_id)
        except Exception as error:
            if is_missing(error):
                return False
            raise
        return True

    def is_deleted(self, run_id: str) -> bool:
        """Whether the user deleted the run in the store."""
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "deleted")
        except Exception as error:
            if not is_missing(error):
                raise
            # Gone for good, unless the whole store is: then delivery starts over.
            return self.exists(self.parent_id)

    def _search(self) -> "list[tuple[str, Run]]":
        found: list[tuple[str, Run]] = []
        page = None
        while page is None or page.token:
            page = self._client.search_runs(
                [self._experiment_id],
                f"tags.`hsweep.study_id` = '{self._study_id}'",
                order_by=["attributes.start_time ASC"],
                page_token=page.token if page is not None else None,
            )
            found += [(run.data.tags.get("hsweep.trial", PARENT), run) for run in page]
        return found

    def _create(self, key: str, name: str, tags: Mapping[str, str], started: float) -> str:
        self._note_request(key, +1)
        common = self._tags | {
            "mlflow.source.name": "hsweep",
            "hsweep.study": self._study,
            "hsweep.study_id": self._study_id,
            "hsweep.sweep": self._target.experiment,
        }
        try:
            run = self._client.create_run(
                self._experiment_id,
                start_time=milliseconds(started),
                tags={**common, **tags},
                run_name=name,
            )
        except Exception as error:
            if is_refusal(error):
                self._note_request(key, -1)
            raise
        run_id = str(run.info.run_id)
        self._journal.set_metas({self._target.run_prefix + key: run_id, **self._requests(key, -1)})
        self._ids[key] = run_id
        return run_id

    def _note_request(self, key: str, change: int) -> None:
        """Count the requests to create a run whose outcome is not known."""
        self._journal.set_metas(self._requests(key, change))

    def _requests(self, key: str, change: int) -> dict[str, str | None]:
        """Return what the journal is to say of them; nothing if that stays as it is."""
        name = self._target.doubt_prefix + key
        before = self._journal.meta(name)
        count = (json.loads(before)["requests"] if before is not None else 0) + change
        if count > 0:
            return {name: json.dumps({"requests": count, "since": time.time()})}
        return {name: None} if before is not None else {}

    def _find_experiment(self) -> str:
        from hsweep.tracking.mlflow_api import MlflowException

        target = self._target
        found = self._client.get_experiment_by_name(target.experiment)
        if found is None:
            try:
                experiment_id = str(
                    self._client.create_experiment(
                        target.experiment,
                        artifact_location=target.artifact_location,
                        tags=_EXPERIMENT_TAGS,
                    )
                )
            except MlflowException as error:
                found = self._client.get_experiment_by_name(target.experiment)
                if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                    raise
        if found is not None:
            if found.lifecycle_stage == "deleted":
                raise RuntimeError(
                    f"the MLflow experiment {target.experiment!r} was deleted; restore it, or "
                    "remove it for good with `mlflow gc`"
                )
            experiment_id = str(found.experiment_id)
        self._journal.set_meta(target.experiment_name, experiment_id)
        return experiment_id

    def _find_study_id(self) -> str:
        """Return what tells this study from one of the same name in another home."""
        study_id = self._journal.meta("study_id")
        if study_id is None:
            study_id = uuid.uuid4().hex
            self._journal.set_meta("study_id", study_id)
        return study_id
