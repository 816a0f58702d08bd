"""The nodes of a cluster, and the number of trials that they have room for."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray

from hsweep.design.trial import Resources


def alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def slots_of(nodes: Iterable[Mapping[str, float]], request: Resources) -> int:
    """Return how many trials with this request fit the available resources of nodes."""
    slots = [_process_slots(node, request) for node in nodes]
    if request.spread:
        return sum(slots) // request.processes
    return sum(number // request.processes for number in slots)


def _process_slots(available: Mapping[str, float], request: Resources) -> int:
    fits = []
    if request.cpus > 0:
        fits.append(int(available.get("CPU", 0) / request.cpus + 1e-9))
    if request.gpus > 0:
        # A share never spans two devices.
        share = request.gpus / request.processes
        fits.append(int(available.get("GPU", 0)) * int(1 / share + 1e-9))
    return min(fits)


def avoidable(failed: Iterable[str], request: Resources) -> frozenset[str]:
    """Return the ``failed`` nodes that are alive; none unless another node has room for the
    request."""
    nodes = {node["NodeID"]: node["Resources"] for node in alive_nodes()}
    avoided = nodes.keys() & set(failed)
    other_nodes = [nodes[node] for node in nodes.keys() - avoided]
    has_room = slots_of(other_nodes, request) > 0
    return frozenset(avoided) if has_room else frozenset()


def on_node(node: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function on a node without using a trial's resources; return Ray's reference to its
    result."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy, **options)
    return task(function).remote(*arguments)
