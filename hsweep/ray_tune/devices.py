"""How much memory the devices of a cluster have."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import ray
from ray.exceptions import RayError

from hsweep.errors import UserError

_A_LITTLE: Final = 0.0001
"""Ray's smallest part of a device: enough to be shown one."""

_SECONDS: Final = 60.0


def smallest_device_bytes(nodes: Iterable[Mapping[str, Any]]) -> int:
    """Return the memory of a device, of the smallest where nodes have different ones.

    One device of each node is asked, since those of a node are alike as a rule. A node whose
    devices are all taken for a minute is left out.

    Args:
        nodes: Ray's descriptions of them.

    Raises:
        UserError: no device could be asked.
    """
    asked = [_ask(node["NodeID"]) for node in nodes if node["Resources"].get("GPU", 0) > 0]
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


def _ask(node: str) -> Any:
    """Return a reference to the memory of a device of a node, by its id."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, num_gpus=_A_LITTLE, max_calls=1, max_retries=0)(_device_bytes)
    return task.options(scheduling_strategy=strategy).remote()


def _device_bytes() -> int:
    """Return the memory of the device that is shown to this process."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)
