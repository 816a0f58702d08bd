"""The axes that shapes vary in, and the pairs, squares and groups that they make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.questions.effects.contrasts import IntArray, Units
from analysis.runs.columns import in_order
from analysis.runs.grouped import Grouped
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, Number, number
from hsweep.errors import UserError


@dataclass(frozen=True)
class Axes:
    """What shapes vary in.

    Attributes:
        ordered: axes that vary by themselves and hold numbers.
        names: axes that vary and hold names; shapes are compared within one value of each.
        follows: axis to the axes that determine it; it is no axis of its own.
        levels: the values of each axis, ascending.
        rank: of each shape's value among them, by axis.
    """

    ordered: tuple[str, ...]
    names: tuple[str, ...]
    follows: dict[str, str]
    levels: dict[str, list[AxisValue]]
    rank: dict[str, IntArray]

    @classmethod
    def of(cls, shapes: Grouped) -> "Axes":
        """Return the axes of shapes.

        Raises:
            UserError: an axis that is not finite.
        """
        frame = pd.DataFrame([shape.config for shape in shapes.shapes])
        varying = [name for name in shapes.columns if frame[name].nunique() > 1]
        numbers = [name for name in varying if _holds_numbers(frame[name])]
        for name in numbers:
            if np.isinf(frame[name].to_numpy(np.float64)).any():
                raise UserError(
                    f"axis {name!r} holds an infinite value; distances between shapes need finite "
                    "numbers: correct or remove these rows"
                )
        follows = _follows(frame, numbers)
        ordered = tuple(name for name in numbers if name not in follows)
        names = tuple(name for name in varying if name not in numbers)
        levels, rank = {}, {}
        for name in (*ordered, *names):
            values = sorted(set(frame[name].tolist()), key=in_order)
            levels[name] = [number(v) if isinstance(v, int | float) else v for v in values]
            place = {value: at for at, value in enumerate(values)}
            rank[name] = frame[name].map(place).to_numpy(np.int64)
        return cls(ordered, names, follows, levels, rank)

    def group(self, held: Sequence[str]) -> IntArray:
        """Return the number of the group of each shape, of those that agree in every axis held."""
        found = np.zeros(len(next(iter(self.rank.values()))), dtype=np.int64)
        for name in held:
            _, found = np.unique(
                found * len(self.levels[name]) + self.rank[name], return_inverse=True
            )
        return found

    def others(self, *own: str) -> list[str]:
        return [name for name in (*self.ordered, *self.names) if name not in own]

    def pairs(self, axis: str) -> Units:
        """Return the neighbours on the lines of tried shapes along which only ``axis`` changes, in
        the order of their steps.

        Where a shape of a line cannot be compared its pairs are there too, so that they can be
        counted as lost.
        """
        line, rank = self.group(self.others(axis)), self.rank[axis]
        order = np.lexsort((rank, line))
        beside = line[order][1:] == line[order][:-1]
        low, high = order[:-1][beside], order[1:][beside]
        steps = np.lexsort((low, rank[high], rank[low]))
        return Units(high[steps, None], low[steps, None])

    def squares(self, first: str, second: str) -> Units:
        """Return the 2 x 2 squares of neighbouring values of two axes, all others held, in the
        order of their steps: both high and both low less one high and one low."""
        plane = self.group(self.others(first, second))
        a, b = (_dense(plane, self.rank[name]) for name in (first, second))
        wide = int(b.max()) + 2
        key = (plane * (int(a.max()) + 2) + a) * wide + b
        order = np.argsort(key)
        corners = []
        for more in (0, wide, 1, wide + 1):
            at = np.searchsorted(key[order], key + more)
            inside = np.minimum(at, len(key) - 1)
            found = order[inside]
            corners.append(np.where((at < len(key)) & (key[found] == key + more), found, -1))
        low, up, right, both = corners
        whole = (up >= 0) & (right >= 0) & (both >= 0)
        units = Units(
            np.stack([both[whole], low[whole]], axis=1),
            np.stack([right[whole], up[whole]], axis=1),
        )
        one, other = self.rank[first], self.rank[second]
        corner, far = units.plus[:, 1], units.plus[:, 0]
        return units[np.lexsort((other[far], other[corner], one[far], one[corner]))]

    def held(self, axis: str, shape: int) -> str:
        """Return a shape's values of all other axes in words."""
        return ", ".join(
            f"{name}={_text(self.levels[name][self.rank[name][shape]])}"
            for name in self.others(axis)
        )

    def values(self, axis: str, shapes: IntArray) -> list[Number]:
        """Return the values of an ordered axis that shapes have."""
        return [number(float(self.levels[axis][at])) for at in self.rank[axis][shapes].tolist()]


def cost_groups(
    alike: IntArray, cost: FloatArray, labels: Sequence[str], tolerance: float
) -> list[IntArray]:
    """Return groups of two or more shapes that are ``alike`` and lie within ``tolerance`` of their
    cheapest, the cheapest group first.

    Args:
        alike: number of the group of each shape within which they may be compared; -1 for none.
        cost: of each shape.
    """
    groups: list[list[int]] = []
    known = [at for at in range(len(cost)) if alike[at] >= 0 and math.isfinite(cost[at])]
    first = (-1, math.nan)
    for at in sorted(known, key=lambda at: (alike[at], cost[at], labels[at])):
        if alike[at] == first[0] and cost[at] <= first[1] * (1 + tolerance):
            groups[-1].append(at)
        else:
            groups.append([at])
            first = int(alike[at]), float(cost[at])
    groups.sort(key=lambda group: (cost[group[0]], labels[group[0]]))
    return [np.array(group) for group in groups if len(group) > 1]


def _text(value: AxisValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _dense(plane: IntArray, rank: IntArray) -> IntArray:
    """Return the rank of each shape's value among those of its plane."""
    wide = int(rank.max()) + 1
    key = plane * wide + rank
    values, at = np.unique(key, return_inverse=True)
    starts = np.searchsorted(values, np.arange(int(plane.max()) + 1) * wide)
    dense: IntArray = at - starts[plane]
    return dense


def _holds_numbers(column: "pd.Series[AxisValue]") -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in column.tolist())


def _follows(shapes: pd.DataFrame, ordered: Sequence[str]) -> dict[str, str]:
    """Return the axes that others determine, with these."""
    follows: dict[str, str] = {}
    if {"heads", "head_dim", "embed_dim"} <= set(ordered) and bool(
        (shapes["heads"] * shapes["head_dim"] == shapes["embed_dim"]).all()
    ):
        follows["embed_dim"] = "heads and head_dim"
    for first, second in combinations(ordered, 2):
        if first in follows or second in follows:
            continue
        values = shapes[first].nunique()
        if values < len(shapes) and len(shapes[[first, second]].drop_duplicates()) == values:
            follows[second] = first
    return follows
