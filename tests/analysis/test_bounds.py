"""No interval leaves the range of its metric, and none is narrowed more than that needs."""

import pytest
from simulated_shapes import analysed, grid

from analysis.questions.effects import fit as effects
from analysis.runs.scale import metric_span
from analysis.statistics.bounds import (
    ANYWHERE,
    AT_LEAST_0,
    SHARE,
    clipped,
    difference_span,
)
from analysis.statistics.values import Interval


def test_what_leaves_the_range_is_cut_at_its_ends():
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


@pytest.mark.parametrize(("scale", "end"), [(None, 1), ("accuracy", 100)])
@pytest.mark.parametrize("seeds", [2, 3])
def test_no_interval_of_effects_leaves_the_range(scale, end, seeds):
    frame = grid(accuracies, 1, sd=0.2, seeds=seeds)
    frame["score"] = frame["score"].clip(0.01, 0.999)
    options = {"config": ["heads", "depth"], "metric": "score", "goal": "max", "scale": scale}
    result = analysed(effects.fit, frame, **options)
    gains = [effect.gain for effect in (*result.axes, *result.steps)]
    assert max(gain.high - gain.low for gain in gains) > 0.2 * end  # few seeds know little
    assert all(-end <= gain.low <= gain.estimate <= gain.high <= end for gain in gains)
