"""Shapes as points: features for the surrogate, and which points lie beyond those tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, Config

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ShapeSpace:
    """The points of the shapes tried, every ordered axis brought to [-1, 1].

    Attributes:
        axes: ordered axes.
        logged: those on a log2 scale.
        names: axes of names.
        configs: the shapes tried.
    """

    axes: tuple[str, ...]
    logged: tuple[str, ...]
    names: tuple[str, ...]
    configs: tuple[Config, ...]

    @classmethod
    def of(
        cls, axes: Sequence[str], names: Sequence[str], configs: Sequence[Config]
    ) -> "ShapeSpace":
        """Choose the scale of each axis: log2 where all its values are positive."""
        logged = tuple(axis for axis in axes if all(float(config[axis]) > 0 for config in configs))
        return cls(tuple(axes), logged, tuple(names), tuple(configs))

    def points(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        """Return the ordered axes of ``configs``, [shapes, axes]."""
        raw = np.array([[float(c[axis]) for axis in self.axes] for c in configs], dtype=np.float64)
        tried = np.array(
            [[float(c[axis]) for axis in self.axes] for c in self.configs], dtype=np.float64
        )
        raw = raw.reshape(len(configs), len(self.axes))
        for at, axis in enumerate(self.axes):
            if axis in self.logged:
                with np.errstate(divide="ignore", invalid="ignore"):
                    raw[:, at], tried[:, at] = np.log2(raw[:, at]), np.log2(tried[:, at])
        low, high = tried.min(axis=0), tried.max(axis=0)
        half = np.where(high > low, (high - low) / 2, 1.0)
        return np.asarray((raw - (low + high) / 2) / half)

    def features(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        """Return points and one column a name: 1 where the shape bears it."""
        columns = [self.points(configs)]
        for name in self.names:
            levels = self._levels(name)
            if len(levels) == 2:
                levels = levels[1:]
            for level in levels:
                columns.append(
                    np.array([[1.0 if str(c[name]) == level else -1.0] for c in configs])
                )
        return np.concatenate(columns, axis=1)

    def _levels(self, name: str) -> list[str]:
        return sorted({str(config[name]) for config in self.configs})

    def beyond(self, config: Mapping[str, AxisValue]) -> str:
        """Return in what way ``config`` lies beyond the shapes tried, empty if it does not.

        It does outside the range of an axis or the convex hull of the shapes with its names, or
        farther from all of them than any of them is from its nearest neighbour.
        """
        for name in self.names:
            if str(config[name]) not in self._levels(name):
                return f"{name} = {config[name]} was never tried"
        alike = [c for c in self.configs if self._named(c) == self._named(config)]
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

    def _named(self, config: Mapping[str, AxisValue]) -> tuple[str, ...]:
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
