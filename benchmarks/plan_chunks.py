"""Plan many points in one process, and say what each thousand of them took.

Prints one line of JSON: CPU seconds of each thousand points.
"""

import argparse
import json
import time

from benchmarks.plan_sweep import SWEEP
from hsweep.planning.plan import Planner

CHUNK = 1_000


def chunks(thousands: int) -> list[float]:
    """Return the CPU seconds of each thousand of points."""
    sweep = SWEEP.with_setting("mlp_ratio", [0.5 * number for number in range(1, thousands + 1)])
    planner, points = Planner(sweep, study_seed=0), sweep.space.points()
    taken = []
    for _ in range(thousands):
        started = time.process_time()
        for _, point in zip(range(CHUNK), points, strict=False):
            planner.plan_point(point)
        taken.append(time.process_time() - started)
    return taken


def main() -> None:
    """Measure them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thousands", type=int, default=20)
    print(json.dumps({"cpu_seconds": chunks(parser.parse_args().thousands)}))


if __name__ == "__main__":
    main()
