"""How much of the workers' time is not training.

Worker time is counted for every place where a trial can run, from the moment the first trial of the
study is handed out to the last moment that place had something to do. Training is what the trials
report as such (updates and the batches they wait for), and the evaluations that the sweep asks for
at its reports. Everything else is idle, the starts of processes included. What a place waits at the
end, when no trial is left for it, depends on the number of trials alone; it is shown, not counted.
"""

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import Quantity, conclude, environment, in_process, measured, show

SWEEP: Final = Path(__file__).with_name("idle_sweep.py")
STUDY: Final = "idle"
TRIAL_SECONDS: Final = 10.0
_ENDINGS: Final = ("evaluate", "latency", "checkpoint")

Span = tuple[str, float, float]


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the workers' time went.

    Attributes:
        worker_seconds: of all places together.
        seconds: by what it was spent on; together they are ``worker_seconds``.
        left_over: what places waited at the end, when no trial was left; not part of it.
        trial_seconds: mean training time of a trial that ran to its end.
        trials: by status; and all seconds from an evaluation's end to the next update.
    """

    worker_seconds: float
    seconds: Mapping[str, float]
    left_over: float
    trial_seconds: float
    trials: Mapping[str, float]

    @property
    def idle(self) -> float:
        """Share of the time that was neither updates nor evaluation."""
        return 1 - self._trained / self.worker_seconds

    @property
    def settled(self) -> float:
        """The same share, processes being there."""
        return 1 - self._trained / (self.worker_seconds - self.seconds["start of processes"])

    @property
    def _trained(self) -> float:
        return self.seconds["updates"] + self.seconds["evaluation"]


def shares(
    started: float,
    spans: Mapping[str, Sequence[Span]],
    trained: Sequence[float],
    trial_seconds: float = 0.0,
    trials: Mapping[str, float] | None = None,
) -> Shares:
    """Add up where the time went.

    Args:
        started: when the first trial was handed out, s.
        spans: of each process: what, from when, to when.
        trained: seconds of updates, of each trial.
        trial_seconds: see ``Shares``.
        trials: see ``Shares``.
    """
    found: defaultdict[str, float] = defaultdict(float)
    ends = []
    for each in spans.values():
        ordered = sorted(each, key=lambda span: span[1])
        opened = [begin for what, begin, _ in ordered if what == "open"]
        if not opened:
            continue
        ends.append(max(end for _, _, end in ordered))
        found["start of processes"] += opened[0] - started
        for what, begin, end in ordered:
            found[what] += end - begin
        for begin in opened[1:]:
            before = [end for what, at, end in ordered if what in _ENDINGS and at < begin]
            found["from trial to trial"] += begin - max(before)
    worker_seconds = sum(end - started for end in ends)
    within = found.pop("between reports", 0.0)
    seconds = {
        "updates": sum(trained),
        "evaluation": found.pop("evaluate", 0.0),
        "checkpoints and noting reports": found.pop("checkpoint", 0.0),
        "opening data": found.pop("open", 0.0),
        "looking for checkpoints": found.pop("restore", 0.0),
        "measuring latency": found.pop("latency", 0.0),
        "start of processes": found.pop("start of processes", 0.0),
        "from trial to trial": found.pop("from trial to trial", 0.0),
    }
    seconds["the rest (building models, Python between updates, waiting for the driver)"] = (
        worker_seconds - sum(seconds.values())
    )
    return Shares(
        worker_seconds=worker_seconds,
        seconds=seconds,
        left_over=len(ends) * max(ends) - sum(ends),
        trial_seconds=trial_seconds,
        trials={**(trials or {}), "between_reports": round(within, 2)},
    )


def run(epochs: int, *options: str) -> Shares:
    """Run the study in a process of its own and add up where its workers' time went."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "spans").mkdir()
        in_process(
            [
                *("-m", "hsweep", "run", str(SWEEP), "--home", str(folder / "home"), "--no-reuse"),
                # What the driver tries out before the start is no place where trials are trained.
                *("--no-check", "--study", STUDY, "--set", f"epochs={epochs}", *options),
            ],
            variables={"HSWEEP_SPANS": str(folder / "spans")},
        )
        spans = {
            path.stem: [tuple(json.loads(line)[:3]) for line in path.read_text().splitlines()]
            for path in (folder / "spans").iterdir()
        }
        return _of_study(folder / "home", spans)


