"""What a process that trains did, from when to when, written down as it goes."""

import atexit
import functools
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "HSWEEP_SPANS"

HOOKED = {
    "checkpoint": (
        ("hsweep.training.trial_state", "TrialState", "add"),
        ("hsweep.training.trial_state", "TrialState", "save_if_possible"),
    ),
    "restore": (("hsweep.training.trial_state", "TrialState", "restore"),),
    "latency": (("hsweep.training.evaluation", None, "latency"),),
}
"""What of the tool is timed beside the task itself, where it is: module, class, name."""


class Spans:
    """What this process did, from when to when (seconds of a clock that all processes share)."""

    def __init__(self, folder: str) -> None:
        self._file = (Path(folder) / f"{os.getpid()}.jsonl").open("a", buffering=1)
        self._resumes: float | None = None
        atexit.register(self._file.close)
        for what, places in HOOKED.items():
            for place in places:
                self._hook(what, *place)

    def note(self, what: str, begin: float, end: float | None = None) -> None:
        """Write one span, and the CPU seconds that this process has taken by then."""
        end = time.time() if end is None else end
        self._file.write(json.dumps([what, begin, end, time.process_time()]) + "\n")

    def timed(self, what: str, action: Callable[[], Any]) -> Any:
        """Do something and write how long it took."""
        begin = time.time()
        try:
            return action()
        finally:
            self.note(what, begin)

    def _hook(self, what: str, module: str, owner: str | None, name: str) -> None:
        place: Any = importlib.import_module(module)
        place = getattr(place, owner, None) if owner else place
        original = getattr(place, name, None)
        if original is None:
            self.note(f"absent {name}", time.time())
            return

        @functools.wraps(original)
        def timed(*args: Any, **more: Any) -> Any:
            return self.timed(what, lambda: original(*args, **more))

        setattr(place, name, timed)


@functools.cache
def spans() -> Spans | None:
    """Return where this process writes; None if that was not asked for."""
    folder = os.environ.get(FOLDER)
    return Spans(folder) if folder else None
