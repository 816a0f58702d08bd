"""No interval leaves the range of its metric, and none is narrowed more than that needs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_shapes import analysed, grid

from analysis.questions.effects import fit as effects
from analysis.runs.scale import metric_span
from analysis.statistics.bounds import (
    ANYWHERE,
    AT_LEAST_0,
    SHARE,
    clipped,
    difference_span,
    mean_interval,
)
from analysis.statistics.values import Interval


@given(
    mean=st.floats(0, 1),
    reach=st.floats(0, 1e6),
    span=st.sampled_from([SHARE, AT_LEAST_0, (-1.0, 3.0), ANYWHERE]),
)
def test_a_mean_interval_holds_the_mean_and_stays_inside(mean, reach, span):
    interval = mean_interval(mean, reach, span)
    assert span[0] <= interval.low <= mean <= interval.high <= span[1]


@pytest.mark.parametrize("span", [SHARE, AT_LEAST_0])
def test_far_from_the_ends_nothing_changes(span):
    interval = mean_interval(0.5, 0.001, span)
    assert interval == pytest.approx((0.5, 0.499, 0.501), abs=1e-5)


def test_a_wide_interval_is_not_cut_to_a_sure_one():
    # Near 1 the upper end comes close to it, and the lower end stays as far as it was.
    interval = mean_interval(0.95, 0.2, SHARE)
    assert interval.low < 0.75
    assert interval.high > 0.99


def test_unknown_and_endless_intervals_stay_what_they_are():
    unknown = mean_interval(0.5, math.nan, SHARE)
    assert (unknown.estimate, math.isnan(unknown.low)) == (0.5, True)
    assert mean_interval(2.0, 3.0, ANYWHERE) == Interval(2.0, -1.0, 5.0)
    assert clipped(Interval(0.2, -3.0, 4.0), difference_span(SHARE)) == Interval(0.2, -1.0, 1.0)


@pytest.mark.parametrize(
    ("values", "goal", "scale", "span"),
    [
        ([0.2, 0.9], "max", None, SHARE),
        ([0.2, 1.1], "max", None, ANYWHERE),
        ([-0.1, 0.5], "max", None, ANYWHERE),
        ([0.2, 7.0], "min", None, AT_LEAST_0),
        ([-1.0], "min", None, ANYWHERE),
        ([3.0], "min", "loss", AT_LEAST_0),
        ([], "max", "accuracy", SHARE),
        ([], "min", "error", AT_LEAST_0),
    ],
)
def test_the_range_is_that_of_the_scale_or_of_what_was_seen(values, goal, scale, span):
    assert metric_span(values, goal, scale) == span


def accuracies(heads, depth):
    return 0.97 - 0.4 / (heads * depth)


@pytest.mark.parametrize("scale", [None, "accuracy"])
@pytest.mark.parametrize("seeds", [2, 3])
def test_no_interval_of_effects_leaves_the_range(scale, seeds):
    frame = grid(accuracies, 1, sd=0.2, seeds=seeds)
    frame["score"] = frame["score"].clip(0.01, 0.999)
    options = {"config": ["heads", "depth"], "metric": "score", "goal": "max", "scale": scale}
    result = analysed(effects.fit, frame, **options)
    levels = [level.metric for pair in result.interactions for level in pair.levels]
    assert levels
    assert max(level.high - level.low for level in levels) > 0.5  # two seeds know little
    for interval in levels:
        assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    if scale is None:
        gains = [axis.effect for axis in result.axes]
        gains += [step.effect for axis in result.axes for step in axis.steps]
        assert all(-1 <= gain.low <= gain.high <= 1 for gain in gains)
