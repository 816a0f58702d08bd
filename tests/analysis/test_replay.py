"""Recorded runs that are given other ways: what they train, and whether the answer stays."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.questions.lean.kind import LEAN
from analysis.questions.pareto.kind import PARETO
from analysis.questions.transition.kind import TRANSITION
from analysis.replay.record import Record, table_record
from analysis.replay.ways import Played, Replay, advice
from analysis.runs.table import Runs
from hsweep.errors import UserError

NO_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("x", "by", "goal", "scale", "eval_size", "baseline", "margin")),
    **dict.fromkeys(("config", "cost", "nuisance", "settings"), ()),
}
UNITS = (1, 2, 3, 4)


def curves(rows: list[dict[str, Any]], metric: str) -> Runs:
    """Return runs whose reports come down, or up, to their last value at the fourth unit."""
    reports = [
        {**row, "unit": unit, metric: row[metric] * 4 / unit} for row in rows for unit in UNITS
    ]
    return Runs(pd.DataFrame(reports), metric, {"replicate": "seed", "budget_column": "unit"})


def heads_record(seeds: int = 14, heads: int = 6, shortest: int = 0) -> Record:
    """Errors that collapse at four heads, where lengths are longer than ``shortest``."""
    rng = np.random.default_rng(0)

    def nmse(head: int, length: int) -> float:
        fall = 2.0 if head >= 4 and length > shortest else 0.0
        return float(10 ** (-0.1 * head - fall + 0.05 * rng.standard_normal()))

    rows = [
        {"heads": head, "seq_len": length, "seed": seed, "nmse": nmse(head, length)}
        for head in range(1, heads + 1)
        for length in (8, 16, 32)
        for seed in range(seeds)
    ]
    return table_record(curves(rows, "nmse"), TRANSITION, NO_OPTIONS)


def shapes_record(seeds: int = 12) -> Record:
    """Losses of which shape b is the leanest that is as good as the baseline."""
    rng = np.random.default_rng(0)
    means = {"a": 1.2, "b": 1.0, "c": 1.0, "d": 1.0}
    rows = [
        {
            "config": name,
            "seed": seed,
            "num_params": cost,
            "loss": mean + 0.01 * rng.standard_normal(),
        }
        for cost, (name, mean) in enumerate(means.items(), 1)
        for seed in range(seeds)
    ]
    return table_record(curves(rows, "loss"), LEAN, {**NO_OPTIONS, "baseline": "d", "margin": 0.05})


def play(record: Record, *ways: str, draws: int = 5) -> tuple[str, dict[str, Played]]:
    replay = Replay(record)
    return replay.answer, {each.way: each for each in replay.rate(ways, draws, lambda _: None)}


def agreement(played: Played) -> float:
    assert played.same is not None
    return played.same.estimate


def test_an_adaptive_design_finds_the_recorded_transition_with_a_share_of_the_training() -> None:
    answer, rated = play(heads_record(), "adaptive")
    assert answer == "h* = 4"
    found = rated["adaptive"]
    assert agreement(found) == 1
    assert found.share.high < 0.5
    assert not found.short


def test_an_adaptive_design_searches_at_the_second_longest_length() -> None:
    replay = Replay(heads_record(shortest=8))
    # At the shortest length there is nothing to find, and a search there would end.
    (found,) = replay.rate(["adaptive"], 5, lambda _: None)
    (at_shortest,) = Replay(heads_record(shortest=99)).rate(["adaptive"], 5, lambda _: None)
    assert found.share.low > at_shortest.share.high


def test_a_race_finds_the_recorded_lean_shape() -> None:
    answer, rated = play(shapes_record(), "adaptive", "seeds=1", "grace=1,reduction_factor=2")
    assert answer == "config=b"
    assert agreement(rated["adaptive"]) == 1
    assert rated["adaptive"].share.high < 1
    # One seed settles nothing; rungs spare the baseline and the best, and the worst is stopped.
    assert agreement(rated["seeds=1"]) == 0
    assert rated["seeds=1"].share.estimate == pytest.approx(1 / 12)
    assert rated["grace=1,reduction_factor=2"].share.estimate <= 1


def test_a_design_that_asks_for_seeds_which_are_not_there_is_not_counted() -> None:
    _, rated = play(heads_record(seeds=2), "adaptive")
    assert rated["adaptive"].short == rated["adaptive"].draws
    assert rated["adaptive"].same is None
    assert not rated["adaptive"].is_kept


def test_every_second_head_count_trains_half_and_moves_the_answer() -> None:
    _, rated = play(heads_record(3, heads=10), "every=heads/2", draws=20)
    few = rated["every=heads/2"]
    assert few.share == (0.5, 0.5, 0.5)
    # Without 4 the collapse is at 5; at the second of 2, 4, ..., 10 none is claimed.
    assert agreement(few) == 0


def test_rungs_that_come_too_early_lose_the_winner() -> None:
    rows = [
        {"config": name, "seed": 0, "loss": value}
        for name, value in zip("abcd", (4, 3, 2, 1), strict=True)
    ]
    runs = curves(rows, "loss")
    late = runs.frame["unit"] < 2
    runs.frame.loc[late, "loss"] = 10 - runs.frame.loc[late, "loss"]  # the order turns round
    record = table_record(runs, PARETO, {**NO_OPTIONS, "goal": "min"})
    rungs = "reduction_factor=2,min_survivors=1"
    answer, rated = play(record, f"grace=1,{rungs}", f"grace=2,{rungs}")
    assert answer == "config=d"
    assert agreement(rated[f"grace=1,{rungs}"]) == 0
    assert agreement(rated[f"grace=2,{rungs}"]) == 1
    # Two stop after 2 of 4 units.
    assert rated[f"grace=2,{rungs}"].share.estimate == 0.75
    assert advice(list(rated.values()))[0] == f"grace=2,{rungs}"


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("halving=2", "part of a way"),
        ("every=depth/2", "axis in every=AXIS/2"),
        ("seeds=0", "whole numbers above 0"),
        ("adaptive,seeds=1", "part of a way"),
        ("grace=1,reduction_factor=1", "reduction_factor"),
    ],
)
def test_a_way_that_is_none_is_refused(way: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        play(heads_record(seeds=2), way)
