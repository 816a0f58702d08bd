"""What the benchmark of overhead makes of the times it measures, and that it runs."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.overhead import SWEEP, Course, command
from hsweep.planning.plan import make_plan
from hsweep.workspace import load_sweep


def test_a_rate_counts_from_the_first_start_to_the_last_end() -> None:
    assert Course(10.0, (11.0, 12.0, 14.0), (1.0, 1.0, 1.0)).rate == pytest.approx(3 / 4)


def test_the_first_part_leaves_the_start_of_processes_out() -> None:
    ended = (5.0, 6.0, 7.0, 9.0, 11.0, 13.0, 99.0)
    assert Course(0.0, ended, (1.0,) * 7).parts(3) == [1.0, 2.0]


def test_memory_is_that_at_the_end_of_each_part() -> None:
    assert Course(0.0, (1.0, 2.0, 3.0, 4.0, 5.0), (1.0, 2.0, 3.0, 4.0, 5.0)).memory_at(2) == [2, 4]


def test_every_trial_of_the_sweep_is_one_of_its_own() -> None:
    plan = make_plan(load_sweep(SWEEP).sweep, preset="quick", study_seed=0)
    assert len({trial.key for trial in plan.trials}) == 1000


@pytest.mark.slow
def test_it_runs_from_end_to_end() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert [each["facts"]["ours"]["reports"] for each in found["pairings"]] == [18]
    assert {each["name"] for each in found["quantities"]} >= {"6 trials", "driver's memory at most"}
