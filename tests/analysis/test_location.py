"""The largest drop, where its plateau begins, and the slopes in T."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.questions.transition.cells import Grid, SeedNoise, cell_values, read_cells
from analysis.questions.transition.growth import (
    fit_slopes,
    level_variance,
    mean_levels,
    pool_slopes,
    slopes_of,
)
from analysis.questions.transition.judge import Judge, locate, smallest_set, step_drops
from analysis.runs.scale import THRESHOLDS


def cells_of(z: np.ndarray, lengths: tuple[float, ...] = (8, 16, 32, 64)):
    runs = tuple(tuple(np.array([v]) if np.isfinite(v) else np.zeros(0) for v in row) for row in z)
    grid = Grid(np.arange(1.0, len(z) + 1), np.array(lengths, dtype=float), runs)
    none = np.zeros(len(z))
    noise = SeedNoise(np.full(len(z), 0.1), none, 0.1, "", none.astype(bool), none + 1e6)
    return read_cells(grid, noise, None)


def test_h_star_moves_up_while_the_next_step_drops_by_a_quarter_beyond_the_decline_behind():
    for drops, peak, star in [
        ([0.2, 1.0, 0.1, 0.0], 2, 2),
        ([0.2, 1.0, 0.3, 0.0], 2, 3),
        ([0.2, 1.0, 0.5, 0.3, 0.0], 2, 4),
        ([0.2, 1.0, 0.3, 0.26], 2, 2),
        ([1.0, 0.3, 0.26, 0.0], 1, 3),
        ([0.2, 1.0, 0.1, 0.9], 2, 2),
        ([0.2, 0.3, 0.09, 0.0], 2, 2),
    ]:
        falls = locate(np.array([drops]), np.arange(1.0, len(drops) + 2), 0.1)
        assert (falls.peak[0], falls.star[0]) == (peak, star)


@pytest.mark.parametrize(("step", "star", "smallest"), [(0.2, 3, 3), (0.28, 4, 3), (0.4, 4, 4)])
def test_what_is_about_as_good_as_h_star_is_placed_beside_it(step: float, star: int, smallest: int):
    level = np.array([0.0, -0.1, -0.2, -1.0, -1.0 - step, -1.0 - step])
    z = np.repeat(level[:, None], 4, axis=1)
    limits = THRESHOLDS["error"]
    judge = Judge(cells_of(z), limits, np.random.default_rng(0), 0.05, 19)
    assert judge.places(z[None]) == (star, smallest)


def test_the_excess_is_what_the_earlier_decline_does_not_explain():
    drops = np.array([[0.4, 0.6, 2.0, 0.1]])
    assert locate(drops, np.arange(1.0, 6.0), 0.1).excess == pytest.approx(1.5)
    # Per head: the step to 8 is four heads wide.
    coarse = locate(drops, np.array([1.0, 2, 4, 8, 9]), 0.1)
    assert coarse.excess == pytest.approx(2.0 - 4 * 0.35)


def test_drops_compare_matching_lengths_only():
    z = np.array([[0.0, 10.0, np.nan], [-1.0, np.nan, 5.0], [-2.0, np.nan, np.nan]])
    np.testing.assert_array_equal(step_drops(z), [1.0, 1.0])
    apart = np.array([[0.0, np.nan], [np.nan, -1.0]])
    assert np.isnan(step_drops(apart)).all()


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8))
def test_the_confidence_set_is_the_smallest_that_holds_the_mass(weights):
    p = np.array(weights) / np.sum(weights)
    chosen = smallest_set(p, 0.95)
    assert p[chosen].sum() >= 0.95 - 1e-9
    assert np.sort(p)[::-1][: len(chosen) - 1].sum() < 0.95


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
)
def test_best_of_m_is_the_average_minimum_of_every_subset(values, m, seed):
    from itertools import combinations

    m = min(m, len(values))
    order = np.random.default_rng(seed).permutation(len(values))
    expected = np.mean([min(subset) for subset in combinations(values, m)])
    shuffled = np.array(values)[order][None]
    assert cell_values(shuffled, m)[0] == pytest.approx(expected, abs=1e-9)
    assert cell_values(shuffled, 0)[0] == min(values)


def test_slopes_levels_recover_what_was_put_in():
    x = np.log10([8, 16, 32, 64])
    centred = x - x.mean()
    z = np.array([-1 + 0.3 * centred, -2 + 0.2 * centred, -4 - 0.5 * centred])
    cells = cells_of(z)
    slopes = fit_slopes(cells)
    np.testing.assert_allclose(slopes.estimate, [0.3, 0.2, -0.5])
    assert (slopes.phi, slopes.df) == (1.0, 6.0)
    np.testing.assert_allclose(mean_levels(cells, z[None])[0], [-1, -2, -4])


def test_a_missing_cell_does_not_bend_the_level():
    x = np.log10([8, 16, 32, 64])
    z = np.array([-1 + 0.3 * (x - x.mean()), -2 + 0.3 * (x - x.mean())])
    z[0, 3] = np.nan
    cells = cells_of(z)
    variance = level_variance(cells, fit_slopes(cells))
    np.testing.assert_allclose(mean_levels(cells, z[None])[0], [-1, -2])
    assert variance[0] > variance[1]


def test_cells_that_scatter_more_than_seeds_widen_the_slopes():
    z = np.array([[-1.0, -0.5, -1.0, -0.5], [-2.0, -1.5, -2.0, -1.5]])
    calm = fit_slopes(cells_of(np.zeros((2, 4))))
    wild = fit_slopes(cells_of(z))
    assert wild.phi > 1
    assert (wild.se > calm.se).all()


def test_pooling_slopes_that_disagree_widens_their_mean():
    cells = cells_of(np.zeros((3, 4)))
    se = fit_slopes(cells).se
    x = np.log10([8, 16, 32, 64])
    differ = slopes_of(cells, np.array([[2.0, 0.0, -2.0]])[..., None] * (x - x.mean()))
    all_heads = np.ones(3, dtype=bool)
    assert (
        pool_slopes(differ, se, all_heads)[1] > 3 * pool_slopes(np.zeros((1, 3)), se, all_heads)[1]
    )
    assert pool_slopes(differ, se, ~all_heads) is None
