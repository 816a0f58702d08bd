"""Classifying small images that fit in memory whole: digits, CIFAR-10 and their like.

Shapes: n images, B images in a batch, C channels, H rows, W columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from models.fields import at_least, settle, share
from tasks.base import DataError, Metric, not_in_key
from tasks.division import own_slices
from tasks.sampling import chosen_rows, generator, held_out_rows, to_device
from tasks.sources.digest import definition_digest
from tasks.sources.hub import place
from tasks.sources.memory import keep_last
from tasks.sources.tables import split_or_share
from tasks.vision.image_arrays import (
    DIGITS,
    Columns,
    ImageArrays,
    ImageSource,
    image_digest,
    image_source,
)
from tasks.vision.learning import ImageLearning, ImageSpec, ImageTask, image_metrics

_VERSION: Final = "1"
_DIGITS_VALIDATION: Final = 0.2
_CHUNK: Final = 512
"""Images handled at once outside training."""
_TRAIN, _VALIDATION, _TRAIN_EVAL = range(1, 4)
"""Independent streams of the seed that chooses images, beside that which holds some out."""
_AUGMENTATION: Final = 1
"""Keeps a step's augmentation apart from an epoch's order."""


@dataclass(frozen=True, slots=True)
class Images(ImageTask):
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

    The fields are those of ``ImageTask`` and these.

    Attributes:
        data: ``digits``, a folder or a hub name.
        image_size: height and width wanted, in pixels; None for the native size.
        fit: how to reach ``image_size``: ``resize`` (bilinear), ``border`` (centred on a canvas
            of the mean colour) or ``edge`` (border pixels repeated outwards).
        crop_padding: pixels of black added on each side before cropping the native size at
            random, in training; 0 for none.
        flip: mirror training images left to right at random.
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of each class held out from the training split (digits have
            no splits: 0.2 of each class is held out by default).
        max_train: use this many training images only.
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
    validation: str | float | None = None
    max_train: int | None = None
    max_train_eval: int | None = None
    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None

    name = "images"

    def __post_init__(self) -> None:
        settle(
            self,
            data=place(DIGITS),
            crop_padding=at_least(0),
            label_smoothing=share,
            validation=split_or_share(self.data, DIGITS),
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
        """Return image size, channels and number of classes, without decoding the images."""
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
        six classes on, and losses."""
        self.spec()
        source = self.source()
        return image_metrics(source.validation_shares, source.train_shares)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents.

        Where the folder lies does not matter.
        """
        self.spec()
        return definition_digest(self, _VERSION, image_digest(self.data, self.config))

    def example_input(self) -> Tensor:
        """Return a black image as a batch of one, (1, C, H, W)."""
        spec = self.spec()
        return torch.zeros(1, spec.in_chans, spec.image_size, spec.image_size)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "ImageData":
        """Read the images onto ``device``; kept for the next trial of this process."""
        is_subset = self.held_out or self.max_train or self.max_validation
        tensors = load(self, self.fingerprint(), data_seed if is_subset else 0, device)
        return ImageData(self, tensors, sampling_seed, batch_size)


class LabelledImages(NamedTuple):
    """Images, (n, C, H, W) of uint8, and their classes, (n,) of int64."""

    pixels: Tensor
    labels: Tensor


class ImageTensors(NamedTuple):
    """Everything a trial learns from.

    Attributes:
        train: training images.
        train_eval: those of them that the training metrics are computed on.
        validation: validation images.
        mean: (C, 1, 1), float32, over the training pixels.
        std: (C, 1, 1), float32, over the training pixels; 1 where a channel is constant.
        image_size: height and width of the model's input.
        num_classes: classes.
    """

    train: LabelledImages
    train_eval: LabelledImages
    validation: LabelledImages
    mean: Tensor
    std: Tensor
    image_size: int
    num_classes: int


@keep_last(2)
def load(
    task: Images,
    fingerprint: str,  # noqa: ARG001  data that change are read again
    split_seed: int,
    device: torch.device,
) -> ImageTensors:
    """Return the images of ``task`` on ``device``; ``split_seed`` decides which are held out or
    left out.

    Raises:
        DataError: an image or label is unusable, or no image is left for a split.
    """
    source, spec = task.source(), task.spec()
    train = _tensors(source.read_train())
    if task.held_out is None:
        assert source.read_validation is not None
        validation = _tensors(source.read_validation())
    else:
        held_out = held_out_rows(train.labels, task.held_out, split_seed)
        train, validation = _rows(train, ~held_out), _rows(train, held_out)
    for split, images in (("training", train), ("validation", validation)):
        if len(images.labels) == 0:
            raise DataError(
                f"no {split} images are left when {task.held_out} of each class of {task.data!r} "
                "is held out; change validation"
            )
    train = _subset(train, task.max_train, split_seed, _TRAIN)
    validation = _subset(validation, task.max_validation, split_seed, _VALIDATION)
    train = LabelledImages(*(tensor.to(device) for tensor in train))
    validation = LabelledImages(*(tensor.to(device) for tensor in validation))
    mean, std = channel_statistics(train.pixels)
    if task.fit == "resize":
        train, validation = (_resized(part, spec.image_size) for part in (train, validation))
    train_eval = _subset(train, task.max_train_eval, split_seed, _TRAIN_EVAL)
    return ImageTensors(train, train_eval, validation, mean, std, spec.image_size, spec.num_classes)


def channel_statistics(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each channel of (n, C, H, W), each (C, 1, 1)."""
    total = torch.zeros(2, pixels.shape[1], dtype=torch.float64, device=pixels.device)
    for chunk in torch.split(pixels, _CHUNK):
        values = chunk.double()
        total += torch.stack((values.sum((0, 2, 3)), values.square().sum((0, 2, 3))))
    mean, mean_square = total / (pixels.numel() / pixels.shape[1])
    std = (mean_square - mean.square()).clamp_min(0).sqrt()
    std = torch.where(std > 0, std, 1.0)
    return mean.float()[:, None, None], std.float()[:, None, None]


