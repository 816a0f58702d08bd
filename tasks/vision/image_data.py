"""Images on the training device, and learning from them.

Shapes: n images, B images in a batch, C channels, H rows, W columns.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tasks.base import DataError
from tasks.division import own_slices
from tasks.sampling import chosen_rows, generator, held_out_rows
from tasks.sources.kept import kept
from tasks.transfer import to_device
from tasks.vision.image_arrays import ImageArrays
from tasks.vision.learning import ImageLearning

if TYPE_CHECKING:
    from tasks.vision.images import Images

_CHUNK = 512
"""Images handled at once outside training."""

_TRAIN, _VALIDATION, _TRAIN_EVAL = range(1, 4)
"""Independent streams of the seed that chooses images, beside that which holds some out."""

_AUGMENTATION = 1
"""Keeps a step's augmentation apart from an epoch's order."""


class LabelledImages(NamedTuple):
    """Images and their classes.

    Attributes:
        pixels: (n, C, H, W), uint8.
        labels: (n,), int64.
    """

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
        image_size: height and width the model is given.
        num_classes: classes.
    """

    train: LabelledImages
    train_eval: LabelledImages
    validation: LabelledImages
    mean: Tensor
    std: Tensor
    image_size: int
    num_classes: int


@kept(most=2)
def load(
    task: "Images",
    fingerprint: str,  # noqa: ARG001
    split_seed: int,
    device: torch.device,
) -> ImageTensors:
    """Return the images of ``task`` on ``device``; the last two sets are kept for reuse.

    Args:
        task: what to read.
        fingerprint: of the task's data, so that data that change are read again.
        split_seed: decides which images are held out or left out.
        device: where the images are wanted.

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
        self, task: "Images", tensors: ImageTensors, sampling_seed: int, batch_size: int
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
            chosen = pixels.index_select(0, rows)
            if self._task.crop_padding or self._task.flip:
                random = generator(self._sampling_seed, step, _AUGMENTATION)
                chosen = augmented(chosen, self._task.crop_padding, self._task.flip, random)
            images, targets = self._prepared(chosen), labels.index_select(0, rows)
            yield (images, targets) if self._mix is None else self._mix(images, targets, step)

    def _to_validate(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._in_chunks(self._tensors.validation)

    def _to_score(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._in_chunks(self._tensors.train_eval)

    def _in_chunks(self, images: LabelledImages) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's rows."""
        for own in own_slices(len(images.labels), _CHUNK):
            yield self._prepared(images.pixels[own]), images.labels[own]

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
