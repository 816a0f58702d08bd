"""Data between the driver and its worker processes, besides the messages of workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.trial import Assignment

START: Final = "start"
MESSAGES: Final = "messages"
PLACE: Final = "place"


class WorkerStart:
    """The first assignments of a worker on their way to it, opaque to Tune.

    Tune copies, flattens and prints configurations; this one it neither copies nor spells out.

    Args:
        assignments: at least one.
        avoided: ids of nodes on which the worker shall not run.
    """

    def __init__(
        self, assignments: Sequence[Assignment], avoided: frozenset[str] = frozenset()
    ) -> None:
        self.assignments, self.avoided = tuple(assignments), avoided

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
