"""Runs cases on the shadow device: reads the name of each from standard input, and writes what was
seen of it as a line of JSON.

``python -m shadow FOLDER``; the compiled guard lies in the folder.
"""

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.guard import load_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from hsweep.design.trial import Trial


def main() -> None:
    load_guard(Path(sys.argv[1]))
    from shadow.cuda import shadow_cuda
    from shadow.faults import fault_seen
    from shadow.trials import trial_of

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    with shadow_cuda():
        for line in sys.stdin:
            kind, _, name = line.strip().partition(" ")
            if kind == "fault":
                seen: Any = fault_seen(name)
            elif kind == "preset":
                seen = preset_seen(name)
            else:
                seen = training_seen(partial(trial_of, line.strip()))
            answers.write(json.dumps(seen) + "\n")


def preset_seen(name: str) -> dict[str, Any]:
    """Return what is seen of the smallest trials of a preset, by their kind."""
    from shadow.presets import on_little_data, smallest

    trials = smallest(name).items()
    return {kind: training_seen(partial(on_little_data, trial)) for kind, trial in trials}


def training_seen(trial_in: "Callable[[Path], Trial]") -> dict[str, Any]:
    """Return where the host waits in updates of a trial, fresh and resumed, and why it failed.

    The trial is made by ``trial_in``, with its data below a folder.
    """
    from shadow import streams, waits

    found: dict[str, Any] = {"error": ""}
    streams.forget()
    waits.take()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for attempt, name in ((1, "fresh"), (2, "resumed")):
                train_attempt(trial_in, Path(folder), attempt)
                found[name] = a_step(waits.take())
        except Exception:
            found["error"] = traceback.format_exc()
    return found


def train_attempt(trial_in: "Callable[[Path], Trial]", folder: Path, attempt: int) -> None:
    """Train a trial up to its first report, or from there to its end."""
    from shadow.trials import EVERY, NUM_STEPS

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

    trial = trial_in(folder / f"data-{attempt}")
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
