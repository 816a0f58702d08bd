"""How far more training still changes results, by one model of gains.

Every error is a limit plus a part that falls as b^-a with the budget b, every other metric a limit
less such a part. An error without a limit in sight falls on as a power of the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.values import FloatArray

HORIZON: Final = 100.0
"""Multiple of the longest budget at which training counts as ended."""
_EVERY_PAIR_OF: Final = 20
_POWER: Final = 0.7
"""Power of the budget by which gains fade, before the curves are seen: the centre of the prior."""
_COMMON_SD: Final = 0.4
"""Prior sd of the logarithm of the power that all quantities have in common."""
_OWN_SCALE: Final = 0.2
_MOVING_SCALE: Final = 0.4
_OWN_REACH: Final = 2.0
"""The logarithm of a quantity's power has a Cauchy prior about the common one, with the first scale
and cut at the reach; the second scale is for a curve whose last change noise does not explain."""
_BEYOND_NOISE: Final = 2.0
"""Standard deviations up to which noise explains a change."""
_STEPS: Final = 31
_LEAST: Final = 1e-6
"""Smallest error, relative to its last value, that an extrapolation reaches."""


def centre(samples: FloatArray) -> FloatArray:
    """Return the median of the means of all pairs in each row (Hodges and Lehmann 1963); in long
    rows the median of the values. Shape [draws, n] to [draws]."""
    n = samples.shape[1]
    if n > _EVERY_PAIR_OF:
        return np.asarray(np.median(samples, axis=1))
    first, second = np.triu_indices(n)
    return np.asarray(np.median((samples[:, first] + samples[:, second]) / 2, axis=1))


@dataclass(frozen=True, slots=True)
class Futures:
    """Draws of how quantities go on with training, arrays of shape [K, B] unless said otherwise.

    Attributes:
        budgets: the longest budget of each quantity, shape [K].
        before: the second longest budget of each quantity, shape [K].
        since: change between the answer's budget and the longest one.
        gain: the part that is still to fall, relative to the last error or in the metric's unit.
        power: power of the budget by which ``gain`` falls.
        pace: change between the last two budgets.
        is_log: whether quantities are log10 of errors.
    """

    budgets: FloatArray
    before: FloatArray
    since: FloatArray
    gain: FloatArray
    power: FloatArray
    pace: FloatArray
    is_log: bool

    @property
    def longest(self) -> float:
        """The longest budget of any run."""
        return float(self.budgets.max())

    @property
    def longer(self) -> float:
        """The budget to try next: the longest times the smallest ratio of two budgets."""
        return self.longest * float((self.budgets / self.before).min())

    def end(self) -> FloatArray:
        """Return the change from the answer's budget to the end of training."""
        return self.at(HORIZON * self.longest)

    def at(self, budget: float) -> FloatArray:
        """Return the change from the answer's budget to another one."""
        ratio = (budget / self.budgets)[:, None]
        change = self.gain * (ratio**-self.power - 1)
        if not self.is_log:
            return np.asarray(self.since + change)
        steps = np.log(ratio) / np.log((self.budgets / self.before)[:, None])
        has_limit = self.gain < 1
        limited = np.log10(np.maximum(1 + np.where(has_limit, change, 0.0), _LEAST))
        return np.asarray(self.since + np.where(has_limit, limited, self.pace * steps))


