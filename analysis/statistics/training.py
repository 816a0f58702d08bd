"""What more training can still change, from how much the last of it did."""

from typing import Final

import numpy as np

from analysis.statistics.values import FloatArray

ENDLESS: Final = 30.0
"""Decades that stand for a fall without a floor in sight."""
_EVERY_PAIR_OF: Final = 20


def still_to_come(
    change: FloatArray, ratio: float, *, exponent: float, is_log: bool, steep: float = 0.5
) -> FloatArray:
    """Return the most that y can still change after it changed by ``change``, any shape.

    An error is taken for a floor plus a part that falls as b^-a with the budget b, a of at least
    ``exponent``. Where that part is e times the floor, the last change over a budget ratio r was
    log10((1 + e) / (1 + r^a e)), and log10(1 + e) is left. An error that falls as fast as b^-steep
    has no floor in sight: there is no end to what it may change. What gets worse, and any y that is
    not a logarithm, changes by 1 / (r^a - 1) of its last change.

    Args:
        change: of y over the last ratio of budgets, negative for what got better.
        ratio: the last budget over the one before, above 1.
        exponent: smallest a.
        is_log: whether y is the log10 of an error.
        steep: power of the budget from which on no floor is in sight.
    """
    power = ratio**exponent
    come = change / (power - 1)
    if not is_log:
        return np.asarray(come)
    fall = 10 ** -np.minimum(change, 0)
    is_near = fall < min(power, ratio**steep)
    left = np.log10(1 + (fall - 1) / np.where(is_near, power - fall, 1.0))
    return np.asarray(np.where(change > 0, come, np.where(is_near, -left, -ENDLESS)))


def centre(samples: FloatArray) -> FloatArray:
    """Return the median of all pairs' means of each row (Hodges and Lehmann 1963); of long rows the
    median. Shape [draws, n] to [draws]."""
    n = samples.shape[1]
    if n > _EVERY_PAIR_OF:
        return np.asarray(np.median(samples, axis=1))
    first, second = np.triu_indices(n)
    return np.asarray(np.median((samples[:, first] + samples[:, second]) / 2, axis=1))


def pulled_together(draws: FloatArray) -> FloatArray:
    """Return draws of several quantities, shape [B, K], each pulled towards the mean of all by the
    share of their differences that noise explains (a random-effects mean)."""
    if draws.shape[1] < 2:
        return draws
    noise = float(np.mean(np.var(draws, axis=0)))
    between = max(0.0, float(np.var(np.median(draws, axis=0), ddof=1)) - noise)
    own = between / (between + noise) if between + noise > 0 else 1.0
    mean = draws.mean(axis=1, keepdims=True)
    return np.asarray(mean + own * (draws - mean))
