"""The head-count study beside what users write: the same trials, and errors that agree."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.study import RIVALS, Cell, agreement
from hsweep.planning.options import SweepOptions
from hsweep.planning.prepare import prepare

ROOT = Path(__file__).parents[2]
CELLS: list[Cell] = [(h, t, s) for h in (1, 2, 3, 4, 5) for t in (8, 32, 128) for s in (0, 1)]


def errors(seed: int, *, times: float = 1.0) -> dict[Cell, float]:
    """Errors that fall with the heads, each 30 % more or less by chance."""
    noise = random.Random(seed)
    return {cell: math.exp(-cell[0] + noise.gauss(0, 0.3)) * times for cell in CELLS}


def test_errors_that_differ_by_their_seeds_alone_agree() -> None:
    found = agreement(errors(0), errors(1))
    assert found.chance > 0.05


def test_the_same_errors_agree_for_certain() -> None:
    found = agreement(errors(0), errors(0))
    assert (found.ratio, found.chance) == (1.0, 1.0)


def test_errors_that_are_larger_throughout_do_not_agree() -> None:
    found = agreement(errors(0), errors(1, times=1.5))
    assert found.chance < 0.01
    assert found.ratio == pytest.approx(1.5, rel=0.2)


def test_how_often_seeds_alone_are_taken_for_a_difference() -> None:
    found = [agreement(errors(2 * n), errors(2 * n + 1)).chance < 0.05 for n in range(60)]
    assert sum(found) <= 8


def test_sides_that_trained_other_trials_are_not_compared() -> None:
    some = errors(0)
    del some[CELLS[0]]
    with pytest.raises(ValueError, match=r"trials of one side alone: \[\(1, 8, 0\)\]"):
        agreement(errors(0), some)


@pytest.mark.slow
def test_all_four_programs_train_the_same_trials() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "study", "--quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    assert found["holds"]
    assert {row["theirs"] for row in found["pairings"]} == {
        "tutorial-style Ray Tune",
        "expert Ray Tune",
        "Optuna",
    }
    assert len(found["pairings"]) == len(RIVALS)


def test_the_study_that_is_measured_can_be_planned() -> None:
    plan = prepare(ROOT / "benchmarks" / "head_count.py", SweepOptions()).plan
    assert len(plan.trials) == len(CELLS)
