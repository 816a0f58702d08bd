"""Is there a collapse, and where? The rules, for many versions of a sweep's cells at once.

A version is one z of every cell: the cells as measured, with resampled seeds, or after more
training. All are judged by the noise of the cells as measured.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.questions.transition.cells import (
    Cells,
    Grid,
    SeedNoise,
    near_sd,
    read_cells,
    resampled_cells,
)
from analysis.questions.transition.growth import (
    Slopes,
    fit_slopes,
    level_variance,
    mean_levels,
    pool_slopes,
    slopes_of,
)
from analysis.questions.transition.limits import FEWEST_FOR_A_BREAK, FIRST_BREAK
from analysis.runs.scale import Thresholds
from analysis.statistics.abruptness import break_ratio, convex_fit
from analysis.statistics.moderated import pair_differences
from analysis.statistics.values import FloatArray, Mask

Indices = NDArray[np.intp]
_SCATTERS = (1.0, 2.0, 4.0)
"""Possible scatters of single head counts, in units of the smallest."""
_WIDER_SCATTERS = (6.0, 8.0)
"""Further scatters, which no test assumes; a claim says whether it would survive them."""
_THRESHOLD_WIDTH = 2
"""Most steps of a collapse that is shown only by the end of growth with T."""
NEXT_SHARE = 0.25
"""h* moves up past the largest drop while the next step still drops by this share of it."""
_BEHIND = 3
"""Steps behind a step from which the decline there is read."""
SET_MASS = 0.95
"""Probability that the confidence set of h* holds."""
_STUCK_SHARE = 0.08
"""Share of stuck runs at h >= h* from which the attainable reading leads."""
_APART = 4.0
"""Standard deviations between seeds beyond which a run is stuck."""
FEWEST_FOR_BEST = 2
"""Runs of every cell that the attainable reading takes."""


@dataclass(frozen=True, slots=True)
class Falls:
    """Where versions of a sweep fall, each array of shape [B].

    Attributes:
        peak: index of the head count that ends the largest single drop.
        star: index of h*: that of the peak, or a later one while the next step drops by enough.
        drop: size of the largest drop.
        excess: how much larger the drop is than the median earlier drop per head over this step.
        beyond: what of each step exceeds the decline behind it, shape [B, K - 1].
    """

    peak: Indices
    star: Indices
    drop: FloatArray
    excess: FloatArray
    beyond: FloatArray


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts on versions of the cells, arrays of shape [B] if not said.

    Attributes:
        falls: the index where the largest drop of each version ends, and the index of h*.
        gap: how far the lowest level below h*, or below the end of the largest drop, lies above the
            level there and above the median from there on.
        p: p value of a decline without a break; 1 where a drop is too small or the grid allows no
            test.
        scatter: sd of single head counts about a smooth decline.
        below, above: growth with T below h* and from there on, each with its standard error, shape
            [2, B]; NaN where it is not known.
        abrupt: the fall is more than diminishing returns.
        vanishing: growth with T is there below h* and gone from there on.
    """

    falls: Falls
    gap: FloatArray
    p: FloatArray
    scatter: FloatArray
    below: FloatArray
    above: FloatArray
    abrupt: Mask
    vanishing: Mask

    @property
    def collapses(self) -> Mask:
        """Whether a version collapses."""
        return self.abrupt | self.vanishing


