"""Is there a collapse, and where? The rules, for many versions of a sweep's cells at once.

A version is one z of every cell: the cells as measured, with resampled seeds, or after more
training. All are judged by the noise of the cells as measured.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.questions.transition.cells import Cells
from analysis.questions.transition.growth import (
    Slopes,
    fit_slopes,
    level_variance,
    mean_levels,
    pool_slopes,
    slopes_of,
)
from analysis.questions.transition.result import TransitionSettings
from analysis.runs.scale import Thresholds
from analysis.statistics.abruptness import break_ratio, convex_fit
from analysis.statistics.values import FloatArray, Mask
from hsweep.design.question import FEWEST_FOR_A_BREAK, FIRST_BREAK

Indices = NDArray[np.intp]
_SCATTERS = (1.0, 2.0, 4.0)
"""Possible scatters of single head counts, in units of the smallest."""
_THRESHOLD_WIDTH = 2
"""Most steps of a collapse that is shown only by the end of growth with T."""
NEXT_SHARE = 0.25
"""h* moves up past the largest drop while the next step still drops by this share of it."""
_BEHIND = 3
"""Steps behind a step from which the decline there is read."""
_FEWEST_DF = 2.0
"""Degrees of freedom granted at least to the noise of a level."""


@dataclass(frozen=True, slots=True)
class Falls:
    """Where versions of a sweep fall, each array of shape [B].

    Attributes:
        peak: index of the head count that ends the largest single drop.
        star: index of h*: that of the peak, or a later one while the next step drops by enough.
        drop: size of the largest drop.
        excess: how much larger the drop is than the median earlier drop per head over this step.
    """

    peak: Indices
    star: Indices
    drop: FloatArray
    excess: FloatArray


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
        settings: TransitionSettings,
        limits: Thresholds,
        rng: np.random.Generator,
    ) -> None:
        self._cells, self._settings, self._limits = cells, settings, limits
        self._heads = cells.grid.heads
        self.slopes: Slopes = fit_slopes(cells)
        self.level = mean_levels(cells, cells.z[None])[0]
        self.variance = level_variance(cells, self.slopes)
        self._scatters = limits.head_sd * np.array(_SCATTERS)
        self._weights = self.variance + limits.head_sd**2
        self._null = self._draw_null(rng)

    def judge(self, z: FloatArray) -> Judgement:
        """Judge versions of the cells, shape [B, K, J]."""
        settings, limits = self._settings, self._limits
        level = mean_levels(self._cells, z)
        falls = locate(step_drops(z), self._heads, limits.d_min)
        gap = self._clear_gap(level, falls)
        p, scatter = self._test(level, falls, gap)
        growth_below, growth_above = self._growth(z, falls.star)
        (below, below_se), (above, above_se) = growth_below, growth_above
        t = self.slopes.quantile(1 - settings.alpha)
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
        abrupt = p <= settings.alpha
        return Judgement(falls, gap, p, scatter, growth_below, growth_above, abrupt, vanishing)

    def places(self, z: FloatArray) -> tuple[Indices, Indices]:
        """Return the index of h* in versions of the cells, shape [B, K, J], and that of the
        smallest head count from the largest drop on that is about as good."""
        level = mean_levels(self._cells, z)
        falls = locate(step_drops(z), self._heads, self._limits.d_min)
        at = np.arange(level.shape[1])
        near = level - _at(level, falls.star)[:, None] < self._limits.min_excess
        return falls.star, np.argmax(near & (at >= falls.peak[:, None]), axis=1)

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
        if not rows.size or not self._null:
            return p, scatter
        ratio, misfit = break_ratio(self._heads, level[rows], self._weights)
        draws = self._settings.n_mc
        p_values = np.stack(
            [
                (1 + null.size - np.searchsorted(null, ratio - 1e-12)) / (draws + 1)
                for null in self._null
            ]
        )
        weight = self._plausibility(misfit)
        p[rows] = (weight * p_values).sum(axis=0)
        scatter[rows] = self._scatters @ weight
        return p, scatter

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

    def _draw_null(self, rng: np.random.Generator) -> list[FloatArray]:
        """Return for each scatter the break ratios of simulated declines, ascending.

        Of ``n_mc`` declines only those count that look like a collapse before the test.
        """
        heads, settings = self._heads, self._settings
        if len(heads) < FEWEST_FOR_A_BREAK:
            return []
        null = convex_fit(heads, self.level, self._weights)
        df = max(self.slopes.df or float(self._cells.noise.df.sum()), _FEWEST_DF)
        ratios = []
        for scatter in self._scatters:
            wider = df / rng.chisquare(df, (settings.n_mc, 1))
            noise = rng.standard_normal((settings.n_mc, len(heads)))
            level = null + noise * np.sqrt(self.variance * wider + scatter**2)
            falls = locate(level[:, :-1] - level[:, 1:], heads, self._limits.d_min)
            rows = self._looks_like_one(falls, self._clear_gap(level, falls))
            ratio, _ = break_ratio(heads, level[rows], self._weights)
            ratios.append(np.sort(ratio))
        return ratios

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
    for step in range(1, len(widths) - 1):
        later = (drops / widths)[:, step + 1 : step + 1 + _BEHIND]
        decline = np.nan_to_num(np.nanmedian(later, axis=1)).clip(0.0) * widths[step]
        beyond[:, step] -= np.where(peak + 1 < FIRST_BREAK, 0.0, decline)
    enough = beyond >= np.maximum(d_min, NEXT_SHARE * height)[:, None]
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
    return Falls(peak + 1, star + 1, height, excess)


def smallest_set(probabilities: FloatArray, mass: float) -> list[int]:
    """Return the fewest indices that together hold ``mass``, ascending."""
    order = np.argsort(-probabilities, kind="stable")
    total = np.cumsum(probabilities[order])
    size = int(np.searchsorted(total, mass - 1e-12)) + 1
    return sorted(int(index) for index in order[:size])
