"""Made-up studies of any size, written as the tool writes them but many rows at once.

A study that is recorded report by report takes a quarter of an hour for two million reports. Here
the rows are the same (a test holds them against what the record itself writes), and their indexes
are made at the end. The second copy of the record is left out: no verb that reads looks at it.
"""

import json
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from hsweep.design.question import Question, Transition, lean
from hsweep.design.trial import TrialStatus
from hsweep.paths import Home
from hsweep.planning.content import describe
from hsweep.record.changes import TRIAL_COLUMNS
from hsweep.record.journal import TrialRow
from hsweep.record.manifest import Manifest
from hsweep.record.study import Study
from hsweep.record.text_copy import log_checksum, row_checksum
from hsweep.tracking.tracker import tracking_target

Kind = Literal["transition", "lean"]
KINDS: Final[tuple[Kind, ...]] = ("transition", "lean")
BEGAN: Final = 1_750_000_000.0
"""When the first trial of a made-up study began, seconds since the epoch."""
AT_ONCE: Final = 8
"""Trials whose reports are mixed in the log."""

_SWEEP: Final = '"""How long does a study of very many trials take to be analysed?"""\n'
_FAR_REASON: Final = "worse than 20 of 30 trials at rung 4"
_INSERT_LOG: Final = (
    "INSERT INTO log (time, key, attempt, kind, unit, payload, crc) VALUES (?, ?, ?, ?, ?, ?, ?)"
)


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
        few = axes["heads"] < 4
        level = np.where(few, -1.6 + 0.5 * np.log10(axes["seq_len"] / 8), -4.4)
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
    cells = min(cells, trials)
    words = (TrialStatus.FINISHED, TrialStatus.STOPPED_EARLY, TrialStatus.FAILED,
             TrialStatus.DIVERGED)  # fmt: skip
    # Shapes that lose a run to early stopping are not compared: of a lean study none is stopped.
    stopped = 0.02 if kind == "transition" else 0.0
    ends = rng.choice(4, trials, p=[0.98 - stopped, stopped, 0.01, 0.01])
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


def payload_of(metric: str, unit: int, error: float) -> dict[str, Any]:
    """Return what a made-up report says, as the record keeps it."""
    return {
        "step": 10 * unit,
        "metrics": {metric: error, "loss": 2 * error},
        "wall_seconds": 0.5 * unit,
        "train_seconds": 0.4 * unit,
        "data_seconds": 0.03125 * unit,
        "latency_seconds": None,
    }


def write_study(home: Home, kind: Kind, trials: int, reports: int, name: str) -> Study:
    """Write a made-up study into a home, with an MLflow run for every trial."""
    metric, goal = ("nmse", "min") if kind == "transition" else ("top1", "max")
    question: Question = (
        Transition(x="heads", by="seq_len")
        if kind == "transition"
        else lean({"heads": 10, "depth": 10, "head_dim": 80}, margin=0.02)
    )
    axes = ["heads", "seq_len"] if kind == "transition" else ["heads", "depth", "head_dim"]
    target = tracking_target(None, home, "made_up")
    manifest = Manifest(
        name=name, sweep="made_up", preset="quick", settings=[], limits={}, seed=0, metric=metric,
        goal=goal, metrics=[metric, "loss"], budget={"amount": reports, "unit": "epochs"},
        question=describe(question), description=_SWEEP, axes=axes, sweep_folder=str(home.root),
        storage=None, tracking_uri=target.uri, command="hsweep run made_up.py", created=BEGAN,
        provenance={},
    )  # fmt: skip
    study = Study.create(home, manifest, sweep_source=_SWEEP, plan={"trials": []})
    with closing(sqlite3.connect(study.paths.journal, isolation_level=None)) as database:
        write_rows(database, metric, make_trials(kind, trials, reports))
        runs = (
            (f"{target.run_prefix}{key}", f"{zlib.crc32(key.encode()):032x}")
            for (key,) in database.execute("SELECT key FROM trials").fetchall()
        )
        database.execute("BEGIN")
        database.execute("INSERT INTO meta VALUES (?, '1')", (target.experiment_name,))
        database.executemany("INSERT INTO meta VALUES (?, ?)", runs)
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return study


def write_rows(database: sqlite3.Connection, metric: str, made: Iterator[MadeTrial]) -> None:
    """Write trials and all that they reported into an empty journal."""
    indexes = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    database.execute("PRAGMA cache_size = -200000")
    database.execute("BEGIN")
    for name, _ in indexes:
        database.execute(f"DROP INDEX {name}")
    columns = (*TRIAL_COLUMNS, "crc", "train_seconds", "data_seconds")
    insert_trial = (
        f"INSERT INTO trials ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    )
    clock = BEGAN
    while some := list(islice(made, AT_ONCE)):
        entries = list(_entries(metric, some))
        rows = []
        for entry in entries:
            clock += 0.25
            key, attempt, kind, unit, payload = entry
            sealed = log_checksum(key, (None, clock, attempt, kind, unit, payload))
            rows.append((clock, *entry, sealed))
        database.executemany(_INSERT_LOG, rows)
        database.executemany(insert_trial, [_trial_values(trial) for trial in some])
    for _, sql in indexes:
        database.execute(sql)
    database.execute("COMMIT")


def _entries(
    metric: str, some: Sequence[MadeTrial]
) -> Iterator[tuple[str, int, str, int | None, str]]:
    """Yield what trials that run at once put into the log: key, attempt, kind, unit, payload."""
    for trial in some:
        yield _status(trial.row.key, TrialStatus.RUNNING, "")
    for unit in range(1, max(len(trial.errors) for trial in some) + 1):
        for trial in some:
            if unit <= len(trial.errors):
                told = json.dumps(payload_of(metric, unit, trial.errors[unit - 1]))
                yield trial.row.key, 1, "report", unit, told
            if unit == len(trial.errors):
                yield _status(trial.row.key, trial.status, trial.reason)


def _status(key: str, status: TrialStatus, reason: str) -> tuple[str, int, str, None, str]:
    return key, 1, "status", None, json.dumps({"status": status, "reason": reason})


def _trial_values(trial: MadeTrial) -> tuple[Any, ...]:
    unit = len(trial.errors)
    said = payload_of("", unit, 0.0)
    state = (
        str(trial.status), trial.reason, 1, unit, trial.errors[-1], said["wall_seconds"], 0, 0, "",
        "", "",
    )  # fmt: skip
    row = (*trial.row.planned_columns(), *state)
    return (*row, row_checksum(row), said["train_seconds"], said["data_seconds"])


def main(home: str, kind: str, trials: str, reports: str, name: str) -> None:
    """Write a made-up study and its exported tables."""
    (known,) = (each for each in KINDS if each == kind)
    write_study(Home(Path(home)), known, int(trials), int(reports), name).write_tables()


if __name__ == "__main__":
    main(*sys.argv[1:])
