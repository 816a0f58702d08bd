"""The convex fit behind the test against diminishing returns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from analysis.statistics.abruptness import break_ratio, convex_fit, convex_misfit

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


def test_only_a_fall_from_the_third_head_count_on_counts_as_a_break():
    h = np.arange(1.0, 6.0)
    second = np.array([[0.0, -3, -3, -3, -3]])
    third = np.array([[0.0, -0.1, -3, -3.1, -3.2]])
    v = np.full(5, 0.01)
    assert break_ratio(h, second, v)[0] == pytest.approx(0)
    ratio, left = break_ratio(h, third, v)
    whole = convex_misfit(h, third, np.full((1, 5), 0.01))
    assert left == pytest.approx(0, abs=1e-9)
    assert ratio == pytest.approx(whole / 8)
    assert break_ratio(h, -third, v)[0] == pytest.approx(0)  # a rise is no collapse


def test_a_break_counts_less_where_the_pieces_scatter():
    h = np.arange(1.0, 8.0)
    calm = np.array([[0.0, -0.1, -0.2, -2, -2.1, -2.2, -2.3]])
    wild = calm + np.array([[0.3, -0.3, 0.3, 0, 0.3, -0.3, 0.3]])
    v = np.full(7, 0.01)
    assert break_ratio(h, wild, v)[0] < break_ratio(h, calm, v)[0] / 2
