"""Shapes as points: features for the surrogate, and which points lie beyond those tried."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, Config

_TOLERANCE = 1e-9


class ShapeSpace:
    """The points of the shapes tried, every ordered axis brought to [-1, 1].

    An axis is on a log2 scale (``logged``) where all its values are positive.

    Args:
        axes: ordered axes.
        names: axes of names.
        configs: the shapes tried.
    """

    def __init__(
        self, axes: Sequence[str], names: Sequence[str], configs: Sequence[Config]
    ) -> None:
        self.axes, self.names, self.configs = tuple(axes), tuple(names), tuple(configs)
        self.logged = tuple(
            axis for axis in axes if all(float(config[axis]) > 0 for config in configs)
        )
        self._levels = {name: sorted({str(c[name]) for c in configs}) for name in names}
        tried = self._scaled(configs)
        low, high = tried.min(axis=0), tried.max(axis=0)
        self._middle = (low + high) / 2
        self._half = np.where(high > low, (high - low) / 2, 1.0)

    def _scaled(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        raw = np.array([[float(c[axis]) for axis in self.axes] for c in configs], dtype=np.float64)
        raw = raw.reshape(len(configs), len(self.axes))
        for at, axis in enumerate(self.axes):
            if axis in self.logged:
                with np.errstate(divide="ignore", invalid="ignore"):
                    raw[:, at] = np.log2(raw[:, at])
        return raw

    def points(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        """Return the ordered axes of ``configs``, [shapes, axes]."""
        return np.asarray((self._scaled(configs) - self._middle) / self._half)

    def features(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        """Return points and one column a name: 1 where the shape bears it."""
        columns = [self.points(configs)]
        for name, levels in self._levels.items():
            for level in levels[1:] if len(levels) == 2 else levels:
                columns.append(
                    np.array([[1.0 if str(c[name]) == level else -1.0] for c in configs])
                )
        return np.concatenate(columns, axis=1)

    def beyond(self, config: Mapping[str, AxisValue]) -> str:
        """Return in what way ``config`` lies beyond the shapes tried, empty if it does not.

        It does outside the range of an axis or the convex hull of the shapes with its names, or
        farther from all of them than any of them is from its nearest neighbour.
        """
        for name in self.names:
            if str(config[name]) not in self._levels[name]:
                return f"{name} = {config[name]} was never tried"
        alike = [c for c in self.configs if self.named(c) == self.named(config)]
        if not alike:
            return "this combination of names was never tried"
        for axis in self.axes:
            values = [float(c[axis]) for c in alike]
            if not min(values) <= float(config[axis]) <= max(values):
                return f"{axis} = {config[axis]:g} lies outside {min(values):g} to {max(values):g}"
        tried, here = self.points(alike), self.points([config])[0]
        if not _in_hull(tried, here):
            return "outside the convex hull of the shapes tried"
        distance = float(np.sqrt(((tried - here) ** 2).sum(axis=1)).min())
        if distance > _farthest_neighbour(tried) + _TOLERANCE:
            return "farther from every shape tried than any of them from its neighbour"
        return ""

    def named(self, config: Mapping[str, AxisValue]) -> tuple[str, ...]:
        return tuple(str(config[name]) for name in self.names)


def _in_hull(points: FloatArray, here: FloatArray) -> bool:
    if bool((np.abs(points - here).max(axis=1) < _TOLERANCE).any()):
        return True
    found = linprog(
        np.zeros(len(points)),
        A_eq=np.vstack([points.T, np.ones(len(points))]),
        b_eq=np.append(here, 1.0),
        bounds=(0, None),
        method="highs",
    )
    return bool(found.status == 0)


def _farthest_neighbour(points: FloatArray) -> float:
    if len(points) < 2:
        return 0.0
    distance = np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2))
    np.fill_diagonal(distance, np.inf)
    return float(distance.min(axis=1).max())