def augmented(pixels: Tensor, crop_padding: int, flip: bool, random: torch.Generator) -> Tensor:
    """Return the images cropped after padding with black, and mirrored, each at random.

    Args:
        pixels: (B, C, H, W).
        crop_padding: pixels added on each side before a crop of H by W.
        flip: mirror each image left to right with probability 1/2.
        random: a CPU generator.
    """
    batch, _, height, width = pixels.shape
    top, left = torch.randint(0, 2 * crop_padding + 1, (2, batch), generator=random)
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    if flip:
        mirrored = torch.rand(batch, generator=random) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    padded = functional.pad(pixels, (crop_padding,) * 4)
    rows, columns = to_device(rows, pixels.device), to_device(columns, pixels.device)
    images = torch.arange(batch, device=pixels.device)[:, None, None]
    # Indices around a slice put the channels last.
    return padded[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class ImageData(ImageLearning):
    """Images in memory, opened for one trial."""

    def __init__(
        self, task: Images, tensors: ImageTensors, sampling_seed: int, batch_size: int
    ) -> None:
        super().__init__(
            task,
            tensors.num_classes,
            num_train=len(tensors.train.labels),
            eval_size=len(tensors.validation.labels),
            sampling_seed=sampling_seed,
            batch_size=batch_size,
        )
        self._task = task
        self._tensors = tensors

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end, beginning with ``start_step``: x (B, C, H, W), y (B,), or (B,
        num_classes) where images are mixed.
        """
        pixels, labels = self._tensors.train
        for step, rows in self.rows_from(start_step, labels.device):
            batch_pixels = pixels.index_select(0, rows)
            if self._task.crop_padding or self._task.flip:
                random = generator(self._sampling_seed, step, _AUGMENTATION)
                batch_pixels = augmented(
                    batch_pixels, self._task.crop_padding, self._task.flip, random
                )
            images, targets = self._prepared(batch_pixels), labels.index_select(0, rows)
            yield (images, targets) if self._mix is None else self._mix(images, targets, step)

    def _to_validate(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._in_chunks(self._tensors.validation)

    def _to_score(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._in_chunks(self._tensors.train_eval)

    def _in_chunks(self, images: LabelledImages) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's rows."""
        for rows in own_slices(len(images.labels), _CHUNK):
            yield self._prepared(images.pixels[rows]), images.labels[rows]

    def _prepared(self, pixels: Tensor) -> Tensor:
        """Normalise, then extend to the wanted size, so that a zero border is the mean colour."""
        images = (pixels.float() - self._tensors.mean) / self._tensors.std
        missing = self._tensors.image_size - images.shape[-1]
        if not missing:
            return images
        before, after = missing // 2, missing - missing // 2
        mode = "constant" if self._task.fit == "border" else "replicate"
        return functional.pad(images, (before, after, before, after), mode=mode)


def _tensors(arrays: ImageArrays) -> LabelledImages:
    return LabelledImages(torch.from_numpy(arrays.pixels), torch.from_numpy(arrays.labels))


def _rows(images: LabelledImages, rows: Tensor) -> LabelledImages:
    return LabelledImages(images.pixels[rows], images.labels[rows])


def _subset(images: LabelledImages, size: int | None, seed: int, stream: int) -> LabelledImages:
    count = len(images.labels)
    if size is None or size >= count:
        return images
    return _rows(images, chosen_rows(count, size, seed, stream).to(images.labels.device))


def _resized(images: LabelledImages, size: int) -> LabelledImages:
    if images.pixels.shape[-1] == size:
        return images
    chunks = [
        functional.interpolate(
            chunk.float(), (size, size), mode="bilinear", antialias=True, align_corners=False
        )
        for chunk in torch.split(images.pixels, _CHUNK)
    ]
    resized = torch.cat([chunk.round().clamp(0, 255).byte() for chunk in chunks])
    return LabelledImages(resized, images.labels)
