"""Seeds that are one training count once, and an axis that changes nothing has no answer."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.runs.table import Runs
from hsweep.errors import UserError

CELLS = [(heads, depth) for heads in (1, 2, 4) for depth in (2, 4)]


def table(seeds: int = 5, *, by: str = "heads depth seed", digits: int | None = None) -> Any:
    """Losses that depend on these columns alone."""
    frame = pd.DataFrame(
        [(heads, depth, seed) for heads, depth in CELLS for seed in range(seeds)],
        columns=["heads", "depth", "seed"],
    )
    numbers = frame.groupby(by.split()).ngroup().to_numpy()
    loss = np.random.default_rng(0).normal(0.5, 0.02, numbers.max() + 1)[numbers]
    return frame.assign(loss=loss if digits is None else loss.round(digits))


def rows(frame: pd.DataFrame, metric: str = "loss", *keys: str) -> tuple[pd.DataFrame, list[str]]:
    return Runs(frame, metric).rows(keys or ("heads", "depth"))


def copied(frame: pd.DataFrame) -> pd.DataFrame:
    """The table, where seeds 3 and 4 of one cell are copies of its seed 1."""
    at = frame.query("heads == 2 and depth == 4").index
    frame.loc[at[3:], "loss"] = frame.loc[at[1], "loss"]
    return frame


@pytest.mark.parametrize("digits", [None, 6])
def test_copies_among_honest_seeds_count_once_and_are_named(digits: int | None) -> None:
    found, warnings = rows(copied(table(digits=digits)))
    assert len(found) == len(CELLS) * 5 - 2
    assert warnings == [
        "seeds that agree to the last digit are one run and count once: heads=2, depth=4: 3 as 1, "
        "heads=2, depth=4: 4 as 1; such a training does not use its seed"
    ]


@pytest.mark.parametrize("metric", ["loss", "top1"])
def test_agreements_that_chance_explains_are_runs_of_their_own(metric: str) -> None:
    frame = copied(table(digits=2)).rename(columns={"loss": metric})
    found, warnings = rows(frame, metric)
    assert (len(found), warnings) == (len(frame), [])


def test_a_perfect_score_that_others_have_too_is_no_copy() -> None:
    frame = table()
    frame.loc[frame["heads"] == 4, "loss"] = 0.0
    found, warnings = rows(frame)
    assert (len(found), warnings) == (len(frame), [])


def test_curves_tell_runs_apart_that_end_alike() -> None:
    frame = copied(table())
    found, _ = rows(frame.assign(curve=[str(number) for number in range(len(frame))]))
    assert len(found) == len(frame)


@pytest.mark.parametrize("seeds", [1, 3])
def test_an_axis_that_changes_nothing_has_no_answer(seeds: int) -> None:
    with pytest.raises(UserError, match="heads changes nothing here: each"):
        rows(table(seeds, by="depth seed"))
    with pytest.raises(UserError, match="heads and depth change nothing here"):
        rows(table(3, by="seed"))


def test_what_chance_or_a_bound_explains_is_no_idle_axis() -> None:
    for value in (1.0, 0.0, 0.5):
        assert len(rows(table().assign(loss=value))[0]) == len(CELLS) * 5
    frame = table(3, by="seed").query("depth == 2").assign(top1=[0.98, 0.97, 0.98] * 3)
    assert len(rows(frame, "top1", "heads")[0]) == 9


def test_curves_tell_values_of_an_axis_apart_that_end_alike() -> None:
    frame = table(3, by="depth seed")
    assert len(rows(frame.assign(curve=frame["heads"].astype(str)))[0]) == len(frame)
