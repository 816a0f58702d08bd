"""How dashes and markers look: small pictures of them, in every direction.

They are drawn at twice the resolution and reduced with Lanczos' filter, as in the published images
of the Pathfinder challenge (Linsley et al., arXiv 1805.08315) at 32x32 pixels.
"""

import functools
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

DASH_LENGTH: Final = 2
"""Pixels from one end of a dash to the other."""

MARGIN: Final = 1
"""Pixels between two dashes of a contour, and kept free around a dash."""

REACH: Final = DASH_LENGTH + 1 + MARGIN
"""Pixels that a picture extends in each direction from its centre."""

SIDE: Final = 2 * REACH + 1

_SCALE: Final = 2
_MARKER_RADIUS: Final = 1.5
_FARTHEST: Final = DASH_LENGTH * _SCALE


class Dashes(NamedTuple):
    """Pictures of all dashes, by number (see ``dash_number``), centred on their first end.

    Attributes:
        ink: (dashes, SIDE, SIDE), float32, 0 to 1.
        room: share of each pixel that a dash and the margin around it take up, the same shape.
    """

    ink: NDArray[np.float32]
    room: NDArray[np.float32]


def whole_steps(distance: float, angle: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return pixels down and right on a way of this length, rounded up, (..., 2).

    Args:
        distance: pixels.
        angle: radians, clockwise from the right.
    """
    steps = distance * np.stack((np.sin(angle), np.cos(angle)), axis=-1)
    # Sines and cosines of right angles are not quite 0.
    return np.ceil(np.round(steps, 9)).astype(np.int64)


def dash_number(angle: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of the dash that leaves its first end at ``angle``."""
    steps = whole_steps(_FARTHEST, angle) + _FARTHEST
    numbers: NDArray[np.int64] = steps[..., 0] * (2 * _FARTHEST + 1) + steps[..., 1]
    return numbers


@functools.lru_cache(maxsize=1)
def dashes() -> Dashes:
    """Return the pictures of all dashes."""
    from PIL import Image, ImageDraw

    ink, room = [], []
    side, centre = SIDE * _SCALE - 1, REACH * _SCALE
    offsets = range(-_FARTHEST, _FARTHEST + 1)
    for down, right in ((down, right) for down in offsets for right in offsets):
        line = Image.new("L", (side, side))
        ends = [(centre, centre), (centre + right, centre + down)]
        ImageDraw.Draw(line).line(ends, fill=255, width=1)
        drawn = np.asarray(line) > 0
        ink.append(_reduced(drawn, SIDE))
        room.append(_reduced(_widened(drawn, MARGIN * _SCALE), SIDE, levels=True))
    return Dashes(np.stack(ink), np.stack(room))


@functools.lru_cache(maxsize=1)
def marker() -> NDArray[np.float32]:
    """Return the picture of a disc, centred: (SIDE, SIDE), 0 to 1."""
    places = np.arange(SIDE * _SCALE) - REACH * _SCALE
    inside = places[:, None] ** 2 + places**2 <= (_MARKER_RADIUS * _SCALE) ** 2
    return _reduced(inside, SIDE)


def _widened(drawn: NDArray[np.bool_], radius: int) -> NDArray[np.bool_]:
    """Return the pixels within ``radius`` of a drawn one; none is drawn that near to the edge."""
    wide = np.zeros_like(drawn)
    for down in range(-radius, radius + 1):
        for right in range(-radius, radius + 1):
            if down**2 + right**2 <= radius**2:
                wide |= np.roll(drawn, (down, right), axis=(0, 1))
    return wide


def _reduced(drawn: NDArray[np.bool_], side: int, *, levels: bool = False) -> NDArray[np.float32]:
    """Return the picture at the resolution of images, in 256 levels at every stage if asked for."""
    from PIL import Image

    picture = Image.fromarray(drawn.astype(np.uint8) * 255 if levels else drawn.astype(np.float32))
    small = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS), dtype=np.float32)
    # The filter swings below black and above white at edges.
    return np.clip(small / 255 if levels else small, 0, 1)
