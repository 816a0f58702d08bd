"""Classifying images too many for memory: ImageNet-1k under the lean paper's recipe.

Shapes: B images in a batch, S rows and columns, K classes.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from models.fields import at_least, positive_share_or_all, settle, share
from tasks.base import DataError, Metric, not_in_key
from tasks.division import own_slices
from tasks.metrics import even_shares
from tasks.sampling import chosen_rows, first_step, seeded_globals, stream_seed
from tasks.sources.cache import cache_folder
from tasks.sources.digest import definition_digest
from tasks.sources.hub import local_folder, outline_digest, progress_bars_off, resolved
from tasks.sources.tables import Table
from tasks.vision.learning import ImageLearning, ImageSpec, ImageTask, image_metrics, timm_data

HUB_PREFIX: Final = "hfds/"
"""timm's prefix for data sets read by the datasets library."""

_VERSION: Final = "1"
_EVAL_BATCH: Final = 256
_TRAIN_FOLDERS: Final = ("train", "training")
_VALIDATION_FOLDERS: Final = ("val", "valid", "validation", "eval", "evaluation")
_AUGMENTATION, _SUBSET = 1, 3
"""Keep the seeds of different purposes apart, and apart from that of mixing."""

Key = tuple[int, int]
"""Epoch and index: which example, augmented for which pass."""


