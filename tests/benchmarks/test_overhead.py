"""What the benchmark of overhead makes of the times it measures, and that it runs."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.overhead import SWEEP, Course, command, growth
from benchmarks.pairs import ROOT
from hsweep.planning.plan import make_plan
from hsweep.workspace import load_sweep


def course(started: float, *ended: float, peak_mb: float = 1.0) -> Course:
    return Course(started, ended, {"peak_mb": peak_mb})


def test_a_rate_counts_from_the_first_start_to_the_last_end() -> None:
    assert course(10.0, 11.0, 12.0, 14.0).rate == pytest.approx(3 / 4)


def test_the_first_part_leaves_the_start_of_processes_out() -> None:
    assert course(0.0, 5.0, 6.0, 7.0, 9.0, 11.0, 13.0, 99.0).parts(3) == [1.0, 2.0]


def test_growth_is_of_the_last_part_over_the_first_and_of_memory_over_few_trials() -> None:
    short, long = course(0.0, 1.0, peak_mb=2.0), course(0.0, *range(1, 5), 6.0, 8.0, peak_mb=2.6)
    rate, time, memory = growth([short], [long], 3)
    assert rate.value == pytest.approx(6 / 8)
    assert (time.value, time.holds) == (pytest.approx((8 - 3) / 3), False)
    assert (memory.value, memory.holds) == (pytest.approx(1.3), False)


def test_every_trial_of_the_sweep_is_one_of_its_own() -> None:
    plan = make_plan(load_sweep(ROOT / SWEEP).sweep, preset="quick", study_seed=0)
    assert len({trial.key for trial in plan.trials}) == 1000


@pytest.mark.slow
def test_it_runs_from_end_to_end() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    (pairing,) = found["pairings"]
    assert [each["reports"] for each in pairing["facts"]["ours"]] == [18]
    assert "6 trials" in {each["name"] for each in found["quantities"]}
