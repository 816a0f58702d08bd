"""Search spaces: an algebra of frozen values.

A space is built from axes with ``*`` (every combination), ``+`` (either), ``zipped`` (in step),
``.where`` (points that satisfy a condition) and ``.derive`` (axes computed from other axes). A
finite space lists its points in a fixed order; any space can be sampled with a seed, and translates
into Optuna's distributions and Ray Tune's domains through one flat set of *parameters*.
"""

import ast
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from hsweep.design.domain import (
    AxisValue,
    Domain,
    IntRange,
    RealRange,
    ValueList,
    as_choice,
    as_value,
)
from hsweep.design.point import Point
from hsweep.errors import UserError, format_error, shown, unknown_name

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MAX_REJECTIONS: Final = 10_000
_MAX_LISTED: Final = 200_000
_MAX_COMBINATIONS: Final = 1_000_000
_MOST_CHOICES: Final = 10_000


def recorded_point(values: Mapping[str, Any]) -> Point:
    """Return a point that was written as JSON, which has lists for tuples."""
    return Point({axis: as_value(value) for axis, value in values.items()})


class Space(ABC):
    """A set of points. Build one with ``grid``, ``choice``, ``int_range``, ``uniform``,
    ``log_uniform`` or ``zipped``, and combine them."""

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """Names of all axes, derived ones included, in order."""

    @abstractmethod
    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        """Return the independent choices that determine a point, for samplers."""

    @abstractmethod
    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        """Return the point that the parameters' values stand for, None if it is excluded."""

    @abstractmethod
    def _enumerate(self) -> Iterator[dict[str, Any]]:
        """Yield every point of a finite space."""

    @abstractmethod
    def override(self, axis: str, values: Sequence[AxisValue]) -> "Space":
        """Return the same space with other values on one axis; UserError for an axis the space does
        not have, or one that cannot take these values."""

    def _most_points(self) -> float:
        """Return the number of combinations of axis values, infinity for an infinite space."""
        return math.prod(map(num_values, self.parameters().values()))

    @property
    def tuned_axes(self) -> tuple[str, ...]:
        """Names of the axes that were given by ``tuned(...)``: each shape is taken at its best
        value of them."""
        domains = self.parameters().items()
        # A parameter on one side of a union is named after the side too.
        points = (
            name.rpartition(".")[2]
            for name, domain in domains
            if isinstance(domain, ValueList) and domain.is_tuned and len(domain.values) > 1
        )
        return tuple(dict.fromkeys(points))

    @property
    def is_finite(self) -> bool:
        """Whether the points can be listed."""
        return math.isfinite(self._most_points())

    def points(self) -> Iterator[Point]:
        """Yield every point, in an order that depends on the space alone.

        Raises:
            UserError: the space is infinite, or has more combinations than can be listed.
        """
        number, domains = self._most_points(), self.parameters().items()
        if number > _MAX_COMBINATIONS:
            infinite = [name for name, domain in domains if isinstance(domain, RealRange)]
            what = f"the space has {number:,} combinations"
            what = f"axis {infinite[0]!r} has infinitely many values" if infinite else what
            raise UserError(
                f"{what}, of which at most {_MAX_COMBINATIONS:,} can be listed; use "
                "search=random_search(...) or optuna_search(...), or give shorter lists of values"
            )
        return map(Point, self._enumerate())

    def sample(self, num_points: int, seed: int) -> list[Point]:
        """Draw ``num_points`` different points (fewer, if a finite space has no more).

        Raises:
            UserError: next to no draw satisfies the space's ``where`` conditions.
        """
        import numpy as np

        rng = np.random.default_rng(seed)
        parameters = self.parameters()
        samples: dict[Point, None] = {}
        rejected = 0
        can_list = self._most_points() <= _MAX_LISTED
        patience = _MAX_REJECTIONS // 10 if can_list else _MAX_REJECTIONS
        while len(samples) < num_points:
            axis_values = self.decode(
                {name: domain.draw(rng) for name, domain in parameters.items()}
            )
            if axis_values is not None and (point := Point(axis_values)) not in samples:
                samples[point] = None
                continue
            rejected += 1
            if rejected >= patience:
                break
        if len(samples) < num_points and can_list:
            # Points too rare to be drawn, or the last ones of many.
            rest = [point for point in self.points() if point not in samples]
            for index in rng.permutation(len(rest))[: num_points - len(samples)]:
                samples[rest[index]] = None
        if not samples and num_points > 0:
            raise UserError(
                f"none of {rejected} draws satisfies the space's where(...) conditions; "
                "loosen them or narrow the axes"
            )
        return list(samples)

    def parameters_of(self, values: Mapping[str, AxisValue]) -> dict[Point, dict[str, Any]]:
        """Return the points that have the given axis values, each with parameters that stand for it
        (see ``parameters``); none where other axes have too many values."""
        domains = self.parameters()
        candidates = (_choices(name, domain, values) for name, domain in domains.items())
        choices = [choice for choice in candidates if choice is not None]
        if len(choices) < len(domains) or math.prod(map(len, choices)) > _MOST_CHOICES:
            return {}
        points: dict[Point, dict[str, Any]] = {}
        for chosen in itertools.product(*choices):
            parameters = dict(zip(domains, chosen, strict=True))
            decoded = self.decode(parameters)
            if decoded is not None and (point := Point(decoded)).has(values):
                points.setdefault(point, parameters)
        return points

    def to_optuna(self) -> "dict[str, BaseDistribution]":
        """Return Optuna's distributions of the space's parameters: of ordered values that of their
        numbers in the list, so that a sampler knows which are next to each other."""
        from optuna import distributions as optuna

        def distribution(domain: Domain) -> "BaseDistribution":
            if _is_ordered(domain):
                return optuna.IntDistribution(0, len(domain.values) - 1)
            if isinstance(domain, ValueList):
                return optuna.CategoricalDistribution(cast(Any, domain.values))
            if isinstance(domain, IntRange):
                highest = domain.high - (domain.high - domain.low) % domain.step
                return optuna.IntDistribution(domain.low, highest, step=domain.step)
            return optuna.FloatDistribution(domain.low, domain.high, log=domain.log)

        return {name: distribution(domain) for name, domain in self.parameters().items()}

    def from_optuna(self, values: Mapping[str, Any]) -> Point | None:
        """Return the point that values of Optuna's distributions stand for, None if it is
        excluded."""
        parameters = dict(values)
        for name, domain in self.parameters().items():
            if _is_ordered(domain):
                parameters[name] = domain.values[values[name]]
        decoded = self.decode(parameters)
        return None if decoded is None else Point(decoded)

    def optuna_values(self, point: Point) -> dict[str, Any]:
        """Return values of Optuna's distributions for a point; none if it is not of the space."""
        values = self.parameters_of(point).get(point, {})
        for name, domain in self.parameters().items() if values else ():
            if _is_ordered(domain):
                values[name] = domain.values.index(values[name])
        return values

    def __mul__(self, other: "Space") -> "Space":
        """Every combination of a point of each."""
        return Product(self, other)

    def __add__(self, other: "Space") -> "Space":
        """The points of either."""
        return Union(self, other)

    def where(self, condition: Callable[[Point], bool]) -> "Space":
        """Only the points for which ``condition`` holds."""
        return Mapped(self, condition)

    def derive(self, **axes: Callable[[Point], AxisValue]) -> "Space":
        """Add axes computed from the others, for example
        ``derive(embed_dim=lambda p: p.heads * p.head_dim)``."""
        space: Space = self
        for name, compute in axes.items():
            space = Mapped(space, compute, name)
        return space


