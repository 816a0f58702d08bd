"""What results are made of: axis values, and frozen values as plain JSON.

Dataclasses become objects, named tuples and tuples become arrays, dictionary keys become strings.
JSON has no NaN or infinity, so both are written as null. A field whose name is a keyword with a
trailing underscore (``class_``) is written without it.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

Number = int | float
"""A value of an ordered axis: heads, sequence length, depth."""
AxisValue = int | float | str
Config = dict[str, AxisValue]
"""One model shape: axis name to value."""


def number(value: float) -> Number:
    """Return a whole value as int, anything else as float."""
    as_float = float(value)
    return int(as_float) if as_float.is_integer() else as_float


def encode(value: object) -> Any:
    """Return ``value`` as plain JSON types.

    Raises:
        TypeError: a type that JSON cannot carry.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {shown: encode(getattr(value, name)) for name, shown in _field_names(type(value))}
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


@cache
def _field_names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the fields of a dataclass, each with its name in JSON."""
    return tuple((field.name, field.name.rstrip("_")) for field in dataclasses.fields(kind))


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int | float):
        return repr(number(key))
    raise TypeError(f"cannot use a {type(key).__name__} as a JSON key: {key!r}")


def value_text(value: object) -> str:
    """Return an axis value in words; a missing one is ``none``, and 4 and 4.0 are the same."""
    if value is None or value != value:  # NaN: an axis without a value
        return "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = math.isfinite(value) and float(value) == int(value)
        return str(int(value)) if whole else f"{value:g}"
    return str(value)


def describe(config: Mapping[str, object]) -> str:
    """Return axis values in words: ``depth=8, heads=14``."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in config.items())


class Jsonable:
    """Adds ``to_json`` to a frozen dataclass of plain values."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value as a dictionary that ``json.dumps`` can write."""
        plain: dict[str, Any] = encode(self)
        return plain
