"""Dashed contours growing on many images at once, as small pictures of dashes that are stamped.

All images take the same step together, so a step costs a few array operations. The rules of growth
are those of the published generator of the Pathfinder challenge (Linsley et al., arXiv 1805.08315).
Dashes and markers are drawn at twice the resolution and reduced with Lanczos' filter, as in the
published images at 32x32 pixels.

Shapes: B images, S pixels a side, places as (row, column).
"""

import functools
from dataclasses import dataclass, fields
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
_BORDER: Final = 1
"""Pixels at the edge that dashes leave free."""

_DASH_TRIALS: Final = 3
_OVERLAP: Final = 1.8
_NO_WAY_ON: Final = 1e-4

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]


class Dashes(NamedTuple):
    """Pictures of all dashes, by number (see ``dash_number``), centred on their first end.

    Attributes:
        ink: (dashes, SIDE, SIDE), float32, 0 to 1.
        room: share of each pixel that a dash and the margin around it take up, the same shape.
    """

    ink: Floats32
    room: Floats32


def whole_steps(distance: float, angle: Floats) -> Ints:
    """Return pixels down and right on a way of this length, rounded up, (..., 2).

    Args:
        distance: pixels.
        angle: radians, clockwise from the right.
    """
    steps = distance * np.stack((np.sin(angle), np.cos(angle)), axis=-1)
    # Sines and cosines of right angles are not quite 0.
    return np.ceil(np.round(steps, 9)).astype(np.int64)


def dash_number(angle: Floats) -> Ints:
    """Return the number of the dash that leaves its first end at ``angle``."""
    steps = whole_steps(_FARTHEST, angle) + _FARTHEST
    numbers: Ints = steps[..., 0] * (2 * _FARTHEST + 1) + steps[..., 1]
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
        pixels = np.asarray(line) > 0
        ink.append(_reduced(pixels, SIDE))
        room.append(_reduced(_widened(pixels, MARGIN * _SCALE), SIDE, levels=True))
    return Dashes(np.stack(ink), np.stack(room))


@functools.lru_cache(maxsize=1)
def marker() -> Floats32:
    """Return the picture of a disc, centred: (SIDE, SIDE), 0 to 1."""
    places = np.arange(SIDE * _SCALE) - REACH * _SCALE
    inside = places[:, None] ** 2 + places**2 <= (_MARKER_RADIUS * _SCALE) ** 2
    return _reduced(inside, SIDE)


def _widened(ink: Bools, radius: int) -> Bools:
    """Return the pixels within ``radius`` of a drawn one; none is drawn that near to the edge."""
    wide = np.zeros_like(ink)
    for down in range(-radius, radius + 1):
        for right in range(-radius, radius + 1):
            if down**2 + right**2 <= radius**2:
                wide |= np.roll(ink, (down, right), axis=(0, 1))
    return wide


def _reduced(ink: Bools, side: int, *, levels: bool = False) -> Floats32:
    """Return the picture at the resolution of images, in 256 levels at every stage if asked for."""
    from PIL import Image

    picture = Image.fromarray(ink.astype(np.uint8) * 255 if levels else ink.astype(np.float32))
    small = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS), dtype=np.float32)
    # The filter swings below black and above white at edges.
    return np.clip(small / 255 if levels else small, 0, 1)


@dataclass(slots=True)
class Tips:
    """Where contours of B images have got to.

    Attributes:
        pivot: the place that the newest dash starts from, a margin before its first pixel; (B, 2).
        angle: its direction, (B,).
        end: its last pixel, (B, 2).
        number: its picture, (B,), centred on ``centre``.
        centre: (B, 2).
    """

    pivot: Ints
    angle: Floats
    end: Ints
    number: Ints
    centre: Ints

    def rows(self, rows: Bools | Ints) -> "Tips":
        """Return some of the contours."""
        return Tips(*(getattr(self, field.name)[rows] for field in fields(self)))


