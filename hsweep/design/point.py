"""A point of a space."""

from collections.abc import Iterator, Mapping
from typing import Any

from hsweep.errors import unknown_name


class Point(Mapping[str, Any]):
    """One combination of axis values: an immutable mapping, its axes also readable as attributes.

    Raises:
        UserError: on reading an axis that the space does not have.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, axis: str) -> Any:
        try:
            return self._values[axis]
        except KeyError:
            raise unknown_name("axis", axis, self._values) from None

    def __getattr__(self, axis: str) -> Any:
        if axis.startswith("_"):
            raise AttributeError(axis)
        return self[axis]

    def __setattr__(self, axis: str, value: object) -> None:
        raise AttributeError(f"a point cannot be changed (tried to set {axis!r})")

    def __contains__(self, axis: object) -> bool:
        # Mapping's own version relies on KeyError, which reading an unknown axis does not raise.
        return axis in self._values

    def get(self, axis: str, default: Any = None) -> Any:
        """Return the axis's value, or ``default`` if the space does not have it."""
        return self._values.get(axis, default)

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether the point has all the given axis values."""
        return all(self._values.get(axis) == value for axis, value in values.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Point({', '.join(f'{axis}={value!r}' for axis, value in self._values.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Point, (self._values,)
