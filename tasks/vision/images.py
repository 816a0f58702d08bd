"""Classifying small images that fit in memory whole: digits, CIFAR-10 and their like."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from tasks.base import DataError, Metric, TaskData, not_in_key
from tasks.settings import at_least, choice, settle, split_or_share, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.hub import place
from tasks.vision.image_arrays import DIGITS, Columns, ImageSource, image_digest, image_source
from tasks.vision.spec import MIXING_RULES, ImageSpec, image_metrics

if TYPE_CHECKING:
    import torch

_VERSION = "1"
_DIGITS_VALIDATION = 0.2


@dataclass(frozen=True, slots=True)
class Images:
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

    name = "images"

    def __post_init__(self) -> None:
        undivided = DIGITS if self.data == DIGITS else None
        settle(
            self,
            {
                "data": place(DIGITS),
                **dict.fromkeys(("image_size", "max_train", "max_validation"), whole_number),
                "max_train_eval": whole_number,
                "crop_padding": at_least(0),
                **MIXING_RULES,
                "fit": choice("resize", "border", "edge"),
                "validation": partial(split_or_share, undivided=undivided),
            },
        )

    @property
    def held_out(self) -> float | None:
        """The share of each class held out for validation; None where a split is used."""
        if isinstance(self.validation, float):
            return self.validation
        return _DIGITS_VALIDATION if self.data == DIGITS else None

    def source(self) -> ImageSource:
        """Return where the images come from; reads labels and the first image alone.

        Raises:
            DataError: the data are missing or unusable.
        """
        columns = Columns(self.config, self.image_column, self.label_column, self.validation)
        return image_source(self.data, columns)

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

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 accuracy on validation images (main) and on training ones, top-5 beside it from
        six classes on, and losses.

        Raises:
            DataError: as ``spec``.
        """
        self.spec()
        source = self.source()
        return image_metrics(source.validation_shares, source.train_shares)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Where the folder lies does not matter.

        Raises:
            DataError: the data are missing or unusable.
        """
        self.spec()
        return definition_digest(self, _VERSION, image_digest(self.data, self.config))

    def example_input(self) -> "torch.Tensor":
        """Return a black image as a batch of one, (1, C, H, W).

        Raises:
            DataError: as ``spec``.
        """
        import torch

        spec = self.spec()
        return torch.zeros(1, spec.in_chans, spec.image_size, spec.image_size)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the images onto ``device``; kept for the next trial of this process."""
        from tasks.vision.image_data import ImageData, load

        chosen = self.held_out or self.max_train or self.max_validation
        tensors = load(self, self.fingerprint(), data_seed if chosen else 0, device)
        return ImageData(self, tensors, sampling_seed, batch_size)
