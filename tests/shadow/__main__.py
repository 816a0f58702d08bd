"""Runs cases on the shadow device: reads the name of each from standard input, and writes what was
seen of it as a line of JSON.

``python -m shadow FOLDER``; the folder keeps the compiled guard.
"""

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from shadow.guard import load_guard


def main() -> None:
    load_guard(Path(sys.argv[1]))
    from shadow.cuda import shadow_cuda
    from shadow.faults import fault_seen

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    with shadow_cuda():
        for line in sys.stdin:
            kind, _, name = line.strip().partition(" ")
            seen = fault_seen(name) if kind == "fault" else training_seen(line.strip())
            answers.write(json.dumps(seen) + "\n")


def training_seen(case: str) -> dict[str, Any]:
    """Return where the host waits in updates of a trial, fresh and resumed, and why it failed."""
    from shadow import streams, waits

    found: dict[str, Any] = {"error": ""}
    streams.forget()
    waits.take()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for attempt, name in ((1, "fresh"), (2, "resumed")):
                train_attempt(case, Path(folder), attempt)
                found[name] = a_step(waits.take())
        except Exception:
            found["error"] = traceback.format_exc()
    return found


def train_attempt(case: str, folder: Path, attempt: int) -> None:
    """Train a case up to its first report, or from there to its end."""
    from shadow.trials import EVERY, NUM_STEPS, trial_of

    from hsweep.design.trial import Assignment, Event, Report
    from hsweep.training.run import Channel
    from hsweep.training.train import train

    units: list[int] = []

    class Reports(Channel):
        def put(self, event: Event, /) -> bool:
            assert isinstance(event, Report), event
            assert event.diverged_at is None, event
            units.append(event.unit)
            return attempt == 2

    trial = trial_of(case, folder / f"data-{attempt}")
    kept = str(folder / "checkpoints"), 1e9
    weights = str(folder / "weights")
    recorded = 0 if attempt == 1 else EVERY
    train(
        Assignment(trial, attempt, recorded, *kept, weights=weights, measures_training=True),
        Reports(),
    )
    assert units == ([EVERY] if attempt == 1 else [NUM_STEPS]), units


def a_step(noted: Counter[tuple[int | None, str]]) -> dict[str, float]:
    """Return how often the host waited in an update, by place; the first of an attempt, in which
    state is made, does not count."""
    from shadow.trials import EVERY

    found: Counter[str] = Counter()
    for (update, what), times in noted.items():
        if update is not None and update % EVERY:
            found[what] += times
    return {what: times / (EVERY - 1) for what, times in found.items()}


if __name__ == "__main__":
    main()