def _of_study(home: Path, spans: Mapping[str, Sequence[Span]]) -> Shares:
    from hsweep.design.trial import TrialStatus
    from hsweep.record.journal import Journal

    with Journal(home / "studies" / STUDY / "journal.db", read_only=True) as journal:
        started = next(entry.time for entry in journal.log() if entry.kind == "status")
        last = {entry.key: entry.payload["train_seconds"] for entry in journal.reports()}
        rows = journal.trials()
    whole = [last[row.key] for row in rows if row.status is TrialStatus.FINISHED]
    counts: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        counts[str(row.status)] += 1
    return shares(started, spans, list(last.values()), sum(whole) / len(whole), counts)


def epochs_for(seconds: float) -> int:
    """Return how many epochs of the study's middle shape take so long on one core here."""
    from hsweep.design.trial import Assignment
    from hsweep.planning.plan import make_plan
    from hsweep.workspace import load_sweep

    sweep = load_sweep(SWEEP).sweep
    trials = make_plan(sweep, preset="quick", study_seed=0).trials
    trial = trials[len(trials) // 2]
    import torch

    from hsweep.training.train import train

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        reports = train(Assignment(trial, 1, 0, folder, 1e9), torch.device("cpu"))
        # CPU time, which is about the same whatever else the machine does.
        done = [time.process_time() for _ in reports]
    # The first epochs are slower: kernels and memory are looked for.
    later = done[len(done) // 2 :]
    return max(10, round(seconds * (len(later) - 1) / (later[-1] - later[0])))


@click.command("idle")
@measured(pairs=1)
@click.option("--replicates", type=click.IntRange(2), default=6, show_default=True,
              help="Seeds of each of ten shapes.")  # fmt: skip
def command(pairs: int, quick: bool, strict: bool, replicates: int) -> None:
    """Measure how much of the workers' time is not training, in trials of about 10 s."""
    about = environment()
    found: list[Shares] = []
    for _ in range(pairs):
        if quick:
            options, epochs = ["--set", "heads=1", "--set", "replicates=2"], 3
        else:
            options = ["--set", f"replicates={replicates}"]
            epochs = int(in_process(["-m", "benchmarks.idle"]).result["epochs"])
        shares = run(epochs, *options)
        if not (quick or 0.8 < shares.trial_seconds / TRIAL_SECONDS < 1.25):
            # Beside another trial, and over all shapes, an epoch takes another time.
            shares = run(round(epochs * TRIAL_SECONDS / shares.trial_seconds), *options)
        found.append(shares)
    middle = sorted(found, key=lambda each: each.idle)[len(found) // 2]
    holds = show("idle", [], about, quantities=_rows(middle, found))
    conclude(holds, strict=strict)


def _rows(middle: Shares, found: Sequence[Shares]) -> list[Quantity]:
    facts: dict[str, Any] = {
        "worker_seconds": round(middle.worker_seconds, 1),
        "seconds": {what: round(seconds, 2) for what, seconds in middle.seconds.items()},
        "trials": dict(middle.trials),
        "all_runs": [round(each.idle, 4) for each in found],
        "load_average_after": round(os.getloadavg()[0], 2),
    }
    rows = [
        Quantity("worker time that is neither updates nor evaluation", 100 * middle.idle, "%",
                 bar=5.0, facts=facts),
        Quantity("the same without the start of processes, once a run", 100 * middle.settled, "%"),
        Quantity("training time of a whole trial", middle.trial_seconds, "s"),
    ]  # fmt: skip
    rows += [
        Quantity(f"of worker time: {what}", 100 * seconds / middle.worker_seconds, "%")
        for what, seconds in middle.seconds.items()
    ]
    rows.append(Quantity("not counted: places without a trial left", middle.left_over, "s"))
    return rows


if __name__ == "__main__":
    began = time.monotonic()
    number = epochs_for(TRIAL_SECONDS)
    json.dump({"epochs": number, "seconds": time.monotonic() - began}, sys.stdout)