def _check_name(axis: str) -> None:
    if not axis.isidentifier():
        raise UserError(f"an axis name is a Python identifier; got {axis!r}")
    if axis.startswith("_") or axis in dir(Point):
        raise UserError(
            f"an axis cannot be called {axis!r}: a point is read like a dict, so point.{axis} "
            f"would not be the axis's value; choose another name, such as num_{axis.strip('_')}"
        )


@dataclass(frozen=True)
class Axes(Space):
    """Independent axes, each with its own domain."""

    domains: tuple[tuple[str, Domain], ...]

    def __post_init__(self) -> None:
        for name, _ in self.domains:
            _check_name(name)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.domains)

    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        return {prefix + name: domain for name, domain in self.domains}

    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        return {name: values[prefix + name] for name, _ in self.domains}

    def _enumerate(self) -> Iterator[dict[str, Any]]:
        axes, values = self.axes, (domain.finite() or () for _, domain in self.domains)
        return (dict(zip(axes, row, strict=True)) for row in itertools.product(*values))

    def override(self, axis: str, values: Sequence[AxisValue]) -> Space:
        _require_axis(self, axis)
        domains = dict(self.domains)
        is_tuned = getattr(domains[axis], "is_tuned", False)
        domains[axis] = replace(as_choice(list(values)), is_tuned=is_tuned)
        return Axes(tuple(domains.items()))


