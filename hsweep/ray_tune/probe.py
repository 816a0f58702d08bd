"""Start Ray once, or join the cluster of ``RAY_ADDRESS``, run one task and print the result.

Run as ``python -m hsweep.ray_tune.probe``, in a process of its own: Ray can hang, and can only be
configured once a process.
"""

import json
import os
from typing import Any, Final

from hsweep.ray_tune.environment import prepare_ray

ADDRESS: Final = os.environ.get("RAY_ADDRESS") or None
prepare_ray(joins_cluster=ADDRESS is not None)

import ray  # noqa: E402

from hsweep.ray_tune.runner import RayRunner  # noqa: E402


def probe() -> dict[str, Any]:
    """Start or join Ray, wait for a worker's answer, and shut down again."""
    runner = RayRunner(scratch="", address=ADDRESS)
    runner.connect()
    try:
        ray.get(ray.remote(lambda: None).remote())
        resources = ray.cluster_resources()
        cpus, gpus = (int(resources.get(name, 0)) for name in ("CPU", "GPU"))
        facts = {"version": ray.__version__, "nodes": len(ray.nodes())}
        return {**facts, "cpus": cpus, "gpus": gpus}
    finally:
        runner.close()


if __name__ == "__main__":
    print(json.dumps(probe()))  # noqa: T201 - standard output is how a probe answers
