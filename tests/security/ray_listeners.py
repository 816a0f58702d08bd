"""Start a Ray as a study does and print the addresses that it and its workers listen on.

python ray_listeners.py FOLDER HAS_DASHBOARD
"""

import json
import sys
from typing import Any

from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import psutil  # noqa: E402
import ray  # noqa: E402

from hsweep.ray_tune.runner import RayRunner  # noqa: E402


def answer() -> int:
    return 1


def main(folder: str, has_dashboard: str) -> dict[str, Any]:
    runner = RayRunner(scratch=folder, has_dashboard=has_dashboard == "True")
    runner.connect()
    runner.start_dashboard()
    try:
        ray.get(ray.remote(answer).remote())  # a worker is there
        me = psutil.Process()
        listening = [
            (process.name(), connection.laddr.ip)
            for process in (me, *me.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        return {"dashboard": runner.dashboard_url, "listening": listening}
    finally:
        runner.close()


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 - how it answers
