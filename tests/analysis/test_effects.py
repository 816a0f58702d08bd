"""What one axis does with the others held, and two together."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from simulated_shapes import additive, analysed, grid, interacting, nothing

from analysis.questions.effects.fit import fit
from analysis.questions.effects.result import EffectsResult, EffectsSettings
from analysis.questions.effects.text import effects_sentences, effects_table
from hsweep.errors import UserError

SHAPE = ["heads", "depth"]


def run(frame: pd.DataFrame, **changes: object) -> EffectsResult:
    return analysed(fit, frame, **({"config": SHAPE, "metric": "score"} | changes))


def effect(result: EffectsResult, axis: str):
    return next(found for found in result.axes if found.axes == (axis,))


def steps(result: EffectsResult, axis: str):
    return [found for found in result.steps if found.axes == (axis,)]


def test_an_additive_truth_is_found_and_its_steps_too():
    result = run(grid(additive, 1, sd=0.05, seeds=5))
    heads, depth = effect(result, "heads"), effect(result, "depth")
    assert (heads.verdict, depth.verdict) == ("helps", "hurts")
    assert heads.gain.low < 1 < heads.gain.high
    assert depth.gain.low < -0.5 < depth.gain.high
    assert [step.values for step in steps(result, "heads")] == [(2, 4), (4, 8)]
    assert all(abs(step.gain.estimate - 1) < 0.1 for step in steps(result, "heads"))
    assert (heads.units, heads.improved, depth.improved) == (6, 6, 0)
    assert [step.units for step in steps(result, "heads")] == [3, 3]


def test_shapes_of_several_settings_are_compared_at_their_best():
    best, worse = grid(additive, 1, sd=0.05, seeds=5), grid(additive, 2, sd=0.05, seeds=5)
    worse["score"] -= 1.0
    both = pd.concat([best.assign(lr=0.1), worse.assign(lr=0.01)], ignore_index=True)
    result = run(both, nuisance=["lr"])
    assert (result.axes, result.nuisance) == (run(best).axes, ("lr",))
    assert " ".join(effects_sentences(result)).endswith("Each shape is taken at its best lr.")
    with pytest.raises(UserError, match="'depth' cannot both name a shape and be a nuisance axis"):
        run(both, nuisance=["depth"])


def test_with_every_pair_in_every_seed_it_is_the_t_test_over_seeds():
    frame = grid(additive, 2, seeds=4)
    by_seed = frame.pivot_table(index="seed", columns="heads", values="score")
    expected = stats.ttest_1samp((by_seed[8] - by_seed[2]) / 2, 0)
    found = effect(run(frame), "heads")
    assert found.p == pytest.approx(expected.pvalue)
    assert found.df == pytest.approx(3)
    low, high = expected.confidence_interval()
    assert (found.gain.low, found.gain.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param("even", marks=pytest.mark.slow),
        pytest.param("shared_seeds", marks=pytest.mark.slow),
        "uneven",
        "seed_along_depth",
    ],
)
def test_where_nothing_matters_little_is_established_and_intervals_hold_zero(noise):
    results = [run(grid(nothing, seed, noise=noise)) for seed in range(200)]
    wrong = [any(axis.verdict in ("helps", "hurts") for axis in found.axes) for found in results]
    together = [found.interactions[0].verdict in ("helps", "hurts") for found in results]
    assert np.mean(wrong) <= 0.09
    assert np.mean(together) <= 0.09
    inside = [axis.gain.low <= 0 <= axis.gain.high for r in results for axis in r.axes]
    assert np.mean(inside) >= 0.92


def test_an_interaction_is_found_and_told_from_axes_that_add_up():
    planted = run(grid(interacting, 3, sd=0.1)).interactions[0]
    assert (planted.axes, planted.verdict) == (("heads", "depth"), "helps")
    assert planted.gain.low < 1 < planted.gain.high
    assert planted.units == 4
    found = [run(grid(additive, seed, sd=0.1)).interactions[0].verdict for seed in range(60)]
    assert found.count("unclear") >= 52


def test_a_stopped_run_is_a_bound_and_its_pairs_are_lost():
    frame = grid(additive, 6, sd=0.1)
    stopped = (frame["heads"] == 4) & (frame["depth"] == 2) & (frame["seed"] == 1)
    frame.loc[stopped, "status"] = "stopped_early"
    result = run(frame)
    heads, depth = effect(result, "heads"), effect(result, "depth")
    assert result.lost == {"stopped early": 1}
    assert (heads.units, heads.lost) == (4, {"stopped early": 2})
    assert (depth.units, depth.lost) == (4, {"stopped early": 2})
    assert result.interactions[0].lost == {"stopped early": 4}
    assert "2 lost (2 stopped early)" in " ".join(effects_sentences(result))
    frame.loc[stopped, "score"] = 1e6
    assert run(frame) == result


def test_a_failed_run_costs_its_seed_alone():
    frame = grid(additive, 6, sd=0.1)
    one = (frame["heads"] == 4) & (frame["depth"] == 2) & (frame["seed"] == 1)
    result = run(frame.assign(status=frame["status"].mask(one, "failed")))
    assert (effect(result, "heads").units, effect(result, "heads").lost) == (6, {})


def test_pairs_without_two_common_seeds_are_lost_while_others_have_them():
    frame = grid(additive, 7, sd=0.1)
    other = (frame["heads"] == 8) & (frame["depth"] == 4)
    frame.loc[other, "seed"] += 10
    found = effect(run(frame), "heads")
    assert (found.units, found.lost) == (5, {"fewer than two seeds in common": 1})


def test_seeds_of_their_own_are_compared_unmatched():
    frame = grid(additive, 8, sd=0.2, seeds=4)
    frame["seed"] += 100 * frame["heads"] + 1000 * frame["depth"]
    result = run(frame)
    assert not result.matched
    assert "independent runs" in result.test
    assert effect(result, "heads").verdict == "helps"
    wrong = 0
    for seed in range(60):
        null = grid(nothing, seed)
        null["seed"] += 100 * null["heads"] + 1000 * null["depth"]
        wrong += any(axis.verdict in ("helps", "hurts") for axis in run(null).axes)
    assert wrong <= 7


def test_a_single_run_in_the_middle_of_every_line_spoils_no_mean():
    frame = grid(additive, 8, sd=0.2, heads=(2, 4, 8), depths=(1,)).drop(columns="depth")
    frame["task"], frame["seed"] = "t", frame["seed"] + 100 * frame["heads"]
    other = frame.assign(task="u", score=frame["score"] + 0.1)
    both = pd.concat([frame, other])[lambda runs: (runs["heads"] != 4) | (runs["seed"] == 400)]
    (heads,) = run(both, config=["heads", "task"]).axes
    assert heads.verdict == "helps"
    assert {step.p for step in steps(run(both, config=["heads", "task"]), "heads")} == {None}


def test_one_seed_is_shown_and_not_tested():
    result = run(grid(additive, 9, seeds=1))
    assert {axis.verdict for axis in result.axes} == {"untested"}
    assert all(axis.p is None and np.isnan(axis.gain.low) for axis in result.axes)
    assert all(np.isfinite(axis.gain.estimate) for axis in result.axes)
    assert "single runs" in " ".join(effects_sentences(result))
    assert any("no effect can be tested" in warning for warning in result.warnings)


def test_a_metric_to_minimise_mirrors_one_to_maximise():
    frame = grid(additive, 10)
    up, down = run(frame), run(frame.assign(score=-frame["score"]), goal="min")
    for one, other in zip(up.axes, down.axes, strict=True):
        assert one.gain == pytest.approx(other.gain)
        assert one.p == pytest.approx(other.p)


def test_errors_are_compared_in_decades():
    frame = grid(additive, 11, sd=0.05)
    errors = frame.assign(score=10.0 ** -frame["score"])
    result = run(errors, goal="min", scale="error")
    assert effect(result, "heads").gain.estimate == pytest.approx(1, abs=0.1)
    assert "decades of score" in effects_table(result).header[2]


def test_names_are_held_and_not_compared():
    first, second = grid(additive, 12, sd=0.1), grid(additive, 13, sd=0.1)
    second["score"] += 1000
    frame = pd.concat([first.assign(task="a"), second.assign(task="b")])
    result = run(frame, config=[*SHAPE, "task"])
    assert result.held == ("task",)
    assert abs(effect(result, "heads").gain.estimate - 1) < 0.1
    assert effect(result, "heads").units == 12


def test_a_width_that_follows_the_heads_does_not_keep_them_from_being_paired():
    frame = grid(additive, 14, sd=0.1)
    coupled = run(frame.assign(head_dim=64 // frame["heads"]), config=[*SHAPE, "head_dim"])
    assert coupled.follows == {"head_dim": "heads"}
    assert effect(coupled, "heads").gain == effect(run(frame), "heads").gain
    free = frame.rename(columns={"depth": "head_dim"})
    free = free.assign(embed_dim=free["heads"] * free["head_dim"])
    found = run(free, config=["heads", "head_dim", "embed_dim"])
    assert found.follows == {"embed_dim": "heads and head_dim"}
    assert any("embed_dim moves with heads and head_dim" in text for text in found.warnings)


def test_other_axes_are_held_on_a_grid_of_three():
    frames = [
        grid(additive, ratio, sd=0.05).assign(mlp_ratio=ratio).eval("score = score + mlp_ratio")
        for ratio in (2, 4)
    ]
    result = run(pd.concat(frames), config=[*SHAPE, "mlp_ratio"])
    assert effect(result, "mlp_ratio").gain.estimate == pytest.approx(2, abs=0.1)
    assert effect(result, "heads").units == 12
    pairs = [found.axes for found in result.interactions]
    assert pairs == [("heads", "depth"), ("heads", "mlp_ratio"), ("depth", "mlp_ratio")]


def test_missing_cells_leave_the_pairs_that_are_there():
    frame = grid(additive, 15, sd=0.1)
    frame = frame[(frame["heads"] != 4) | (frame["depth"] != 2)]
    found = [(step.values, step.units) for step in steps(run(frame), "heads")]
    assert found == [((2, 4), 2), ((2, 8), 1), ((4, 8), 2)]


def test_holm_pays_for_every_axis_and_every_step():
    result = run(grid(additive, 16, sd=1.0, seeds=5))
    for axis in result.axes:
        assert axis.p <= axis.p_holm <= 2 * axis.p + 1e-12
    least = min(result.steps, key=lambda step: step.p)
    assert least.p_holm == pytest.approx(min(1, 4 * least.p))


def test_it_is_plain_json_and_repeats_to_the_bit():
    frame = grid(additive, 17)
    result = run(frame)
    text = json.dumps(result.to_json(), allow_nan=False)
    assert json.dumps(run(frame).to_json()) == text
    json.dumps(run(grid(additive, 17, seeds=1)).to_json(), allow_nan=False)


@pytest.fixture(scope="module")
def unlifted() -> EffectsResult:
    return run(grid(additive, 18))


@settings(max_examples=25, deadline=None)
@given(
    lifts=st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_neither_a_seed_that_lifts_all_shapes_nor_the_order_of_rows_matters(unlifted, lifts, order):
    frame = grid(additive, 18)
    lifted = frame.assign(score=frame["score"] + frame["seed"].map(dict(enumerate(lifts))))
    rows = list(range(len(frame)))
    order.shuffle(rows)
    other = run(lifted.iloc[rows])
    for one, two in zip(unlifted.axes, other.axes, strict=True):
        assert one.gain == pytest.approx(two.gain, abs=1e-9)
        assert one.p == pytest.approx(two.p, abs=1e-9)


def test_tables_name_every_axis():
    result = run(grid(additive, 19, sd=0.1, seeds=5))
    rows = effects_table(result).rows
    assert [row[:2] for row in rows[:3]] == [
        ("heads", "mean of all"),
        ("heads", "2 to 4"),
        ("heads", "4 to 8"),
    ]
    sentence = " ".join(effects_sentences(result))
    assert "One step up in heads (2, 4, 8) makes score better by" in sentence
    assert "One step up in depth (1, 2, 4) makes score worse by 0." in sentence


FRAME = grid(additive, 20)
NAMES = {1: "one", 2: "two", 4: "four", 8: "eight"}


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (FRAME[FRAME["depth"] == 1], {}, "two axes that vary"),
        (FRAME[FRAME["depth"] == 1], {"config": ["heads"]}, "two axes that vary"),
        (FRAME, {"config": []}, "name at least one"),
        (FRAME, {"config": ["heads", "width"]}, "no column 'width'"),
        (FRAME, {"metric": "loss"}, "no column 'loss'"),
        (FRAME, {"scale": "error"}, "contradicts"),
        (FRAME.assign(score="good"), {}, "not numeric"),
        (FRAME.assign(status="failed"), {}, "full budget"),
        (FRAME.assign(status="stopped_early"), {}, "full budget"),
        (FRAME[:0], {}, "empty"),
        (FRAME[(FRAME["heads"] == 2) == (FRAME["depth"] == 1)].query("heads != 8 & depth != 4"),
         {}, "no two shapes differ in one axis alone"),
        (pd.concat([FRAME, FRAME[:1].assign(score=0.5)]), {}, "repeat a run"),
        (FRAME.assign(heads=FRAME["heads"].map(NAMES), depth=FRAME["depth"].map(NAMES)), {},
         "at least one of numbers; what varies is heads, depth"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_the_reason(frame, changes, message):
    with pytest.raises(UserError, match=message):
        run(frame, **changes)


def test_when_every_pair_is_lost_it_says_to_what():
    frame = grid(additive, 21)
    frame["status"] = np.where((frame["heads"] == 4) | (frame["depth"] == 2), "stopped_early", "")
    frame["status"] = frame["status"].replace("", "finished")
    with pytest.raises(UserError, match=r"all 12 pairs .* are lost: 12 to stopped early"):
        run(frame)


@pytest.mark.parametrize("wrong", [{"alpha": 0}, {"confidence": 1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        EffectsSettings(**wrong)
