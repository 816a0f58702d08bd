"""Data between the driver and its worker processes, besides the messages of workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.trial import Assignment, Resources

START: Final = "start"
MESSAGES: Final = "messages"
PLACE: Final = "place"


Placement = tuple[list[dict[str, float]], str]
"""What to reserve on nodes: amounts, and whether they have to lie on one."""


def placement_of(request: Resources, number: int) -> Placement:
    """Return the placement of so many processes that have a trial's resources together."""
    amounts = {"CPU": request.all_cpus / number, "GPU": request.gpus / number}
    bundle = {name: amount for name, amount in amounts.items() if amount > 0}
    return [bundle] * number, "PACK" if request.spread else "STRICT_PACK"


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
