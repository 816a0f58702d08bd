"""What several estimates have in common, and how far they differ beyond their own errors."""

import numpy as np

from analysis.statistics.values import FloatArray


def random_effects(values: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the variance between estimates beyond their own, for each row of ``values`` [B, K]
    with the variances [K], and the weights [B, K] of their mean (DerSimonian and Laird 1986)."""
    weight = 1 / variance
    fixed = values @ weight / weight.sum()
    excess = (values - fixed[:, None]) ** 2 @ weight - (len(variance) - 1)
    scale = float(weight.sum() - (weight**2).sum() / weight.sum())
    between = np.maximum(0.0, excess / scale) if len(variance) > 1 else np.zeros(len(values))
    return between, 1 / (variance + between[:, None])
