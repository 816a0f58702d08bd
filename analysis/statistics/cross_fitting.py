"""The best of several settings, without the bias of choosing the best.

A setting (a learning rate) is chosen for each seed by the mean of the other seeds, and the seed's
run at that setting counts. The run's noise had no part in the choice, so a shape that was tried
with many settings has no advantage over a shape that was tried with few. The seeds depend on each
other, though: each helps to choose for all others, so their mean scatters more than the mean of
independent runs. This inflation is measured by repeating the procedure on draws with the observed
means and noise.
"""

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.statistics.values import FloatArray

_DRAWS: Final = 600


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The setting chosen for each seed, and how the chosen runs scatter.

    Attributes:
        picked: by seed, the number of the setting that the other seeds chose, shape [seeds].
        best: number of the setting with the best mean over all seeds.
        variance: variance between the seeds of one setting, over the settings picked.
        df: degrees of freedom of ``variance``.
        inflation: variance of the mean, relative to the mean of as many independent runs; at least
            1.
        samples: quality of each setting that was picked, seed by seed.
    """

    picked: tuple[int, ...]
    best: int
    variance: float
    df: int
    inflation: float
    samples: tuple[tuple[float, ...], ...]


def cross_fit(quality: FloatArray) -> CrossFit:
    """Choose a setting for each seed by the other seeds.

    Args:
        quality: higher is better, shape [settings, seeds], at least two of each.
    """
    settings, seeds = quality.shape
    picked = _chosen_by_others(quality[None])[0]
    residual = quality - quality.mean(axis=1, keepdims=True)
    used, often = np.unique(picked, return_counts=True)
    variances = (residual[used] ** 2).sum(axis=1) / (seeds - 1)
    variance = float((variances * often).sum() / seeds)
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(quality).tobytes()))
    noise = rng.standard_normal((_DRAWS, settings, seeds))
    drawn = quality.mean(axis=1)[None, :, None] + np.sqrt(variance) * noise
    values = np.take_along_axis(drawn, _chosen_by_others(drawn)[:, None, :], axis=1)[:, 0]
    spread = float(values.mean(axis=1).var())
    inflation = max(1.0, spread * seeds / variance) if variance > 0 else 1.0
    return CrossFit(
        tuple(int(k) for k in picked),
        int(quality.mean(axis=1).argmax()),
        variance,
        (seeds - 1) * len(used),
        inflation,
        tuple(tuple(map(float, quality[k])) for k in used),
    )


def _chosen_by_others(quality: FloatArray) -> "np.ndarray[tuple[int, ...], np.dtype[np.intp]]":
    """Return the setting that other seeds prefer, [draws, settings, seeds] to [draws, seeds]."""
    others = quality.sum(axis=2, keepdims=True) - quality
    return np.asarray(others.argmax(axis=1))
