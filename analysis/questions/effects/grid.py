"""The axes that shapes vary in, and the pairs and squares of neighbours that they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.questions.effects.contrasts import Units
from analysis.runs.columns import in_order
from analysis.runs.grouped import Grouped
from analysis.statistics.values import IntArray
from analysis.values import AxisValue, Number, number
from hsweep.errors import UserError


@dataclass(frozen=True)
class ShapeGrid:
    """What shapes vary in.

    Attributes:
        ordered: axes that vary by themselves and hold numbers.
        names: axes that vary and hold names, or are held; shapes are compared within one value of
            each.
        follows: axis to the axes that determine it; it is no axis of its own.
        levels: the values of each axis, ascending.
        ranks: of each shape's value among them, by axis.
    """

    ordered: tuple[str, ...]
    names: tuple[str, ...]
    follows: dict[str, str]
    levels: dict[str, list[AxisValue]]
    ranks: dict[str, IntArray]

    @classmethod
    def of(cls, shapes: Grouped, held: Sequence[str] = ()) -> "ShapeGrid":
        """Return the axes of shapes; those ``held`` are none by themselves.

        Raises:
            UserError: an axis that is not finite.
        """
        frame = pd.DataFrame([shape.config for shape in shapes.shapes])
        varying = [name for name in shapes.columns if frame[name].nunique() > 1]
        numbers = [
            name
            for name in varying
            if all(type(value) in (int, float) for value in frame[name].tolist())
        ]
        for name in numbers:
            if np.isinf(frame[name].to_numpy(np.float64)).any():
                raise UserError(
                    f"axis {name!r} holds an infinite value; distances between shapes need finite "
                    "numbers: correct or remove these rows"
                )
        follows = _follows(frame, numbers)
        ordered = tuple(name for name in numbers if name not in {*follows, *held})
        names = tuple(name for name in varying if name not in {*ordered, *follows})
        levels, ranks = {}, {}
        for name in (*ordered, *names):
            values = sorted(set(frame[name].tolist()), key=in_order)
            levels[name] = [number(v) if isinstance(v, int | float) else v for v in values]
            place = {value: at for at, value in enumerate(values)}
            ranks[name] = frame[name].map(place).to_numpy(np.int64)
        return cls(ordered, names, follows, levels, ranks)

    def group(self, axes: Sequence[str]) -> IntArray:
        """Return the number of the group of each shape, of those that agree in every axis held."""
        ranks = pd.DataFrame(self.ranks)
        if not axes:
            return np.zeros(len(ranks), dtype=np.int64)
        return ranks.groupby(list(axes)).ngroup().to_numpy()

    def others(self, *axes: str) -> list[str]:
        return [name for name in (*self.ordered, *self.names) if name not in axes]

    def pairs(self, axis: str) -> Units:
        """Return the neighbours on the lines of tried shapes along which only ``axis`` changes, in
        the order of their steps.

        Where a shape of a line cannot be compared its pairs are there too, so that they can be
        counted as lost.
        """
        line, rank = self.group(self.others(axis)), self.ranks[axis]
        order = np.lexsort((rank, line))
        beside = line[order][1:] == line[order][:-1]
        low, high = order[:-1][beside], order[1:][beside]
        steps = np.lexsort((low, rank[high], rank[low]))
        return Units(high[steps, None], low[steps, None])

    def squares(self, first: Units, second: Units) -> Units:
        """Return the squares that the pairs of two axes make: both high and both low less one high
        and one low."""
        along = np.full((2, len(next(iter(self.ranks.values()))) + 1), -1)
        for nearest, pairs in zip(along, (first, second), strict=True):
            nearest[pairs.minus[:, 0]] = pairs.plus[:, 0]
        # The last place stands for no neighbour, and has none.
        after_first, after_second = along
        both = after_first[after_second]
        low = np.flatnonzero((both >= 0) & (both == after_second[after_first]))
        return Units(
            np.stack([both[low], low], axis=1),
            np.stack([after_first[low], after_second[low]], axis=1),
        )

    def steps(self, axis: str, pairs: Units) -> list[Units]:
        """Return an axis' pairs, step by step; they are in that order."""
        low, high = (self.ranks[axis][ends[:, 0]] for ends in (pairs.minus, pairs.plus))
        ends = np.flatnonzero(np.diff(low) | np.diff(high)) + 1
        rows = np.split(np.arange(len(pairs)), ends) if len(pairs) else []
        return [pairs[some] for some in rows]

    def values(self, axis: str, pairs: Units) -> tuple[Number, ...]:
        """Return the values of an ordered axis that pairs have, ascending."""
        shapes = np.concatenate([pairs.plus, pairs.minus])
        ranks: list[int] = np.unique(self.ranks[axis][shapes]).tolist()
        return tuple(number(float(self.levels[axis][at])) for at in ranks)


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
