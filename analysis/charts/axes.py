"""Axes: positions of swept values, axes of rows, and the ticks of logarithmic axes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from analysis.charts.chart import Axis
from analysis.text.numbers import PREFIXES, cost_title, cost_unit, number_text
from analysis.values import Number


@dataclass(frozen=True, slots=True)
class GridAxis:
    """The positions of the values of a swept axis.

    Values whose steps grow (1, 2, 4, 8) stand at their log2, all others at the value itself.
    """

    values: tuple[Number, ...]
    is_log: bool

    @classmethod
    def of(cls, values: Iterable[Number]) -> "GridAxis":
        """Choose the spacing for these values."""
        grid = tuple(sorted(set(values)))
        steps = [after - before for before, after in pairwise(grid)]
        grows = len(steps) >= 2 and max(steps) >= 3 * min(steps)
        return cls(grid, grows and grid[0] > 0 and grid[-1] >= 8 * grid[0])

    def at(self, value: Number) -> float:
        return math.log2(value) if self.is_log else float(value)

    def beside(self, value: Number, index: int, count: int, apart: float = 0.1) -> float:
        """Return the position of the ``index``-th of ``count`` groups, side by side at a value.

        Neighbouring groups are a share ``apart`` of the grid's smallest step from one another; less
        where there are more than five groups.
        """
        shift = (index - (count - 1) / 2) * min(apart, 5 * apart / count)
        return self.at(value) + shift * self.step

    @property
    def positions(self) -> list[float]:
        return [self.at(value) for value in self.values]

    @property
    def step(self) -> float:
        """Smallest distance between two neighbours; 1 where there are none."""
        return min((after - before for before, after in pairwise(self.positions)), default=1.0)

    def axis(self, title: str) -> Axis:
        places = self.positions
        names = (number_text(value) for value in self.values)
        room = 0.45 * self.step
        ends = (places[0] - room, places[-1] + room)
        return Axis(title, "grid", ticks=tuple(zip(places, names, strict=True)), range=ends)


def row_axis(names: Sequence[str], bold: Iterable[int] = ()) -> Axis:
    """Return a vertical axis of named rows, the first on top; a heading's row has no name."""
    ticks = tuple((at, name) for at, name in enumerate(names) if name)
    return Axis("", "rows", ticks=ticks, bold=frozenset(bold), range=(len(names) - 0.4, -0.6))


def value_axis(title: str, values: Iterable[float], *, log: bool) -> Axis:
    """Return an axis of numbers, logarithmic if ``log`` and all numbers are above 0."""
    known = [value for value in values if math.isfinite(value)]
    return Axis(title, "log" if log and known and min(known) > 0 else "number")


def cost_axis(cost: str, costs: Iterable[float]) -> Axis:
    """Return the axis of a cost: logarithmic, with room at both ends, if all costs are above 0."""
    known = [value for value in costs if math.isfinite(value)]
    is_log = bool(known) and min(known) > 0
    notes = [note for note in (cost_unit(cost), "log scale" if is_log else "") if note]
    title = f"{cost_title(cost)} ({', '.join(notes)})" if notes else cost_title(cost)
    if not is_log:
        return Axis(title, form="cost")
    room = max(0.06 * math.log10(max(known) / min(known)), 0.02)
    ends = (min(known) / 10**room, max(known) * 10**room)
    return Axis(title, "log", form="cost", range=ends)


_STEPS_OF_A_DECADE: Final[tuple[tuple[float, ...], ...]] = (
    tuple(0.5 * half for half in range(2, 20)),
    (1, 2, 3, 4, 5, 6, 7, 8, 9),
    (1, 2, 3, 5),
    (1, 2, 5),
    (1, 3),
    (1,),
)


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return the ticks of a logarithmic axis, far enough apart for ``most`` labels.

    An axis that shows less than a factor of 3 has ticks at even distances (2.0, 2.2, 2.4).
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
    choices += [[10.0**decade for decade in decades if decade % step == 0] for step in (2, 3, 5)]
    best: list[float] = []
    for choice in choices:
        inside = [value for value in choice if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        gaps = np.diff(np.log10(inside))
        if len(inside) >= 2 and gaps.min() >= apart:
            return inside
        best = best or inside
    return best[:1]


def _even_values(low: float, high: float) -> list[list[float]]:
    choices = []
    for power in range(math.floor(math.log10(high - low)) - 1, math.floor(math.log10(high)) + 1):
        for mantissa in (1, 2, 5):
            step = mantissa * 10.0**power
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first <= 50:
                values = (number * step for number in range(first, last + 1))
                choices.append([float(f"{value:.12g}") for value in values])
    return choices


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def tick_text(value: float) -> str:
    """Return the label of a number: in full from 0.001 to 10,000, beyond as a power of ten."""
    if not math.isfinite(value) or value == 0 or 1e-3 * (1 - 1e-9) <= abs(value) < 1e4:
        return number_text(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    lead = number_text(float(mantissa))
    return power if lead == "1" else f"{lead}\N{MULTIPLICATION SIGN}{power}"


def axis_number(axis: Axis, value: float) -> str:
    """Return the label of a number on an axis; of a cost with a prefix: 320k, 1.5G."""
    for size, prefix in PREFIXES if axis.form == "cost" else ():
        if abs(value) >= size:
            return f"{value / size:.4g}{prefix}"
    return tick_text(value)
