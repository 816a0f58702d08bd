"""The benchmark of plans compares like with like, and works from end to end."""

import itertools
import json

import pytest
from click.testing import CliRunner

from benchmarks import plan
from benchmarks.baselines.plan_meta import num_params
from benchmarks.plan_sweep import SWEEP
from hsweep.planning.plan import make_plan


def test_both_sides_count_the_same_shapes() -> None:
    axes = {"heads": [1, 3], "head_dim": [8, 16], "depth": [1, 2], "mlp_ratio": [0.5, 4.0]}
    sweep = SWEEP
    for axis, values in axes.items():
        sweep = sweep.with_setting(axis, values)
    trials = make_plan(sweep, preset="quick", study_seed=0).trials
    shapes = itertools.product(*axes.values())
    assert [trial.counts.num_params for trial in trials] == [num_params(*each) for each in shapes]
    assert [tuple(trial.point.values()) for trial in trials] == list(
        itertools.product(*axes.values())
    )


@pytest.mark.parametrize("thousands", [1, 5, 20])
def test_grids_have_the_size_they_are_named_by(thousands: int) -> None:
    sizes = [len(list(values)) for values in plan.axes_of(thousands).values()]
    assert sizes[0] * sizes[1] * sizes[2] * sizes[3] == 1000 * thousands


def test_growth_is_what_points_take_at_the_end_over_what_they_take_at_the_start() -> None:
    # Nine thousand points: the first are left out, quarters are of two thousand.
    level = plan.growth([9.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 1.1, 1.1])
    assert level.value == pytest.approx(1.1)
    assert level.holds
    assert not plan.growth([9.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 1.3, 1.3]).holds


def test_sides_that_disagree_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = plan.Taken(1.0, 1.0, 0.0)
    monkeypatch.setattr(plan, "points_planned", lambda axes: (taken, [10, 20]))
    monkeypatch.setattr(plan, "points_built", lambda axes: (taken, [10, 21]))
    with pytest.raises(RuntimeError, match="differ in their parameters"):
        plan.pairing(plan.TINY, 1)


@pytest.mark.slow
def test_it_works_from_end_to_end() -> None:
    ended = CliRunner().invoke(plan.command, ["--quick"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.output.strip().splitlines()[-1])
    (pairing,) = found["pairings"]
    assert pairing["name"] == "parameters of 8 shapes"
    preset, together = found["quantities"]
    assert preset["name"].startswith("retrieval_heads: 2 points, 2 trials (")
    assert preset["value"] == together["value"] > 0
