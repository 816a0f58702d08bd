"""Deliver a study's log to MLflow and other places, beside the training and never on its path.

The log is the outbox, and each place has a cursor that marks the last entry it has, which moves
after a batch is delivered. A crash in between delivers the batch again, which changes nothing.
Cursor and run ids belong to one place, so naming another one delivers the whole study to it. A
place is served from one daemon thread while the study runs, or at once by ``sync``.

If a place refuses an entry, delivery to that run stops, with the reason, and other runs go on.
The next connection starts at the first refused entry.
"""

import pkgutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from hsweep.command_line import command
from hsweep.design.trial import TrialStatus
from hsweep.errors import FencedError
from hsweep.paths import StudyPaths
from hsweep.record.journal_reader import JournalReader
from hsweep.record.manifest import Manifest
from hsweep.record.rows import LogRow, TrialRow, labels_of
from hsweep.record.weights import FinalWeights
from hsweep.secrets import HIDDEN
from hsweep.tracking.sink import Sink
from hsweep.tracking.target import (
    FURTHER,
    FurtherTarget,
    Refusal,
    StoreState,
    Target,
    TrackingTarget,
    describe,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.study import StudyFolder

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0
_FIRST_REST_SECONDS: Final = 5.0
_REST_SECONDS: Final = 10.0
"""Between two deliveries, so that training keeps the cores: what comes meanwhile goes in the same
few calls."""
_POLL_SECONDS: Final = 0.2
_MAX_BACKOFF_SECONDS: Final = 60.0
_CLOSING_ATTEMPTS: Final = 2
_CLOSING_BACKOFF_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 3.0
_FLUSH_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 60.0
_FAILING_SECONDS: Final = 5.0
"""For a store that did not answer when it was last asked."""
_INTERRUPTED_SECONDS: Final = 15.0
_MAX_REFUSALS: Final = 3


@dataclass(frozen=True, slots=True)
class TrackingSummary:
    """How delivery stands.

    Attributes:
        delivered: log entries delivered by this tracker or call.
        pending: log entries the store has not got yet.
        error: why the last attempt failed, without secrets; None when it did not.
        unattached: files that were not uploaded yet.
    """

    delivered: int
    pending: int
    error: str | None = None
    unattached: tuple[Path, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.pending or self.error or self.unattached or self.refused)


class Tracker:
    """Delivers a running study's log from a daemon thread.

    Nothing that goes wrong with the store reaches the study: it is tried again, less and less
    often, and the last error is kept for the summary.

    Args:
        confirm: called before each batch; raises FencedError if the study is no longer this
            process's, and OSError if the log is not safe on the disk: nothing is delivered then.
    """

    def __init__(
        self,
        journal_path: Path,
        target: Target,
        study: Manifest,
        confirm: Callable[[], object] = lambda: None,
    ) -> None:
        self.target, self._study, self._journal_path = target, study, journal_path
        self._state = StoreState.of(journal_path, target)
        self._paths = StudyPaths(journal_path.parent)
        # Of this machine: one of another delivers nothing while a process here holds the study.
        self._lock = FileLock(self._paths.index.with_suffix(f".{target.scope}.lock"))
        self._connection, self._is_connected = ExitStack(), False
        self._sink: Sink
        self._labels: dict[str, str] = {}
        self._abandoned = threading.Event()
        self._delivered = 0
        self._progressed: Callable[[int], object] = lambda _: None
        self._confirm = confirm
        name = f"hsweep-{target.title}"
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._hurried = threading.Event()  # training is over
        self._closing = threading.Event()
        self._attachments: deque[Path] = deque()
        self._weights: Sequence[FinalWeights] | None = None
        self._finish_seconds = _CLOSE_SECONDS
        self._error: str | None = None

    def start(self) -> None:
        """Begin to deliver, a few seconds from now."""
        self._thread.start()

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run; one that has vanished by then is left out."""
        self._attachments.append(path)

    def log_weights(self, weights: Sequence[FinalWeights]) -> None:
        """Let the runs of trials name these final weights, and no others; upload the files that
        come with them."""
        self._weights = weights

    def summary(self) -> TrackingSummary:
        """Return how delivery stands, without waiting for it."""
        pending, error = 0, self._error
        try:
            with JournalReader(self._journal_path) as journal:
                pending = journal.count_after(self._state.cursor)
        except Exception as problem:
            error = error or describe(problem)
        refused = tuple(self._state.refused.values())
        weights = (Path(final.file or final.location) for final in self._weights or ())
        files = (*self._attachments, *weights)
        return TrackingSummary(self._delivered, pending, error, files, refused)

    def flush(self, *, wait_seconds: float) -> TrackingSummary:
        """Wait until everything recorded so far is delivered, delivery fails, or time is up.

        Training is over by then.
        """
        deadline = time.monotonic() + wait_seconds
        self._hurried.set()
        while (summary := self.summary()).pending and summary.error is None:
            if time.monotonic() >= deadline or not self._thread.is_alive():
                break
            self._abandoned.wait(_POLL_SECONDS)
        return summary

    def close(self, *, wait_seconds: float) -> TrackingSummary:
        """Deliver what is left for at most ``wait_seconds``, and stop. Never raises."""
        self._closing.set()
        self._hurried.set()
        if self._thread.is_alive():
            self._thread.join(wait_seconds)
        self._abandoned.set()
        summary = self.summary()
        if self._thread.is_alive() and summary.error is None:
            return replace(summary, error=f"not done within {wait_seconds:g} s")
        return summary

    def await_delivery(self, console: "Console", *, is_interrupted: bool) -> None:
        """Wait until all recorded so far is delivered: not for long, and less where the user wants
        to leave. What is not delivered stays in the study, so an interrupt only ends the waiting,
        here and in ``finish``."""
        longest = _FAILING_SECONDS if is_interrupted else _FLUSH_SECONDS
        silent = min(_SILENT_SECONDS, longest)
        self._finish_seconds = _INTERRUPTED_SECONDS if is_interrupted else _CLOSE_SECONDS
        try:
            summary = self.flush(wait_seconds=silent)
            if summary.pending and summary.error is None:
                console.print(
                    f"delivering {summary.pending} records to {self.target.title}, for at most "
                    f"{longest:g} s "
                    "(Ctrl-C leaves them in the study)",
                    soft_wrap=True,
                )
                self.flush(wait_seconds=longest - silent)
        except KeyboardInterrupt:
            self._finish_seconds = 0.0

    def finish(self) -> TrackingSummary:
        """Deliver the rest after ``await_delivery``, if the store takes it in time, and stop."""
        is_failing = self.summary().error is not None
        longest = _FAILING_SECONDS if is_failing else _CLOSE_SECONDS
        try:
            return self.close(wait_seconds=min(self._finish_seconds, longest))
        except KeyboardInterrupt:
            return self.close(wait_seconds=0.0)

    def sync(
        self,
        *,
        artifacts: Iterable[Path] = (),
        weights: Sequence[FinalWeights] | None = None,
        is_running: bool = False,
        progressed: Callable[[int], object] = lambda _: None,
    ) -> TrackingSummary:
        """Deliver everything now and in this thread, instead of ``start``. Never raises.

        Args:
            artifacts: files to upload to the study's own run; missing ones are left out.
            weights: those that the study keeps, see ``log_weights``; None for not known.
            is_running: the study is running elsewhere, so its own run is not ended.
            progressed: called after each batch with the number of entries delivered.
        """
        self._attachments.extend(path for path in artifacts if path.exists())
        self._weights, self._progressed = weights, progressed
        self._hurried.set()
        try:
            self._deliver(reopen=is_running, is_last=not is_running)
        except Exception as error:
            self._error = describe(error)
        finally:
            self._disconnect()
        return self.summary()

    def _serve(self) -> None:
        failures, closing_attempts = 0, _CLOSING_ATTEMPTS
        # Meanwhile a study that begins has the cores, of which importing MLflow takes one.
        self._hurried.wait(_FIRST_REST_SECONDS)
        while closing_attempts and not self._abandoned.is_set():
            is_closing = self._closing.is_set()
            closing_attempts -= is_closing
            try:
                self._deliver(reopen=True, is_last=is_closing)
            except FencedError:
                break
            except Exception as error:
                self._error = describe(error)
                self._disconnect()
                if is_closing:
                    self._abandoned.wait(_CLOSING_BACKOFF_SECONDS)
                else:
                    self._closing.wait(min(2.0**failures, _MAX_BACKOFF_SECONDS))
                failures += 1
            else:
                self._error, failures = None, 0
                if is_closing:
                    break
                (self._closing if self._hurried.is_set() else self._hurried).wait(_REST_SECONDS)
        self._disconnect()

    def _deliver(self, *, reopen: bool, is_last: bool) -> None:
        """Deliver a batch, or all there is once training is over."""
        self._confirm()
        self._connect(reopen=reopen)
        is_behind = self._deliver_rows()
        while is_behind and self._hurried.is_set() and not self._abandoned.is_set():
            self._confirm()
            is_behind = self._deliver_rows()
        # A trial has its run once its rows are delivered.
        if is_behind or self._abandoned.is_set():
            return
        with self._exclusive():
            while self._attachments and not self._abandoned.is_set():
                if (path := self._attachments[0]).exists():
                    self._sink.attach(path)
                self._attachments.popleft()
            if self._weights is not None and not self._abandoned.is_set():
                self._sink.log_weights(self._weights, self._abandoned.is_set)
                self._weights = None
        if is_last and not self._abandoned.is_set():
            self._sink.end_study()

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


def trackers_of(
    study: "StudyFolder",
    target: TrackingTarget,
    further: Iterable[str],
    confirm: Callable[[], object] = lambda: None,
) -> list[Tracker]:
    """Return a tracker for the MLflow store, which has files and weights, too, and one for each
    further place."""
    kinds = dict.fromkeys([*study.manifest.track, *further])
    places: list[Target] = [target, *(FURTHER[kind] for kind in kinds)]
    return [Tracker(study.paths.journal, place, study.manifest, confirm) for place in places]


def refuse_unusable(further: Iterable[str]) -> None:
    """Refuse further places to which nothing could be delivered; UserError says what is missing.
    Those that a study has from its beginning keep it no more waiting than a store that is down."""
    if "wandb" in further:
        from hsweep.tracking.wandb_runs import refuse_without_login

        refuse_without_login()


def sync_line(study: "StudyFolder", target: Target) -> str:
    if isinstance(target, FurtherTarget):
        words = ["--track", target.scope]
    else:
        uri = target.shown_uri
        is_other = HIDDEN in uri or uri != study.manifest.tracking_uri
        words = ["--tracking-uri", uri] if is_other else []
    return command("sync", study.name, *words, home=study.paths.home)


def tracking_lines(summary: TrackingSummary, study: "StudyFolder", target: Target) -> list[str]:
    """Return lines about records that did not reach a place; none if all did."""
    lines: list[str] = []
    if summary.pending or summary.error or summary.unattached:
        files = f" and {len(summary.unattached)} files" if summary.unattached else ""
        why = f" ({summary.error})" if summary.error else ""
        lines.append(
            f"{target.title} has not got {summary.pending} records{files} yet{why}; they are kept "
            f"in the study; deliver them by: {sync_line(study, target)}"
        )
    if refused := summary.refused:
        refusals = "; ".join(f"{refusal.run}: {refusal.why}" for refusal in refused[:_MAX_REFUSALS])
        num_more = len(refused) - _MAX_REFUSALS
        lines.append(
            f"{target.title} refuses part of {len(refused)} trials: {refusals}"
            f"{f'; and {num_more} more' if num_more > 0 else ''}; it is kept in the study, and "
            f"sent again by: {sync_line(study, target)}"
        )
    return lines
