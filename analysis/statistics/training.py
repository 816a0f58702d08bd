"""What more training can still change, from how much the last of it did."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.statistics.values import FloatArray

ENDLESS: Final = 30.0
"""Decades that stand for a fall without a floor in sight."""
_EVERY_PAIR_OF: Final = 20
_COMMON_SD: Final = 0.4
"""Of the logarithm of the power of the budget that quantities have in common."""
_OWN_SCALE: Final = 0.2
_MOVING_SCALE: Final = 0.4
_OWN_REACH: Final = 2.0
"""Of how far the logarithm of each one's power lies from it: half of them nearer than the scale
before the curves are seen, and none farther than the reach. The second scale is that of a curve
whose last change no noise explains."""
_BEYOND_NOISE: Final = 2.0
"""Standard deviations up to which noise explains a change."""
_STEPS: Final = 41


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How far quantities were trained, each by its own budgets.

    Attributes:
        budgets: to which each was trained.
        ratios: of its last two budgets, the same shape; NaN without two.
        answered: the answer's budget.
    """

    budgets: FloatArray
    ratios: FloatArray
    answered: float

    @property
    def longest(self) -> float:
        """The longest budget that any was trained to."""
        return float(self.budgets.max(initial=0))

    @property
    def goes_on(self) -> bool:
        """Whether any was trained beyond the answer's budget."""
        return self.longest > self.answered

    @property
    def longer(self) -> float:
        """The budget to try next, one usual step beyond the longest."""
        known = self.ratios[~np.isnan(self.ratios)]
        return self.longest * float(known.min()) if known.size else self.longest


@dataclass(frozen=True, slots=True)
class Gains:
    """Draws of how quantities change with training.

    Attributes:
        at: each at each budget, about its mean, shape [K, B, budgets]; NaN where it has none.
        last: over the last two budgets of each, shape [K, B].
        left: from the last budget of each to the end of training, shape [K, B].
    """

    at: FloatArray
    last: FloatArray
    left: FloatArray


def gains(
    curves: Sequence[FloatArray],
    budgets: Sequence[float],
    *,
    exponent: float,
    draws: int,
    rng: np.random.Generator,
) -> Gains:
    """Return draws of what training has changed last and will still change.

    Every y is a limit less a part that falls as b^-a with the budget b. Before the curves are seen
    the logarithm of a is about that of ``exponent``, normal with an sd of 0.4 for all of them, and
    Cauchy for each about the others: one that clearly learns otherwise is let go. Its scale is 0.2
    for a curve that noise explains, and up to 0.4 for one that moves, whose own power would carry
    it far. What lies between more than two budgets tells the powers more closely. Noise is that of
    single values about the mean of their seed, pooled. Differences that it explains, between
    quantities with the same budgets, are not carried on (`pulled_together`).

    Args:
        curves: of each quantity y of its seeds at each budget, shape [seeds, budgets], at least two
            of each; NaN at budgets that it does not have.
        budgets: ascending.
    """
    known = np.array([~np.isnan(curve).any(axis=0) for curve in curves])
    relative = [curve[:, has] for curve, has in zip(curves, known, strict=True)]
    relative = [each - each.mean(axis=1, keepdims=True) for each in relative]
    course = np.zeros(known.shape)
    course[known] = np.concatenate([centre(each.T) for each in relative])
    counts, of_each = np.array([len(each) for each in relative]), known.sum(axis=1)
    df = int((counts - 1) @ (of_each - 1))
    scatter = sum(float(np.sum((each - each.mean(axis=0)) ** 2)) for each in relative)
    z = np.linspace(-4, 4, _STEPS)
    apart = np.linspace(-_OWN_REACH, _OWN_REACH, _STEPS)
    # Of all in common by that of each, shape [C, D].
    powers = exponent * np.exp(_COMMON_SD * z[:, None] + apart)
    order = [np.flatnonzero(has)[-2:] for has in known]
    before, end = np.array(order).T
    to_end = np.array(budgets) / np.array(budgets)[end, None]
    x = -(to_end[:, None, None] ** -powers[..., None])
    has = known[:, None, None]
    x = np.where(has, x - np.mean(x, axis=-1, keepdims=True, where=has), 0.0)
    slope = x / (x**2).sum(axis=-1, keepdims=True)
    found = np.einsum("kcdb,kb->kcd", slope, course)
    misfit = ((course[:, None, None] - found[..., None] * x) ** 2).sum(axis=-1)
    # A t distribution's likelihood, as the noise is estimated.
    chi_square = counts[:, None, None] * misfit / max(scatter, 1e-300)
    each = np.arange(len(curves))
    noise_sd = np.sqrt(scatter / df / counts)
    moved = np.abs(course[each, end] - course[each, before])
    explained = np.maximum(_BEYOND_NOISE * np.sqrt(2) * noise_sd, 1e-300)
    moving = 1 - (explained / np.maximum(moved, explained))[:, None, None] ** 2
    scale = _OWN_SCALE + (_MOVING_SCALE - _OWN_SCALE) * moving
    own = -np.log1p((apart / scale) ** 2)
    own = own - 0.5 * (df + of_each - 2)[:, None, None] * np.log1p(chi_square)
    common = -0.5 * z**2 + np.logaddexp.reduce(own, axis=-1).sum(axis=0)
    chosen = rng.choice(_STEPS, size=draws, p=np.exp(common - np.logaddexp.reduce(common)))
    # The step of each is drawn where its share of those up to it passes a uniform number.
    share = np.exp(own - np.logaddexp.reduce(own, axis=-1)[..., None]).cumsum(axis=-1)
    step = (share[:, chosen] < rng.random((len(curves), draws, 1))).sum(axis=-1)
    step = np.minimum(step, _STEPS - 1)
    noise = rng.standard_t(df, size=(len(curves), draws, len(budgets)))
    noise *= noise_sd[:, None, None]
    drawn = course[:, None] + noise
    alike = drawn.copy()
    for pattern in np.unique(known, axis=0):
        group = np.flatnonzero((known == pattern).all(axis=1))
        for budget in np.flatnonzero(pattern):
            alike[group, :, budget] = pulled_together(drawn[group, :, budget].T).T
    return Gains(
        np.where(known[:, None], drawn, np.nan),
        drawn[each, :, end] - drawn[each, :, before],
        (alike * slope[each[:, None], chosen, step]).sum(axis=2),
    )


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
