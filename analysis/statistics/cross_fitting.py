"""The best of several settings, without the flattery of having chosen it.

A setting (a learning rate) is chosen for each seed by the other seeds' mean, and that seed's own
run counts. Its noise had no part in the choice, so a shape that was tried with more settings has no
higher expectation than one tried with few. What it is not free of is a dependence between seeds:
each helps to choose for all others, so their mean scatters more than independent runs would. By how
much is found by repeating the whole procedure on draws with the means and the noise that were seen.
"""

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.statistics.values import FloatArray

_DRAWS: Final = 600


@dataclass(frozen=True, slots=True)
class CrossFit:
    """What the seeds say of the best setting.

    Attributes:
        picked: by seed, the number of the setting that the other seeds chose, shape [seeds].
        best: number of the setting with the best mean over all seeds.
        variance: between the seeds of one setting, over the settings picked.
        df: degrees of freedom behind it.
        inflation: variance of the mean over that of as many independent runs, at least 1.
        samples: quality of each setting that was picked, seed by seed.
    """

    picked: tuple[int, ...]
    best: int
    variance: float
    df: int
    inflation: float
    samples: tuple[tuple[float, ...], ...]


def cross_fit(quality: FloatArray) -> CrossFit:
    """Choose a setting for each seed by the others.

    Args:
        quality: higher is better, shape [settings, seeds], at least two of each.
    """
    settings, seeds = quality.shape
    picked = _chosen_by_others(quality[None])[0]
    residual = quality - quality.mean(axis=1, keepdims=True)
    used, often = np.unique(picked, return_counts=True)
    own = (residual[used] ** 2).sum(axis=1) / (seeds - 1)
    variance = float((own * often).sum() / seeds)
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
    """Return which setting the other seeds' mean prefers, shape [draws, seeds].

    Args:
        quality: shape [draws, settings, seeds].
    """
    others = quality.sum(axis=2, keepdims=True) - quality
    return np.asarray(others.argmax(axis=1))