@dataclass(frozen=True)
class Zipped(Space):
    """Axes that change in step, like ``zip``: different rows, each with a value for every axis."""

    names: tuple[str, ...]
    rows: tuple[tuple[AxisValue, ...], ...]

    def __post_init__(self) -> None:
        Axes(tuple((name, ValueList((None,))) for name in self.names))
        for row, number in Counter(self.rows).items():
            if number > 1:
                combination = dict(zip(self.names, row, strict=True))
                raise UserError(f"the zipped combination {shown(combination)} is listed twice")

    @property
    def axes(self) -> tuple[str, ...]:
        return self.names

    @property
    def _parameter(self) -> str:
        return "zip:" + ",".join(self.names)

    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        return {prefix + self._parameter: IntRange(0, len(self.rows) - 1)}

    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        row = self.rows[values[prefix + self._parameter]]
        return dict(zip(self.names, row, strict=True))

    def _enumerate(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.names, row, strict=True)) for row in self.rows)

    def override(self, axis: str, values: Sequence[AxisValue]) -> Space:
        _require_axis(self, axis)
        if len(values) not in (1, len(self.rows)):
            raise UserError(
                f"axis {axis!r} is zipped with {', '.join(n for n in self.names if n != axis)}: "
                f"give 1 or {len(self.rows)} values, not {len(values)}"
            )
        columns = dict(zip(self.names, zip(*self.rows, strict=True), strict=True))
        if len(values) > 1:
            return zipped(**{**columns, axis: values})
        del columns[axis]
        fixed = Axes(((axis, as_choice(list(values))),))
        if not columns:
            return fixed
        # Rows that differed on this axis alone are now the same.
        rows = tuple(dict.fromkeys(zip(*columns.values(), strict=True)))
        return Product(Zipped(tuple(columns), rows), fixed)


@dataclass(frozen=True)
class _Pair(Space):
    """A space made of two others."""

    left: Space
    right: Space

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.left.axes + self.right.axes))

    def override(self, axis: str, values: Sequence[AxisValue]) -> Space:
        _require_axis(self, axis)
        sides = (
            side.override(axis, values) if axis in side.axes else side
            for side in (self.left, self.right)
        )
        return type(self)(*sides)


@dataclass(frozen=True)
class Product(_Pair):
    """Every combination of a point of each side."""

    def __post_init__(self) -> None:
        shared = set(self.left.axes) & set(self.right.axes)
        if shared:
            raise UserError(
                f"axis {min(shared)!r} stands on both sides of a product; name it on one side only"
            )

    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        return {**self.left.parameters(prefix), **self.right.parameters(prefix)}

    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        left = self.left.decode(values, prefix)
        right = self.right.decode(values, prefix)
        return None if left is None or right is None else {**left, **right}

    def _most_points(self) -> float:
        return self.left._most_points() * self.right._most_points()

    def _enumerate(self) -> Iterator[dict[str, Any]]:
        right = list(self.right._enumerate())
        return ({**base, **other} for base in self.left._enumerate() for other in right)


@dataclass(frozen=True)
class Union(_Pair):
    """The points of either side; a point on both sides counts once."""

    @property
    def _parameter(self) -> str:
        # Named by its axes, so that the unions of a product choose independently.
        return "side:" + ",".join(self.axes)

    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        return {
            prefix + self._parameter: ValueList(("left", "right")),
            **self.left.parameters(f"{prefix}left."),
            **self.right.parameters(f"{prefix}right."),
        }

    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        if values[prefix + self._parameter] == "left":
            return self.left.decode(values, f"{prefix}left.")
        return self.right.decode(values, f"{prefix}right.")

    def _most_points(self) -> float:
        return self.left._most_points() + self.right._most_points()

    def _enumerate(self) -> Iterator[dict[str, Any]]:
        points = map(Point, itertools.chain(self.left._enumerate(), self.right._enumerate()))
        return map(dict, dict.fromkeys(points))


@dataclass(frozen=True)
class Mapped(Space):
    """The points of ``inner`` that satisfy a condition, or each of them with one more axis.

    Attributes:
        function: the condition, or what computes the axis from the others.
        name: of the new axis; empty for a condition.
    """

    inner: Space
    function: Callable[[Point], Any]
    name: str = ""

    def __post_init__(self) -> None:
        if self.name:
            _check_name(self.name)
        if self.name in self.inner.axes:
            raise UserError(
                f"axis {self.name!r} exists already, so it cannot be derived; choose another name"
            )

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.inner.axes, self.name) if self.name else self.inner.axes

    def parameters(self, prefix: str = "") -> dict[str, Domain]:
        return self.inner.parameters(prefix)

    def decode(self, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any] | None:
        point = self.inner.decode(values, prefix)
        return None if point is None else self._image(point)

    def _most_points(self) -> float:
        return self.inner._most_points()

    def _enumerate(self) -> Iterator[dict[str, Any]]:
        images = map(self._image, self.inner._enumerate())
        return (image for image in images if image is not None)

    def override(self, axis: str, values: Sequence[AxisValue]) -> Space:
        if axis == self.name:
            raise UserError(
                f"axis {axis!r} is derived from {', '.join(self.inner.axes)}; set one of those"
            )
        return replace(self, inner=self.inner.override(axis, values))

    def _image(self, point: dict[str, Any]) -> dict[str, Any] | None:
        """Return the point that a point of the inner space is mapped to, None if it is excluded;
        UserError if the function, which may do anything, fails or tries to end the process."""
        try:
            result = self.function(Point(point))
            if self.name:
                return {**point, self.name: as_value(result)}
            return point if result else None
        except (Exception, SystemExit) as error:
            method = f"derive({self.name}=...)" if self.name else "where(...)"
            why = str(error) if isinstance(error, UserError) else format_error(error)
            raise UserError(
                f"a {method} function of the sweep's space failed at {point}: {why}"
            ) from error


