"""The values that one axis may take."""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hsweep.errors import UserError, is_number, make_plain, plain_number, shown

if TYPE_CHECKING:
    import numpy as np

MAX_VALUES: Final = 100_000
_MOST_PER_DECADE: Final = 20
_ROUNDING: Final = math.log10(1.02)
"""Decades by which rounding to two digits may lengthen a range."""
_MOST_DIGITS: Final = 300
"""Digits of the largest numbers that a float can hold."""
_NO_TEXT: Final = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that no text may have: control characters, surrogates, line and paragraph
separators."""

AxisValue = int | float | str | bool | None | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """A finite list of values, in the order given.

    Attributes:
        is_tuned: each shape is taken at its best value, and the axis is no part of a shape.

    Raises:
        UserError: no value, a repeated one, or one of an unusable type.
    """

    values: tuple[AxisValue, ...]
    is_tuned: bool = False

    def __post_init__(self) -> None:
        if not self.values:
            raise UserError("an axis needs at least one value, got an empty list")
        for value in self.values:
            _check(value)
        for (_, value), number in Counter((type(value), value) for value in self.values).items():
            if number > 1:
                raise UserError(f"axis value {shown(value)} is listed twice; list it once")

    def finite(self) -> tuple[AxisValue, ...]:
        return self.values

    def draw(self, rng: "np.random.Generator") -> AxisValue:
        return self.values[int(rng.integers(len(self.values)))]

    def __contains__(self, value: object) -> bool:
        return value in self.values


@dataclass(frozen=True, slots=True)
class IntRange:
    """Whole numbers ``low, low + step, ...`` up to ``high``, both ends included.

    Raises:
        UserError: ends that are not whole numbers, an empty range or a step below 1.
    """

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        make_plain(self)
        numbers = (self.low, self.high, self.step)
        are_whole = all(type(number) is int and abs(number) <= 2**62 for number in numbers)
        if not are_whole or self.low > self.high or self.step < 1:
            raise UserError(
                "a range has whole numbers of at most 62 bits, low <= high and step >= 1; got "
                f"low={shown(self.low)}, high={shown(self.high)}, step={shown(self.step)}"
            )

    def finite(self) -> tuple[AxisValue, ...]:
        return tuple(range(self.low, self.high + 1, self.step))

    def draw(self, rng: "np.random.Generator") -> AxisValue:
        return self.low + self.step * int(rng.integers((self.high - self.low) // self.step + 1))

    def __contains__(self, value: object) -> bool:
        return value in range(self.low, self.high + 1, self.step)


@dataclass(frozen=True, slots=True)
class RealRange:
    """Real numbers between ``low`` and ``high``, evenly spread or evenly in their logarithm.

    Raises:
        UserError: low not below high, or a logarithmic interval that reaches zero.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        make_plain(self)
        if not (is_number(self.low) and is_number(self.high) and self.low < self.high):
            raise UserError(
                "an interval has finite numbers low < high; got "
                f"low={shown(self.low)}, high={shown(self.high)}"
            )
        if self.log and self.low <= 0:
            raise UserError(f"a logarithmic interval needs low > 0; got low={self.low}")

    def finite(self) -> None:
        return None

    def draw(self, rng: "np.random.Generator") -> AxisValue:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return min(max(value, self.low), self.high)
        return float(rng.uniform(self.low, self.high))

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


Domain = ValueList | IntRange | RealRange


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8; a string decoded from invalid bytes cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def tuned(low: float, high: float, *, per_decade: int = 2) -> ValueList:
    """Return the values of an axis, such as a learning rate, from which each shape takes its best.

    ``grid(heads=[1, 2, 4], lr=tuned(1e-3, 1e-1))`` lists 0.001, 0.0032, 0.01, 0.032 and 0.1: evenly
    spaced in their logarithm, at least ``per_decade`` a factor of ten (as nearly as two digits tell
    the ends), both ends included and those between rounded to two digits. The axis is a nuisance
    axis of the sweep's question without being named there.

    Raises:
        UserError: ends that are not 0 < low < high, or fewer than one value a decade.
    """
    RealRange(low, high, log=True)
    if type(per_decade) is not int or not 1 <= per_decade <= _MOST_PER_DECADE:
        raise UserError(
            f"per_decade must be a whole number from 1 to {_MOST_PER_DECADE}, not "
            f"{shown(per_decade)}"
        )
    decades = math.log10(high / low)
    # Ends such as 1e-3 and 3.2e-2 lie a whole number of steps apart but for their rounding.
    steps = max(1, math.ceil((decades - _ROUNDING) * per_decade))
    between = (float(f"{low * 10 ** (decades * k / steps):.1e}") for k in range(1, steps))
    values = (float(low), *between, float(high))
    return ValueList(tuple(dict.fromkeys(values)), is_tuned=True)


def as_choice(values: Sequence[AxisValue] | AxisValue | ValueList) -> ValueList:
    """Return the finite domain of a list of values, or of a single one."""
    if isinstance(values, ValueList):
        return values
    if (as_list := getattr(values, "tolist", None)) is not None:  # numpy's arrays and numbers
        values = as_list()
    values = values if isinstance(values, (list, range, tuple)) else (values,)
    if values[MAX_VALUES:]:
        raise UserError(
            f"an axis lists at most {MAX_VALUES:,} values; draw from more of them with "
            "int_range(...) or uniform(...) and random_search(N)"
        )
    return ValueList(tuple(map(_plain, values)))


def as_value(value: Any) -> AxisValue:
    """Return one value as plain Python; UserError for a value that no axis can take."""
    plain = _plain(value)
    _check(plain)
    return plain


def _check(value: object) -> None:
    if isinstance(value, tuple):
        for part in value:
            _check(part)
    elif not isinstance(value, (int, float, str, bool, type(None))):
        raise UserError(
            "axis values are numbers, strings, booleans, None or tuples of these; got "
            f"{shown(value)} of type {type(value).__name__}"
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"axis values are finite numbers; got {value!r}")
    elif isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        raise UserError(f"whole numbers on an axis have at most {_MOST_DIGITS} digits")
    elif isinstance(value, str) and any(unicodedata.category(c) in _NO_TEXT for c in value):
        raise UserError(f"axis values are text without control characters; got {shown(value)}")


def _plain(value: Any) -> AxisValue:
    """Turn numpy scalars and nested lists into plain Python values, so that they hash and print."""
    value = plain_number(value)
    if isinstance(value, (list, range, tuple)):
        return tuple(_plain(part) for part in value)
    return value  # type: ignore[no-any-return]
