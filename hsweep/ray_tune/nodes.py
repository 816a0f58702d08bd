"""The nodes of a cluster: the number of trials that they have room for, and what they lack."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from hsweep.design.trial import Resources
from hsweep.planning.code import training_code
from hsweep.ray_tune.messages import Placement
from hsweep.record.summary import first_line
from hsweep.training.storage import Store

_PROBE_SECONDS: Final = 120.0
"""How long a node may take to start a process, which imports what the sweep does."""

Node = Mapping[str, Any]
"""Ray's description of a node."""


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


def can_train(node: Node) -> bool:
    """Whether a node has processors, which many a head has not."""
    return any(map(node["Resources"].get, ("CPU", "GPU")))


def on_node(node: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function on a node without using a trial's resources; return Ray's reference to its
    result."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy, **options)
    return task(function).remote(*arguments)


@dataclass(slots=True)
class Demand:
    """Asks a cluster that adds nodes by itself for some, by placement groups that nothing uses:
    they end with their driver, however that ends. Another cluster only lists them."""

    groups: list[tuple[Placement, PlacementGroup]] = field(default_factory=list)

    def ask(self, placements: Iterable[Placement]) -> None:
        """Ask for room for these in place of those before; what has got it gives it back."""
        left, kept = list(placements), []
        for placement, group in self.groups:
            if placement in left and not group.wait(0):
                left.remove(placement)
                kept.append((placement, group))
            else:
                remove_placement_group(group)
        self.groups = kept + [(placement, placement_group(*placement)) for placement in left]


def name_of(node: Node) -> str:
    """Return a node's host name and address, or its address alone where that is all it has."""
    host, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    return str(address) if host == address else f"{host} ({address})"


def setup_hook() -> Callable[[], None]:
    """Return what a cluster's processes begin with. It comes to them by value, and fails nowhere:
    ``problems_of`` tells what a node lacks."""

    def set_up() -> None:
        import contextlib

        with contextlib.suppress(Exception):
            from hsweep.workspace import set_up_cluster_worker

            set_up_cluster_worker()

    return set_up


def problems_of(nodes: Iterable[Node], sample: Any, scratch: str) -> dict[str, str]:
    """Return by its id what each node lacks to make a trial such as ``sample`` and to write to
    ``scratch``; all nodes are asked at once."""
    # The folder of a study that is not on record yet has to stay free.
    root = scratch if "://" in scratch else str(Path(scratch).parents[1])
    store, marker = Store(root), f".seen-by-all-{uuid.uuid4().hex[:8]}"
    store.write(marker, b"hsweep")
    problems = {}
    try:
        arguments = (training_code().digest, ray.cloudpickle.dumps(sample), root, marker)
        answers = {on_node(node["NodeID"], _probe(), *arguments): node["NodeID"] for node in nodes}
        ray.wait([*answers], num_returns=len(answers), timeout=_PROBE_SECONDS)
        for answer, node in answers.items():
            try:
                problems[node] = ray.get(answer, timeout=0)
            except RayError as error:
                is_late = isinstance(error, TimeoutError)
                reason = f"in {_PROBE_SECONDS:g} s" if is_late else first_line(str(error))
                problems[node] = f"has no process that answers ({reason})"
    finally:
        store.remove(marker)
    return {node: problem for node, problem in problems.items() if problem}


def _probe() -> Callable[..., str]:
    """Return a function that goes to nodes by value, as they may lack this module."""

    def probe(digest: str, sample: bytes, root: str, marker: str) -> str:
        try:
            from hsweep.planning.code import training_code
            from hsweep.training.storage import Store
        except ImportError as error:
            return f"lacks this command's hsweep ({error}): install it there"
        if training_code().digest != digest:
            return "has an hsweep of other code than this command: install the same there"
        try:
            ray.cloudpickle.loads(sample)
        except Exception as error:
            return f"cannot load the sweep's trials ({type(error).__name__}: {error})"
        if Store(root).read(marker) is None:
            return (
                f"does not see {root}; give --storage a folder or URI that every node reaches "
                "(a shared file system, s3://bucket/folder, ...)"
            )
        return ""

    return probe
