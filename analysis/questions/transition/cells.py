"""Full-budget runs by cell (h, T), each cell's value under a reading, and its seed noise.

Arrays are indexed [h, T]; a cell without a full-budget run is NaN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import ndtri, polygamma

from analysis.statistics.cross_fitting import CrossFit
from analysis.statistics.moderated import pair_differences
from analysis.statistics.random_effects import random_effects
from analysis.statistics.values import FloatArray, Mask

if TYPE_CHECKING:
    from analysis.runs.scale import Thresholds

Verdict = Literal["collapse", "none", "open"]
Growth = Literal["gone", "stays", "open"]
_MEDIAN_VARIANCE = 1.57
"""Asymptotic variance of a median over that of a mean (pi / 2)."""
_VARIANCE = {0.5: 2.0, 0.25: 4.0}
"""Variance of the logarithm of an sd that is read from this share of pairs, over that of the sd of
as many squares."""
_GIVEN_DF = 1e6
"""Degrees of freedom of an sd that is stated or assumed."""
NO_SPREAD = "no spread between seeds, which agree exactly"
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Grid:
    """Full-budget runs of a sweep, cell by cell.

    Attributes:
        heads: distinct h with at least one full-budget run, ascending, shape [K].
        lengths: distinct T, ascending, shape [J]; one NaN without a modulating axis.
        runs: y of each cell, ascending, ``runs[k][j]``.
        chosen: how settings were chosen in the cell [k, j], where there was a choice (see
            `analysis.runs.tuned`).
    """

    heads: FloatArray
    lengths: FloatArray
    runs: tuple[tuple[FloatArray, ...], ...]
    chosen: Mapping[tuple[int, int], CrossFit] = field(default_factory=dict)

    @property
    def counts(self) -> FloatArray:
        """Full-budget runs per cell, shape [K, J]."""
        return np.array([[float(cell.size) for cell in row] for row in self.runs])

    @property
    def fewest(self) -> int:
        """The smallest number of runs in a cell that has any; 0 where none has."""
        return min((cell.size for row in self.runs for cell in row if cell.size), default=0)

    @property
    def inflation(self) -> FloatArray:
        """Variance of each cell's value, relative to the value of as many independent runs, shape
        [K, J]: above 1 where the cell's runs chose each other's settings."""
        inflation = np.ones((len(self.heads), len(self.lengths)))
        for cell, choice in self.chosen.items():
            inflation[cell] = choice.inflation
        return inflation

    def from_head(self, first: int) -> "Grid":
        """Return the cells of the head counts from an index on."""
        chosen = {(k - first, j): fit for (k, j), fit in self.chosen.items() if k >= first}
        return Grid(self.heads[first:], self.lengths, self.runs[first:], chosen)

    def alike(self, k: int) -> list[FloatArray]:
        """Return the runs at a head count in groups that differ in the seed alone: the runs of each
        cell, or of each setting that was chosen for a seed of the cell."""
        samples: list[FloatArray] = []
        for j, cell in enumerate(self.runs[k]):
            choice = self.chosen.get((k, j))
            samples += [np.array(runs) for runs in choice.samples] if choice else [cell]
        return samples


@dataclass(frozen=True, slots=True)
class SeedNoise:
    """Seed standard deviation of y per head count.

    Attributes:
        sd: shape [K].
        df: degrees of freedom behind each, shape [K]; 0 where no cell holds two runs.
        stand_in: the sd that is assumed because the cells do not measure one; None where they do,
            or where the few pairs of runs give an estimate.
        gap: why the noise counts as not measured; empty where it is measured or stated.
        has_spread: whether any two runs of one cell differ, shape [K].
        known_df: degrees of freedom as which each sd is known, with what the others tell of it.
        near: sd and known_df from the nearest quarter of pairs, of which stuck runs are no part.
    """

    sd: FloatArray
    df: FloatArray
    stand_in: float | None
    gap: str
    has_spread: Mask
    known_df: FloatArray
    near: tuple[FloatArray, FloatArray] | None = None

    def without_stuck(self) -> "SeedNoise":
        """Return the noise of runs that are not stuck."""
        if self.near is None:
            return self
        sd, known_df = self.near
        return replace(self, sd=sd, known_df=known_df)

    def from_head(self, first: int) -> "SeedNoise":
        """Return the noise of the head counts from an index on."""
        parts = {n: getattr(self, n)[first:] for n in ("sd", "df", "has_spread", "known_df")}
        near = self.near and (self.near[0][first:], self.near[1][first:])
        return replace(self, **parts, near=near)

    def gap_beside(self, k: int, heads: FloatArray) -> str:
        """Return why the noise is not measured around the step that ends at index ``k``."""
        if self.gap or self.stand_in is not None:
            return self.gap
        lacking = [f"{heads[side]:g}" for side in (k - 1, k) if self.df[side] == 0]
        if lacking:
            return f"no cell at {' or '.join(lacking)} holds two runs"
        if not self.has_spread[[k - 1, k]].any():
            return f"no spread between the seeds at {heads[k - 1]:g} and {heads[k]:g}"
        return ""


@dataclass(frozen=True, slots=True)
class Cells:
    """A grid under one reading.

    Attributes:
        best_of: m of the attainable reading; None for the median, 0 for the plain minimum.
        z: cell values, shape [K, J].
        variance: seed variance of z, shape [K, J].
        noise: seed noise of y.
    """

    grid: Grid
    best_of: int | None
    z: FloatArray
    variance: FloatArray
    noise: SeedNoise


def seed_noise(grid: Grid, thresholds: "Thresholds", stated_sd: float | None) -> SeedNoise:
    """Return the seed sd per head count.

    The median absolute difference of pairs that differ in their seed alone, pooled over T and
    scaled to a normal sd, is drawn on the log scale to what the head counts have in common, less
    where they differ more beyond their own error (empirical Bayes, as Smyth 2004 for variances).
    Where all runs of a cell agree exactly (copies, an error that is floored) what they have in
    common stands in. It counts as measured where at least half of the cells hold two runs and any
    of them differ; else ``stated_sd`` takes its place, and without one there is a gap.
    """
    alike = [grid.alike(k) for k in range(len(grid.heads))]
    df = np.array([float(sum(max(runs.size - 1, 0) for runs in samples)) for samples in alike])
    pairs = [pair_differences(samples) for samples in alike]
    has_spread = np.array([gaps.max(initial=0.0) > _ROUNDING for gaps in pairs], dtype=bool)
    counts = grid.counts
    cells, repeated = int((counts > 0).sum()), int((counts > 1).sum())
    gap = ""
    if 2 * repeated < cells or not cells:
        gap = "one seed a cell" if not repeated else f"{repeated} of {cells} cells hold two runs"
    elif not has_spread.any():
        gap = NO_SPREAD
    if gap and stated_sd is not None:
        none = np.zeros(len(df))
        return SeedNoise(none + stated_sd, none, stated_sd, "", has_spread, none + _GIVEN_DF)
    if not has_spread.any():
        assumed = thresholds.assumed_sd
        given = np.full(len(df), _GIVEN_DF)
        return SeedNoise(np.full(len(df), assumed), df, assumed, gap, has_spread, given)
    sd, known_df = _pooled(pairs, df, has_spread, thresholds.sd_floor, 0.5)
    near = _pooled(pairs, df, has_spread, thresholds.sd_floor, 0.25)
    return SeedNoise(sd, df, None, gap, has_spread, known_df, near)


def near_sd(pairs: FloatArray, share: float) -> float:
    """Return the sd of normal runs of which this share of pairs lies as near as here."""
    quantile = np.quantile(pairs, share, method="linear" if share == 0.5 else "lower")
    return float(quantile) / float(np.sqrt(2) * ndtri((1 + share) / 2))


def _pooled(
    pairs: Sequence[FloatArray], df: FloatArray, has_spread: Mask, least: float, share: float
) -> tuple[FloatArray, FloatArray]:
    """Return the sd of each head count and the degrees of freedom as which it is known, from the
    nearest ``share`` of pairs."""
    log_sd = np.array(
        [
            np.log(max(near_sd(gaps, share), least)) if has else 0.0
            for gaps, has in zip(pairs, has_spread, strict=True)
        ]
    )
    own = _VARIANCE[share] * polygamma(1, np.maximum(df, 1) / 2) / 4
    between, weights = random_effects(log_sd[None, has_spread], own[has_spread])
    apart = float(between[0])
    centre = float(np.average(log_sd[has_spread], weights=weights[0]))
    kept = np.where(has_spread, apart / (apart + own), 0.0)
    # What the others tell counts as much as it is followed; without runs of its own all is theirs.
    told = df / _VARIANCE[share] / np.maximum(kept, _ROUNDING)
    told = np.where(has_spread, told, 0.5 / max(apart, _ROUNDING))
    known_df = np.minimum(np.maximum(told, 1.0), df.sum())
    return np.exp(kept * log_sd + (1 - kept) * centre), known_df


def read_cells(grid: Grid, noise: SeedNoise, best_of: int | None) -> Cells:
    """Return cell values: medians (``best_of`` None), E[best of m], or the minimum (0)."""
    counts = grid.counts
    if best_of:
        noise = noise.without_stuck()
    z = np.array(
        [
            [float(cell_values(cell[None, :], best_of)[0]) if cell.size else np.nan for cell in row]
            for row in grid.runs
        ]
    )
    inflation = grid.inflation * (_MEDIAN_VARIANCE if best_of is None else 1.0)
    # Survivors of a pruned cell lie closer together than all its runs: they count as one run.
    behind = np.minimum(counts, 1) if best_of == 0 else counts
    with np.errstate(divide="ignore"):
        variance = np.where(counts > 0, inflation * noise.sd[:, None] ** 2 / behind, np.nan)
    return Cells(grid, best_of, z, variance, noise)


def cell_values(samples: FloatArray, best_of: int | None) -> FloatArray:
    """Return the value of each row of ``samples`` [draws, n]: median, E[best of m] or minimum.

    E[best of m] is the unbiased order-statistic estimator sum_r C(n - r, m - 1) / C(n, m) y_(r)
    (Dodge et al. 2019, as corrected by Tang et al. 2020).
    """
    if best_of is None:
        return np.asarray(np.median(samples, axis=1), dtype=np.float64)
    if best_of == 0:
        return np.asarray(samples.min(axis=1), dtype=np.float64)
    n = samples.shape[1]
    m = min(best_of, n)
    weights = np.array([comb(n - rank, m - 1) / comb(n, m) for rank in range(1, n + 1)])
    return np.asarray(np.sort(samples, axis=1) @ weights, dtype=np.float64)


def resampled_cells(cells: Cells, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return ``draws`` versions of z, shape [draws, K, J].

    Seeds are resampled within each cell; a t-distributed term s_h sqrt(1 / (n (n - 1))) restores
    the variance that resampling few seeds loses (n = 1: the whole of s_h), and another term adds
    the further variance of a tuned cell, whose runs are not independent.
    """
    z = np.full((draws, *cells.z.shape), np.nan)
    inflation = cells.grid.inflation
    for k, j in np.argwhere(~np.isnan(cells.z)):
        cell, df = cells.grid.runs[k][j], cells.noise.known_df[k]
        n = cell.size
        picks = rng.integers(0, n, size=(draws, n))
        scale = cells.noise.sd[k] / np.sqrt(max(n * (n - 1), 1))
        extra = rng.standard_t(df, draws)
        z[:, k, j] = cell_values(cell[picks], cells.best_of) + scale * extra
        if inflation[k, j] > 1:
            beyond = cells.variance[k, j] * (1 - 1 / inflation[k, j])
            z[:, k, j] += np.sqrt(beyond) * rng.standard_normal(draws)
    return z
