"""Checks of the fields of frozen configurations: models, and the tasks that they learn. No torch.

A rule takes a field's name and value, and returns the value in its one type. Equal numbers of
different types (4.0, numpy's 4) must lead to one and the same configuration, key and fingerprint.
"""

import dataclasses
import math
import operator
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Any, Literal, TypeAlias, get_args, get_origin

Rule: TypeAlias = Callable[[str, Any], Any]


def settle(config: Any, **rules: Rule) -> None:
    """Check the fields of a frozen configuration while it is made, and normalise them in place.

    A field without a rule has that of its type: an ``int`` is at least 1, a ``float`` at least 0, a
    ``bool`` True or False, a ``Literal`` one of its words. None stays where the type allows it.

    Args:
        config: the configuration.
        rules: by the names of fields.

    Raises:
        ValueError: a value that its rule refuses; the message names field, rule and value.
    """
    for field in dataclasses.fields(config):
        value, kinds = getattr(config, field.name), get_args(field.type)
        rule = rules.get(field.name) or _rule_of_type(field.type)
        if rule is not None and not (value is None and NoneType in kinds):
            object.__setattr__(config, field.name, rule(field.name, value))


def _rule_of_type(kind: Any) -> Rule | None:
    if get_origin(kind) is Literal:
        return choice(*get_args(kind))
    kinds = [part for part in get_args(kind) or (kind,) if part is not NoneType]
    rules: dict[Any, Rule] = {bool: yes_or_no, int: whole_number, float: real_number}
    return rules.get(kinds[0]) if len(kinds) == 1 else None


def whole_number(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int; numpy integers and whole floats such as 4.0 are taken too.

    Raises:
        ValueError: a boolean, a fraction, not a number at all, or below ``minimum``.
    """
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    try:
        number = operator.index(number)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, not {value!r}")
    return int(number)


def at_least(minimum: int) -> Rule:
    """Return the rule of whole numbers from ``minimum`` on."""
    return partial(whole_number, minimum=minimum)


def real_number(name: str, value: Any) -> float:
    """Return ``value`` as a finite float of at least 0.

    Raises:
        ValueError: a boolean, not a number at all, not finite, or below 0.
    """
    number = _float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    return number


def share(name: str, value: Any) -> float:
    """Return ``value`` as a float in [0, 1).

    Raises:
        ValueError: anything else.
    """
    number = _float(value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must lie in [0, 1), not {value!r}")
    return number


def positive_share(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, 1).

    Raises:
        ValueError: anything else.
    """
    if number := share(name, value):
        return number
    raise ValueError(f"{name} must lie in (0, 1), not 0")


def positive_share_or_all(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, 1].

    Raises:
        ValueError: anything else.
    """
    number = _float(value)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must lie in (0, 1], not {value!r}")
    return number


def _float(value: Any) -> float:
    """Return ``value`` as a float; NaN for a boolean, a text or another thing."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def yes_or_no(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; numpy's booleans are taken too.

    Raises:
        ValueError: anything else, because a truthy string would silently mean yes.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def choice(*words: str) -> Rule:
    """Return the rule of a few words."""

    def rule(name: str, value: Any) -> Any:
        if value not in words:
            listed = ", ".join(map(repr, words))
            raise ValueError(f"{name} must be one of {listed}, not {value!r}")
        return value

    return rule


def check_divides(small: str, large: str, config: Any) -> None:
    """Check that the field ``small`` divides the field ``large``.

    Raises:
        ValueError: it does not.
    """
    if getattr(config, large) % getattr(config, small):
        raise ValueError(
            f"{small} must divide {large}: {getattr(config, large)} is not a multiple of "
            f"{getattr(config, small)}"
        )
