"""`hsweep run`, with or without its tracker, and what the tracker computed.

    python -m benchmarks.clocked_run FACTS with|without SWEEP [OPTIONS OF hsweep run]

FACTS is a JSON file that this writes: CPU seconds of the tracker's thread, and of this process and
all that it started and that has ended.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hsweep.tracking.tracker import Tracker, TrackingSummary

facts: dict[str, float] = {"tracker_seconds": 0.0}


class Clocked(Tracker):
    """The tracker, its thread with a watch."""

    def _serve(self) -> None:
        before = time.thread_time()
        super()._serve()
        facts["tracker_seconds"] += time.thread_time() - before


class Absent:
    """No tracker."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        pass

    def start(self) -> None:
        """Do nothing."""

    def attach(self, path: Path) -> None:
        """Do nothing."""

    def summary(self) -> TrackingSummary:
        """Return that there was nothing to do."""
        return TrackingSummary(0, 0)

    def flush(self, *, wait_seconds: float) -> TrackingSummary:
        """Return that there was nothing to do."""
        return self.summary()

    def close(self, *, wait_seconds: float) -> TrackingSummary:
        """Return that there was nothing to do."""
        return self.summary()


def main() -> None:
    """Run the study."""
    file, which, *arguments = sys.argv[1:]
    from hsweep import cli
    from hsweep.running import run

    vars(run)["Tracker"] = Clocked if which == "with" else Absent
    try:
        cli.main(["run", *arguments], standalone_mode=False)
    finally:
        for thread in threading.enumerate():
            if thread.name == "hsweep-mlflow":
                thread.join(60)
        for name, who in (("own", resource.RUSAGE_SELF), ("started", resource.RUSAGE_CHILDREN)):
            used = resource.getrusage(who)
            facts[f"{name}_seconds"] = used.ru_utime + used.ru_stime
        Path(file).write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
