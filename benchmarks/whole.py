"""A program and all that it starts: seconds from its start to its end, and processor seconds.

    python -m benchmarks.whole FACTS PROGRAM [ARGUMENTS]

FACTS is a JSON file that this writes. Ray's processes leave their parents, so they are adopted
here; no one waits for them, so what they have computed is looked up now and then. What a process
does in its last half second may be missed. It ends with the program's exit status.
"""

import contextlib
import ctypes
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import psutil

_PR_SET_CHILD_SUBREAPER: Final = 36
_LOOK_SECONDS: Final = 0.5


class Watch:
    """Looks at all processes below this one, until it is told to stop."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Return the processor seconds of all that were seen."""
        self._ended.set()
        self._thread.join()
        return sum(self._seconds.values())

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._ended.wait(_LOOK_SECONDS):
            for process in own.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    used = process.cpu_times()
                    key = process.pid, process.create_time()
                    self._seconds[key] = used.user + used.system


def main() -> None:
    """Run the program."""
    facts, *program = sys.argv[1:]
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watch = Watch()
    started = time.monotonic()
    status = subprocess.run(program, check=False).returncode
    seconds = time.monotonic() - started
    measured = {"seconds": seconds, "cpu_seconds": watch.stop()}
    Path(facts).write_text(json.dumps(measured))
    sys.exit(status)


if __name__ == "__main__":
    main()
