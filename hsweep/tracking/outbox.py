"""From a study's log to the places that show its runs, each entry once.

The log is the outbox, and each place has a cursor that marks the last entry it has, which moves
after a batch is delivered. A crash in between delivers the batch again, which changes nothing.

If a place refuses an entry, delivery to that run stops, with the reason, and other runs go on.
The next connection starts at the first refused entry.
"""

import pkgutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.journal_reader import JournalReader
from hsweep.record.manifest import Manifest
from hsweep.record.recipes import recorded_recipe
from hsweep.record.rows import LogRow, TrialRow, labels_of
from hsweep.record.weights import FinalWeights
from hsweep.tracking.contents import trial_values
from hsweep.tracking.target import Refusal, StoreState, Target, describe

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0


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


class Outbox:
    """What a place has not got yet of a study's log. The connection is made when it is needed, and
    every method raises what the place raises."""

    def __init__(self, journal_path: Path, target: Target, study: Manifest) -> None:
        self.target, self._study, self._journal_path = target, study, journal_path
        self._state, self._paths = (
            StoreState.of(journal_path, target),
            StudyPaths(journal_path.parent),
        )
        # Of this machine: one of another delivers nothing while a process here holds the study.
        self._lock = FileLock(self._paths.index.with_suffix(f".{target.scope}.lock"))
        self._connection, self._is_connected = ExitStack(), False
        self._sink: Sink
        self._labels: dict[str, str] = {}
        self._abandoned = threading.Event()
        self._delivered = 0
        self._progressed: Callable[[int], object] = lambda _: None

    def _connect(self, *, reopen: bool) -> None:
        """Make the connection, unless it is there; ``reopen`` shows the study as running."""
        if self._is_connected:
            return
        state = self._state
        self._journal = self._connection.enter_context(JournalReader(self._journal_path))
        with self._exclusive():
            # What a place needs is imported here, in the thread that delivers.
            sink = pkgutil.resolve_name(self.target.sink)
            self._sink = sink(self._study, state, self._journal, self._paths, self.target)
            self._connection.callback(self._sink.close)
            self._sink.open_study(reopen=reopen)
            self._check_cursor()
            self._name_runs()
            state.save()
        self._is_connected = True

    def _disconnect(self) -> None:
        self._is_connected = False
        self._connection.close()

    def _deliver_rows(self) -> bool:
        """Deliver one batch; return whether more may be left."""
        with self._exclusive():
            rows = self._journal.log_after(self._state.cursor, _ROWS_AT_ONCE)
            if rows:
                self._send(rows)
        return len(rows) == _ROWS_AT_ONCE

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        # One process at a time: two would both create a trial's run.
        try:
            self._lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            raise RuntimeError(
                "another process delivers the records of this study, and has not been done for "
                f"{_LOCK_SECONDS:g} s"
            ) from None
        try:
            self._state.refresh()
            yield
        finally:
            self._lock.release()

    def _name_runs(self) -> None:
        trials = self._journal.trials(orphaned=True)
        self._labels = labels_of(trials)
        self._sink.name_runs(trials)

    def _check_cursor(self) -> None:
        """Move the cursor back to the first entry that the store refused, or to the beginning where
        its entry is not in the log: a power cut may take the end of a log, and later entries then
        have the same numbers."""
        state = self._state
        at_cursor = self._journal.log_after(state.cursor - 1, 1)
        if [(row.seq, row.time) for row in at_cursor] != [(state.cursor, state.cursor_time)]:
            state.cursor, state.cursor_time = 0, 0.0
        elif state.refused:
            first = min(refusal.seq for refusal in state.refused.values())
            state.cursor, state.cursor_time = first - 1, 0.0
        state.refused = {}

    def _send(self, rows: list[LogRow]) -> None:
        """Deliver entries run by run, and move the cursor up to the first undelivered entry."""
        by_trial: dict[str, list[LogRow]] = {}
        for row in rows:
            by_trial.setdefault(row.key, []).append(row)
        state, trials = self._state, self._journal.trials_of(by_trial)
        if not self._labels.keys() >= by_trial.keys():
            self._name_runs()
        # What follows a refused entry waits with it.
        finished = set(state.refused)
        try:
            for key in [key for key in by_trial if key not in finished]:
                if self._abandoned.is_set():
                    break
                # A trial that is not needed gets a run once it begins.
                if trials[key].status is not TrialStatus.NOT_NEEDED or key in state.runs:
                    self._send_run(trials[key], by_trial[key])
                finished.add(key)
        finally:
            passed = list(takewhile(lambda row: row.key in finished, rows))
            if passed:
                state.cursor, state.cursor_time = passed[-1].seq, passed[-1].time
                self._delivered += len(passed)
                self._progressed(self._delivered)
            state.save()

    def _send_run(self, trial: TrialRow, rows: list[LogRow]) -> None:
        """Deliver entries of one trial, or note why they are refused."""
        label = self._labels[trial.key]
        try:
            self._sink.send(trial, label, rows)
        except Exception as error:
            if not self._sink.refuses(error):
                raise
            refusal = Refusal(trial.key, rows[0].seq, label, describe(error))
            self._state.refused[trial.key] = refusal
