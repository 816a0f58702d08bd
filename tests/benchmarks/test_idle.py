"""How the benchmark of idle workers adds up their time."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.idle import SWEEP, Span, command, shares
from hsweep.planning.plan import make_plan
from hsweep.workspace import load_sweep

FIRST: list[Span] = [
    ("open", 3.0, 4.0),
    ("evaluate", 8.0, 9.0),
    ("checkpoint", 9.0, 9.5),
    ("between reports", 9.0, 9.7),
    ("evaluate", 12.0, 13.0),
    ("latency", 13.0, 13.5),
    ("open", 14.0, 14.5),
    ("evaluate", 19.0, 20.0),
]
SECOND: list[Span] = [("open", 2.0, 2.5), ("evaluate", 14.0, 15.0)]


def test_every_second_of_a_place_is_counted_once() -> None:
    found = shares(0.0, {"1": FIRST, "2": SECOND}, [6.0, 4.0, 11.0])
    assert found.worker_seconds == 20 + 15
    assert sum(found.seconds.values()) == pytest.approx(found.worker_seconds)
    assert found.seconds["updates"] == 21
    assert found.seconds["evaluation"] == 4
    assert found.seconds["start of processes"] == 3 + 2
    assert found.seconds["from trial to trial"] == 0.5
    assert found.seconds["opening data"] == 2
    assert found.idle == pytest.approx(1 - 25 / 35)
    assert found.settled == pytest.approx(1 - 25 / 30)


def test_the_wait_of_a_place_that_has_no_trial_left_is_told_apart() -> None:
    assert shares(0.0, {"1": FIRST, "2": SECOND}, [1.0]).left_over == 5


def test_the_study_is_one_with_reports_checkpoints_and_early_stopping() -> None:
    sweep = load_sweep(SWEEP).sweep
    assert sweep.early_stopping is not None
    assert sweep.early_stopping.milestones(sweep.budget)
    assert len(make_plan(sweep, preset="quick", study_seed=0).trials) == 30


@pytest.mark.slow
def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--quick"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    idle = found["quantities"][0]
    assert 0 < idle["value"] < 100
    seconds = idle["facts"]["seconds"]
    assert min(seconds[what] for what in ("updates", "evaluation", "start of processes")) > 0
    assert sum(seconds.values()) == pytest.approx(idle["facts"]["worker_seconds"], rel=0.01)
