"""Images of the Pathfinder challenge: do the two markers lie on one dashed contour?

The process is the published one (Linsley et al., arXiv 1805.08315): two long contours grow in turn,
dash by dash, from seeds near the centre; short contours are then scattered where there is room;
two markers lie at the ends of one of the long contours, or one at an end of each.

Measured with the published settings, 16,355 images drawn here beside 4,000 by the published
generator:

======================================  ===============  ===============
of an image, mean (standard deviation)  here             published
======================================  ===============  ===============
dashes, counted                         32.71 (3.68)
dashes, estimated from the ink          32.62 (3.79)     32.50 (3.74)
share of pixels brighter than 40        0.1302 (0.0138)  0.1301 (0.0135)
brightness of 255                       13.81 (1.21)     13.78 (1.18)
markers on one contour                  0.502            0.501
======================================  ===============  ===============

A classifier of the brightest paths between the markers (boosted trees) transfers without loss. It
is right in 57 % of the published images after 8,000 from here, in 56 % of the images from here
after 4,000 published ones, and in 55 and 57 % within either set; chance is 50 % with a standard
error of 0.8. Solving the task takes far more images and training than that.

Shapes: B images, S pixels a side, places as (row, column).
"""

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.lra.pathfinder_canvas import Bools, Canvas, Floats, Ints, Tips, extended, seeded
from tasks.lra.pathfinder_dashes import REACH, dash_number, dashes, marker

if TYPE_CHECKING:
    from tasks.lra.pathfinder import Pathfinder

_SEED_DISTANCE: Final = 7
"""Pixels between the first ends of the long contours, and half of those to the edge."""

_CONTOUR_TRIALS: Final = 5
_PLACE_TRIALS: Final = 64
_FREE: Final = 0.3
_FULL: Final = 0.9999


class Drawn(NamedTuple):
    """Images and how they came about.

    Attributes:
        pixels: (B, S, S), uint8.
        labels: 1 where both markers lie on one contour, (B,), int64.
        num_dashes: dashes drawn, (B,), int64.
    """

    pixels: NDArray[np.uint8]
    labels: Ints
    num_dashes: Ints


def draw(count: int, task: "Pathfinder", random: np.random.Generator) -> Drawn:
    """Return images; fewer than ``count``, because those whose long contours find no way are left
    out, as the published generator starts them again.

    Args:
        count: images started.
        task: what is drawn.
        random: where chance comes from.
    """
    canvas = Canvas.blank(count, task.image_size)
    images, contours = _two_seeds(canvas, random)
    starts = [tips.centre for tips in contours]
    steps = [(images, tips) for tips in contours]
    for _ in range(task.contour_length - 1):
        for grows in (0, 1):
            grown, grew = extended(canvas, images, contours[grows], task.continuity, random)
            images = images[grew]
            contours = [tips.rows(grew) for tips in contours]
            starts = [place[grew] for place in starts]
            # Not before now: a dash has to be free to begin where the one before it ends.
            canvas.claim(images, contours[grows])
            contours[grows] = grown
            steps.append((images, grown))
    for tips in contours:
        canvas.claim(images, tips)
    for on, tips in steps:  # only a few images are left by now
        (left,) = np.nonzero(np.isin(on, images))
        canvas.draw(on[left], tips.rows(left), task.contrast)
    num_dashes = np.zeros(count, dtype=np.int64)
    num_dashes[images] = 2 * task.contour_length
    for _ in range(task.num_short):
        placed = _scattered(canvas, images, task, random)
        num_dashes[placed] += task.short_length
    labels = random.integers(0, 2, len(images))
    marked = random.integers(0, 2, len(images))
    first_end = np.where(marked[:, None] == 0, starts[0], starts[1])
    second_end = np.where((marked ^ labels ^ 1)[:, None] == 0, contours[0].end, contours[1].end)
    for place in (first_end, second_end):
        canvas.stamp(images, place, marker())
    pixels = np.rint(255 * canvas.ink[images, REACH:-REACH, REACH:-REACH]).astype(np.uint8)
    return Drawn(pixels, labels, num_dashes[images])


