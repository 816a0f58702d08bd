"""Deliver a study's journal to MLflow, beside the training and never on its path.

The journal's log is the outbox: what a store has not got yet stays pending there, through crashes
and outages. A store is served from one daemon thread while the study runs, or at once by ``sync``.
Cursor and run ids belong to one store, so naming another store delivers the whole study to it.
"""

import errno
import json
import math
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.errors import UserError
from hsweep.record.journal import Journal
from hsweep.record.provenance import usable_cores
from hsweep.tracking.delivery import PARENT, Delivery, Source
from hsweep.tracking.environment import prepare_environment
from hsweep.tracking.names import run_name
from hsweep.tracking.store import initialise_database
from hsweep.tracking.target import TrackingTarget, tracking_target, ui_command
from hsweep.tracking.updates import described

if TYPE_CHECKING:
    from hsweep.record.manifest import Manifest

__all__ = [
    "Refusal",
    "Tracker",
    "TrackingSummary",
    "TrackingTarget",
    "provenance_tags",
    "refusals",
    "run_ids",
    "run_urls",
    "serve_ui",
    "study_tags",
    "sync",
    "tracking_target",
    "ui_command",
]

_POLL_SECONDS: Final = 1.0
_LONGEST_POLL_SECONDS: Final = 15.0
_REST: Final = 50.0
"""How many times longer than a delivery took the next one waits, so that training keeps the cores:
what comes meanwhile goes in the same few calls."""
_SLICE_SECONDS: Final = 0.25
"""CPU time after which a delivery beside training pauses although something is left: about ten
runs of a local store."""
_SHARE_OF_CORES: Final = 0.1
"""What a delivery that never comes to an end, because trials end quicker than a store takes them,
may have of the machine meanwhile; it has all it can use once the last trial has ended."""
_DRAIN_POLL_SECONDS: Final = 0.2
LOCAL_UI: Final = "http://127.0.0.1:5000"
"""Where ``hsweep ui`` serves the pages of a local store."""
_LONGEST_BACKOFF_SECONDS: Final = 60.0
_CLOSING_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a store refused for good of one trial; it is kept, and sent again by ``sync``.

    Attributes:
        key: the trial's.
        run: how its run is called.
        why: what was refused and why, without secrets.
    """

    key: str
    run: str
    why: str


@dataclass(frozen=True, slots=True)
class TrackingSummary:
    """How delivery stands.

    Attributes:
        delivered: log entries delivered by this tracker or call.
        pending: log entries the store has not got yet.
        error: why the last attempt failed, without secrets; None when it did not.
        unattached: files that were not uploaded yet.
        refused: trials of which the store refused something.
    """

    delivered: int
    pending: int
    error: str | None = None
    unattached: tuple[Path, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the store has everything."""
        return not (self.pending or self.error or self.unattached or self.refused)


