"""The convex fit behind the test against diminishing returns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from analysis.statistics.abruptness import abruptness_p, break_gain, convex_fit, convex_misfit

HEADS = st.lists(st.integers(1, 30), min_size=3, max_size=7, unique=True).map(
    lambda heads: np.array(sorted(heads), dtype=float)
)


def by_least_squares(h, m, v) -> float:
    columns = [np.ones_like(h), -np.ones_like(h), h, -h]
    columns += [np.maximum(h - knot, 0) for knot in h[1:-1]]
    return nnls(np.stack(columns, axis=1) / np.sqrt(v)[:, None], m / np.sqrt(v))[1] ** 2


@settings(deadline=None, max_examples=60)
@given(HEADS, st.integers(0, 2**32 - 1))
def test_every_active_set_gives_what_least_squares_gives(h, seed):
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((3, len(h)))
    v = rng.uniform(0.2, 2.0, (3, len(h)))
    expected = [by_least_squares(h, row, var) for row, var in zip(m, v, strict=True)]
    np.testing.assert_allclose(convex_misfit(h, m, v), expected, atol=1e-8)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.1, 3.0), st.floats(0.0, 1.5), st.integers(3, 11))
def test_convex_declines_fit_without_misfit(power, rate, count):
    h = np.arange(1.0, count + 1)
    for curve in (-power * np.log10(h), -rate * h, np.log10(10 ** (-rate * h) + 1e-3)):
        v = np.full((1, count), 0.01)
        assert convex_misfit(h, curve[None], v)[0] == pytest.approx(0, abs=1e-9)
        np.testing.assert_allclose(convex_fit(h, curve, v[0]), curve, atol=1e-6)


def test_many_head_counts_agree_with_few_code_paths():
    rng = np.random.default_rng(1)
    h = np.arange(1.0, 12.0)
    m, v = rng.standard_normal((2, 11)), rng.uniform(0.5, 1.5, (2, 11))
    expected = [by_least_squares(h, row, var) for row, var in zip(m, v, strict=True)]
    np.testing.assert_allclose(convex_misfit(h, m, v), expected, rtol=1e-6)


def test_a_break_at_the_second_head_count_gains_nothing():
    h = np.arange(1.0, 6.0)
    assert break_gain(h, np.array([[0.0, -3, -3, -3, -3]]), np.ones((1, 5)))[0] == 0


def test_a_break_after_two_head_counts_gains_the_whole_misfit():
    h = np.arange(1.0, 6.0)
    m, v = np.array([[0.0, -0.1, -3, -3.1, -3.2]]), np.full((1, 5), 0.01)
    assert break_gain(h, m, v)[0] == pytest.approx(convex_misfit(h, m, v)[0])
    assert break_gain(h, -m, v)[0] == 0  # a rise is no collapse


def test_the_p_value_is_small_for_a_jump_and_one_for_a_line():
    h, v, df = np.arange(1.0, 6.0), np.full(5, 0.003), np.full(5, 10.0)
    jump = np.array([-1.0, -1.5, -2.0, -4.0, -4.1])
    assert abruptness_p(h, jump, v, df, 15, 199, np.random.default_rng(0)) == 1 / 200
    assert abruptness_p(h, -h, v, df, 15, 199, np.random.default_rng(0)) == 1.0


def test_the_p_value_keeps_its_level_on_a_straight_decline():
    rng = np.random.default_rng(2)
    h, v, df = np.arange(1.0, 7.0), np.full(6, 0.01), np.full(6, 10.0)
    rejected = [
        abruptness_p(h, -0.5 * h + 0.1 * rng.standard_normal(6), v, df, 18, 99, rng) <= 0.05
        for _ in range(100)
    ]
    assert np.mean(rejected) <= 0.1