@dataclass(frozen=True, slots=True)
class StreamedImages(ImageTask):
    """Classify images decoded and augmented as they are needed, with timm's readers, transforms,
    RandAugment and Mixup.

    The defaults are the recipe of "Leaner Transformers: More Heads, Less Depth" (arXiv 2505.20802,
    Table 6): RandAugment (9, 0.5), mixup 0.8, cutmix 1, label smoothing 0.1. What the table leaves
    open follows timm's usual training: crops of 8% to 100% of the area, mirror images, increasing
    magnitudes (``inc1``), bicubic interpolation; evaluation on the central crop.

    timm's own loader draws augmentation from generators whose state depends on the worker and on
    all examples before. Here a torch DataLoader is told (epoch, index) for every example and each
    is augmented under a seed derived from (sampling seed, epoch, index), so the batch of a step
    depends neither on the steps before it nor on the number of workers. Mixup is drawn from
    (sampling seed, step).

    Batches are pairs (x, y): x of shape (batch, 3, image_size, image_size), float32, normalised by
    ImageNet's channel means; y of shape (batch, num_classes), float32 probabilities, when mixing,
    else labels of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    The fields are those of ``ImageTask`` and these.

    Attributes:
        data: a folder that holds ``train`` and ``val`` (or ``validation``), each with one folder
            of images a class; or ``hfds/`` and a folder or hub name for the datasets library.
        image_size: height and width the model is given, in pixels.
        num_classes: classes; compared with the data when they are opened.
        auto_augment: timm's policy string, empty for crops and mirror images alone.
        interpolation: how crops are resized.
        crop_pct: central share of an image's shorter side kept in evaluation, in (0, 1].
        validation: for ``hfds/`` data, the split to validate on.
        image_column: for ``hfds/`` data, the column of images.
        label_column: for ``hfds/`` data, the column of labels.
        max_train_eval: training images, the same ones always, for the training metrics.
        num_workers: processes that decode, at most one a core; 0 to decode in this process. None
            for the threads that the trial computes with on the CPU, which are its ``cpus``, less
            one for the loop; beside a device at least one.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key()
    image_size: int = 224
    num_classes: int = 1000
    auto_augment: str = "rand-m9-mstd0.5-inc1"
    mixup: float = field(default=0.8, kw_only=True)
    cutmix: float = field(default=1.0, kw_only=True)
    label_smoothing: float = field(default=0.1, kw_only=True)
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    crop_pct: float = 0.875
    validation: str = "validation"
    image_column: str = "image"
    label_column: str = "label"
    max_train_eval: int = 10_000
    num_workers: int | None = not_in_key(None)

    name = "streamed_images"

    def __post_init__(self) -> None:
        settle(
            self,
            data=_place,
            num_classes=at_least(2),
            num_workers=at_least(0),
            label_smoothing=share,
            crop_pct=positive_share_or_all,
        )

    @property
    def from_hub_layout(self) -> bool:
        """Whether the datasets library reads the data, rather than timm's folder reader."""
        return self.data.startswith(HUB_PREFIX)

    @property
    def location(self) -> str:
        """The folder or hub name, without prefix."""
        return self.data.removeprefix(HUB_PREFIX)

    def spec(self) -> ImageSpec:
        """Return image size, channels and number of classes, from the settings alone."""
        return ImageSpec(self.image_size, 3, self.num_classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Top-1 accuracy on validation images (main) and on training ones, top-5 beside it from
        six classes on, and losses."""
        return image_metrics(even_shares(self.num_classes), even_shares(self.num_classes))

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's file names and sizes, and of samples of
        their contents.

        Not all is read, as it may be hundreds of gigabytes; a file between the samples that is
        replaced by another one of the same size goes unnoticed. Files are listed once a process.
        """
        listing = _listing(self.location)
        if not self.from_hub_layout:
            readers(self)
        return definition_digest(self, _VERSION, listing)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "StreamedData":
        """List the images; an unreadable one is a DataError when its turn comes."""
        del data_seed  # the splits come with the data
        return StreamedData(self, readers(self), sampling_seed, batch_size, device)


def _place(name: str, data: str) -> str:
    location = data.removeprefix(HUB_PREFIX)
    if not location:
        raise ValueError(f"{name} must name a folder, or a data set after {HUB_PREFIX!r}")
    return data[: -len(location)] + resolved(location)


@functools.lru_cache(maxsize=8)
def _listing(location: str) -> str:
    return outline_digest(location)


class Readers(NamedTuple):
    """timm's readers of training and of validation images: an open file and a label by index."""

    train: Any
    validation: Any


@functools.lru_cache(maxsize=4)
def readers(task: StreamedImages) -> Readers:
    """Return timm's readers of both splits.

    Raises:
        DataError: a split is missing or empty, or its classes are not those of the settings.
    """
    folder = local_folder(task.location)
    if task.from_hub_layout:
        return _hub_readers(task, folder)
    if folder is None:
        raise DataError(
            f"data must be a folder of images, or begin with 'hfds/' to be downloaded, not "
            f"{task.data!r}"
        )
    train, validation = (
        _folder_reader(folder, names) for names in (_TRAIN_FOLDERS, _VALIDATION_FOLDERS)
    )
    if len(train.class_to_idx) != task.num_classes:
        raise DataError(
            f"{folder} has {len(train.class_to_idx)} classes of training images, and num_classes "
            f"is {task.num_classes}; give the number there is"
        )
    if train.class_to_idx != validation.class_to_idx:
        differing = sorted(set(train.class_to_idx) ^ set(validation.class_to_idx))
        raise DataError(
            f"training and validation images in {folder} must be of the same classes; only one "
            f"of them has {', '.join(map(repr, differing[:5]))}"
        )
    return Readers(train, validation)


class StreamedData(ImageLearning):
    """Images on disk, opened for one trial."""

    def __init__(
        self,
        task: StreamedImages,
        sources: Readers,
        sampling_seed: int,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self._validation_rows = _subset(len(sources.validation), task.max_validation)
        super().__init__(
            task,
            task.num_classes,
            num_train=len(sources.train),
            eval_size=len(self._validation_rows),
            sampling_seed=sampling_seed,
            batch_size=batch_size,
        )
        num_workers = task.num_workers
        if num_workers is None:
            num_workers = max(torch.get_num_threads() - 1, 0 if device.type == "cpu" else 1)
        self._num_workers = min(num_workers, _usable_cores())
        self._train = _Examples(sources.train, _transform(task, training=True), sampling_seed)
        eval_transform = _transform(task, training=False)
        self._train_eval = _Examples(sources.train, eval_transform, 0)
        self._validation = _Examples(sources.validation, eval_transform, 0)
        self._train_eval_rows = _subset(len(sources.train), task.max_train_eval)
        self._device = device
        data = timm_data()
        self._mean, self._std = (
            255 * torch.tensor(values, device=device)[:, None, None]
            for values in (data.IMAGENET_DEFAULT_MEAN, data.IMAGENET_DEFAULT_STD)
        )

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (B, 3, S, S), y (B, K) or (B,), from ``start_step`` on."""
        return (batch for batch, _ in self.batches_of(start_step, rank=0, size=1))

    def batches_of(
        self, start_step: int, *, rank: int, size: int
    ) -> Iterator[tuple[tuple[Tensor, Tensor], float]]:
        """Yield this process's part of each batch, and its share of the batch's loss; no other
        image is decoded."""
        positions = part_rows(self._batch_size, rank, size, paired=self._mix is not None)
        part = len(positions) / self._batch_size
        # All processes ask the model for something: one without an image for the first one's,
        # which always has some.
        positions = positions or part_rows(self._batch_size, 0, size, paired=self._mix is not None)
        return self._parts(first_step(start_step), positions, part)

    def _parts(
        self, start_step: int, positions: list[int], part: float
    ) -> Iterator[tuple[tuple[Tensor, Tensor], float]]:
        loader = self._loader(self._train, self._training_keys(start_step, positions))
        for step, (images, labels) in enumerate(loader, start=start_step):
            mixed = (images, labels) if self._mix is None else self._mix(images, labels, step)
            yield mixed, part

    def _to_validate(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._loader(self._validation, _in_order(self._validation_rows))

    def _to_score(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._loader(self._train_eval, _in_order(self._train_eval_rows))

    def _training_keys(self, start_step: int, positions: list[int]) -> Iterator[list[Key]]:
        for step, rows in self.rows_from(start_step):
            epoch = step // self.steps_per_epoch
            yield [(epoch, row) for row in rows[positions].tolist()]

    def _loader(
        self, examples: "_Examples", keys: Iterable[list[Key]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            cast("Dataset[tuple[Tensor, int]]", examples),
            batch_sampler=cast(Any, keys),
            num_workers=self._num_workers,
            pin_memory=self._device.type != "cpu",
            # Without a generator of its own the loader draws from the global one.
            generator=torch.Generator(),
        )
        for pixels, labels in loader:
            images = pixels.to(self._device, non_blocking=True).float()
            yield (images - self._mean) / self._std, labels.to(self._device, non_blocking=True)


class _Examples(Dataset[tuple[Tensor, int]]):
    """Decoded and transformed images by (epoch, index), each under a seed of its own."""

    def __init__(self, reader: Any, transform: Callable[[Any], Tensor], seed: int) -> None:
        self._reader = reader
        self._transform = transform
        self._seed = seed

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, key: Key) -> tuple[Tensor, int]:
        from PIL import Image

        epoch, index = key
        try:
            file, label = self._reader[index]
            with file, Image.open(file) as opened:
                image = opened.convert("RGB")
        except Exception as error:  # Pillow's decoders raise whatever a broken file makes them
            raise DataError(
                f"image {self._reader.filename(index, absolute=True)!r} (row {index}) cannot be "
                f"read ({error}); replace or remove it"
            ) from error
        with seeded_globals(stream_seed(self._seed, epoch, index, _AUGMENTATION)):
            return self._transform(image), int(label)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _transform(task: StreamedImages, *, training: bool) -> Callable[[Any], Tensor]:
    """Return timm's transform of a PIL image to (3, S, S), uint8: a quarter of the bytes that
    workers would hand over as float32; normalising is left to the device."""
    transform: Callable[[Any], Tensor] = timm_data().create_transform(
        input_size=task.image_size,
        is_training=training,
        auto_augment=task.auto_augment or None,
        color_jitter=None,
        interpolation=task.interpolation
        if training or task.interpolation != "random"
        else "bicubic",
        crop_pct=task.crop_pct,
        normalize=False,
    )
    return transform


def _folder_reader(folder: Path, names: tuple[str, ...]) -> Any:
    split = next((folder / name for name in names if (folder / name).is_dir()), None)
    if split is None:
        raise DataError(
            f"{folder} must hold a folder {' or '.join(map(repr, names))} with one folder of "
            "images a class"
        )
    try:
        return timm_data().create_dataset("", root=str(split), search_split=False).reader
    except (RuntimeError, OSError) as error:
        raise DataError(f"{split} cannot be used: {error}") from error


def _hub_readers(task: StreamedImages, folder: Path | None) -> Readers:
    # Converted rows of a local folder are kept by its content, as tasks.sources.hub does.
    cache = None
    if folder is not None:
        cache = str(cache_folder() / "datasets" / outline_digest(task.location)[:16])
    split_readers = []
    for split in ("train", task.validation):
        where = f"{task.location}, split {split!r}"
        try:
            with progress_bars_off():
                reader = (
                    timm_data()
                    .create_dataset(
                        task.data,
                        root=cache,
                        split=split,
                        input_key=task.image_column,
                        target_key=task.label_column,
                    )
                    .reader
                )
        except Exception as error:  # the library raises another kind for every reader and fault
            raise DataError(
                f"{where} cannot be read: {error}; check validation, image_column and label_column"
            ) from error
        if len(reader) == 0:
            raise DataError(f"{where} has no rows; it needs at least one")
        # timm's reader adds an empty column where the named one is missing.
        empty = reader.dataset.data.column(task.image_column).null_count
        if empty:
            raise DataError(
                f"{where}: {empty} of {len(reader)} rows have no image in column "
                f"{task.image_column!r}; columns are {', '.join(reader.dataset.column_names)}: "
                "name the right one with image_column, or remove those rows"
            )
        table = Table({split: reader.dataset}, task.location)
        table.find_column(split, [task.label_column], "label", "label_column")
        table.labels(split, task.label_column, task.num_classes)
        split_readers.append(reader)
    return Readers(*split_readers)


def part_rows(count: int, rank: int, size: int, *, paired: bool) -> list[int]:
    """Return which of a batch's ``count`` examples are one process's: one in ``size``, so that
    where all cut theirs into parts, a part of all of them is what it is for one process.

    Args:
        count: examples in the batch; even where they are paired.
        rank: the process, from 0.
        size: how many processes there are.
        paired: whether example i is mixed with example count - 1 - i, as timm's Mixup does it: both
            are then one process's, at such places that they are mixed again.
    """
    rows = list(range(rank, count // 2 if paired else count, size))
    return rows + [count - 1 - row for row in reversed(rows)] if paired else rows


def _subset(count: int, size: int | None) -> list[int]:
    rows: list[int] = chosen_rows(count, size, _SUBSET).tolist()
    return rows


def _in_order(rows: list[int]) -> list[list[Key]]:
    """Return the keys of this process's rows, batch by batch."""
    return [[(0, row) for row in rows[batch]] for batch in own_slices(len(rows), _EVAL_BATCH)]
