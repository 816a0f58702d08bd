"""Rules of a task's settings: each takes a setting's name and value, and returns it in its type."""

import dataclasses
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, get_args

Rule: TypeAlias = Callable[[str, Any], Any]


def settle(task: Any, rules: dict[str, Rule]) -> None:
    """Replace fields of a frozen task by what their rules return; None stays where it is allowed.

    Args:
        task: being made.
        rules: by the names of fields; one without such a field is passed over.

    Raises:
        ValueError: a rule refuses a value.
    """
    for field in dataclasses.fields(task):
        value = getattr(task, field.name)
        may_be_left_out = value is None and type(None) in get_args(field.type)
        if field.name in rules and not may_be_left_out:
            object.__setattr__(task, field.name, rules[field.name](field.name, value))


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


def at_least(minimum: int) -> Rule:
    """Return the rule of whole numbers from ``minimum`` on."""
    return partial(whole_number, minimum=minimum)


def choice(*choices: str) -> Rule:
    """Return the rule of a few words."""
    return partial(one_of, choices=choices)


def positive_share(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, 1).

    Raises:
        ValueError: anything else.
    """
    if not (found := share(name, value)):
        raise ValueError(f"{name} must lie in (0, 1), not 0")
    return found


def split_or_share(name: str, value: Any, *, undivided: str | None = None) -> str | float:
    """Return the name of a split, or the share in (0, 1) of a training split to hold out.

    Args:
        name: of the setting.
        value: its value.
        undivided: what the data are called, where they have no splits.

    Raises:
        ValueError: a number outside (0, 1), or a split of data that have none.
    """
    if not isinstance(value, str):
        if not (found := share(name, value)):
            raise ValueError(f"{name} must be a split or a share in (0, 1), not 0")
        return found
    if undivided is not None:
        raise ValueError(
            f"{undivided} have no splits: {name} must be the share in (0, 1) to hold out, not "
            f"{value!r}"
        )
    return value


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; numpy booleans are taken too.

    Raises:
        ValueError: anything but a boolean.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return bool(value)
