"""Classifying images read pixel by pixel: grey CIFAR-10 in the Long Range Arena.

Shapes: n images, C channels, H rows, W columns.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.fields import at_least
from tasks.base import DataError, Metric, not_in_key
from tasks.lra.texts import Examples, Texts, hold_out, number_texts, of_equal_length
from tasks.lra.tokens import PIXEL_VOCABULARY, ReadTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.sampling import stream_seed
from tasks.sources.digest import definition_digest
from tasks.sources.hub import place
from tasks.sources.tables import split_or_share
from tasks.vision.image_arrays import (
    DIGITS,
    Columns,
    ImageArrays,
    ImageSource,
    image_digest,
    image_source,
)

_VERSION: Final = "1"
_HELD_OUT_TEST: Final = 11
"""Keeps the choice of test images apart from that of validation images."""
_LUMA: Final = np.array([0.299, 0.587, 0.114])
"""Of red, green and blue (ITU-R BT.601)."""


@dataclass(frozen=True, slots=True)
class Pixels(ReadTask):
    """Classify images as the sequence of their grey pixels, row by row.

    As in the Long Range Arena (arXiv 2011.04006): colours become grey by ITU-R BT.601's weights, a
    pixel's level is its token, and a tenth of the training images is held out to validate on. The
    data seed decides which, so that all shapes of a replicate share them.

    Batches are pairs (x, y): x of shape (batch, image_size**2), int64, 0 to 255, and labels y of
    shape (batch,), int64. A model maps x to logits (batch, num_classes). Black is token 0, which
    published models take for padding.

    Attributes:
        data: ``digits``, scikit-learn's embedded set of 1,797 images of 8x8; a folder in a hub
            layout; or a hub name (downloaded only if HSWEEP_HUB is 1).
        image_size: height and width; compared with the data.
        num_classes: classes; compared with the data.
        validation: share of each class of the training split to validate on, in (0, 1), or the
            name of a split. Digits have no splits.
        test: name of the test split, or the share of each class to hold out for the test from a
            data set that has no such split; None for no test accuracy.
        config: configuration (subset) name of the data set.
        image_column: column of images; None for ``img`` or ``image``.
        label_column: column of labels; None for ``label``, ``labels`` or ``fine_label``.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("uoft-cs/cifar10")
    image_size: int = 32
    num_classes: int = 10
    validation: str | float = 0.1
    test: str | float | None = "test"
    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None

    name = "pixels"
    first_id = 0

    def __post_init__(self) -> None:
        split = split_or_share(self.data, DIGITS)
        self.settle(data=place(DIGITS), num_classes=at_least(2), validation=split, test=split)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, the pixels of an image."""
        return self.image_size**2

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, PIXEL_VOCABULARY, self.num_classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation images (main), on test and training ones, and losses."""
        return token_metrics(even_shares(self.num_classes), with_test=self.test is not None)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents."""
        self._sources()
        return definition_digest(self, _VERSION, image_digest(self.data, self.config))

    def examples(self, data_seed: int) -> tuple[Texts, dict[str, Examples]]:
        """Return the rows of pixels of all images, and the images of each role."""
        train, *held_out = self._sources().items()
        parts: dict[str, ImageArrays] = {"train": train[1].read_train()}
        for role, source in held_out:
            assert source.read_validation is not None
            parts[role] = source.read_validation()
        examples = number_texts({role: part.labels for role, part in parts.items()})
        where = f"{self.data}, split 'train'"
        # The test first: the share held out for validation is one of what is left.
        for role, share, seed in (
            ("test", self.test, stream_seed(data_seed, _HELD_OUT_TEST)),
            ("validation", self.validation, data_seed),
        ):
            if isinstance(share, float):
                examples["train"], examples[role] = hold_out(examples["train"], share, seed, where)
        rows = np.concatenate([grey_rows(part.pixels) for part in parts.values()])
        return of_equal_length(rows), examples

    def _sources(self) -> dict[str, ImageSource]:
        """Return where the images come from, of ``train`` and of every role with a split of its
        own; reads labels and the first image alone."""

        def source(split: str | float) -> ImageSource:
            columns = Columns(self.config, self.image_column, self.label_column, split)
            return image_source(self.data, columns)

        train = source(0.5)  # a number asks for no split
        for field in ("image_size", "num_classes"):
            data_value, value = getattr(train, field), getattr(self, field)
            if data_value != value:
                raise DataError(
                    f"{field} must be what {self.data!r} has, {data_value}, not {value}"
                )
        roles = {"validation": self.validation, "test": self.test}
        named = {role: source(split) for role, split in roles.items() if isinstance(split, str)}
        return {"train": train, **named}


def grey_rows(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the grey levels of images (n, C, H, W) of one or three channels, row after row:
    (n, H * W)."""
    count, channels = pixels.shape[:2]
    if channels == 1:
        return pixels.reshape(count, -1)
    rows = np.empty((count, pixels[0, 0].size), dtype=np.uint8)
    for first in range(0, count, 1024):
        chunk = pixels[first : first + 1024]
        grey = np.rint(np.einsum("nchw,c->nhw", chunk, _LUMA))
        rows[first : first + 1024] = grey.reshape(len(chunk), -1)
    return rows