class Tracker:
    """Delivers a running study's journal from a daemon thread.

    Nothing that goes wrong with the store reaches the study: it is tried again, less and less
    often, and the last error is kept for the summary.

    Args:
        journal_path: the study's journal, which exists.
        target: where to deliver.
        study: the study's name.
        tags: tags of every run, for example from ``provenance_tags``.
        metric: the study's main metric.
    """

    def __init__(
        self,
        journal_path: Path,
        target: TrackingTarget,
        *,
        study: str,
        tags: Mapping[str, str],
        metric: str,
    ) -> None:
        self._source = Source(journal_path, target, study, dict(tags), metric)
        self._thread = threading.Thread(target=self._serve, name="hsweep-mlflow", daemon=True)
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._hurried = threading.Event()
        self._slice_end = math.inf
        self._attachments: deque[Path] = deque()
        self._delivery: Delivery | None = None
        self._delivered = 0
        self._error: str | None = None

    def start(self) -> None:
        """Begin to deliver. Never raises."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._error = described(error)

    def notify(self) -> None:
        """Say that there is something new; without it, it is noticed within some seconds."""
        self._awake.set()

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run; one that has vanished by then is left out."""
        self._attachments.append(path)
        self._awake.set()

    def summary(self) -> TrackingSummary:
        """Return how delivery stands, without waiting for it."""
        pending, error = 0, self._error
        refused: tuple[Refusal, ...] = ()
        path, target = self._source.journal_path, self._source.target
        try:
            with Journal(path, read_only=True) as journal:
                pending = journal.count_after(journal.cursor(target.cursor_name))
                refused = refusals(journal, target)
        except Exception as problem:
            error = error or described(problem)
        current = self._delivery
        delivered = self._delivered + (current.delivered if current is not None else 0)
        return TrackingSummary(delivered, pending, error, tuple(self._attachments), refused)

    def drain(self, *, wait_seconds: float) -> TrackingSummary:
        """Wait until everything recorded so far is delivered, delivery fails, or time is up."""
        deadline = time.monotonic() + wait_seconds
        self._hurried.set()
        try:
            while self._thread.is_alive() and time.monotonic() < deadline:
                summary = self.summary()
                if summary.pending == 0 or summary.error is not None:
                    return summary
                self._awake.set()
                self._abandoned.wait(_DRAIN_POLL_SECONDS)
        finally:
            self._hurried.clear()
        return self.summary()

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

    def _serve(self) -> None:
        failures = closing_failures = 0
        while not self._abandoned.is_set():
            is_closing = self._closing.is_set()
            self._awake.clear()
            try:
                rest = self._deliver(is_closing)
            except Exception as error:
                self._error = described(error)
                self._drop_delivery()
                failures += 1
                closing_failures += is_closing
                if closing_failures >= _CLOSING_ATTEMPTS:
                    break
                self._pause(failures, is_closing)
            else:
                self._error = None
                failures = 0
                if is_closing:
                    break
                self._awake.wait(rest)
        self._drop_delivery()

    def _pause(self, failures: int, is_closing: bool) -> None:
        if is_closing:
            self._abandoned.wait(_POLL_SECONDS)
        else:
            self._closing.wait(min(2.0 ** (failures - 1), _LONGEST_BACKOFF_SECONDS))

    def _deliver(self, is_closing: bool) -> float:
        """Deliver what there is, for one slice while trials train; return how long to rest then."""
        if self._delivery is None:
            self._delivery = Delivery(self._source, reopen=True, should_stop=self._should_stop)
        began, computed = time.monotonic(), time.thread_time()
        # By CPU time: waiting for a distant store takes nothing from the training.
        self._slice_end = computed + _SLICE_SECONDS
        while not self._should_stop() and self._delivery.deliver_rows():
            pass
        is_sliced = self._should_stop()
        while self._attachments and not self._abandoned.is_set():
            self._delivery.attach(self._attachments[0])
            self._attachments.popleft()
        if is_closing and not self._abandoned.is_set():
            self._delivery.end_study()
        if is_sliced:
            return seconds_after_slice(time.thread_time() - computed, usable_cores())
        return seconds_of_rest(time.monotonic() - began)

    def _should_stop(self) -> bool:
        """Whether to begin no further run; asked in the thread that delivers."""
        if self._abandoned.is_set():
            return True
        return time.thread_time() >= self._slice_end and not self._hurried.is_set()

    def _drop_delivery(self) -> None:
        # After an error the next attempt starts from what the journal and the store say.
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._delivered += delivery.delivered
            delivery.close()


def seconds_after_slice(computed: float, cores: int) -> float:
    """Return how long to wait after so many CPU seconds of a delivery that is not done."""
    return max(computed / (_SHARE_OF_CORES * cores) - computed, 0.0)


def seconds_of_rest(taken: float) -> float:
    """Return how long to wait after a delivery that took so many seconds."""
    return min(max(_REST * taken, _POLL_SECONDS), _LONGEST_POLL_SECONDS)


