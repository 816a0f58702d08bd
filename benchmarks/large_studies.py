"""Made-up studies of any size, recorded report by report without training anything."""

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from hsweep import Question, Transition, lean
from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import Home
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.manifest import Manifest
from hsweep.record.study import StudyFolder
from hsweep.running.manifests import recorded_question
from hsweep.tracking.target import StoreState, tracking_target

Kind = Literal["transition", "lean"]
KINDS: Final[tuple[Kind, ...]] = ("transition", "lean")
BEGAN: Final = 1_750_000_000.0
"""When the first trial of a made-up study began, seconds since the epoch."""
AT_ONCE: Final = 8
"""Trials whose reports are mixed in the record."""

_SWEEP: Final = '"""How long does a study of very many trials take to be analysed?"""\n'
_FAR_REASON: Final = "worse than 20 of 30 trials at rung 4"


@dataclass(frozen=True, slots=True)
class MadeTrial:
    """A trial and all that it reported.

    Attributes:
        row: as planned.
        errors: the metric at each of its reports.
        status: how it ended.
        reason: why.
    """

    row: TrialRow
    errors: tuple[float, ...]
    status: TrialStatus
    reason: str = ""


def make_trials(kind: Kind, trials: int, reports: int, seed: int = 0) -> Iterator[MadeTrial]:
    """Yield made-up trials: 96 % run to their end, some are stopped early, fail or diverge.

    Args:
        kind: ``transition`` varies heads and lengths (50 cells), ``lean`` heads, depth and head
            width (2,000 shapes).
        trials: how many.
        reports: of a trial that runs to its end.
        seed: of everything random in them.
    """
    rng = np.random.default_rng(seed)
    number = np.arange(trials)
    axes: dict[str, np.ndarray[Any, Any]]
    if kind == "transition":
        axes = {"heads": 1 + number % 10, "seq_len": 8 * 2 ** (number // 10 % 5)}
        cells = 50
        far = axes["heads"] < 4
        level = np.where(far, -1.6 + 0.5 * np.log10(axes["seq_len"] / 8), -4.4)
        last = 10 ** (level - 0.1 * axes["heads"] + rng.normal(0, 0.1, trials))
        size = 1000 * axes["heads"]
        fall = 0.8
    else:
        axes = {
            "heads": 1 + number % 20,
            "depth": 1 + number // 20 % 10,
            "head_dim": 8 * (1 + number // 200 % 10),
        }
        cells = 2000
        last = 0.5 + 0.02 * np.log2(axes["heads"]) + 0.03 * np.log2(axes["depth"])
        last = last + 0.01 * np.log2(axes["head_dim"] / 8) + rng.normal(0, 0.01, trials)
        size = 1000 * axes["depth"] * (6 + axes["heads"] * axes["head_dim"] // 8)
        fall = -0.2
        far = np.zeros(trials, dtype=bool)
    cells = min(cells, trials)
    words = (TrialStatus.FINISHED, TrialStatus.STOPPED_EARLY, TrialStatus.FAILED,
             TrialStatus.DIVERGED)  # fmt: skip
    ends = rng.choice(4, trials, p=[0.96, 0.02, 0.01, 0.01])
    # A shape that loses a run to early stopping is not compared, so not all of them may lose one.
    ends[(ends == 1) & ~far] = 0
    parts = {name: f"{name:0>20}" for name in ("budget", "code", "data", "model", "recipe")}
    for at in range(trials):
        status = words[ends[at]]
        reached = reports if status is TrialStatus.FINISHED else max(1, reports // 5)
        parameters = int(size[at])
        row = TrialRow(
            key=f"{zlib.crc32(b'%d' % at):08x}{at:012x}",
            ordinal=at,
            point={name: int(values[at]) for name, values in axes.items()},
            replicate=at // cells,
            stratum="",
            budget=reports,
            counts={
                "num_params": parameters,
                "flops_per_example": 2 * parameters,
                "train_flops_per_example": 6 * parameters,
                "train_memory_bytes": 16 * parameters,
            },
            parts={**parts, "seeds": f"{at // cells:020x}"},
        )
        errors = tuple(float(last[at]) * (reports / unit) ** fall for unit in range(1, reached + 1))
        reason = {
            TrialStatus.STOPPED_EARLY: _FAR_REASON,
            TrialStatus.FAILED: "RuntimeError: the worker was killed",
            TrialStatus.DIVERGED: f"not finite at step {10 * reached}",
        }.get(status, "")
        yield MadeTrial(row, errors, status, reason)


def write_study(home: Home, kind: Kind, trials: int, reports: int, name: str) -> StudyFolder:
    """Write a made-up study into a home, with an MLflow run for every trial."""
    metric, goal = ("nmse", "min") if kind == "transition" else ("top1", "max")
    question: Question = (
        Transition(x="heads", by="seq_len", scale="error")
        if kind == "transition"
        else lean({"heads": 10, "depth": 10, "head_dim": 80}, margin=0.02)
    )
    axes = ["heads", "seq_len"] if kind == "transition" else ["heads", "depth", "head_dim"]
    target = tracking_target(None, home, "made_up")
    manifest = Manifest(
        name=name, sweep="made_up", preset="quick", settings=[], limits={}, seed=0, metric=metric,
        goal=goal, metrics=[metric, "loss"], budget={"amount": reports, "unit": "epochs"},
        question=recorded_question(question), description=_SWEEP, axes=axes,
        sweep_folder=str(home.root), storage=None, tracking_uri=target.uri, experiment="made_up",
        command="hsweep run made_up.py", created=BEGAN,
        provenance={},
    )  # fmt: skip
    study = StudyFolder.create(home, manifest, sweep_source=_SWEEP, plan={"trials": []})
    made = list(make_trials(kind, trials, reports))
    with study.writer() as journal:
        journal.add_trials(trial.row for trial in made)
        for first in range(0, trials, AT_ONCE):
            _record(journal, metric, made[first : first + AT_ONCE])
    state = StoreState.of(study.paths.journal, target)
    state.experiment = "1"
    state.runs = {trial.row.key: f"{zlib.crc32(trial.row.key.encode()):032x}" for trial in made}
    state.save()
    return study


def _record(journal: Journal, metric: str, trials: Sequence[MadeTrial]) -> None:
    """Record what trials report that run at the same time."""
    for trial in trials:
        journal.begin_attempt(trial.row.key)
    for unit in range(1, max(len(trial.errors) for trial in trials) + 1):
        for trial in trials:
            if unit > len(trial.errors):
                continue
            error = trial.errors[unit - 1]
            report = Report(
                unit,
                step=10 * unit,
                metrics={metric: error, "loss": 2 * error},
                wall_seconds=0.5 * unit,
                is_last=unit == len(trial.errors),
                train_seconds=0.4 * unit,
                data_seconds=0.03125 * unit,
            )
            status = trial.status if report.is_last else TrialStatus.RUNNING
            journal.record(trial.row.key, 1, report, status, trial.reason if report.is_last else "")


def main(home: str, kind: str, trials: str, reports: str, name: str) -> None:
    """Write a made-up study and its exported tables."""
    (known,) = (choice for choice in KINDS if choice == kind)
    write_study(Home(Path(home)), known, int(trials), int(reports), name).write_tables()


if __name__ == "__main__":
    main(*sys.argv[1:])
