"""Rank correlations and their permutation tests: exact where few, honest where a third drives."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.questions.conditioning.fit import size_classes
from analysis.statistics.permutation import correlation_interval, partial_rank_test, rank_test


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def floats(least, most):
    return st.lists(st.integers(-50, 50).map(float), min_size=least, max_size=most)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_one_group_is_spearmans_rho_and_all_arrangements(data):
    first = np.array(data.draw(floats(3, 6)))
    second = np.array(data.draw(floats(first.size, first.size)))
    test = rank_test(first, second, rng=rng(), draws=1999)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert test is None
        return
    assert test.rho == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)
    everything = np.array(
        [stats.spearmanr(first, arranged).statistic for arranged in itertools.permutations(second)]
    )
    ends = (np.mean(everything <= test.rho + 1e-9), np.mean(everything >= test.rho - 1e-9))
    assert test.p == pytest.approx(min(1.0, 2 * min(ends)), abs=0.08)


@given(floats(4, 9), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_any_growing_function_of_either_changes_nothing(values, power):
    first = np.array(values) + np.arange(len(values)) * 0.01
    second = np.sin(np.arange(len(values)) * 2.3)
    plain = rank_test(first, second, rng=rng(), draws=99)
    assert rank_test(np.exp(first / 10), second**3, rng=rng(), draws=99) == plain


def test_what_differs_between_groups_is_no_correlation():
    # Within each group the second falls with the first; over both it rises.
    first = np.array([1.0, 2, 3, 11, 12, 13])
    second = np.array([3.0, 2, 1, 13, 12, 11])
    assert rank_test(first, second, rng=rng(), draws=9).rho > 0.5
    held = rank_test(first, second, groups=[0, 0, 0, 1, 1, 1], rng=rng(), draws=3999)
    assert (held.rho, held.shapes, held.groups) == (pytest.approx(-1), 6, 2)
    assert held.p == pytest.approx(2 / 36, abs=0.02)


def test_a_unit_alone_in_its_group_says_nothing():
    test = rank_test(np.arange(4.0), np.arange(4.0), groups=[0, 0, 1, 2], rng=rng(), draws=9)
    assert (test.shapes, test.groups) == (2, 1)
    assert rank_test(np.arange(3.0), np.arange(3.0), groups=[0, 1, 2], rng=rng(), draws=9) is None


def test_many_arrangements_are_drawn_the_same_way_each_time():
    first, second = rng().normal(size=(2, 20))
    one, other = (rank_test(first, second, rng=rng(), draws=499) for _ in range(2))
    assert one == other
    expected = stats.spearmanr(first, second)
    assert one.p == pytest.approx(expected.pvalue, abs=0.08)


def test_what_a_third_explains_is_taken_out():
    size = np.repeat(np.arange(4.0), 3)
    residual = np.tile([0.0, 0.1, 0.2], 4)
    agree = partial_rank_test(size + residual, -size + residual, size, rng=rng(), draws=999)
    assert rank_test(size + residual, -size + residual, rng=rng(), draws=99).rho < -0.5
    assert agree.rho > 0.9
    assert agree.p < 0.01
    assert partial_rank_test(size, size + residual, size, rng=rng(), draws=99) is None


@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_a_common_cause_is_seldom_taken_for_a_correlation(noise):
    source = np.random.default_rng(7)
    raw = partial = 0
    for _ in range(200):
        size = source.choice([1, 2, 4], 14) * (2.0 + source.choice([1, 2, 3, 4, 6, 8, 12], 14))
        size *= 1 + 0.01 * source.random(14)
        scaled = (np.log(size) - np.log(size).mean()) / np.log(size).std()
        condition = -scaled + noise * source.normal(size=14)
        good = np.tanh(scaled) + noise * source.normal(size=14)
        options = {"rng": source, "draws": 199}
        raw += rank_test(condition, good, **options).p <= 0.05
        classes = size_classes(size, 1.05)
        partial += partial_rank_test(condition, good, classes, **options).p <= 0.05
    assert partial / 200 <= 0.1
    assert raw / 200 >= 0.25


def test_size_classes_hold_what_is_nearly_as_large():
    sizes = np.array([100.0, 200, 101, 104.9, 106])
    assert size_classes(sizes, 1.05).tolist() == [0, 2, 0, 0, 1]


@given(st.floats(-0.95, 0.95), st.integers(5, 60))
def test_an_interval_holds_its_estimate_and_shrinks_with_more_shapes(rho, units):
    interval = correlation_interval(rho, units)
    wider = correlation_interval(rho, 5)
    assert -1 <= wider.low <= interval.low <= rho <= interval.high <= wider.high <= 1


def test_too_few_shapes_have_no_interval():
    assert correlation_interval(0.5, 4) is None
    assert correlation_interval(1.0, 20) is None
