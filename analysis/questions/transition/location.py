"""Where the collapse is: the largest drop, and how sure the seeds make its place."""

from dataclasses import dataclass

import numpy as np

from analysis.questions.transition.cells import Cells, resampled_cells
from analysis.statistics.values import FloatArray


@dataclass(frozen=True, slots=True)
class Location:
    """Indices into the head counts.

    Attributes:
        drops: d_k for k = 1..K-1 at position k - 1, shape [K - 1].
        peak: k0, index of the head count that ends the largest single drop.
        star: k^ >= k0, index of h*: extended while the next step still drops by enough.
    """

    drops: FloatArray
    peak: int
    star: int

    @property
    def drop(self) -> float:
        return float(self.drops[self.peak - 1])


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


def locate(drops: FloatArray, rho: float, d_min: float) -> tuple[FloatArray, FloatArray]:
    """Return (peak, star) head indices for each row of ``drops`` [draws, K - 1].

    star is the largest k >= peak such that every drop after the peak up to k is at least
    max(d_min, rho * peak drop).
    """
    filled = np.where(np.isnan(drops), -np.inf, drops)
    peak_step = filled.argmax(axis=1)
    height = filled[np.arange(len(filled)), peak_step]
    enough = filled >= np.maximum(d_min, rho * height)[:, None]
    star_step = peak_step.copy()
    running = np.ones(len(filled), dtype=bool)
    for ahead in range(1, filled.shape[1]):
        position = peak_step + ahead
        inside = position < filled.shape[1]
        running &= inside & enough[np.arange(len(filled)), np.where(inside, position, 0)]
        star_step += running
    return peak_step + 1, star_step + 1


def find_location(z: FloatArray, rho: float, d_min: float) -> Location | None:
    """Return the location of the collapse in z [K, J], or None where no step can be compared."""
    if z.shape[0] < 2:
        return None
    drops = step_drops(z)
    if np.isnan(drops).all():
        return None
    peak, star = locate(drops[None, :], rho, d_min)
    return Location(drops, int(peak[0]), int(star[0]))


def star_probabilities(
    cells: Cells, rho: float, d_min: float, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return the share of resampled sweeps that place h* at each head count, shape [K]."""
    drops = step_drops(resampled_cells(cells, draws, rng))
    _, star = locate(drops, rho, d_min)
    return np.bincount(star.astype(np.int64), minlength=len(cells.grid.heads)) / draws


def smallest_set(probabilities: FloatArray, mass: float) -> list[int]:
    """Return the fewest indices that together hold ``mass``, ascending."""
    order = np.argsort(-probabilities, kind="stable")
    total = np.cumsum(probabilities[order])
    size = int(np.searchsorted(total, mass - 1e-12)) + 1
    return sorted(int(index) for index in order[:size])