def sync(
    journal_path: Path,
    target: TrackingTarget,
    *,
    study: str,
    tags: Mapping[str, str],
    metric: str,
    artifacts: Iterable[Path] = (),
    is_running: bool = False,
    wait_seconds: float = math.inf,
    progressed: Callable[[int], object] | None = None,
) -> TrackingSummary:
    """Deliver everything the store has not got, now and in this thread; what it refused before is
    sent again.

    Args:
        journal_path: the study's journal.
        target: where to deliver.
        study: the study's name.
        tags: tags of every run.
        metric: the study's main metric.
        artifacts: files to upload to the study's own run; missing ones are left out.
        is_running: the study is running elsewhere, so its own run is not ended.
        wait_seconds: begin no further run or upload after so long.
        progressed: told now and then how many entries are delivered.

    Returns:
        What was delivered; a failure of the store is in ``error``, not raised.

    Raises:
        UserError: there is no journal.
    """
    source = Source(journal_path, target, study, dict(tags), metric)
    pending_rows(journal_path, target)
    delivered = 0
    error: str | None = None
    left = list(artifacts)
    deadline = time.monotonic() + wait_seconds

    def is_late() -> bool:
        return time.monotonic() >= deadline

    try:
        delivery = Delivery(source, reopen=is_running, should_stop=is_late)
        try:
            delivery.retry_refused()
            while not is_late() and delivery.deliver_rows():
                if progressed is not None:
                    progressed(delivery.delivered)
            while left and not is_late():
                delivery.attach(left[0])
                del left[0]
            if is_late():
                error = f"not done within {wait_seconds:g} s"
            elif not is_running:
                delivery.end_study()
        finally:
            delivered = delivery.delivered
            delivery.close()
    except Exception as problem:
        error = described(problem)
    with Journal(journal_path, read_only=True) as journal:
        pending = journal.count_after(journal.cursor(target.cursor_name))
        refused = refusals(journal, target)
    return TrackingSummary(delivered, pending, error, tuple(left), refused)


def pending_rows(journal_path: Path, target: TrackingTarget) -> int:
    """Return how many log entries ``target`` has not got yet.

    Raises:
        UserError: there is no journal.
    """
    with Journal(journal_path, read_only=True) as journal:
        return journal.count_after(journal.cursor(target.cursor_name))


def refusals(journal: Journal, target: TrackingTarget) -> tuple[Refusal, ...]:
    """Return what ``target`` refused for good, in the order of the plan."""
    noted = journal.metas(target.refused_prefix)
    if not noted:
        return ()
    return tuple(
        Refusal(trial.key, run_name(trial), "; ".join(json.loads(noted[trial.key])["what"]))
        for trial in journal.trials(orphaned=True)
        if trial.key in noted
    )


def run_ids(journal: Journal, target: TrackingTarget) -> dict[str, str]:
    """Return the MLflow run id of each trial that has one, by trial key."""
    found = journal.metas(target.run_prefix)
    return {key: run_id for key, run_id in found.items() if key != PARENT}


def run_urls(journal: Journal, target: TrackingTarget) -> dict[str, str]:
    """Return the address of each trial's page, by trial key.

    The pages of a local store are there while ``hsweep ui`` serves them.
    """
    experiment = journal.meta(target.experiment_name)
    if experiment is None:
        return {}
    server = target.page if target.is_server else LOCAL_UI
    base = f"{server}/#/experiments/{experiment}/runs"
    return {key: f"{base}/{run_id}" for key, run_id in run_ids(journal, target).items()}


def provenance_tags(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the run tags that ``provenance.collect`` gives rise to."""
    tags: dict[str, str] = {}
    for name in ("tool", "sweep"):
        if state := provenance.get(name):
            tags[f"hsweep.{name}_commit"] = state["commit"] + ("-dirty" if state["dirty"] else "")
    if state := provenance.get("sweep") or provenance.get("tool"):
        tags["mlflow.source.git.commit"] = state["commit"]
    return tags


def study_tags(manifest: "Manifest") -> dict[str, str]:
    """Return the tags that every run of a study carries."""
    return {
        **provenance_tags(manifest.provenance),
        "hsweep.sweep": manifest.sweep,
        "hsweep.preset": manifest.preset,
    }


def _refuse_taken(host: str, port: int) -> None:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As the server will: a port that was left a moment ago is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        remedy = (
            f"choose another with --port, or end what listens there; if that is MLflow already, "
            f"open http://{host}:{port}"
            if is_taken
            else "choose an address of this machine with --host, and a port above 1023 with --port"
        )
        raise UserError(
            f"the pages cannot be served at {host}:{port} ({error.strerror}); {remedy}"
        ) from error


def serve_ui(target: TrackingTarget, *, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Become MLflow's server for a local store; returns only if that fails.

    Raises:
        UserError: the target is a server already, or nothing can listen at that address.
    """
    command = ui_command(target, host=host, port=port)
    _refuse_taken(host, port)
    prepare_environment()
    # Serves language-model evaluation jobs, in a process of its own.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    # Here rather than among the arguments if it has a password.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = target.uri
    initialise_database(target)
    sys.stdout.write(f"MLflow UI at http://{host}:{port}; end it with Ctrl-C\n")
    sys.stdout.flush()
    os.execv(command[0], command)
