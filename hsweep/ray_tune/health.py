"""Whether Ray itself is still there: the processes on this machine, and the cluster's head."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import ray

from hsweep.ray_tune.private import dead_processes, draining_nodes

HEAD_SECONDS: Final = 60.0
"""How long the head of a cluster may be silent; it may come back, as a process of its own."""

_ASK_SECONDS: Final = 2.0
_LONGEST_LOOK: Final = 2.0
_NEEDED: Final = ("raylet", "gcs_server")


class RayHealth:
    """Looks after the Ray that this process is connected to.

    ``is_ours`` says that this process started it, so its processes are its children. ``nodes`` is
    Ray's description of its nodes, and ``draining`` has the ids of those that are about to go
    away, as of the last answer. Each answer goes to ``note``, in a thread of its own.
    """

    def __init__(
        self, note: Callable[[list[dict[str, Any]]], None] = lambda _nodes: None, *, is_ours: bool
    ) -> None:
        self._note = note
        self._is_ours = is_ours
        self._own_node = ray.get_runtime_context().get_node_id()
        self.nodes: list[dict[str, Any]] = ray.nodes()
        self.draining: set[str] = set()
        self._asking: threading.Thread | None = None
        self._asked = self._looked = time.monotonic()
        self._silent = 0.0

    def trouble(self) -> str | None:
        """Return why Ray cannot go on, None while it can. Never blocks."""
        dead = dead_processes() if self._is_ours else []
        for name in _NEEDED:
            if name in dead:
                return f"Ray ended the run: its process {name} on this machine has died"
        now = time.monotonic()
        # Time in which this process was stopped itself is no silence of the head.
        self._silent += min(now - self._looked, _LONGEST_LOOK)
        self._looked = now
        self._ask(now)
        if self._silent > HEAD_SECONDS:
            return (
                "Ray ended the run: the head of the cluster has not answered for "
                f"{HEAD_SECONDS:g} s"
            )
        if not any(node["NodeID"] == self._own_node and node["Alive"] for node in self.nodes):
            return "Ray ended the run: it has lost the node that this command runs on"
        return None

    def _ask(self, now: float) -> None:
        """Ask Ray's head node for the nodes, in a thread: without a head the call does not
        return."""
        is_asking = self._asking is not None and self._asking.is_alive()
        if not is_asking and now - self._asked > _ASK_SECONDS:
            self._asked = now
            self._asking = threading.Thread(target=self._note_answer, daemon=True)
            self._asking.start()

    def _note_answer(self) -> None:
        with contextlib.suppress(Exception):
            self.nodes = ray.nodes()
            self.draining = draining_nodes()
            self._silent = 0.0
            self._note(self.nodes)
