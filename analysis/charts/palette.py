"""Colours that colour-blind readers can tell apart, each with its partner for a dark page.

Categories take Okabe and Ito's palette ("Color Universal Design", 2008), ordered values a part of
viridis that keeps its contrast with the page: without the palest end on white, without the darkest
on black. Charts are built in light colours; the page looks up the dark partner of each by value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np


@dataclass(frozen=True, slots=True)
class Shade:
    """One colour as ``#rrggbb``, on a light page and on a dark one."""

    light: str
    dark: str


BLUE: Final = Shade("#0072b2", "#56b4e9")
ORANGE: Final = Shade("#d98e00", "#f0b429")
GREEN: Final = Shade("#009e73", "#2fcb9f")
VERMILLION: Final = Shade("#d55e00", "#ff8a4c")
PURPLE: Final = Shade("#b8578f", "#dd8fbd")
GREY: Final = Shade("#8b929c", "#828b97")
INK: Final = Shade("#1f2328", "#e4e7eb")
MUTED: Final = Shade("#5b636e", "#a3abb6")
GRID: Final = Shade("#e4e7eb", "#2d333b")
AXIS: Final = Shade("#a8afb8", "#59626d")
PAGE: Final = Shade("#ffffff", "#15181c")

CATEGORIES: Final = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, GREY)

_VIRIDIS: Final = (
    *((68, 1, 84), (72, 40, 120), (62, 73, 137), (49, 104, 142), (38, 130, 142)),
    *((31, 158, 137), (53, 183, 121), (110, 206, 88), (181, 222, 43), (253, 231, 37)),
)
"""Evenly spaced colours of viridis."""
_STEPS: Final = 64
_LIGHT_RANGE: Final = (0.0, 0.80)
_DARK_RANGE: Final = (0.42, 1.0)


def _viridis(low: float, high: float) -> list[str]:
    places = np.linspace(low, high, _STEPS) * (len(_VIRIDIS) - 1)
    channels = [
        np.interp(places, range(len(_VIRIDIS)), channel) for channel in zip(*_VIRIDIS, strict=True)
    ]
    return [
        f"#{round(r):02x}{round(g):02x}{round(b):02x}" for r, g, b in zip(*channels, strict=True)
    ]


_ORDERED: Final = tuple(
    Shade(light, dark)
    for light, dark in zip(_viridis(*_LIGHT_RANGE), _viridis(*_DARK_RANGE), strict=True)
)


def ordered_shades(count: int) -> list[Shade]:
    """Return ``count`` shades for ordered values, from dark to bright."""
    if count == 1:
        return [BLUE]
    return [_ORDERED[round(index * (_STEPS - 1) / (count - 1))] for index in range(count)]


def shades_for(values: Sequence[object]) -> list[Shade]:
    """Return one shade a value: `CATEGORIES` for up to six names, else ordered shades."""
    if all(isinstance(value, int | float) for value in values) or len(values) > len(CATEGORIES):
        return ordered_shades(len(values))
    return list(CATEGORIES[: len(values)])


def named_groups(count: int) -> set[int]:
    """Return the indices of the groups that a legend names: all of up to 12, else eight."""
    if count <= 12:
        return set(range(count))
    return {round(index * (count - 1) / 7) for index in range(8)}


def dark_partners() -> dict[str, str]:
    """Return the dark colour for each light colour that a chart can contain."""
    named = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, GREY, INK, MUTED, GRID, AXIS, PAGE)
    return {shade.light: shade.dark for shade in (*_ORDERED, *named)}
