"""What results are made of: axis values, and frozen values as plain JSON and back.

Dataclasses become objects, named tuples and tuples become arrays, dictionary keys become strings.
JSON has no NaN or infinity, so both are written as null; a null read into a field declared
``float`` becomes NaN again. A field whose name is a keyword with a trailing underscore
(``class_``) is written without it.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Self

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


def decode(kind: Any, data: Any) -> Any:
    """Return ``data`` (as written by `encode`) as a value of the declared type ``kind``.

    Raises:
        ValueError: data that does not have the declared form.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin is Literal:
        if data not in typing.get_args(kind):
            raise ValueError(f"{data!r} is not one of {typing.get_args(kind)}")
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data)
    if origin in (dict, Mapping):
        key_kind, item_kind = typing.get_args(kind)
        return {_unkey(key_kind, key): decode(item_kind, item) for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = typing.get_type_hints(kind)
        return kind(*(decode(hint, item) for hint, item in zip(hints.values(), data, strict=True)))
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data)
    if kind is float:
        return math.nan if data is None else float(data)
    if kind in (int, str, bool):
        if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
            raise ValueError(f"expected {kind.__name__}, not {data!r}")
        return data
    raise ValueError(f"cannot read {data!r} as {kind!r}")


class Jsonable:
    """Adds ``to_json`` and ``from_json`` to a frozen dataclass of plain values."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value as a dictionary that ``json.dumps`` can write."""
        plain = encode(self)
        assert isinstance(plain, dict)
        return plain

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the value that `to_json` wrote.

        Raises:
            ValueError: a missing field or a value of the wrong form.
        """
        value = decode(cls, data)
        assert isinstance(value, cls)
        return value


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int | float):
        return repr(number(key))
    raise TypeError(f"cannot use a {type(key).__name__} as a JSON key: {key!r}")


def _unkey(kind: Any, key: str) -> str | Number:
    return key if kind is str else number(float(key))


def _decode_union(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    if set(others) <= {int, float, str, bool}:
        if data is None:
            return math.nan
        if isinstance(data, bool | int | float | str) and type(data) in others:
            return data
        raise ValueError(f"{data!r} is not one of {[kind.__name__ for kind in others]}")
    (kind,) = others
    return decode(kind, data)


def _decode_tuple(kinds: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise ValueError(f"expected an array, not {data!r}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(decode(kinds[0], item) for item in data)
    return tuple(decode(kind, item) for kind, item in zip(kinds, data, strict=True))


def _decode_dataclass(kind: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object for {kind.__name__}, not {data!r}")
    hints = typing.get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        name = field.name.rstrip("_")
        if name not in data:
            raise ValueError(f"{kind.__name__} has no field {name!r} in {sorted(data)}")
        fields[field.name] = decode(hints[field.name], data[name])
    return kind(**fields)
