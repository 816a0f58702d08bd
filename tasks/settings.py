"""Checks of a task's settings, shared by the tasks."""

import math
import operator
from typing import Any


def whole_number(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int; numpy integers and whole floats such as 4.0 are taken too.

    Sampled spaces hand out such numbers, and a fingerprint must not depend on their type.

    Raises:
        ValueError: a boolean, a fraction, not a number, or below ``minimum``.
    """
    number = value
    if isinstance(value, float) and value.is_integer():
        number = int(value)
    try:
        number = operator.index(number)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, not {value!r}")
    return int(number)


def share(name: str, value: Any) -> float:
    """Return ``value`` as a float in [0, 1).

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool | str) or not math.isfinite(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), not {value!r}")
    return float(value)


def alpha(name: str, value: Any) -> float:
    """Return ``value`` as a float of at least 0: the parameter of a distribution, 0 for none.

    Raises:
        ValueError: anything else.
    """
    if not (isinstance(value, int | float) and 0 <= value < math.inf):
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    return float(value)


def one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value``.

    Raises:
        ValueError: it is not one of ``choices``.
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, not {value!r}")
    return value


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; numpy booleans are taken too.

    Raises:
        ValueError: anything but a boolean.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return bool(value)
