"""A Ray cluster of several nodes on this machine, for ``chaos.test_nodes``.

Starts a head without processors and nodes with one each, says its address, and loses or gets a node
for each line of its input.
"""

import sys

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
        else:
            nodes.append(cluster.add_node(num_cpus=1))
        _say("done")
    cluster.shutdown()


def _say(word: str) -> None:
    sys.stdout.write(f"said {word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
