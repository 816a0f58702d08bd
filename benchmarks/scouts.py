"""Simulated sweeps whose learning rate is chosen by scouts, through the scheduler's own decisions.

Axis, question and ladder alone are given, so it is the default of scouts that is measured: one for
a transition, two for a lean study. The four other seeds train at the rate that won, and alone
count. Beside it stand one fixed good rate, and each cell's rate of the best single run judged by
the same seeds, which is what choosing by hand comes to.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import pandas as pd

from analysis.questions.lean import fit as lean
from analysis.questions.transition import fit as transition
from analysis.questions.transition.result import CLAIMS, TransitionSettings
from benchmarks.ladders import BUDGETS
from benchmarks.shapes import MARGIN, Floats
from benchmarks.sweeps import collapse
from hsweep import Lean, Run, Sweep, Transition, epochs, grid, tuned
from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.trial_table import ScheduledTrial, TrialTable
from hsweep.design.question import lean as lean_question
from hsweep.design.trial import Trial, TrialStatus
from hsweep.planning.plan import make_plan

HEADS: Final = (1, 2, 3, 4, 5)
LENGTHS: Final = (8, 32, 128)
TUNED: Final = tuned(0.003, 0.03)
RATES: Final = TUNED.values
COUNTED: Final = 4
MOST_SEEDS: Final = 6
SCOUTED: Final = (
    *("null_alike", "null_differ", "null_heavy", "sharp_alike", "sharp_differ", "sharp_heavy"),
    *("lean_null_alike", "lean_null_differ", "lean_equal"),
)
WAYS: Final = ("scouts", "fixed", "best")


@dataclass(frozen=True)
class ScoutedFound:
    """What was said of one simulated sweep.

    Attributes:
        way: how its rate came about: scouts, fixed or best.
        claims: a collapse, or a shape no worse than the baseline, is claimed.
        right: and it is the true one.
        flattery: how much better than the truth the cells look, in decades, on average.
    """

    family: str
    way: str
    claims: bool
    right: bool
    flattery: float


def _train(point: object, run: Run) -> None:
    """Stand for a training that is simulated."""


@cache
def _plan(question: Transition | Lean) -> tuple[Sweep, tuple[Trial, ...]]:
    """Return a sweep that asks this with scouts by default, and its trials."""
    asked = Sweep(
        name="scouted",
        space=grid(heads=list(HEADS), seq_len=list(LENGTHS)) * grid(lr=TUNED),
        train=_train,
        metric="nmse",
        goal="min",
        budget=epochs(BUDGETS[-1], ladder=list(BUDGETS)),
        replicates=MOST_SEEDS,
        question=question,
    ).with_tuned_axes()
    sweep = replace(asked, replicates=COUNTED + asked.num_scouts)
    return sweep, make_plan(sweep, preset="quick", study_seed=0).trials


def _question(family: str) -> Transition | Lean:
    if not family.startswith("lean"):
        return Transition(by="seq_len")
    return lean_question({"heads": HEADS[-1]}, margin=MARGIN, within="seq_len")


def selected(
    value_of: Callable[[Trial], float], question: Transition | Lean | None = None
) -> pd.DataFrame:
    """Return the runs that early stopping leaves, one row a cell, rate and counted seed."""
    sweep, trials = _plan(question or Transition(by="seq_len"))
    table, asha = (
        TrialTable("min", None, ()),
        StratifiedAsha(sweep.early_stopping, sweep.budget, "min"),
    )
    rows = table.add(trials)

    def train(row: ScheduledTrial) -> None:
        asha.record(row, row.trial.budget.amount, value_of(row.trial))
        table.move(row, TrialStatus.FINISHED)

    for row in rows:
        asha.enter(row)
    for row in rows:
        asha.wait(row) if asha.may_wait(row) else train(row)
    strata = sorted({trial.stratum for trial in trials})
    while any(released := [each for name in strata for each in asha.release(name)]):
        for row, verdict in released:
            if verdict.stop:
                table.move(row, TrialStatus.NOT_NEEDED)
                asha.end(row, verdict.reason)
            else:
                train(row)
    assert not asha.any_waits
    ends = [row for row in rows if row.trial.budget.amount == BUDGETS[-1]]
    return pd.DataFrame(
        {
            **row.trial.point,
            "seed": row.trial.replicate,
            "status": str(row.status),
            "nmse": value_of(row.trial) if row.status is TrialStatus.FINISHED else np.nan,
        }
        for row in ends
        if row.trial.replicate >= sweep.num_scouts
    )


def scouted_found(family: str, seed: int, settings: TransitionSettings) -> list[ScoutedFound]:
    """Analyse sweep ``seed`` of ``family`` in each of the ways.

    Families: null (no head count matters) and sharp (a collapse); the rates are all alike, or they
    differ from cell to cell, or runs have heavy tails and one in ten collapses too. Lean: shapes
    (the head counts, at one length) that lie exactly at the margin, or equal the baseline.
    """
    rng = np.random.default_rng([zlib.crc32(f"scouts_{family}".encode()), seed])
    y, truth, h_star = _values(family, rng)

    def value_of(trial: Trial) -> float:
        point = trial.point
        at = (
            HEADS.index(point["heads"]),
            LENGTHS.index(point["seq_len"]),
            RATES.index(point["lr"]),
            trial.replicate,
            BUDGETS.index(trial.budget.amount),
        )
        return float(10 ** y[at])

    question = _question(family)
    sweep, trials = _plan(question)
    every = [trial for trial in trials if trial.budget.amount == BUDGETS[-1]]
    whole = pd.DataFrame(
        {**trial.point, "seed": trial.replicate, "status": "finished", "nmse": value_of(trial)}
        for trial in every
    )
    frames = {
        "scouts": selected(value_of, question),
        "fixed": whole[(whole["lr"] == RATES[1]) & (whole["seed"] >= sweep.num_scouts)],
        "best": _best(whole),
    }
    found = []
    for way in WAYS:
        runs = frames[way].dropna(subset="nmse")
        places = (
            runs[name].map(values.index)
            for name, values in (("heads", HEADS), ("seq_len", LENGTHS), ("lr", RATES))
        )
        seen = np.log10(runs["nmse"].to_numpy(np.float64))
        flattery = float(np.median(truth[tuple(places)] - seen))
        found.append(
            ScoutedFound(family, way, *_said(family, way, frames[way], h_star, settings), flattery)
        )
    return found


def _said(
    family: str, way: str, frame: pd.DataFrame, h_star: int | None, settings: TransitionSettings
) -> tuple[bool, bool]:
    """Return whether anything is claimed, and rightly."""
    nuisance = ["lr"] if way == "scouts" else []
    if not family.startswith("lean"):
        result = transition.fit(frame, metric="nmse", nuisance=nuisance, settings=settings)
        claims = result.verdict in (*CLAIMS, "plateau")
        return claims, claims and result.verdict != "plateau" and result.h_star == h_star
    shapes = frame[frame["seq_len"] == LENGTHS[0]].assign(quality=lambda f: np.log10(f["nmse"]))
    answer = lean.fit(
        shapes.assign(num_params=shapes["heads"]),
        metric="quality",
        goal="min",
        config=["heads"],
        costs=["num_params"],
        baseline={"heads": HEADS[-1]},
        margin=10 * MARGIN,
        nuisance=nuisance,
    )
    claims = answer.verdict == "found"
    return claims, claims and family == "lean_equal"


def _values(family: str, rng: np.random.Generator) -> tuple[Floats, Floats, int | None]:
    """Return y by head count, length, rate, seed and budget, its truth at the largest budget by the
    first three, and h*."""
    x = np.log10(LENGTHS) - np.mean(np.log10(LENGTHS))
    h_star = None
    if family.startswith("sharp"):
        shape = collapse(rng, heads=HEADS, jump=(0.4, 1.0))
        h_star = shape.h_star
        assert h_star is not None
        slope = np.where(np.array(HEADS) >= h_star, rng.uniform(-0.3, 0.0), shape.slope)
        limit = shape.level[:, None] + slope[:, None] * x
    else:
        limit = np.full((len(HEADS), len(LENGTHS)), -2.0) + 0.3 * x
    if family.startswith("lean"):
        limit = np.full_like(limit, -2.0)
        if "null" in family:
            limit[:-1] += 10 * MARGIN
    else:
        limit = limit + 0.05 * rng.standard_normal(limit.shape)
    cells = (*limit.shape, len(RATES))
    behind = np.zeros(cells)
    if not family.endswith("alike"):
        # One fixed rate is a good one: never far behind the best.
        behind = rng.uniform(0.1, 0.8, cells)
        behind[:, :, 1] = 0.0
    start, power = 10 ** rng.uniform(0.5, 1.2, cells), rng.uniform(0.8, 1.5, cells)
    left = np.log10(1 + (np.array(BUDGETS) / start[..., None]) ** -power[..., None])
    size = (*cells, MOST_SEEDS)
    if family.startswith("lean"):
        # Exactly at the margin, or equal, at the largest budget.
        left = left - left[..., -1:]
    heavy = family.endswith("heavy")
    shared = rng.standard_t(3, size) if heavy else rng.standard_normal(size)
    own = rng.standard_normal((*size, len(BUDGETS)))
    noise = 0.1 * (np.sqrt(0.7) * shared[..., None] + np.sqrt(0.3) * own)
    mean = (limit[:, :, None] + behind)[..., None] + left
    y = mean[..., None, :] + noise
    if heavy:
        y[rng.random(size) < 0.1] = 0.0
    return np.minimum(y, 0.0), np.minimum(mean[..., -1], 0.0), h_star


def _best(whole: pd.DataFrame) -> pd.DataFrame:
    """Return each cell's runs at the rate of the best single run, which they helped to choose."""
    at = whole.groupby(["heads", "seq_len"])["nmse"].idxmin()
    rates = whole.loc[at, ["heads", "seq_len", "lr"]]
    return whole.merge(rates, on=["heads", "seq_len", "lr"])