class Canvas:
    """Images in the making, with a rim that pictures may reach into.

    Attributes:
        size: S.
        ink: brightness, (B, S + 2 REACH, S + 2 REACH), float32, 0 to 1.
        claims: how far dashes and the border claim each pixel, the same shape; 0 on the rim.
    """

    def __init__(self, ink: Floats32, claims: Floats32) -> None:
        self.size = ink.shape[1] - 2 * REACH
        self.ink = ink
        self.claims = claims
        self._inside = np.zeros(ink.shape[1:], dtype=np.float32)
        self._inside[REACH:-REACH, REACH:-REACH] = 1

    @classmethod
    def blank(cls, count: int, size: int) -> "Canvas":
        """Return empty images, whose border is taken."""
        side = size + 2 * REACH
        canvas = cls(*(np.zeros((count, side, side), dtype=np.float32) for _ in range(2)))
        within = slice(REACH + _BORDER, -REACH - _BORDER)
        canvas.claims[:] = canvas._inside
        canvas.claims[:, within, within] = 0
        return canvas

    def copied(self, images: Ints) -> "Canvas":
        """Return a canvas of its own with some of the images."""
        return Canvas(self.ink[images], self.claims[images])

    def take(self, images: Ints, other: "Canvas", rows: Ints) -> None:
        """Replace images by rows of another canvas."""
        self.ink[images] = other.ink[rows]
        self.claims[images] = other.claims[rows]

    def contains(self, place: Ints) -> Bools:
        """Return which of the places, (..., 2), lie in the image."""
        inside: Bools = ((place >= 0) & (place < self.size)).all(axis=-1)
        return inside

    def taken_at(self, places: Ints) -> Floats32:
        """Return how far places at most REACH outside of the images are taken.

        Args:
            places: (B, ..., 2), of every image of the canvas.
        """
        images = np.arange(len(places)).reshape(-1, *(1,) * (places.ndim - 2))
        return self.claims[images, places[..., 0] + REACH, places[..., 1] + REACH]

    def free_around(self, images: Ints, places: Ints) -> Floats32:
        """Return how free places and their four neighbours are: 1 minus the most taken of these,
        and 0 outside of the image.

        Args:
            images: (B,).
            places: (B, P, 2).
        """
        inside = self.contains(places)
        rows, columns = np.moveaxis(np.where(inside[..., None], places, 0) + REACH, -1, 0)
        most_claimed = self.claims[images[:, None], rows, columns]
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            neighbour_claims = self.claims[images[:, None], rows + down, columns + right]
            most_claimed = np.maximum(most_claimed, neighbour_claims)
        return np.where(inside, 1 - most_claimed, np.float32(0))

    def collides(self, images: Ints, tips: Tips) -> Bools:
        """Return where the newest dash would cross another one."""
        claims = self.claims[_window(images, tips.centre)]
        # Nothing is taken on the rim, so what reaches there crosses nothing.
        crossing: Bools = (claims + dashes().room[tips.number]).max(axis=(1, 2)) >= _OVERLAP
        return crossing

    def claim(self, images: Ints, tips: Tips) -> None:
        """Keep others away from the newest dash."""
        window = _window(images, tips.centre)
        room = dashes().room[tips.number] * self._inside[window[1:]]
        self.claims[window] = np.maximum(self.claims[window], room)

    def draw(self, images: Ints, tips: Tips, contrast: float) -> None:
        """Draw the newest dash."""
        self.stamp(images, tips.centre, contrast * dashes().ink[tips.number])

    def stamp(self, images: Ints, centre: Ints, picture: Floats32) -> None:
        """Draw pictures, (SIDE, SIDE) or one for each image, around a place of each image."""
        window = _window(images, centre)
        self.ink[window] = np.maximum(self.ink[window], picture)


def _window(images: Ints, centre: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the indices of the pixels around a place of each image, (B, SIDE, SIDE)."""
    around = np.arange(SIDE)  # the rim is as wide as a picture reaches
    rows = centre[:, 0, None, None] + around[:, None]
    columns = centre[:, 1, None, None] + around
    return images[:, None, None], rows, columns


@functools.lru_cache(maxsize=1)
def _ways() -> Ints:
    """Return where the far end of the next dash may lie, seen from its pivot: (places, 2).

    They are the pixels on a circle, one for every pixel's length of arc.
    """
    radius = DASH_LENGTH + MARGIN
    angles = np.arange(0, 2 * np.pi, 1 / radius)
    on_circle = radius * np.stack((np.sin(angles), np.cos(angles)), axis=1)
    return np.unique(np.floor(np.round(on_circle, 9)).astype(np.int64), axis=0)


def seeded(place: Ints, angle: Floats) -> Tips:
    """Return contours of one dash, which leaves ``place`` at ``angle``."""
    end = place + whole_steps(DASH_LENGTH, angle)
    pivot = end + whole_steps(DASH_LENGTH + MARGIN, angle + np.pi)
    return Tips(pivot, angle, end, dash_number(angle), place)


def extended(
    canvas: Canvas, images: Ints, tips: Tips, continuity: float, random: np.random.Generator
) -> tuple[Tips, Ints]:
    """Return the contours that find a way on, with one dash more, and which of all they are.

    From a margin past the newest dash, the far end of the next one is chosen among the pixels that
    are free, with probability proportional to cos^2 of the change of direction, none beyond a right
    angle. A dash that would cross another one is drawn again, a few times.

    Args:
        canvas: is not changed.
        images: number of each contour's image, (B,), no two alike.
        tips: where the contours have got to.
        continuity: factor of the change of direction.
        random: where chance comes from.
    """
    ways = _ways()
    pivot = tips.pivot + whole_steps(DASH_LENGTH + 2 * MARGIN, tips.angle)
    angles = np.arctan2(ways[:, 0], ways[:, 1])
    change = np.abs(angles - tips.angle[:, None])
    change = np.minimum(np.minimum(change, 2 * np.pi - change) * continuity, np.pi / 2)
    weight = np.cos(change) ** 2 * canvas.free_around(images, pivot[:, None] + ways)
    cumulative = np.cumsum(weight, axis=1)
    (going,) = np.nonzero(cumulative[:, -1] > _NO_WAY_ON)
    images, pivot, cumulative = images[going], pivot[going], cumulative[going]
    thresholds = random.random((len(going), _DASH_TRIALS)) * cumulative[:, -1:]
    choices = (cumulative[:, None] <= thresholds[:, :, None]).sum(axis=2)
    way_numbers = choices[:, 0]
    crossing = canvas.collides(images, _towards(pivot, way_numbers))
    for trial in range(1, _DASH_TRIALS):
        (again,) = np.nonzero(crossing)
        way_numbers[again] = choices[again, trial]
        crossing[again] = canvas.collides(images[again], _towards(pivot[again], way_numbers[again]))
    (clear,) = np.nonzero(~crossing)
    return _towards(pivot[clear], way_numbers[clear]), going[clear]


def _towards(pivot: Ints, way_numbers: Ints) -> Tips:
    """Return the contours whose next dash ends at the chosen one of all ways."""
    way = _ways()[way_numbers]
    angle = np.arctan2(way[:, 0], way[:, 1])
    end = pivot + way
    return Tips(pivot, angle, end, dash_number(angle + np.pi), end)
