"""Seeds against a printed value, the difference in standard errors.

Printed values are single runs, or the best of a few, without a spread. So the spread is the study's
own: under the hypothesis that paper and study draw from one normal distribution of seeds (of log10
errors, of accuracies, of losses), a value printed as the best of m seeds lies c_m seed sd on the
better side of the mean and scatters with variance v_m, the mean and variance of the largest of m
standard normal numbers (Tippett 1925, Biometrika 17:364; c_1 = 0, v_1 = 1). The difference

    (mean -+ c_m s) - printed,   se^2 = s^2 (1 / n + v_m + c_m^2 / (2 df)) + reading error^2

over its standard error is compared with Student's t with the df of the seed sd s, which is
moderated over all cells of the study.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from analysis.statistics.values import FloatArray

Standing = Literal["alike", "better", "worse", "untested"]


@dataclass(frozen=True, slots=True)
class PrintedDifference:
    """The difference between a mean of seeds and a printed value, on the scale of the test.

    Attributes:
        expected: what the seeds would give when printed by the paper's rule.
        difference: expected minus printed; 0 inside a range.
        se: its standard error: that of the mean, and the scatter of a value printed by that rule.
            It and what follows from it are None where nothing is tested.
        standing: alike (not told apart), better, worse, or untested.
    """

    expected: float
    difference: float
    se: float | None
    in_se: float | None
    p: float | None
    standing: Standing


def printed_difference(
    y: FloatArray,
    sd: float | None,
    df: float,
    *,
    low: float,
    high: float,
    best_of: int,
    higher_is_better: bool,
    reading_sd: float,
    alpha: float,
) -> PrintedDifference:
    """Test seeds against a value printed as the best of ``best_of``, or a range of such values.

    Args:
        y: the study's runs.
        sd, df: their seed sd, with its degrees of freedom; None if unknown: nothing is tested then.
        low, high: the printed value twice, or the ends of its range.
        best_of: number of seeds whose best value was printed.
        higher_is_better: whether a larger y is better.
        reading_sd: standard error of reading the value from the source.
        alpha: two-sided level.
    """
    c, v = best_of_normal(best_of)
    better = 1.0 if higher_is_better else -1.0
    expected = float(y.mean()) + better * c * (sd or 0.0)
    nearest = min(max(expected, low), high)
    difference = expected - nearest
    if sd is None:
        return PrintedDifference(expected, difference, None, None, None, "untested")
    se = math.sqrt(sd**2 * (1 / y.size + v + c**2 / (2 * df)) + reading_sd**2)
    in_se = difference / se if se > 0 else math.copysign(math.inf, difference) * bool(difference)
    p = float(2 * special.stdtr(df, -abs(in_se)))
    standing: Standing = "alike"
    if p <= alpha:
        standing = "better" if better * difference > 0 else "worse"
    return PrintedDifference(expected, difference, se, in_se, p, standing)


def best_of_normal(m: int) -> tuple[float, float]:
    """Return mean and variance of the largest of ``m`` standard normal numbers."""
    if m == 1:
        return 0.0, 1.0
    x = np.linspace(-9.0, 9.0, 18_001)
    density = m * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * special.ndtr(x) ** (m - 1)
    mean = float(np.trapezoid(x * density, x))
    return mean, float(np.trapezoid((x - mean) ** 2 * density, x))
