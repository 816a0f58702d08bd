"""The settings of the task of images held in memory, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.base import DataError, not_in_key
from tasks.classification import ImageSpec
from tasks.settings import alpha, one_of, share, whole_number
from tasks.sources.hub import resolved
from tasks.vision.image_arrays import Columns, ImageSource, digits, hub_source

if TYPE_CHECKING:
    pass

_DIGITS_VALIDATION = 0.2


@dataclass(frozen=True, slots=True)
class ImagesConfig:
    """Classify images held whole on the training device as bytes, normalised by channel.

    ``data="digits"`` is scikit-learn's embedded set of 1,797 real 8x8 images in 10 classes. Any
    other value is a folder in a hub layout, given to ``datasets.load_dataset``, or, when the
    environment variable HSWEEP_HUB is 1, a name on the Hugging Face hub. Images are decoded once
    and kept as arrays under HSWEEP_CACHE (``~/.cache/hsweep``).

    Where the training split has to be divided, or only a part of a split is used, the data seed
    decides which images: all shapes of a replicate share them, so comparisons stay paired, while
    replicates differ, so their spread includes that of the choice of images. With a few hundred
    validation images that part is as large as the differences in question. Splits that come with
    the data are used as they are, the same in every replicate.

    Batches are pairs (x, y): x of shape (batch, in_chans, image_size, image_size), float32, and
    labels y of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    Attributes:
        data: ``digits``, a folder or a hub name.
        image_size: height and width wanted, in pixels; None for the native size.
        fit: how to reach ``image_size``: ``resize`` (bilinear), ``border`` (centred on a canvas
            of the mean colour) or ``edge`` (border pixels repeated outwards).
        crop_padding: pixels of black added on each side before cropping the native size at
            random, in training; 0 for none.
        flip: mirror training images left to right at random.
        label_smoothing: share of the target spread evenly over the classes, in training.
        mixup: alpha of mixup, 0 for none; targets are then of shape (batch, num_classes), float32.
        cutmix: alpha of CutMix, 0 for none; with both, each batch takes either at random.
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of each class held out from the training split (digits have
            no splits: 0.2 of each class is held out by default).
        max_train: use this many training images only.
        max_validation: use this many validation images only.
        max_train_eval: compute the training metrics on this many training images only.
        config: configuration (subset) name of the data set.
        image_column: column of images; None for ``img`` or ``image``.
        label_column: column of labels; None for ``label``, ``labels`` or ``fine_label``.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("digits")
    image_size: int | None = None
    fit: Literal["resize", "border", "edge"] = "resize"
    crop_padding: int = 0
    flip: bool = False
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    validation: str | float | None = None
    max_train: int | None = None
    max_validation: int | None = None
    max_train_eval: int | None = None
    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must be 'digits', a folder or a hub name, not empty")
        if self.data != "digits":
            object.__setattr__(self, "data", resolved(self.data))
        for field in ("image_size", "max_train", "max_validation", "max_train_eval"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        padding = whole_number("crop_padding", self.crop_padding, minimum=0)
        object.__setattr__(self, "crop_padding", padding)
        smoothing = share("label_smoothing", self.label_smoothing)
        object.__setattr__(self, "label_smoothing", smoothing)
        for field in ("mixup", "cutmix"):
            object.__setattr__(self, field, alpha(field, getattr(self, field)))
        one_of("fit", self.fit, ("resize", "border", "edge"))
        if isinstance(self.validation, int | float) and not share("validation", self.validation):
            raise ValueError("validation must be a split or a share in (0, 1), not 0")
        if self.data == "digits" and isinstance(self.validation, str):
            raise ValueError(
                "digits have no splits: validation must be the share in (0, 1) to hold out, not "
                f"{self.validation!r}"
            )

    @property
    def held_out(self) -> float | None:
        """The share of each class held out for validation; None where a split is used."""
        if isinstance(self.validation, float):
            return self.validation
        return _DIGITS_VALIDATION if self.data == "digits" else None

    def source(self) -> ImageSource:
        """Return where the images come from; reads labels and the first image alone.

        Raises:
            DataError: the data are missing or unusable.
        """
        if self.data == "digits":
            return digits()
        columns = Columns(self.config, self.image_column, self.label_column, self.validation)
        return hub_source(self.data, columns)

    def spec(self) -> ImageSpec:
        """Return image size, channels and number of classes, without decoding the images.

        Raises:
            DataError: the data are missing or unusable, or a border would have to be negative.
        """
        source = self.source()
        size = self.image_size or source.image_size
        if self.fit != "resize" and size < source.image_size:
            raise DataError(
                f"fit={self.fit!r} adds a border, so image_size must be at least the native "
                f"{source.image_size}, not {size}; use fit='resize' to shrink images"
            )
        return ImageSpec(size, source.in_chans, source.num_classes)
