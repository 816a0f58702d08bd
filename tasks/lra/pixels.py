"""Classifying images read pixel by pixel: grey CIFAR-10 in the Long Range Arena."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tasks.base import Metric, not_in_key
from tasks.lra.spec import PIXEL_VOCABULARY, ReadTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.settings import at_least, split_or_share
from tasks.sources.digest import definition_digest
from tasks.sources.hub import place
from tasks.vision.image_arrays import DIGITS, image_digest

if TYPE_CHECKING:
    from tasks.lra.texts import Examples, Texts

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Pixels(ReadTask):
    """Classify images given as the sequence of their grey pixels, row by row.

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
        split = partial(split_or_share, undivided=DIGITS if self.data == DIGITS else None)
        self.settle(
            {
                "data": place(DIGITS),
                "image_size": at_least(1),
                "num_classes": at_least(2),
                "validation": split,
                "test": split,
            }
        )

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
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Raises:
            DataError: the data are missing or unusable, or not of the size and classes announced.
        """
        from tasks.lra.pixels_data import sources

        sources(self)
        return definition_digest(self, _VERSION, image_digest(self.data, self.config))

    def examples(self, data_seed: int) -> "tuple[Texts, dict[str, Examples]]":
        """See ``tasks.lra.pixels_data.examples``."""
        from tasks.lra.pixels_data import examples

        return examples(self, data_seed)
