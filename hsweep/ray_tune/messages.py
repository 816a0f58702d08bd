"""What the driver and its worker processes tell each other, beside the workers' own messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Assignment

START: Final = "start"
MESSAGES: Final = "messages"
PLACE: Final = "place"
START_SECONDS: Final = 300.0
"""What a process has at least for starting and for ending a trial, where reports are timed."""


class WorkerStart:
    """The first assignments of a worker on their way to it, opaque to Tune.

    Tune copies, flattens and prints configurations; this one is neither copied nor spelled out.
    The worker is not placed on nodes that are ``avoided``.
    """

    def __init__(
        self, assignments: Sequence[Assignment], avoided: frozenset[str] = frozenset()
    ) -> None:
        self.assignments = tuple(assignments)
        self.avoided = avoided

    def __deepcopy__(self, memo: dict[int, Any]) -> "WorkerStart":
        return self

    def __repr__(self) -> str:
        first = self.assignments[0]
        return f"{first.trial.key}-{first.attempt}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker process runs: Ray's id of the node, the node's name, the process."""

    node: str
    host: str
    pid: int


def hang_file(folder: str | Path, assignment: Assignment) -> Path:
    """Return where a worker that hangs leaves its traceback, in the Tune trial's folder."""
    return Path(folder) / f"hang-{assignment.trial.key}-{assignment.attempt}.txt"
