"""The settings of the task of images read pixel by pixel, and what follows from them alone."""

from dataclasses import dataclass
from typing import Final

from tasks.base import not_in_key
from tasks.lra.spec import TokenSpec, settle
from tasks.lra.token_config import ReadConfig
from tasks.settings import share
from tasks.sources.hub import resolved

PIXEL_VOCABULARY: Final = 256
"""The levels of grey."""


@dataclass(frozen=True, slots=True)
class PixelsConfig(ReadConfig):
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

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be 'digits', a folder or a hub name, not empty")
        if self.data != "digits":
            object.__setattr__(self, "data", resolved(self.data))
        settle(self, image_size=1, num_classes=2)
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

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, PIXEL_VOCABULARY, self.num_classes)
