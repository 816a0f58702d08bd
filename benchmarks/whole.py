"""A program and all that it starts: seconds from its start to its end, and processor seconds.

    python -m benchmarks.whole FACTS PROGRAM [ARGUMENTS]

FACTS is a JSON file that this writes. Ray's processes leave their parent; here they are adopted, so
that what they computed counts, too. It ends with the program's exit status.
"""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_LEAVING_SECONDS: Final = 20.0
"""How long what the program has left behind is waited for, after it has ended."""


def main() -> None:
    """Run the program."""
    facts, *program = sys.argv[1:]
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.monotonic()
    status = subprocess.run(program, check=False).returncode
    seconds = time.monotonic() - started
    deadline = time.monotonic() + _LEAVING_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}
    Path(facts).write_text(json.dumps(measured))
    sys.exit(status)


if __name__ == "__main__":
    main()