def _two_seeds(canvas: Canvas, random: np.random.Generator) -> tuple[Ints, list[Tips]]:
    """Return the images that have room for a first dash at their centre, and two contours of one
    dash each."""
    count = len(canvas.ink)
    angle = random.choice(_angles_with_room(), count)
    low, high = 2 * _SEED_DISTANCE, canvas.size - 2 * _SEED_DISTANCE
    tried = random.integers(low, high, (count, _PLACE_TRIALS, 2))
    looked_at = tried[:, :, None] + _cores()[dash_number(angle)][:, None]
    place, has_room = _first(tried, np.all((looked_at >= low) & (looked_at < high), axis=(2, 3)))
    way = _any_angle(count, random)
    steps = _SEED_DISTANCE * np.stack((np.sin(way), np.cos(way)), axis=1)
    beside = place + np.rint(steps).astype(np.int64)
    second = seeded(beside, _any_angle(count, random))
    return np.flatnonzero(has_room), [seeded(place, angle).rows(has_room), second.rows(has_room)]


def _scattered(
    canvas: Canvas, images: Ints, task: "Pathfinder", random: np.random.Generator
) -> Ints:
    """Draw a short contour in each of the images where one finds room; return which."""
    waiting = images
    for _ in range(_CONTOUR_TRIALS):
        angle = _any_angle(len(waiting), random)
        (trying,) = np.nonzero(np.isin(angle, _angles_with_room()))
        trial, angle = canvas.copied(waiting[trying]), angle[trying]
        tried = random.integers(0, canvas.size, (len(trying), _PLACE_TRIALS, 2))
        looked_at = tried[:, :, None] + _cores()[dash_number(angle)][:, None]
        place, has_room = _first(tried, np.all(trial.taken_at(looked_at) <= _FREE, axis=2))
        tips = seeded(place, angle)
        (rows,) = np.nonzero(has_room & trial.contains(tips.end) & trial.contains(tips.pivot))
        tips = tips.rows(rows)
        trial.draw(rows, tips, task.contrast)
        for _ in range(task.short_length - 1):
            grown, found_on = extended(trial, rows, tips, task.continuity, random)
            rows = rows[found_on]
            trial.claim(rows, tips.rows(found_on))
            trial.draw(rows, grown, task.contrast)
            tips = grown
        trial.claim(rows, tips)
        canvas.take(waiting[trying[rows]], trial, rows)
        waiting = np.delete(waiting, trying[rows])
    return np.setdiff1d(images, waiting)


def _any_angle(count: int, random: np.random.Generator) -> Floats:
    """Return directions of whole degrees."""
    return np.deg2rad(random.integers(-180, 180, count))


def _first(tried: Ints, good: Bools) -> tuple[Ints, Bools]:
    """Return the first good place of each image, and which images have one.

    Args:
        tried: (B, trials, 2).
        good: (B, trials).
    """
    any_good: Bools = np.any(good, axis=1)
    return tried[np.arange(len(tried)), good.argmax(axis=1)], any_good


@functools.lru_cache(maxsize=1)
def _cores() -> Ints:
    """Return the pixels that have to be free for the first dash of a contour, seen from the end
    that it leaves: (dashes, pixels, 2).

    They are those that a dash takes up entirely, but one pixel further down and right: that is
    where the published generator looks. Dashes with fewer pixels than others repeat theirs.
    """
    pixels = [np.argwhere(room == 1) - REACH + 1 for room in dashes().room]
    most = max(map(len, pixels))
    return np.stack([core[np.arange(most) % len(core)] for core in pixels])


@functools.lru_cache(maxsize=1)
def _angles_with_room() -> Floats:
    """Return the directions that first dashes take where room is looked for.

    The published generator finds none for a dash if there is a pixel in the image from which it
    would look at pixels beyond the edge alone. Only dashes that look at the pixel itself are left:
    they point up and to the left.
    """
    angles: Floats = np.deg2rad(np.arange(-180, 180))
    looks_at_itself: Bools = np.any(np.all(_cores()[dash_number(angles)] == 0, axis=2), axis=1)
    with_room: Floats = angles[looks_at_itself]
    return with_room
