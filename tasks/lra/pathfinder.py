"""Pathfinder: do two markers lie on one dashed contour? Read pixel by pixel.

The process is the published one (Linsley et al., arXiv 1805.08315): two long contours grow in turn,
dash by dash, from seeds near the centre; short contours are then scattered where there is room;
two markers lie at the ends of one of the long contours, or one at an end of each. How its images
compare with published ones: docs/notes/measurements.md.

Shapes: B images, S pixels a side, places as (row, column).
"""

import functools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from models.fields import at_least, positive_share_or_all
from tasks.lra.pathfinder_canvas import (
    REACH,
    Bools,
    Canvas,
    Floats,
    Ints,
    Tips,
    dash_number,
    dashes,
    extended,
    marker,
    seeded,
)
from tasks.lra.texts import Examples, Texts, number_texts, of_equal_length
from tasks.lra.tokens import PIXEL_VOCABULARY, USES, TokenSpec, TokenTask, token_metrics
from tasks.metrics import even_shares
from tasks.sampling import stream_seed
from tasks.sources.cache import Arrays, cached_arrays, cached_part, remove_parts
from tasks.sources.digest import definition_digest
from tasks.sources.progress import report_progress

_VERSION: Final = "1"
_SPLITS: Final = ("train", "validation", "test")
"""Their order numbers the streams of the data seed."""
_STARTED_AT_ONCE: Final = 8192
"""Images started at once, of which a few hundred are finished. Part of what a seed means."""
_SEED_DISTANCE: Final = 7
"""Pixels between the first ends of the long contours, and half of those to the edge."""

_CONTOUR_TRIALS: Final = 5
_PLACE_TRIALS: Final = 64
_FREE: Final = 0.3


@dataclass(frozen=True, slots=True)
class Pathfinder(TokenTask):
    """Tell whether two markers lie on the same of two dashed contours, among shorter ones.

    Pathfinder32 of the Long Range Arena (arXiv 2011.04006), with the published settings of its
    hard set: contours of 14 dashes in images of 32x32, five short ones of 4 dashes tried. Most of
    these find no room; an image has one of them on average.
    The benchmark's own images are not read: these are drawn again, the data seed decides which.
    Drawing the published number takes a core about twenty minutes; they are kept under
    HSWEEP_CACHE, and an interrupted run goes on where it was.

    Batches are pairs (x, y): x of shape (batch, 1024), int64, the pixels 0 to 255 row by row, and
    labels y of shape (batch,), int64. A model maps x to logits (batch, 2). Black is token 0, which
    published models take for padding.

    Attributes:
        contour_length: dashes of the two long contours.
        distractor_length: dashes of a short contour; None for a third of a long one.
        num_distractors: short contours tried; None for as many as have 20 dashes together.
        continuity: how straight contours are, at least 1.
        contrast: brightness of a dash as a share of a marker's, in (0, 1].
        num_train: training images.
        num_validation: validation images.
        num_test: test images.

    Raises:
        ValueError: a setting out of its range.
    """

    contour_length: int = 14
    distractor_length: int | None = None
    num_distractors: int | None = None
    continuity: float = 1.0
    contrast: float = 0.9
    num_train: int = 160_000
    num_validation: int = 20_000
    num_test: int = 20_000

    name = "pathfinder"
    metrics = token_metrics(even_shares(2))
    first_id = 0
    image_size = 32

    def __post_init__(self) -> None:
        self.settle(
            contour_length=at_least(2),
            num_distractors=at_least(0),
            contrast=positive_share_or_all,
        )
        if self.continuity < 1:
            raise ValueError(f"continuity must be a number of at least 1, not {self.continuity!r}")
        if self.distractor_length is None:
            object.__setattr__(self, "distractor_length", max(1, self.contour_length // 3))
        if self.num_distractors is None:
            object.__setattr__(self, "num_distractors", 20 // self.short_length)

    @property
    def short_length(self) -> int:
        """Dashes of a short contour."""
        return cast(int, self.distractor_length)

    @property
    def num_short(self) -> int:
        """Short contours tried."""
        return cast(int, self.num_distractors)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, the pixels of an image."""
        return self.image_size**2

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, PIXEL_VOCABULARY, num_classes=2)

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, _VERSION)

    def examples(self, data_seed: int) -> tuple[Texts, dict[str, Examples]]:
        """Return the pixels of all images as texts, and the images of each role; drawn if they are
        missing."""
        # However the images are used.
        digest = definition_digest(self, _VERSION, leave_out=USES)
        key = f"pathfinder-{digest[:24]}-{data_seed}"
        arrays = cached_arrays(key, lambda: self._images(key, data_seed))
        remove_parts(key)
        return of_equal_length(arrays["pixels"]), number_texts(
            {split: arrays[split] for split in _SPLITS}
        )

    def _images(self, key: str, data_seed: int) -> Arrays:
        """Return ``pixels`` of all splits, one after the other, (n, 1024), uint8, and the labels of
        each split under its name, int64. Parts drawn before an interruption are not drawn again."""
        counts = (self.num_train, self.num_validation, self.num_test)

        def part(stream: int, number: int) -> Arrays:
            random = np.random.default_rng(stream_seed(data_seed, stream, number))
            images = draw(_STARTED_AT_ONCE, self, random)
            return {
                "pixels": images.pixels.reshape(len(images.labels), -1),
                "labels": images.labels,
            }

        pixels: list[Any] = []
        labels: Arrays = {}
        before = 0
        for stream, (split, count) in enumerate(zip(_SPLITS, counts, strict=True)):
            parts: list[Arrays] = []
            have = 0
            while have < count:
                number = len(parts)
                make = functools.partial(part, stream, number)
                parts.append(cached_part(key, f"{split}-{number}", make))
                have += len(parts[-1]["labels"])
                report_progress("images", before + min(have, count), sum(counts))
            pixels.append(np.concatenate([images["pixels"] for images in parts])[:count])
            labels[split] = np.concatenate([images["labels"] for images in parts])[:count]
            before += count
        return {"pixels": np.concatenate(pixels), **labels}


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


def draw(count: int, task: Pathfinder, random: np.random.Generator) -> Drawn:
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
        (rows,) = np.nonzero(np.isin(on, images))
        canvas.draw(on[rows], tips.rows(rows), task.contrast)
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
    second_place = place + np.rint(steps).astype(np.int64)
    second = seeded(second_place, _any_angle(count, random))
    return np.flatnonzero(has_room), [seeded(place, angle).rows(has_room), second.rows(has_room)]


def _scattered(canvas: Canvas, images: Ints, task: Pathfinder, random: np.random.Generator) -> Ints:
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
    size = max(map(len, pixels))
    return np.stack([core[np.arange(size) % len(core)] for core in pixels])


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
