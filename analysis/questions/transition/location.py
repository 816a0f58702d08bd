"""Where the collapse is: the largest drop, and how sure the seeds make its place."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.questions.transition.cells import Cells, resampled_cells
from analysis.statistics.values import FloatArray

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Places:
    """Where versions of a sweep fall, each array of shape [B].

    Attributes:
        peak: index of the head count that ends the largest single drop.
        star: index of h*: the peak's, or a later one while the next step still drops by enough.
        drop: size of the largest drop.
        excess: how much larger it is than the median earlier drop per head over the same step.
    """

    peak: Indices
    star: Indices
    drop: FloatArray
    excess: FloatArray


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


def locate(drops: FloatArray, heads: FloatArray, rho: float, d_min: float) -> Places:
    """Return where each row of ``drops`` [B, K - 1] falls.

    h* is the largest head count from the peak on up to which every drop is at least
    max(d_min, rho * peak drop).
    """
    rows = np.arange(len(drops))
    filled = np.where(np.isnan(drops), -np.inf, drops)
    peak_step = filled.argmax(axis=1)
    height = filled[rows, peak_step]
    enough = filled >= np.maximum(d_min, rho * height)[:, None]
    star_step = peak_step.copy()
    running = np.ones(len(filled), dtype=bool)
    for ahead in range(1, filled.shape[1]):
        position = peak_step + ahead
        inside = position < filled.shape[1]
        running &= inside & enough[rows, np.where(inside, position, 0)]
        star_step += running
    steps = np.diff(heads)
    per_head = drops / steps
    excess = height.copy()
    for step in np.unique(peak_step):
        here = peak_step == step
        earlier = per_head[here, :step]
        known = ~np.isnan(earlier[0])
        if known.any():
            excess[here] -= np.median(earlier[:, known], axis=1) * steps[step]
    return Places(peak_step + 1, star_step + 1, height, excess)


def star_probabilities(
    cells: Cells,
    place: Callable[[FloatArray], Indices],
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the share of resampled sweeps that ``place`` h* at each head count, shape [K]."""
    star = place(resampled_cells(cells, draws, rng))
    return np.bincount(star, minlength=len(cells.grid.heads)) / draws


def smallest_set(probabilities: FloatArray, mass: float) -> list[int]:
    """Return the fewest indices that together hold ``mass``, ascending."""
    order = np.argsort(-probabilities, kind="stable")
    total = np.cumsum(probabilities[order])
    size = int(np.searchsorted(total, mass - 1e-12)) + 1
    return sorted(int(index) for index in order[:size])
