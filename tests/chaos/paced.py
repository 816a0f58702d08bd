"""A task that takes its time, and says which processes train; lies beside the sweep."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_beside import TinyData, TinyTask  # type: ignore[import-not-found]


@dataclass(frozen=True)
class PacedTask(TinyTask):  # type: ignore[misc]
    """Sleeps before every update for CHAOS_PACE seconds, and leaves ``pid-PID`` in CHAOS_TRACES.

    Both come from the environment, so that the trials are the same however they are run.
    """

    def open(self, **settings: Any) -> TinyData:
        (Path(os.environ["CHAOS_TRACES"]) / f"pid-{os.getpid()}").touch()
        return super().open(**settings)

    def before_update(self, number: int) -> None:
        time.sleep(float(os.environ["CHAOS_PACE"]))
        super().before_update(number)
