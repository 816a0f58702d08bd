"""The study's own run in an MLflow store: its files, its answer, and the view of its trials."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.paths import StudyPaths
from hsweep.tracking.answer import answer_metrics, answer_tags, note_of, note_tags, read_analysis
from hsweep.tracking.names import STUDY_ID
from hsweep.tracking.state import StoreState
from hsweep.tracking.store import is_refusal, milliseconds
from hsweep.tracking.study import TrackedStudy
from hsweep.tracking.views import TAG, view_address, view_of

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import MlflowClient

_LONGEST_VIEW: Final = 5000
"""Characters of an experiment's tag, as MLflow allows them."""


class StudyRun:
    """What a store shows of a study as a whole. Every method raises what the store raises.

    Args:
        state: where it is noted what is there; the caller saves it.
    """

    def __init__(
        self,
        client: "MlflowClient",
        state: StoreState,
        study: TrackedStudy,
        paths: StudyPaths,
    ) -> None:
        self._client = client
        self._state = state
        self._study = study
        self._paths = paths

    def attach(self, run_id: str, path: Path) -> None:
        """Upload a file, unless it is there already; of the study's analysis, show the answer."""
        is_figure = path.parent == self._paths.figures
        folder = self._paths.figures.name if is_figure else None
        name = f"{folder}/{path.name}" if folder else path.name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if self._state.files.get(name) == digest:
            return
        if path == self._paths.analysis:
            self._show_answer(run_id)
        self._client.log_artifact(run_id, str(path), folder)
        self._state.files[name] = digest

    def show_view(self, axes: Sequence[str]) -> None:
        """Save a view of the trials, which differ in ``axes``, unless that was done: a user may
        have changed or deleted it since."""
        view = view_of(self._study, axes)
        if view != self._state.view and len(view) <= _LONGEST_VIEW:
            name = f"{TAG}{self._study.tags[STUDY_ID]}"
            try:
                self._client.set_experiment_tag(self._state.experiment, name, view)
            except Exception as error:
                # A store that knows no views has the records all the same.
                if not is_refusal(error):
                    raise
            self._state.view = view

    def first_tags(self) -> dict[str, str]:
        """Return the tags of a run that has no answer yet."""
        about = {"hsweep.metric": self._study.metric, "hsweep.goal": self._study.goal}
        return about | note_tags(self._note())

    def _note(self, analysis: Mapping[str, Any] | None = None) -> str:
        charts = view_address(self._state.experiment, self._study.tags[STUDY_ID])
        return note_of(self._study, charts, analysis)

    def _show_answer(self, run_id: str) -> None:
        from hsweep.tracking.mlflow_api import RunTag

        path = self._paths.analysis
        analysis, run = read_analysis(path), self._client.get_run(run_id)
        # Sent again it is the same row, and of two answers the one written last counts.
        metrics = answer_metrics(analysis, run, milliseconds(path.stat().st_mtime))
        tags = answer_tags(analysis, run) | note_tags(self._note(analysis), run)
        self._client.log_batch(run_id, metrics, tags=[RunTag(*tag) for tag in tags.items()])
