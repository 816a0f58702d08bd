"""A Ray cluster of several nodes on this machine, for ``chaos.test_nodes``.

Starts a head without processors and nodes with one each, says its address, and loses or gets a node
for each line of its input, or loses one with a notice.
"""

import subprocess
import sys
import time
from typing import Any

from hsweep.ray_tune.environment import prepare_ray

prepare_ray(joins_cluster=True)

from ray.cluster_utils import Cluster  # noqa: E402


def main(number: int) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(number)]
    cluster.wait_for_nodes()
    _say(cluster.address)
    for line in sys.stdin:
        if line.strip() == "lose":
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
        elif line.strip() == "drain":
            _drain(cluster.address, nodes.pop(0))
        else:
            nodes.append(cluster.add_node(num_cpus=1))
        _say("done")
    cluster.shutdown()


def _drain(address: str, node: Any) -> None:
    """Give a node notice, as SIGTERM does where it runs by ``ray start --block``, and wait until
    it has left: as soon as nothing is at work there."""
    words = ["drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
    words += [
        "--deadline-remaining-seconds",
        "100",
        "--address",
        address,
        "--node-id",
        node.node_id,
    ]
    subprocess.run([sys.executable, "-m", "ray.scripts.scripts", *words], check=True)
    while not any(name == "raylet" for name, _ in node.dead_processes()):
        time.sleep(0.1)


def _say(word: str) -> None:
    sys.stdout.write(f"said {word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
