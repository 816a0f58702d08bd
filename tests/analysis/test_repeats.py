"""Seeds that are one training count once, and an axis that changes nothing has no answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from analysis.runs.rows import RunRows
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


def rows(frame: pd.DataFrame, metric: str = "loss", *keys: str) -> tuple[RunRows, list[str]]:
    return Runs(frame, metric).rows(keys or ("heads", "depth"))


def copied(frame: pd.DataFrame) -> pd.DataFrame:
    """The table, where seeds 3 and 4 of one cell are copies of its seed 1."""
    at = frame.query("heads == 2 and depth == 4").index
    frame.loc[at[3:], "loss"] = frame.loc[at[1], "loss"]
    return frame


@pytest.mark.parametrize("digits", [None, 6])
def test_copies_among_honest_seeds_count_once_and_are_named(digits: int | None) -> None:
    found, warnings = rows(copied(table(digits=digits)))
    assert len(found.runs) == len(CELLS) * 5 - 2
    assert warnings == [
        "seeds that agree to the last digit are one run and count once: heads=2, depth=4: 3 as 1, "
        "heads=2, depth=4: 4 as 1; such a training does not use its seed"
    ]


@pytest.mark.parametrize("metric", ["loss", "top1"])
def test_agreements_that_chance_explains_are_runs_of_their_own(metric: str) -> None:
    frame = copied(table(digits=2)).rename(columns={"loss": metric})
    found, warnings = rows(frame, metric)
    assert (len(found.runs), warnings) == (len(frame), [])


def test_a_perfect_score_that_others_have_too_is_no_copy() -> None:
    frame = table()
    frame.loc[frame["heads"] == 4, "loss"] = 0.0
    found, warnings = rows(frame)
    assert (len(found.runs), warnings) == (len(frame), [])


def test_curves_tell_runs_apart_that_end_alike() -> None:
    frame = copied(table())
    found, _ = rows(frame.assign(_curve=np.arange(len(frame)) + 1.0))
    assert len(found.runs) == len(frame)


@pytest.mark.parametrize("seeds", [1, 3])
def test_an_axis_that_changes_nothing_has_no_answer(seeds: int) -> None:
    with pytest.raises(UserError, match="nothing changes with heads: each"):
        rows(table(seeds, by="depth seed"))
    with pytest.raises(UserError, match="nothing changes with heads and depth:"):
        rows(table(3, by="seed"))


def test_what_chance_or_a_bound_explains_is_no_idle_axis() -> None:
    for value in (1.0, 0.0, 0.5):
        assert len(rows(table().assign(loss=value))[0].runs) == len(CELLS) * 5
    frame = table(3, by="seed").query("depth == 2").assign(top1=[0.98, 0.97, 0.98] * 3)
    assert len(rows(frame, "top1", "heads")[0].runs) == 9


def test_curves_tell_values_of_an_axis_apart_that_end_alike() -> None:
    frame = table(3, by="depth seed")
    assert len(rows(frame.assign(_curve=frame["heads"]))[0].runs) == len(frame)


def test_counts_of_examples_tie_by_chance_whatever_they_are_called() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        hits = rng.binomial(97, 0.8, len(CELLS) * 5)
        for score in (hits / 97, 2 * hits / (97 + hits), (hits / 97).astype(np.float32)):
            found, warnings = rows(table().assign(score=score), "score")
            assert (len(found.runs), warnings) == (len(CELLS) * 5, [])


def test_seeds_that_are_one_training_everywhere_are_single_runs() -> None:
    found, [warning] = rows(table(by="heads depth"))
    assert len(found.runs) == len(CELLS)
    assert "depth=4: 4 as 0" not in warning
    assert "and 21 more" in warning


TRAINING = """
import random
from hsweep import Sweep, epochs, grid, lean

NUMBERS = {{}}

def train(point, run):
    number = NUMBERS.setdefault(run.seeds.init, len(NUMBERS))
    random.seed({seed})
    for epoch in range(1, run.budget + 1):
        run.report(epoch, loss=random.random() / epoch)

SWEEP = Sweep(
    name="repeats", space=grid(heads=[1, 2, 4]), replicates=4, train=train, metric="loss",
    budget=epochs(2), describe=lambda point: point.heads * 10,
    question=lean(baseline=dict(heads=4), margin=0.1),
)
"""


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        ("point.heads * 1000 + number % 3", "heads=1: 3 as 0"),
        ("number", "nothing changes with heads: each seed has the same loss"),
    ],
)
def test_answers_of_studies_and_tables_say_it(
    hsweep: Callable[..., Result], tmp_path: Path, seed: str, words: str
) -> None:
    file, table = tmp_path / "sweep.py", tmp_path / "trials.csv"
    file.write_text(TRAINING.format(seed=seed))
    run = hsweep("run", file, "--study", "s", "--runner", "inline")
    assert hsweep("export", "s", table).exit_code == 0
    asked = ("--metric", "loss", "--goal", "min", "--cost", "num_params", "--config", "heads")
    of_lean = ("--kind", "lean", "--baseline", "heads=4", "--margin", "0.1")
    told = [
        run,
        hsweep("analyze", "s", "--kind", "pareto", "--cost", "num_params"),
        hsweep("analyze", "--table", table, "--kind", "pareto", *asked),
        hsweep("analyze", "--table", table, *of_lean, *asked),
    ]
    assert [words in " ".join(result.output.split()) for result in told] == [True] * 4
