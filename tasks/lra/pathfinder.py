"""Pathfinder: do two markers lie on one dashed contour? Read pixel by pixel."""

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from models.fields import at_least, positive_share_or_all
from tasks.lra.pathfinder_images import draw
from tasks.lra.texts import Examples, Texts, drawn_parts, number_texts, of_equal_length
from tasks.lra.tokens import PIXEL_VOCABULARY, USES, TokenSpec, TokenTask, token_metrics
from tasks.metrics import even_shares
from tasks.sources.cache import Arrays, cached_arrays, remove_parts
from tasks.sources.digest import definition_digest
from tasks.sources.progress import report_progress

_VERSION: Final = "1"
_SPLITS: Final = ("train", "validation", "test")
"""Their order numbers the streams of the data seed."""
_STARTED_AT_ONCE: Final = 8192
"""Images started at once, of which a few hundred are finished. Part of what a seed means."""


@dataclass(frozen=True, slots=True)
class Pathfinder(TokenTask):
    """Tell whether two markers lie on the same of two dashed contours, among shorter ones.

    Pathfinder32 of the Long Range Arena (arXiv 2011.04006), with the published settings of its
    hard set: contours of 14 dashes in images of 32x32, five short ones of 4 dashes tried. Most of
    these find no room; an image has one of them on average (see ``tasks.lra.pathfinder_images``).
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
        arrays = cached_arrays(key, lambda: self._drawn(key, data_seed))
        remove_parts(key)
        pixels = cast(NDArray[np.uint8], arrays["pixels"])
        return of_equal_length(pixels), number_texts({split: arrays[split] for split in _SPLITS})

    def _drawn(self, key: str, data_seed: int) -> Arrays:
        """Return ``pixels`` of all splits, one after the other, (n, 1024), uint8, and the labels of
        each split under its name, int64. Parts drawn before an interruption are not drawn again.

        Raises:
            DataError: the cache cannot be written.
        """
        counts = (self.num_train, self.num_validation, self.num_test)

        def part(random: np.random.Generator) -> Arrays:
            drawn = draw(_STARTED_AT_ONCE, self, random)
            return {"pixels": drawn.pixels.reshape(len(drawn.labels), -1), "labels": drawn.labels}

        pixels: list[Any] = []
        labels: Arrays = {}
        before = 0
        for stream, (split, count) in enumerate(zip(_SPLITS, counts, strict=True)):
            parts: list[Arrays] = []
            have = 0
            for images in drawn_parts(key, split, part, data_seed, stream):
                parts.append(images)
                have += len(images["labels"])
                report_progress("images", before + min(have, count), sum(counts))
                if have >= count:
                    break
            pixels.append(np.concatenate([images["pixels"] for images in parts])[:count])
            labels[split] = np.concatenate([images["labels"] for images in parts])[:count]
            before += count
        return {"pixels": np.concatenate(pixels), **labels}
