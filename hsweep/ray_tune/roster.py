"""The nodes of a cluster while a study runs: which come and go, and which get no trials."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import Resources
from hsweep.ray_tune.local import in_thread
from hsweep.ray_tune.nodes import Node, can_train, name_of, slots_of

if TYPE_CHECKING:
    from hsweep.coordination.coordinator import Coordinator

_MOST_FAILURES: Final = 3
"""How many trials in a row, which failed nowhere else, a node fails until it is left out: a full
disk or a broken device takes trials as fast as it fails them."""


@dataclass(slots=True)
class Roster:
    """The nodes of a run.

    Attributes:
        coordinator: is told of nodes that come, go or get no trials.
        probe: returns by id what nodes lack that have come; None on one machine.
        nodes: Ray's description of those that are alive, by id.
        failed_on: by trial, the nodes on which it has failed.
    """

    coordinator: "Coordinator"
    probe: Callable[[Iterable[Node]], dict[str, str]] | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    failed_on: dict[str, set[str]] = field(default_factory=dict)
    _unfit: dict[str, str] = field(default_factory=dict)
    _failed: dict[str, dict[str, str]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def update(self, nodes: Iterable[Node]) -> None:
        """Take over Ray's description of the nodes; those that are new are probed in a thread."""
        before, after = self.nodes, {node["NodeID"]: node for node in nodes if node["Alive"]}
        self.nodes = after
        gone = [before[node] for node in before.keys() - after.keys()]
        new = [after[node] for node in after.keys() - before.keys() if can_train(after[node])]
        for word, some in (("gone", gone), ("joined", new)):
            for each in some:
                self.coordinator.say(f"node {name_of(each)} has {word}")
        if new and self.probe is not None:
            in_thread("probing nodes", lambda: self._look(new))

    def _look(self, nodes: Iterable[Node]) -> None:
        assert self.probe is not None
        self._unfit = {**self._unfit, **self.probe(nodes)}
        self._tell()

    def failed(self, key: str, node: str, error: str, request: Resources) -> bool:
        """Note that a trial has failed on a node; return whether it may run on another."""
        self.failed_on.setdefault(key, set()).add(node)
        self._failed.setdefault(node, {})[key] = error
        self._tell()
        return node in self.avoided(key, request)

    def succeeded(self, node: str) -> None:
        """Note that a trial has ended well on a node."""
        if self._failed.pop(node, None):
            self._tell()

    def left_out(self) -> dict[str, str]:
        """Return why nodes get no trials, by their ids."""
        reasons = dict(self._unfit)
        for node, failures in list(self._failed.items()):
            own = [error for key, error in [*failures.items()] if len(self.failed_on[key]) == 1]
            if len(own) >= _MOST_FAILURES:
                reasons[node] = f"failed {len(own)} trials in a row (the last: {own[-1]})"
        return {node: reason for node, reason in reasons.items() if node in self.nodes}

    def _tell(self) -> None:
        nodes, before = self.nodes, self._told
        lines = {
            node: f"node {name_of(nodes[node])} gets no trials: it {reason}"
            for node, reason in self.left_out().items()
        }
        self._told = lines
        for node in lines.keys() - before.keys():
            self.coordinator.say(lines[node])
        if lines.keys() != before.keys():
            self.coordinator.record_left_out(lines.values())

    def avoided(self, key: str, request: Resources) -> frozenset[str]:
        """Return the nodes on which a trial shall not run: those that are only suspected where
        another node has room for the request."""
        nodes, unfit = self.nodes, frozenset(self._unfit)
        suspects = {*self.failed_on.get(key, ()), *self.left_out()} & nodes.keys()
        others = (nodes[node]["Resources"] for node in nodes.keys() - suspects - unfit)
        return unfit | suspects if suspects and slots_of(others, request) else unfit

    def slots(self, request: Resources) -> int:
        """Return how many trials of this size fit the nodes that get trials."""
        nodes = self.nodes.keys() - self.left_out().keys()
        return slots_of((self.nodes[node]["Resources"] for node in nodes), request)
