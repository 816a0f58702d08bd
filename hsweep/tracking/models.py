"""The final weights that a study keeps, as logged models of an MLflow store.

The weights stay where the study keeps them, and the logged model says where that is; only a file
that is given along is copied into the store. Creating a logged model is not idempotent, so they are
looked up by a tag, as runs are. One that a user has deleted stays deleted.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from hsweep.record.kept import FinalWeights
from hsweep.record.rows import TrialRow
from hsweep.tracking.datasets import datasets_of
from hsweep.tracking.names import STUDY_ID, acceptable
from hsweep.tracking.state import StoreState
from hsweep.tracking.study import TrackedStudy

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import LoggedModel, Metric, MlflowClient

WEIGHTS: Final = "hsweep.weights"
"""The tag with the path or URI of the file with the weights."""
_FILE: Final = "hsweep.weights_file"
_IS_EXTERNAL: Final = "mlflow.model.isExternal"
_FORBIDDEN: Final = r"""[/:.%"']"""


class Models:
    """The logged models of one study in one store. Every method raises what the store raises.

    Args:
        state: where ids are kept; the caller saves it.
    """

    def __init__(self, client: "MlflowClient", state: StoreState, study: TrackedStudy) -> None:
        self._client = client
        self._state = state
        self._study = study

    def log(
        self,
        weights: FinalWeights,
        trial: TrialRow,
        label: str,
        params: Mapping[str, str],
        measured: "Callable[..., list[Metric]]",
    ) -> None:
        """Make a trial's weights a logged model, an output of its run with its last metrics, and
        copy the file that comes with them into the store.

        Args:
            params: of its run.
            measured: gives its last metrics, given which model and data set they are of.
        """
        from hsweep.tracking.mlflow_api import LoggedModelOutput, LoggedModelStatus

        run_id, model = self._state.runs[trial.key], self._found.get(weights.name)
        if model is None:
            if weights.name in self._state.models:
                return
            model = self._create(weights, run_id, label, params)
        self._state.models[weights.name] = model.model_id
        outputs = self._client.get_run(run_id).outputs
        known = [each.model_id for each in outputs.model_outputs] if outputs is not None else []
        if model.model_id not in known:
            output = LoggedModelOutput(model.model_id, step=trial.unit)
            self._client.log_outputs(run_id, [output])
        of = {"model_id": model.model_id, "run_id": run_id}
        for each in datasets_of(self._study, trial):
            of |= {"dataset_name": each.dataset.name, "dataset_digest": each.dataset.digest}
        self._client.log_batch(run_id, measured(**of))
        if model.status != LoggedModelStatus.READY:
            self._client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        if weights.file is not None and self._state.files.get(weights.name) != model.model_id:
            self._client.log_model_artifact(model.model_id, str(weights.file))
            self._client.set_logged_model_tags(model.model_id, {_IS_EXTERNAL: "false"})
            self._state.files[weights.name] = model.model_id

    def forget_others(self, names: set[str]) -> None:
        """Delete the logged models whose weights are no longer kept anywhere."""
        for name in self._found.keys() - names:
            model = self._found[name]
            if model.tags.get(_IS_EXTERNAL) == "true":
                self._client.delete_logged_model(model.model_id)
                del self._found[name]
                self._state.models.pop(name, None)

    def _create(
        self, weights: FinalWeights, run_id: str, label: str, params: Mapping[str, str]
    ) -> "LoggedModel":
        return self._client.create_logged_model(
            self._state.experiment,
            name=re.sub(_FORBIDDEN, "_", label),
            source_run_id=run_id,
            tags={
                STUDY_ID: self._study.tags[STUDY_ID],
                "hsweep.trial": weights.key,
                WEIGHTS: acceptable(weights.location),
                _FILE: weights.name,
                _IS_EXTERNAL: "true",
            },
            params=dict(params),
            model_type="safetensors",
        )

    @cached_property
    def _found(self) -> "dict[str, LoggedModel]":
        """The study's logged models by the name of their file, a twin that a late answer left
        deleted."""
        found: dict[str, LoggedModel] = {}
        for model in self._search():
            known = found.setdefault(model.tags[_FILE], model)
            if known is not model:
                self._client.delete_logged_model(model.model_id)
        return found

    def _search(self) -> "Iterator[LoggedModel]":
        page_token: str | None = None
        while page_token != "":
            page = self._client.search_logged_models(
                [self._state.experiment],
                f"tags.`{STUDY_ID}` = '{self._study.tags[STUDY_ID]}'",
                page_token=page_token,
            )
            yield from page
            page_token = page.token or ""
