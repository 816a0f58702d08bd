"""What a place that shows runs is to the tracker."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hsweep.paths import StudyPaths
from hsweep.record.journal_reader import JournalReader
from hsweep.record.manifest import Manifest
from hsweep.record.recipes import recorded_recipe
from hsweep.record.rows import LogRow, TrialRow
from hsweep.record.weights import FinalWeights
from hsweep.tracking.contents import trial_values
from hsweep.tracking.target import StoreState, Target


class Sink:
    """One connection to a place that shows runs. Every method raises what the place raises; those
    for which a place has no use do nothing.

    Args:
        state: the ids of its runs, by trial key; saved after each batch.
    """

    def __init__(
        self,
        study: Manifest,
        state: StoreState,
        journal: JournalReader,
        paths: StudyPaths,
        _target: Target,
    ) -> None:
        self._study, self._state, self._journal, self._paths = study, state, journal, paths

    def send(self, trial: TrialRow, label: str, rows: Sequence[LogRow]) -> None:
        """Take entries of one trial, in their order; some may be there already."""
        raise NotImplementedError

    def refuses(self, error: Exception) -> bool:
        """Whether the place refused the data, so that sending it again is useless."""
        return False

    def open_study(self, *, reopen: bool) -> None:
        """Make the study's own run, or show it as running again."""

    def name_runs(self, trials: Sequence[TrialRow]) -> None:
        """Show the trials that are on record by now."""

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run."""

    def log_weights(self, weights: Sequence[FinalWeights], should_stop: Callable[[], bool]) -> None:
        """Name the location of each trial's kept weights, and no others, and upload their files."""

    def end_study(self) -> None:
        """Mark the study's own run as ended."""

    def close(self) -> None:
        """End the connection."""

    def _values(self, trial: TrialRow) -> dict[str, Any]:
        unit = str(self._study.budget.get("unit", "budget"))
        return trial_values(trial, recorded_recipe(self._journal, trial), unit)
