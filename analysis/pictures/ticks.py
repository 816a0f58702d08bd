"""Which values a logarithmic axis names, and how a cost is written there."""

import math
from typing import Final

import numpy as np

from analysis.text.numbers import NONE, number_text

_STEPS_OF_A_DECADE: Final[tuple[tuple[float, ...], ...]] = (
    tuple(0.5 * half for half in range(2, 20)),
    (1, 2, 3, 4, 5, 6, 7, 8, 9),
    (1, 2, 3, 5),
    (1, 2, 5),
    (1, 3),
    (1,),
)


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return values to name on a logarithmic axis, far enough apart for ``most`` labels.

    Where less than a decade is shown, steps are even numbers rather than mantissas.
    """
    if not 0 < low < high < math.inf:
        return [low] if low > 0 and math.isfinite(low) else []
    apart = math.log10(high / low) / most
    choices = [*_even_values(low, high)] if high < 3 * low else []
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    choices += [
        [step * 10.0**decade for decade in decades for step in steps]
        for steps in _STEPS_OF_A_DECADE
    ]
    choices += [[10.0**decade for decade in decades if decade % every == 0] for every in (2, 3, 5)]
    best: list[float] = []
    for choice in choices:
        inside = [value for value in choice if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        gaps = np.diff(np.log10(inside))
        if len(inside) >= 2 and gaps.min() >= apart:
            return inside
        best = best or inside
    return best[:1]


def _even_values(low: float, high: float) -> list[list[float]]:
    found = []
    for power in range(math.floor(math.log10(high - low)) - 1, math.floor(math.log10(high)) + 1):
        for mantissa in (1, 2, 5):
            step = mantissa * 10.0**power
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first <= 50:
                found.append([round(number * step, 12) for number in range(first, last + 1)])
    return found


def cost_text(value: float) -> str:
    """Return a cost as a short label: 320000 as 320k, 1.5e9 as 1.5G."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{prefix}"
    return number_text(value) if math.isfinite(value) else NONE