class Judge:
    """Judges versions of a sweep's cells by the noise of the measured cells.

    Attributes:
        slopes: growth with T as measured.
        level: mean of z over T at each head count as measured, shape [K].
        variance: variance of the levels between seeds, shape [K].
    """

    def __init__(
        self,
        cells: Cells,
        limits: Thresholds,
        rng: np.random.Generator,
        alpha: float,
        n_mc: int,
    ) -> None:
        self._cells, self._limits, self._alpha, self._n_mc = cells, limits, alpha, n_mc
        self._heads = cells.grid.heads
        self.slopes: Slopes = fit_slopes(cells)
        self.level = mean_levels(cells, cells.z[None])[0]
        self.variance = level_variance(cells, self.slopes)
        self._scatters = limits.head_sd * np.array(_SCATTERS)
        self._weights = self.variance + limits.head_sd**2
        self._rng = rng
        self._null = [self._draw_null(scatter) for scatter in self._scatters]

    def judge(self, z: FloatArray) -> Judgement:
        """Judge versions of the cells, shape [B, K, J]."""
        limits = self._limits
        level = mean_levels(self._cells, z)
        falls = locate(step_drops(z), self._heads, limits.d_min)
        gap = self._clear_gap(level, falls)
        p, scatter = self._test(level, falls, gap)
        growth_below, growth_above = self._growth(z, falls.star)
        (below, below_se), (above, above_se) = growth_below, growth_above
        t = self.slopes.quantile(1 - self._alpha)
        vanishing = np.zeros(len(z), dtype=bool)
        if np.isfinite(above).any():
            surely = below - above - t * np.hypot(below_se, above_se)
            vanishing = (
                (falls.drop >= limits.min_drop)
                & (falls.star - falls.peak < _THRESHOLD_WIDTH)
                & (_lowest_before(level, falls.star) - _at(level, falls.star) >= limits.min_excess)
                & (below > 0)
                & (above + t * above_se <= limits.max_growth)
                & (surely > np.where(below > limits.max_growth, 0.0, limits.max_growth))
            )
        abrupt = p <= self._alpha
        return Judgement(falls, gap, p, scatter, growth_below, growth_above, abrupt, vanishing)

    def places(self, z: FloatArray) -> tuple[Indices, Indices]:
        """Return the index of h* in versions of the cells, shape [B, K, J], and that of the
        smallest head count from the largest drop on that is about as good."""
        level = mean_levels(self._cells, z)
        falls = locate(step_drops(z), self._heads, self._limits.d_min)
        at = np.arange(level.shape[1])
        near = level - _at(level, falls.star)[:, None] < self._limits.min_excess
        return falls.star, np.argmax(near & (at >= falls.peak[:, None]), axis=1)

    def place_set(self, draws: int, rng: np.random.Generator) -> list[int]:
        """Return the indices of the set of places, and keep how often h* was drawn at each."""
        drawn = self.places(resampled_cells(self._cells, draws, rng))
        shares = [np.bincount(at, minlength=len(self._heads)) / draws for at in drawn]
        self.shares = shares[0]
        # Beside h*, what is about as good.
        return sorted({k for share in shares for k in smallest_set(share, SET_MASS)})

    def _clear_gap(self, level: FloatArray, falls: Falls) -> FloatArray:
        """Return the gap of h*, or that of the largest drop where smaller steps from there to h*
        pass a head count that is about as good. After a drop to the second head count they always
        do, as in a power law."""
        star, peak = (self._gap(level, place) for place in (falls.star, falls.peak))
        return np.where(falls.peak >= FIRST_BREAK, np.maximum(star, peak), star)

    def _gap(self, level: FloatArray, star: Indices) -> FloatArray:
        """Return how far the lowest level before h* lies above h* and above the median from h*
        on."""
        before = np.arange(level.shape[1]) < star[:, None]
        after = np.nanmedian(np.where(before, np.nan, level), axis=1)
        return np.asarray(_lowest_before(level, star) - np.maximum(after, _at(level, star)))

    def _test(
        self, level: FloatArray, falls: Falls, gap: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the p value of each version, and the mean scatter of head counts behind it.

        The scatter of head counts is not known. So p is the mean of the p values at each possible
        scatter, weighted by how well the scatter explains the misfit of two convex pieces.
        """
        p = np.ones(len(level))
        scatter = np.full(len(level), self._limits.head_sd)
        rows = np.flatnonzero(self._looks_like_one(falls, gap))
        if not rows.size or len(self._heads) < FEWEST_FOR_A_BREAK:
            return p, scatter
        ratio, misfit = break_ratio(self._heads, level[rows], self._weights)
        weight = self._plausibility(misfit)
        p_values = np.stack([_p_values(ratio, null, self._n_mc) for null in self._null])
        p[rows] = (weight * p_values).sum(axis=0)
        scatter[rows] = self._scatters @ weight
        return p, scatter

    def survived_scatter(self) -> float | None:
        """Return the largest scatter of head counts, of some, up to which the cells as measured
        are as abrupt as alpha takes; None where they are not at the smallest."""
        ratio, _ = break_ratio(self._heads, self.level[None], self._weights)
        further = self._limits.head_sd * np.array(_WIDER_SCATTERS)
        survived = None
        for scatter, null in (
            *zip(self._scatters, self._null, strict=True),
            *((scatter, self._draw_null(scatter)) for scatter in further),
        ):
            if _p_values(ratio, null, self._n_mc)[0] > self._alpha:
                break
            survived = float(scatter)
        return survived

    def _plausibility(self, misfit: FloatArray) -> FloatArray:
        """Return the weight of each scatter, shape [scatters, rows], given the misfit Q1."""
        usual = float(self._weights.mean())
        seeds = usual - self._limits.head_sd**2
        variance = seeds + self._scatters[:, None] ** 2
        freedom = (len(self._heads) - 3) / 2
        likelihood = -freedom / 2 * np.log(variance) - misfit * usual / 2 / variance
        weight = np.exp(likelihood - likelihood.max(axis=0))
        return np.asarray(weight / weight.sum(axis=0))

    def _looks_like_one(self, falls: Falls, gap: FloatArray) -> Mask:
        """Return which versions look like a collapse before the test of abruptness."""
        limits = self._limits
        return np.asarray(
            (falls.peak >= FIRST_BREAK)
            & (falls.drop >= limits.min_drop)
            & (falls.excess >= limits.min_excess)
            & (gap >= limits.min_excess)
        )

    def _draw_null(self, scatter: float) -> FloatArray:
        """Return the break ratios of declines whose head counts scatter, ascending.

        Of ``n_mc`` declines only those count that look like a collapse before the test.
        """
        heads, rng = self._heads, self._rng
        if len(heads) < FEWEST_FOR_A_BREAK:
            return np.zeros(0)
        null = convex_fit(heads, self.level, self._weights)
        df = self._cells.noise.known_df
        wider = df / rng.chisquare(df, (self._n_mc, len(heads)))
        noise = rng.standard_normal((self._n_mc, len(heads)))
        level = null + noise * np.sqrt(self.variance * wider + scatter**2)
        falls = locate(level[:, :-1] - level[:, 1:], heads, self._limits.d_min)
        rows = self._looks_like_one(falls, self._clear_gap(level, falls))
        ratio, _ = break_ratio(heads, level[rows], self._weights)
        return np.sort(ratio)

    def _growth(self, z: FloatArray, star: Indices) -> FloatArray:
        """Return the pooled growth below h* and from h* on, each with its standard error, shape
        [2, 2, B]."""
        estimate = slopes_of(self._cells, z)
        growth = np.full((2, 2, len(z)), np.nan)
        index = np.arange(len(self._heads))
        for k in np.unique(star):
            rows = star == k
            for pooled, side in zip(growth, (index < k, index >= k), strict=True):
                slope = pool_slopes(estimate[rows], self.slopes.se, side)
                if slope is not None:
                    pooled[:, rows] = slope
        return growth


def best_leads(grid: Grid, star: float, drop: float, least: float) -> bool:
    """Whether the best of each cell's runs is read in place of the typical one: by that the error
    drops by at least ``least``, and enough runs at h >= h* lie over half the drop above their
    cell's best, and further than noise takes them: the best of runs that scatter is always better.

    The noise is that of the nearest quarter of pairs of runs, so that stuck ones are no part of it:
    of those of the head count, or of all these head counts where it is larger.
    """
    if drop < least:
        return False
    after = np.flatnonzero(grid.heads >= star).tolist()
    pairs = [pair_differences(grid.alike(k)) for k in after]
    sds = [near_sd(gaps, 0.25) if gaps.size else 0.0 for gaps in (*pairs, np.concatenate(pairs))]
    behind = []
    for k, own in zip(after, sds, strict=False):
        far = max(drop / 2, _APART * max(own, sds[-1]))
        behind += [cell - cell.min() > far for cell in grid.runs[k] if cell.size]
    return float(np.mean(np.concatenate(behind))) >= _STUCK_SHARE


def judge_runs(
    grid: Grid, noise: SeedNoise, limits: Thresholds, alpha: float, n_mc: int
) -> tuple[Judge, Judgement]:
    """Judge the runs of a grid by the reading that leads."""
    judged = []
    for best_of in (None, grid.fewest):
        cells = read_cells(grid, noise, best_of)
        judge = Judge(cells, limits, np.random.default_rng(0), alpha, n_mc)
        judged.append((judge, judge.judge(cells.z[None])))
        falls = judged[-1][1].falls
        if grid.fewest < FEWEST_FOR_BEST:
            return judged[0]
    drop, star = float(falls.drop[0]), grid.heads[falls.star[0]]
    return judged[best_leads(grid, star, drop, limits.min_drop)]


def _p_values(ratio: FloatArray, null: FloatArray, draws: int) -> FloatArray:
    return np.asarray((1 + null.size - np.searchsorted(null, ratio - 1e-12)) / (draws + 1))


def _at(level: FloatArray, star: Indices) -> FloatArray:
    return np.asarray(level[np.arange(len(level)), star])


def _lowest_before(level: FloatArray, star: Indices) -> FloatArray:
    before = np.arange(level.shape[1]) < star[:, None]
    return np.asarray(np.where(before, level, np.inf).min(axis=1))


def step_drops(z: FloatArray) -> FloatArray:
    """Return d_k = median over T of z[k-1, T] - z[k, T], shape [..., K - 1], for z [..., K, J].

    Only T present at both head counts enter; NaN where there is none. Which cells are missing must
    not vary over the leading axes.
    """
    difference = z[..., :-1, :] - z[..., 1:, :]
    first = difference.reshape(-1, *difference.shape[-2:])[0]
    drops = np.full(difference.shape[:-1], np.nan)
    for step in range(first.shape[0]):
        shared = ~np.isnan(first[step])
        if shared.any():
            drops[..., step] = np.median(difference[..., step, shared], axis=-1)
    return drops


def locate(drops: FloatArray, heads: FloatArray, d_min: float) -> Falls:
    """Return where each row of ``drops`` [B, K - 1] falls.

    h* is the largest head count from the peak on up to which every drop exceeds the decline behind
    it by at least max(d_min, NEXT_SHARE * peak drop): a power law that goes on moves no h*. Behind
    a drop to the second head count, which may be part of one, the whole drop counts.
    """
    rows, steps = np.arange(len(drops)), np.arange(drops.shape[1])
    filled = np.where(np.isnan(drops), -np.inf, drops)
    peak = filled.argmax(axis=1)
    height = filled[rows, peak]
    widths = np.diff(heads)
    beyond = filled.copy()
    for step in range(len(widths) - 1):
        later = (drops / widths)[:, step + 1 : step + 1 + _BEHIND]
        if (known := ~np.isnan(later[0])).any():
            decline = np.median(later[:, known], axis=1).clip(0.0) * widths[step]
            beyond[:, step] -= decline
    further = np.where((peak + 1 < FIRST_BREAK)[:, None], filled, beyond)
    enough = further >= np.maximum(d_min, NEXT_SHARE * height)[:, None]
    # h* ends before the first step after the peak that is too small, or at the last head count.
    ends = (steps > peak[:, None]) & ~enough
    star = np.where(ends.any(axis=1), ends.argmax(axis=1), len(steps)) - 1
    excess = height.copy()
    for step in np.unique(peak):
        here = peak == step
        earlier = (drops / widths)[here, :step]
        known = ~np.isnan(earlier[0])
        if known.any():
            excess[here] -= np.median(earlier[:, known], axis=1) * widths[step]
    return Falls(peak + 1, star + 1, height, excess, beyond)


def smallest_set(probabilities: FloatArray, mass: float) -> list[int]:
    """Return the fewest indices that together hold ``mass``, ascending."""
    order = np.argsort(-probabilities, kind="stable")
    total = np.cumsum(probabilities[order])
    size = int(np.searchsorted(total, mass - 1e-12)) + 1
    return sorted(int(index) for index in order[:size])
