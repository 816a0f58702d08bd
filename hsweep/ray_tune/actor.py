"""What runs in Ray's worker processes; imports no more than training needs."""

import contextlib
import faulthandler
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from ray import tune
from ray.tune.execution.placement_groups import PlacementGroupFactory

from hsweep.design.trial import Assignment
from hsweep.redaction import redact
from hsweep.training.worker import TrialSession

PARCEL: Final = "parcel"
REPORT: Final = "report"
START_SECONDS: Final = 300.0
"""What a process has at least for starting and for ending a trial, where reports are timed."""

_NODE_LABEL: Final = "ray.io/node-id"


class Parcel:
    """An assignment on its way to a worker, opaque to Tune.

    Tune copies, flattens and prints configurations; this one is neither copied nor spelled out.

    Args:
        assignment: the trial and its attempt.
        avoided: ids of nodes on which its process died before; it is placed on others.
    """

    def __init__(self, assignment: Assignment, avoided: frozenset[str] = frozenset()) -> None:
        self.assignment = assignment
        self.avoided = avoided

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parcel":
        return self

    def __repr__(self) -> str:
        return f"{self.assignment.trial.key}-{self.assignment.attempt}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker process runs.

    Attributes:
        node: Ray's id of the node.
        host: its name.
        pid: of the process.
    """

    node: str
    host: str
    pid: int


def hang_file(folder: str | Path, assignment: Assignment) -> Path:
    """Return where a worker that hangs leaves its traceback.

    Args:
        folder: the Tune trial's working folder, on the worker's node.
        assignment: the attempt.
    """
    return Path(folder) / f"hang-{assignment.trial.key}-{assignment.attempt}.txt"


class TrialActor(tune.Trainable):
    """The process that trains trials, one after another."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Return what this attempt of a trial occupies."""
        parcel: Parcel = config[PARCEL]
        resources = parcel.assignment.resources
        amounts = {"CPU": resources.cpus, "GPU": resources.gpus}
        bundle = {name: n for name, n in amounts.items() if n > 0}
        if not parcel.avoided:
            return PlacementGroupFactory([bundle])
        elsewhere = {_NODE_LABEL: f"!in({','.join(sorted(parcel.avoided))})"}
        return PlacementGroupFactory([bundle], bundle_label_selector=[elsewhere])

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial."""
        self._session: TrialSession | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in the same process."""
        # What went wrong with keeping the trial before is no failure of this one.
        with contextlib.suppress(Exception):
            self.cleanup()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._assignment: Assignment = config[PARCEL].assignment
        with self._ended_if_it_hangs(at_least=START_SECONDS), _without_secrets():
            self._session = TrialSession(self._assignment)

    def where(self) -> Place:
        """Return where this process runs."""
        import socket

        import ray

        node = ray.get_runtime_context().get_node_id()
        return Place(node=node, host=socket.gethostname(), pid=os.getpid())

    def step(self) -> dict[str, Any]:
        """Train up to the next report."""
        assert self._session is not None
        with self._ended_if_it_hangs(), _without_secrets():
            return {REPORT: self._session.next_report()}

    def finish(self) -> None:
        """End the trial now, not only when the process gets another one or ends."""
        self.cleanup()

    def cleanup(self) -> None:
        """End the trial, writing a checkpoint if its work is not yet on disk."""
        session, self._session = self._session, None
        if session is not None:
            with self._ended_if_it_hangs(at_least=START_SECONDS):
                session.close()

    @contextlib.contextmanager
    def _ended_if_it_hangs(self, at_least: float = 0.0) -> Iterator[None]:
        """End the process if this takes longer than a report may; say where it was.

        The watch is kept by a thread that needs no interpreter lock, so a call into foreign code
        that never returns is noticed too.
        """
        timeout = self._assignment.report_timeout
        if timeout is None:
            yield
            return
        with _opened(hang_file(self.logdir, self._assignment)) as file:
            seconds = max(timeout, at_least)
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()

    def __repr__(self) -> str:
        # Shown in Ray's dashboard. An actor outlives its trials, so it is named as what it is.
        return "hsweep-worker"


@contextlib.contextmanager
def _without_secrets() -> Iterator[None]:
    """Let no error out whose text holds a secret: Tune writes it into the study's folder."""
    try:
        yield
    except Exception:
        text = traceback.format_exc()
        shown = redact(text)
        if shown == text:
            raise
    else:
        return
    # Not while the other is handled, which would be kept as this one's context.
    raise RuntimeError(shown)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a file for writing, or standard error where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError:
        yield sys.stderr
        return
    with file:
        yield file