def futures(
    curves: Sequence[FloatArray],
    budgets: Sequence[float],
    *,
    answer_index: int,
    is_log: bool,
    groups: Sequence[int],
    courses: Sequence[int],
    draws: int,
    rng: np.random.Generator,
) -> Futures:
    """Return draws of how quantities go on with training.

    The prior of the logarithm of the power a has its centre at log 0.7. The part that all
    quantities share is normal with an sd of 0.4; each course deviates from it by a Cauchy
    variable, so a course that clearly learns otherwise is not pulled back. The Cauchy scale is 0.2
    for a curve whose changes noise explains, and up to 0.4 for one that moves more. Three and more
    budgets narrow the powers down. Noise is the scatter of single values about the mean of their
    seed, pooled. Differences by noise between quantities of one group with the same budgets are
    not extrapolated.

    Args:
        curves: y of the seeds of each quantity at each budget, shape [seeds, budgets], at least two
            of each; NaN at budgets that the quantity does not have.
        budgets: ascending.
        answer_index: index of the answer's budget, which every curve has.
        is_log: whether y is the log10 of an error; else more is better.
        groups: quantities with the same number are alike.
        courses: quantities with the same number have one power.
    """
    amounts = np.array(budgets, dtype=np.float64)
    known = np.array([~np.isnan(curve).any(axis=0) for curve in curves])
    relative = [curve[:, has] for curve, has in zip(curves, known, strict=True)]
    relative = [values - values.mean(axis=1, keepdims=True) for values in relative]
    course = np.full(known.shape, np.nan)
    course[known] = np.concatenate([centre(values.T) for values in relative])
    counts, budget_counts = np.array([len(values) for values in relative]), known.sum(axis=1)
    df = int((counts - 1) @ (budget_counts - 1))
    scatter = sum(float(np.sum((values - values.mean(axis=0)) ** 2)) for values in relative)
    noise_sd = np.sqrt(max(scatter, 1e-300) / df / counts)
    order = np.array([np.flatnonzero(has)[-2:] for has in known])
    before, end = order.T
    rows = np.arange(len(curves))
    to_end = amounts / amounts[end, None]

    z = np.linspace(-4, 4, _STEPS)
    apart = np.linspace(-_OWN_REACH, _OWN_REACH, _STEPS)
    # The powers on a grid: the common part by the deviation of a course, shape [C, D].
    powers = _POWER * np.exp(_COMMON_SD * z[:, None] + apart)
    _, misfit = _fitted(course[:, None, None], to_end[:, None, None], powers, end, is_log)
    # A t distribution's likelihood, as the noise is estimated.
    chi_square = misfit / (df * noise_sd[:, None, None] ** 2)
    likelihood = -0.5 * (df + budget_counts - 2)[:, None, None] * np.log1p(chi_square)
    moved = np.abs(course[rows, end] - course[rows, before])
    explained = np.maximum(_BEYOND_NOISE * np.sqrt(2) * noise_sd, 1e-300)
    moving = 1 - (explained / np.maximum(moved, explained)) ** 2
    scale = _OWN_SCALE + (_MOVING_SCALE - _OWN_SCALE) * moving
    names, course_of = np.unique(np.array(courses), return_inverse=True)
    members = [course_of == name for name in range(len(names))]
    own_part = np.stack(
        [likelihood[of].sum(axis=0) - np.log1p((apart / scale[of].max()) ** 2) for of in members]
    )
    common = -0.5 * z**2 + np.logaddexp.reduce(own_part, axis=-1).sum(axis=0)
    chosen = rng.choice(_STEPS, size=draws, p=np.exp(common - np.logaddexp.reduce(common)))
    # A course's step on the grid is drawn by the inverse of its cumulative distribution.
    share = np.exp(own_part - np.logaddexp.reduce(own_part, axis=-1)[..., None]).cumsum(axis=-1)
    step = (share[:, chosen] < rng.random((len(names), draws, 1))).sum(axis=-1)
    # A uniform draw between the steps of the grid.
    inside = (apart[1] - apart[0]) * rng.uniform(-0.5, 0.5, step.shape)
    power = (powers[chosen, np.minimum(step, _STEPS - 1)] * np.exp(inside))[course_of]

    noise = rng.standard_t(df, size=(len(curves), draws, len(budgets)))
    drawn = course[:, None] + noise * noise_sd[:, None, None]
    alike = drawn.copy()
    for group in _alike(known, groups):
        for budget in np.flatnonzero(known[group[0]]):
            alike[group, :, budget] = pulled_together(drawn[group, :, budget].T).T
    gain, _ = _fitted(alike, to_end[:, None], power, end, is_log)
    return Futures(
        amounts[end],
        amounts[before],
        drawn[rows, :, end] - drawn[rows, :, answer_index],
        gain,
        power,
        alike[rows, :, end] - alike[rows, :, before],
        is_log,
    )


def _fitted(
    course: FloatArray,
    ratios: FloatArray,
    power: FloatArray,
    end: NDArray[np.intp],
    is_log: bool,
) -> tuple[FloatArray, FloatArray]:
    """Return the part of each curve that falls, and the model's sum of squared residuals.

    Args:
        course: shape [K, ..., budgets]; NaN at budgets that are not known.
        ratios: each budget over the quantity's last one, the same shape.
        power: power of the budget, shape [...] or [K, ...].
        end: index of the last budget of each quantity.
        is_log: whether the curve is an error, whose noise is proportional to its size.
    """
    has = ~np.isnan(course)
    y, weight = np.where(has, course, 0.0), has.astype(np.float64)
    x = np.where(has, ratios ** -power[..., None], 0.0)
    unit = 1.0
    if is_log:
        last = np.stack([row[..., k] for row, k in zip(course, end, strict=True)])[..., None]
        y = np.where(has, 10.0 ** np.clip(course - last, -8, 8), 1.0)
        weight = weight / y**2
        unit = 1 / np.log(10)
    total = weight.sum(axis=-1, keepdims=True)
    x = x - (weight * x).sum(axis=-1, keepdims=True) / total
    y = y - (weight * y).sum(axis=-1, keepdims=True) / total
    slope = (weight * x * y).sum(axis=-1) / np.maximum((weight * x**2).sum(axis=-1), 1e-300)
    rest = (weight * (y - slope[..., None] * x) ** 2).sum(axis=-1) * unit**2
    return slope, rest


def _alike(known: NDArray[np.bool_], groups: Sequence[int]) -> list[NDArray[np.intp]]:
    """Return the indices of each set of quantities with the same group and the same budgets."""
    members: dict[tuple[object, ...], list[int]] = {}
    for k, group in enumerate(groups):
        members.setdefault((group, *known[k].tolist()), []).append(k)
    return [np.array(indices) for indices in members.values()]


def pulled_together(draws: FloatArray) -> FloatArray:
    """Return draws of several quantities, shape [B, K], each moved towards the mean of all.

    The move is the share of their differences that noise explains (a random-effects mean).
    """
    if draws.shape[1] < 2:
        return draws
    noise = float(np.mean(np.var(draws, axis=0)))
    between = max(0.0, float(np.var(np.median(draws, axis=0), ddof=1)) - noise)
    share = between / (between + noise) if between + noise > 0 else 1.0
    mean = draws.mean(axis=1, keepdims=True)
    return np.asarray(mean + share * (draws - mean))
