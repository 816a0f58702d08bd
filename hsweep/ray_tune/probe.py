"""Start Ray once, or join the cluster of ``RAY_ADDRESS``, run one task and print the result.

Run as ``python -m hsweep.ray_tune.probe``, in a process of its own: Ray can hang, and can only be
configured once a process.
"""

import json
import os
from typing import Any

import ray

from hsweep.ray_tune.private import nodes_elsewhere, problem_of_head


def _answer() -> int:
    return os.getpid()


def probe() -> dict[str, Any]:
    """Start or join Ray, wait for a worker's answer, and shut down again."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address and (problem := problem_of_head(address)):
        raise ConnectionError(problem)
    if address and nodes_elsewhere(address):
        raise ConnectionError("this machine is no node of that cluster")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not address:  # a cluster has its own size, and asking for one when joining is an error
        options |= {
            "num_cpus": 1,
            "include_dashboard": False,
            "dashboard_host": "127.0.0.1",
        }
    ray.init(address=address or "local", **options)
    try:
        ray.get(ray.remote(_answer).remote())
        resources = ray.cluster_resources()
        return {
            "version": ray.__version__,
            "nodes": len(ray.nodes()),
            "cpus": int(resources.get("CPU", 0)),
            "gpus": int(resources.get("GPU", 0)),
        }
    finally:
        ray.shutdown()


if __name__ == "__main__":
    print(json.dumps(probe()))  # noqa: T201 - standard output is how a probe answers
