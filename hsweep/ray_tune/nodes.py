"""The nodes of a cluster: what they have room for, and how much memory their devices have."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ray
from ray.exceptions import RayError

from hsweep.design.trial import Resources
from hsweep.errors import UserError

_A_LITTLE: Final = 0.0001
"""Ray's smallest part of a device: enough to be shown one."""

_SECONDS: Final = 60.0


def alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def slots_of(available: Mapping[str, float], request: Resources) -> int:
    """Return how many trials fit what a node has."""
    return _process_slots(available, request) // request.processes


def slots_of_all(nodes: Iterable[Mapping[str, float]], request: Resources) -> int:
    """Return how many trials fit what several nodes have."""
    if request.spread:
        return sum(_process_slots(each, request) for each in nodes) // request.processes
    return sum(slots_of(each, request) for each in nodes)


def _process_slots(available: Mapping[str, float], request: Resources) -> int:
    fits = []
    if request.cpus > 0:
        fits.append(int(available.get("CPU", 0) / request.cpus + 1e-9))
    if request.devices > 0:
        # A share never spans two devices.
        each = request.devices / request.processes
        fits.append(int(available.get("GPU", 0)) * int(1 / each + 1e-9))
    return min(fits)


def avoidable(failed: Iterable[str], request: Resources) -> frozenset[str]:
    """Return those of the ``failed`` nodes that are there, if another has room for the request."""
    nodes = {node["NodeID"]: node["Resources"] for node in alive_nodes()}
    avoided = nodes.keys() & set(failed)
    others = [nodes[node] for node in nodes.keys() - avoided]
    has_room = slots_of_all(others, request) > 0
    return frozenset(avoided) if has_room else frozenset()


def smallest_device_bytes(nodes: Iterable[Mapping[str, Any]]) -> int:
    """Return the memory of a device, of the smallest where nodes (Ray's descriptions) differ.

    One device of each node is asked, since those of a node are alike as a rule. A node whose
    devices are all taken for a minute is passed over.

    Raises:
        UserError: no device could be asked.
    """
    asked = [
        on_node(node["NodeID"], _device_bytes, num_gpus=_A_LITTLE, max_calls=1)
        for node in nodes
        if node["Resources"].get("GPU", 0) > 0
    ]
    answered: list[Any] = []
    why = "no node has a free one"
    if asked:
        answered, silent = ray.wait(asked, num_returns=len(asked), timeout=_SECONDS)
        for reference in silent:
            ray.cancel(reference)
    if answered:
        try:
            return min(map(int, ray.get(answered)))
        except RayError as error:
            why = str(error).strip().splitlines()[-1]
    raise UserError(
        f"gpus='auto' shares devices out by their memory, but none could be asked for it: {why}. "
        "Give every trial a fixed share instead (--set gpus=0.25), or train on the CPU "
        "(--set gpus=0)"
    )


def on_node(node: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return a reference to what a function returns on a node; it takes no trial's place."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy, **options)
    return task(function).remote(*arguments)


def _device_bytes() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)
