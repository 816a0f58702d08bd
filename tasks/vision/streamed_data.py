"""Reading, augmenting and mixing images from disk, and learning from them.

Shapes: B images in a batch, S rows and columns, K classes.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tasks.base import DataError
from tasks.division import own_slices
from tasks.global_rng import seeded_globals
from tasks.sampling import chosen_rows, stream_seed
from tasks.sources.cache import cache_folder
from tasks.sources.hub import local_folder, outline_digest, progress_bars_off
from tasks.sources.tables import Table
from tasks.vision.learning import ImageLearning, timm_data

if TYPE_CHECKING:
    from tasks.vision.streamed_images import StreamedImages

_EVAL_BATCH = 256
_TRAIN_FOLDERS = ("train", "training")
_VALIDATION_FOLDERS = ("val", "valid", "validation", "eval", "evaluation")

_AUGMENTATION, _SUBSET = 1, 3
"""Keep the seeds of different purposes apart, and apart from that of mixing."""

Key = tuple[int, int]
"""Epoch and index: which example, augmented for which pass."""


class Readers(NamedTuple):
    """timm's readers: each gives an open file and a label by index.

    Attributes:
        train: training images.
        validation: validation images.
    """

    train: Any
    validation: Any


@functools.lru_cache(maxsize=4)
def readers(task: "StreamedImages") -> Readers:
    """Return timm's readers of both splits; the last few are kept for reuse.

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
        task: "StreamedImages",
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
        self._num_workers = min(task.num_workers, _usable_cores())
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
        return (part for part, _ in self.batches_of(start_step, rank=0, size=1))

    def batches_of(
        self, start_step: int, *, rank: int, size: int
    ) -> Iterator[tuple[tuple[Tensor, Tensor], float]]:
        """Yield this process's part of each batch, and its share of the batch's loss; no other
        image is decoded.

        Raises:
            ValueError: a start step below 0.
            DataError: an image cannot be read.
        """
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, not {start_step}")
        own = part_rows(self._batch_size, rank, size, paired=self._mix is not None)
        share = len(own) / self._batch_size
        # All processes ask the model for something: one without an image for the first one's,
        # which always has some.
        own = own or part_rows(self._batch_size, 0, size, paired=self._mix is not None)
        return self._parts(start_step, own, share)

    def _parts(
        self, start_step: int, own: list[int], share: float
    ) -> Iterator[tuple[tuple[Tensor, Tensor], float]]:
        loader = self._loader(self._train, self._training_keys(start_step, own))
        for step, (images, labels) in enumerate(loader, start=start_step):
            mixed = (images, labels) if self._mix is None else self._mix(images, labels, step)
            yield mixed, share

    def _to_validate(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._loader(self._validation, _in_order(self._validation_rows))

    def _to_score(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._loader(self._train_eval, _in_order(self._train_eval_rows))

    def _training_keys(self, start_step: int, own: list[int]) -> Iterator[list[Key]]:
        for step, rows in self.rows_from(start_step):
            epoch = step // self.steps_per_epoch
            yield [(epoch, row) for row in rows[own].tolist()]

    def _loader(
        self, examples: "_Examples", keys: Iterable[list[Key]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            cast("Dataset[tuple[Tensor, int]]", examples),
            batch_sampler=cast(Any, keys),
            num_workers=self._num_workers,
            pin_memory=self._device.type == "cuda",
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


def _transform(task: "StreamedImages", *, training: bool) -> Callable[[Any], Tensor]:
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


def _hub_readers(task: "StreamedImages", folder: Path | None) -> Readers:
    # Converted rows of a local folder are kept by its content, as tasks.sources.hub does.
    cache = None
    if folder is not None:
        cache = str(cache_folder() / "datasets" / outline_digest(task.location)[:16])
    found = []
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
        found.append(reader)
    return Readers(*found)


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
    own = list(range(rank, count // 2 if paired else count, size))
    return own + [count - 1 - row for row in reversed(own)] if paired else own


def _subset(count: int, size: int | None) -> list[int]:
    rows: list[int] = chosen_rows(count, size, _SUBSET).tolist()
    return rows


def _in_order(rows: list[int]) -> list[list[Key]]:
    """Return the keys of this process's rows, batch by batch."""
    return [[(0, row) for row in rows[own]] for own in own_slices(len(rows), _EVAL_BATCH)]
