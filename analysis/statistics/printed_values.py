"""Seeds against a printed value, the difference in standard errors.

Printed values are single runs, or the best of a few, without a spread. So the spread is the study's
own: under the hypothesis that paper and study draw from one normal distribution of seeds (of log10
errors, of accuracies, of losses), a value printed as the best of m seeds lies c_m seed sd on the
better side of the mean and scatters with variance v_m, the mean and variance of the largest of m
standard normal numbers (Tippett 1925, Biometrika 17:364; c_1 = 0, v_1 = 1). The difference

    (mean -+ c_m s) - printed,   se^2 = s^2 (1 / n + v_m + c_m^2 / (2 df)) + reading error^2

over its standard error is held against Student's t with the df of the seed sd s, which is moderated
over all cells of the study.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.findings.against_results import AgainstSettings, Standing
from analysis.papers.published_results import PublishedResult
from analysis.runs.scale import FloatArray
from hsweep.design.question import Goal, Scale


def on_scale(values: FloatArray, scale: Scale) -> FloatArray:
    """Return values where differences are compared: decades of an error, else as they are."""
    return np.log10(values) if scale == "error" else values


@dataclass(frozen=True, slots=True)
class Compared:
    """A mean of seeds against a printed value, on the scale of the comparison."""

    expected: float
    difference: float
    se: float | None
    in_se: float | None
    p: float | None
    standing: Standing


def compare(
    y: FloatArray,
    sd: float | None,
    df: float,
    *,
    low: float,
    high: float,
    best_of: int,
    goal: Goal,
    reading_sd: float,
    alpha: float,
) -> Compared:
    """Compare seeds with a value printed as the best of ``best_of``, or a range of such values.

    Args:
        y: the study's runs.
        sd: their seed sd; None if unknown, and then nothing is tested.
        df: its degrees of freedom.
        low, high: the printed value, or its range.
        best_of: seeds that it is the best of.
        goal: which side is better.
        reading_sd: how exactly it was read.
        alpha: two-sided level.
    """
    c, v = best_of_normal(best_of)
    better = 1.0 if goal == "max" else -1.0
    expected = float(y.mean()) + better * c * (sd or 0.0)
    nearest = min(max(expected, low), high)
    difference = expected - nearest
    if sd is None:
        return Compared(expected, difference, None, None, None, "untested")
    se = math.sqrt(sd**2 * (1 / y.size + v + c**2 / (2 * df)) + reading_sd**2)
    in_se = difference / se if se > 0 else math.copysign(math.inf, difference) * bool(difference)
    p = float(2 * stats.t.sf(abs(in_se), df))
    standing: Standing = "alike"
    if p <= alpha:
        standing = "better" if better * difference > 0 else "worse"
    return Compared(expected, difference, se, in_se, p, standing)


def best_of_normal(m: int) -> tuple[float, float]:
    """Return mean and variance of the largest of ``m`` standard normal numbers."""
    if m == 1:
        return 0.0, 1.0
    x = np.linspace(-9.0, 9.0, 18_001)
    density = m * stats.norm.pdf(x) * stats.norm.cdf(x) ** (m - 1)
    mean = float(np.trapezoid(x * density, x))
    return mean, float(np.trapezoid((x - mean) ** 2 * density, x))


def reading_sd(result: PublishedResult, scale: Scale, settings: AgainstSettings) -> float:
    """Return how exactly a value was read, on the scale of the comparison."""
    if result.reading != "digitised":
        return 0.0
    relative = settings.reading_error
    return math.log10(1 + relative) if scale == "error" else relative * abs(result.value)
