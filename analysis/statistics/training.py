"""What more training still changes, by one model of gains.

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
"""How many times the longest budget training may go on."""
_EVERY_PAIR_OF: Final = 20
_POWER: Final = 0.7
"""Of the budget by which gains most likely fade, before the curves are seen."""
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
_STEPS: Final = 31
_LEAST: Final = 1e-6
"""Of an error beside its last value: less is none."""


def centre(samples: FloatArray) -> FloatArray:
    """Return the median of all pairs' means of each row (Hodges and Lehmann 1963); of long rows the
    median. Shape [draws, n] to [draws]."""
    n = samples.shape[1]
    if n > _EVERY_PAIR_OF:
        return np.asarray(np.median(samples, axis=1))
    first, second = np.triu_indices(n)
    return np.asarray(np.median((samples[:, first] + samples[:, second]) / 2, axis=1))


@dataclass(frozen=True, slots=True)
class Futures:
    """Draws of how quantities go on with training, arrays of shape [K, B] unless said otherwise.

    Attributes:
        budgets: to which each was trained, shape [K].
        before: the budget before that, shape [K].
        since: what changed after the answer's budget.
        gain: the part that is still to fall, of the last value of an error or in the metric's unit.
        power: of the budget by which it falls.
        pace: change over the last ratio of budgets.
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
        """The longest budget that any was trained to."""
        return float(self.budgets.max())

    @property
    def longer(self) -> float:
        """The budget to try next, one usual step beyond the longest."""
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
    own: int,
    is_log: bool,
    groups: Sequence[int],
    courses: Sequence[int],
    draws: int,
    rng: np.random.Generator,
) -> Futures:
    """Return draws of how quantities go on.

    Before the curves are seen the logarithm of the power a is about that of 0.7, normal with an sd
    of 0.4 for all quantities, and Cauchy for each course about the others: one that clearly learns
    otherwise is let go. Its scale is 0.2 for a curve that noise explains, and up to 0.4 for one
    that moves, whose own power would carry it far. Three budgets and more tell the powers more
    closely. Noise is that of single values about the mean of their seed, pooled. Differences that
    it explains, between quantities of one group with the same budgets, are not carried on.

    Args:
        curves: of each quantity y of its seeds at each budget, shape [seeds, budgets], at least two
            of each; NaN at budgets that it does not have.
        budgets: ascending.
        own: place of the answer's budget, which every curve has.
        is_log: whether y is the log10 of an error; else more is better.
        groups: which quantities are alike.
        courses: which quantities have one power.
    """
    amounts = np.array(budgets, dtype=np.float64)
    known = np.array([~np.isnan(curve).any(axis=0) for curve in curves])
    relative = [curve[:, has] for curve, has in zip(curves, known, strict=True)]
    relative = [values - values.mean(axis=1, keepdims=True) for values in relative]
    course = np.full(known.shape, np.nan)
    course[known] = np.concatenate([centre(values.T) for values in relative])
    counts, of_each = np.array([len(values) for values in relative]), known.sum(axis=1)
    df = int((counts - 1) @ (of_each - 1))
    scatter = sum(float(np.sum((values - values.mean(axis=0)) ** 2)) for values in relative)
    noise_sd = np.sqrt(max(scatter, 1e-300) / df / counts)
    order = np.array([np.flatnonzero(has)[-2:] for has in known])
    before, end = order.T
    rows = np.arange(len(curves))
    to_end = amounts / amounts[end, None]

    z = np.linspace(-4, 4, _STEPS)
    apart = np.linspace(-_OWN_REACH, _OWN_REACH, _STEPS)
    # Of all in common by that of each, shape [C, D].
    powers = _POWER * np.exp(_COMMON_SD * z[:, None] + apart)
    _, misfit = _fitted(course[:, None, None], to_end[:, None, None], powers, end, is_log)
    # A t distribution's likelihood, as the noise is estimated.
    chi_square = misfit / (df * noise_sd[:, None, None] ** 2)
    likelihood = -0.5 * (df + of_each - 2)[:, None, None] * np.log1p(chi_square)
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
    # The step of each is drawn where its share of those up to it passes a uniform number.
    share = np.exp(own_part - np.logaddexp.reduce(own_part, axis=-1)[..., None]).cumsum(axis=-1)
    step = (share[:, chosen] < rng.random((len(names), draws, 1))).sum(axis=-1)
    # Between the steps of the grid.
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
        drawn[rows, :, end] - drawn[rows, :, own],
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
    """Return the part of each curve that falls, and what the model leaves over.

    Args:
        course: shape [K, ..., budgets]; NaN at budgets that are not known.
        ratios: of the budgets to the last of each, the same shape.
        power: shape [...] or [K, ...].
        end: place of the last budget of each.
        is_log: whether an error is fitted, whose noise is in proportion to it.
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
    """Return the places of quantities of one group with the same budgets."""
    members: dict[tuple[object, ...], list[int]] = {}
    for k, group in enumerate(groups):
        members.setdefault((group, *known[k].tolist()), []).append(k)
    return [np.array(indices) for indices in members.values()]


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
