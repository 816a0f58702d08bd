"""The nodes of a cluster while a study runs: whether Ray is still there, which nodes come and go,
and which get no trials."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import ray

from hsweep.design.trial import Resources
from hsweep.ray_tune.nodes import Node, can_train, name_of, slots_of
from hsweep.ray_tune.private import dead_processes, draining_nodes
from hsweep.threads import in_thread

if TYPE_CHECKING:
    from hsweep.coordination.coordinator import Coordinator

HEAD_SECONDS: Final = 60.0
"""How long the head of a cluster may be silent; it may come back, as a process of its own."""

_ASK_SECONDS: Final = 2.0
_LONGEST_LOOK: Final = 2.0
_NEEDED: Final = ("raylet", "gcs_server")
_MOST_FAILURES: Final = 3
"""How many trials in a row, which failed nowhere else, a node fails until it is left out: a full
disk or a broken device takes trials as fast as it fails them."""


@dataclass(slots=True)
class Roster:
    """The nodes of a run, as of Ray's last answer.

    Attributes:
        coordinator: is told of nodes that come, go or get no trials.
        probe: returns by id what nodes lack that have come; None on one machine.
        is_ours: whether this process started Ray, so that its processes are its children.
        nodes: Ray's description of those that are alive, by id.
        draining: ids of those that are about to go away.
        failed_on: by trial, the nodes on which it has failed.
        answered: called after each answer, in a thread.
        occupied: returns what each worker of the run takes, with the id of its node; None for one
            that has yet to be placed.
    """

    coordinator: "Coordinator"
    probe: Callable[[Iterable[Node]], dict[str, str]] | None = None
    is_ours: bool = False
    nodes: Mapping[str, Node] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    failed_on: dict[str, set[str]] = field(default_factory=dict)
    answered: Callable[[], None] = lambda: None
    occupied: Callable[[], Iterable[tuple[str | None, Resources]]] = lambda: ()
    _asking: Future[None] | None = None
    _asked: float = field(default_factory=lambda: time.monotonic())
    _looked: float = field(default_factory=lambda: time.monotonic())
    _silent: float = 0.0
    _unfit: dict[str, str] = field(default_factory=dict)
    _failed: dict[str, dict[str, str]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def trouble(self) -> str | None:
        """Return why Ray cannot go on, None while it can. Never blocks."""
        dead = dead_processes() if self.is_ours else []
        for name in _NEEDED:
            if name in dead:
                return f"Ray ended the run: its process {name} on this machine has died"
        now = time.monotonic()
        # Time in which this process was stopped itself is no silence of the head.
        self._silent += min(now - self._looked, _LONGEST_LOOK)
        self._looked = now
        # In a thread: without a head the call does not return.
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and now - self._asked > _ASK_SECONDS:
            self._asked = now
            self._asking = in_thread("asking for nodes", self._ask)
        if self._silent > HEAD_SECONDS:
            return (
                "Ray ended the run: the head of the cluster has not answered for "
                f"{HEAD_SECONDS:g} s"
            )
        if ray.get_runtime_context().get_node_id() not in self.nodes:
            return "Ray ended the run: it has lost the node that this command runs on"
        return None

    def _ask(self) -> None:
        with contextlib.suppress(Exception):
            nodes, self.draining = ray.nodes(), draining_nodes()
            self._silent = 0.0
            self.update(nodes)
            self.answered()

    def end(self) -> None:
        """Wait for the answer that is due, if any: Ray shall not end meanwhile."""
        if self._asking is not None:
            wait([self._asking], _ASK_SECONDS)

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
        if self._failed.pop(node, None):
            self._tell()

    def left_out(self) -> dict[str, str]:
        """Return why nodes get no trials, by their ids."""
        reasons = dict(self._unfit)
        for node, failures in list(self._failed.items()):
            own = [error for key, error in [*failures.items()] if len(self.failed_on[key]) == 1]
            if len(own) >= _MOST_FAILURES and len(self.nodes) > 1:
                reasons[node] = f"failed {len(own)} trials in a row (the last: {own[-1]})"
        return {node: reason for node, reason in reasons.items() if node in self.nodes}

    def _tell(self) -> None:
        nodes, before = self.nodes, self._told
        self._told = {
            node: f"node {name_of(nodes[node])} gets no trials: it {reason}"
            for node, reason in self.left_out().items()
        }
        for node in self._told.keys() - before.keys():
            self.coordinator.say(self._told[node])
        if self._told.keys() != before.keys():
            self.coordinator.record_left_out(self._told.values())

    def avoided(self, key: str, request: Resources) -> frozenset[str]:
        """Return the nodes on which a trial shall not run: those that are only suspected where
        another node has room for the request; where the trial itself failed, free room."""
        unfit, left_out = frozenset(self._unfit), frozenset(self.left_out())
        others = unfit | left_out
        if not self.slots(request, others):
            others = unfit
        failed_on = self.failed_on.get(key, set()) & self.nodes.keys()
        if failed_on and self._has_free(request, others | failed_on):
            return others | failed_on
        return others

    def _has_free(self, request: Resources, without: frozenset[str]) -> bool:
        """Whether a trial would start at once on a node, behind the workers that are placed yet."""
        nodes = self.nodes
        free = {node: dict(nodes[node]["Resources"]) for node in nodes.keys() - without}
        num_ahead = 0
        for node, taken in self.occupied():
            num_ahead += node is None
            if node in free:
                for name, amount in (("CPU", taken.all_cpus), ("GPU", taken.gpus)):
                    free[node][name] = max(0.0, free[node].get(name, 0.0) - amount)
        return slots_of(free.values(), request) > num_ahead

    def slots(self, request: Resources, without: Iterable[str] | None = None) -> int:
        """Return how many trials of this size fit the nodes, by default those that get trials."""
        nodes = self.nodes
        others = nodes.keys() - set(self.left_out() if without is None else without)
        return slots_of((nodes[node]["Resources"] for node in others), request)
