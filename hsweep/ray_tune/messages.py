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

    Args:
        assignments: trials and their attempts, at least one, all of the same size.
        avoided: ids of nodes on which the worker is not placed.
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
