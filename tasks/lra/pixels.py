"""Classifying images read pixel by pixel: grey CIFAR-10 in the Long Range Arena."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.base import Metric, TaskData, not_in_key
from tasks.lra.spec import TokenSpec, even_shares, keep_whole_numbers, token_metrics
from tasks.settings import share
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, resolved
from tasks.vision.image_arrays import digits_digest

if TYPE_CHECKING:
    import torch

_VERSION = "1"
PIXEL_VOCABULARY: Final = 256
"""The levels of grey."""


@dataclass(frozen=True, slots=True)
class Pixels:
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
        max_train: use this many training images only.
        max_validation: use this many validation images only.
        max_test: use this many test images only.
        max_train_eval: compute the training metrics on this many training images only.
        steps_per_epoch: batches that count as an epoch; None for one pass over the training set.
            Published recipes are counted in batches, differently for every task.

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
    max_train: int | None = None
    max_validation: int | None = None
    max_test: int | None = None
    max_train_eval: int | None = 2_000
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be 'digits', a folder or a hub name, not empty")
        if self.data != "digits":
            object.__setattr__(self, "data", resolved(self.data))
        keep_whole_numbers(self, image_size=1, num_classes=2)
        for field in ("validation", "test"):
            value = getattr(self, field)
            if isinstance(value, int | float) and not share(field, value):
                raise ValueError(f"{field} must be a split or a share in (0, 1), not 0")
            if self.data == "digits" and isinstance(value, str):
                raise ValueError(
                    f"digits have no splits: {field} must be the share in (0, 1) to hold out, not "
                    f"{value!r}"
                )

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, the pixels of an image."""
        return self.image_size**2

    @property
    def name(self) -> str:
        """``pixels``."""
        return "pixels"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation images (main), on test and training ones, and losses."""
        return token_metrics(even_shares(self.num_classes), with_test=self.test is not None)

    @property
    def vocab_size(self) -> int:
        """Ids that tokens have: 0 to ``vocab_size - 1``."""
        return self.spec().vocab_size

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, PIXEL_VOCABULARY, self.num_classes)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Raises:
            DataError: the data are missing or unusable, or not of the size and classes announced.
        """
        from tasks.lra.pixels_rows import sources

        sources(self)
        embedded = self.data == "digits"
        content = digits_digest() if embedded else content_digest(self.data, self.config)
        return definition_digest(self, _VERSION, content)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the images onto ``device``; kept for the next trial of this process.

        Raises:
            DataError: the data are missing, or an image or label is unusable.
            ValueError: a batch size below 1.
        """
        from tasks.lra.pixels_data import load
        from tasks.lra.token_data import TokenData

        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(tensors, sampling_seed, batch_size, self.steps_per_epoch)
