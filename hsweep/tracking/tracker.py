"""Deliver a study's journal to MLflow, beside the training and never on its path.

A store is served from one daemon thread while the study runs, or at once by ``sync``. Cursor and
run ids belong to one store, so naming another store delivers the whole study to it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from hsweep.record.journal import Journal
from hsweep.record.kept import FinalWeights
from hsweep.record.provenance import usable_cores
from hsweep.tracking.delivery import Delivery
from hsweep.tracking.state import Refusal, StoreState
from hsweep.tracking.store import described
from hsweep.tracking.study import TrackedStudy
from hsweep.tracking.target import TrackingTarget

_FIRST_REST_SECONDS: Final = 5.0
_SHORTEST_REST_SECONDS: Final = 1.0
_LONGEST_REST_SECONDS: Final = 15.0
_REST: Final = 50.0
"""How many times longer than a delivery took the next one waits, so that training keeps the cores:
what comes meanwhile goes in the same few calls."""
_SHARE_OF_CORES: Final = 0.1
"""What a delivery that is behind, because trials end quicker than a store takes them, may have of
the machine meanwhile; it has all it can use once the last trial has ended."""
_FLUSH_POLL_SECONDS: Final = 0.2
_LONGEST_BACKOFF_SECONDS: Final = 60.0
_CLOSING_ATTEMPTS: Final = 2
_CLOSING_BACKOFF_SECONDS: Final = 1.0


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
    """Delivers a running study's journal from a daemon thread.

    Nothing that goes wrong with the store reaches the study: it is tried again, less and less
    often, and the last error is kept for the summary.
    """

    def __init__(self, journal_path: Path, target: TrackingTarget, study: TrackedStudy) -> None:
        self._state = StoreState(journal_path, target)
        self._journal_path = journal_path
        self._thread = threading.Thread(target=self._serve, name="hsweep-mlflow", daemon=True)
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._hurried = threading.Event()
        self._attachments: deque[Path] = deque()
        self._weights: Sequence[FinalWeights] | None = None
        self._error: str | None = None
        self._delivery: Delivery | None = None
        self._connect = partial(
            Delivery,
            journal_path,
            target,
            self._state,
            study,
            should_stop=self._abandoned.is_set,
        )

    def start(self) -> None:
        self._thread.start()

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run; one that has vanished by then is left out."""
        self._attachments.append(path)

    def log_weights(self, weights: Sequence[FinalWeights]) -> None:
        """Show these final weights as logged models, and no others; upload the files that come
        with them."""
        self._weights = weights

    def summary(self) -> TrackingSummary:
        """Return how delivery stands, without waiting for it."""
        state, pending, error = self._state, 0, self._error
        try:
            with Journal(self._journal_path, read_only=True) as journal:
                pending = journal.count_after(state.cursor)
        except Exception as problem:
            error = error or described(problem)
        refused = tuple(state.refused.values())
        weights = tuple(Path(each.file or each.location) for each in self._weights or ())
        left = (*self._attachments, *weights)
        return TrackingSummary(state.delivered, pending, error, left, refused)

    def flush(self, *, wait_seconds: float) -> TrackingSummary:
        """Wait until everything recorded so far is delivered, delivery fails, or time is up."""
        deadline = time.monotonic() + wait_seconds
        self._hurried.set()
        try:
            while (summary := self.summary()).pending and summary.error is None:
                if time.monotonic() >= deadline or not self._thread.is_alive():
                    break
                self._awake.set()
                self._abandoned.wait(_FLUSH_POLL_SECONDS)
        finally:
            self._hurried.clear()
        return summary

    def close(self, *, wait_seconds: float) -> TrackingSummary:
        """Deliver what is left for at most ``wait_seconds``, and stop. Never raises."""
        self._hurried.set()
        self._closing.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(wait_seconds)
        self._abandoned.set()
        summary = self.summary()
        if self._thread.is_alive() and summary.error is None:
            return replace(summary, error=f"not done within {wait_seconds:g} s")
        return summary

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
            progressed: told after each batch how many entries are delivered.
        """
        self._attachments.extend(path for path in artifacts if path.exists())
        self._weights = weights
        self._hurried.set()
        try:
            self._deliver(reopen=is_running, is_last=not is_running, progressed=progressed)
        except Exception as error:
            self._error = described(error)
        finally:
            self._disconnect()
        return self.summary()

    def _serve(self) -> None:
        failures = closing_failures = 0
        # Meanwhile a study that begins has the cores, of which importing MLflow takes one.
        self._awake.wait(_FIRST_REST_SECONDS)
        while not self._abandoned.is_set():
            self._awake.clear()
            is_closing = self._closing.is_set()
            try:
                rest = self._deliver(reopen=True, is_last=is_closing)
            except Exception as error:
                self._error = described(error)
                self._disconnect()
                failures += 1
                closing_failures += is_closing
                if closing_failures >= _CLOSING_ATTEMPTS:
                    break
                if is_closing:
                    self._abandoned.wait(_CLOSING_BACKOFF_SECONDS)
                else:
                    self._closing.wait(min(2.0 ** (failures - 1), _LONGEST_BACKOFF_SECONDS))
            else:
                self._error = None
                failures = 0
                if is_closing:
                    break
                self._awake.wait(rest)
        self._disconnect()

    def _deliver(
        self, *, reopen: bool, is_last: bool, progressed: Callable[[int], object] = lambda _: None
    ) -> float:
        """Deliver a batch, or all there is once training is over; return how long to rest then."""
        delivery = self._delivery = self._delivery or self._connect(reopen=reopen)
        started, computed = time.monotonic(), time.thread_time()
        is_behind = delivery.deliver_rows()
        while is_behind and self._hurried.is_set() and not self._abandoned.is_set():
            progressed(self._state.delivered)
            is_behind = delivery.deliver_rows()
        # A trial has its run once its rows are delivered.
        while self._attachments and not (is_behind or self._abandoned.is_set()):
            delivery.attach(self._attachments[0])
            self._attachments.popleft()
        if self._weights is not None and not (is_behind or self._abandoned.is_set()):
            delivery.log_weights(self._weights)
            self._weights = None
        if is_last and not self._abandoned.is_set():
            delivery.end_study()
        if is_behind:
            # By CPU time: waiting for a distant store takes nothing from the training.
            return rest_while_behind(time.thread_time() - computed, usable_cores())
        return rest_when_done(time.monotonic() - started)

    def _disconnect(self) -> None:
        if self._delivery is not None:
            self._delivery.close()
        self._delivery = None


def rest_while_behind(computed: float, cores: int) -> float:
    return max(computed / (_SHARE_OF_CORES * cores) - computed, 0.0)


def rest_when_done(taken: float) -> float:
    return min(max(_REST * taken, _SHORTEST_REST_SECONDS), _LONGEST_REST_SECONDS)