def num_values(domain: Domain) -> float:
    """Return the number of values in a domain, infinity for a real one."""
    if isinstance(domain, RealRange):
        return math.inf
    if isinstance(domain, ValueList):
        return len(domain.values)
    return (domain.high - domain.low) // domain.step + 1


def _is_ordered(domain: Domain) -> TypeGuard[ValueList]:
    """Whether a domain lists several numbers that rise or fall."""
    values: tuple[Any, ...] = domain.values if isinstance(domain, ValueList) else ()
    are_numbers = len(values) > 1 and {*map(type, values)} <= {int, float}
    return are_numbers and [*values] in (sorted(values), sorted(values, reverse=True))


def _choices(
    name: str, domain: Domain, wanted: Mapping[str, AxisValue]
) -> tuple[AxisValue, ...] | None:
    """Return the values of a parameter that may make a point with the wanted axis values; None for
    too many."""
    axis = name.rpartition(".")[2]
    if axis not in wanted:
        return domain.finite() if num_values(domain) <= _MOST_CHOICES else None
    # A value that the point cannot have matters on the other side of a union alone.
    other = domain.values[0] if isinstance(domain, ValueList) else domain.low
    return (wanted[axis] if wanted[axis] in domain else other,)


def _require_axis(space: Space, axis: str) -> None:
    if axis not in space.axes:
        raise unknown_name("axis", axis, space.axes)


def grid(**axes: Sequence[AxisValue] | AxisValue | ValueList) -> Space:
    """Return every combination of the listed values; a single value fixes its axis, and
    ``lr=tuned(1e-3, 1e-1)`` lists values of which each shape takes its best."""
    return Axes(tuple((name, as_choice(values)) for name, values in axes.items()))


choice = grid
"""The same set of points as ``grid``; the name to use for axes that are to be sampled."""


def int_range(**axes: tuple[int, int] | tuple[int, int, int]) -> Space:
    """Return whole-number axes, each given as (low, high) or (low, high, step), ends included."""
    return Axes(tuple((name, IntRange(*ends)) for name, ends in axes.items()))


def log_uniform(**axes: tuple[float, float]) -> Space:
    """Return real axes drawn evenly in their logarithm, each given as (low, high)."""
    return Axes(tuple((name, RealRange(*ends, log=True)) for name, ends in axes.items()))


def uniform(**axes: tuple[float, float]) -> Space:
    """Return real axes drawn evenly, each given as (low, high)."""
    return Axes(tuple((name, RealRange(*ends)) for name, ends in axes.items()))


def zipped(**axes: Sequence[AxisValue]) -> Space:
    """Return axes that change in step: the first values together, then the second, and so on.

    An axis may repeat a value; no combination may be listed twice.
    """
    for name, values in axes.items():
        if isinstance(values, ValueList):
            raise UserError(
                f"axis {name!r} is to be tuned, so it cannot change in step with others; give it "
                f"in a grid({name}=tuned(...)) of its own, multiplied with zipped(...)"
            )
    lengths = {name: len(values) for name, values in axes.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise UserError(f"zipped axes need equally many values, at least one each; got {lengths}")
    columns = (map(as_value, values) for values in axes.values())
    return Zipped(tuple(axes), tuple(zip(*columns, strict=True)))


# All that ast.literal_eval says it may raise: besides wrong syntax, `{[]}` and deep nesting.
_NO_LITERAL: Final = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def parse_values(text: str) -> list[AxisValue]:
    """Read the VALUE of ``--set NAME=VALUE``: one value, or several with commas between.

    Each is a Python literal (number, True, None, a tuple in parentheses), else a plain string.
    """
    # Python warns of oddities in literals (1if, "\\d") that are the user's text here.
    stripped = text.strip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            literal = ast.literal_eval(stripped)
        except _NO_LITERAL:
            return [_literal_or_text(part.strip()) for part in stripped.split(",")]
    is_list = isinstance(literal, list) or (
        isinstance(literal, tuple)
        and (not stripped.startswith("(") or all(isinstance(part, tuple) for part in literal))
    )
    return list(literal) if is_list else [literal]


def _literal_or_text(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except _NO_LITERAL:
        return text
