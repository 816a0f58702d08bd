"""Small image sets as arrays: scikit-learn's digits, and decoded hub-style data sets.

Shapes: n images, C channels, H rows, W columns.
"""

import functools
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sources.cache import cached_arrays
from tasks.sources.hub import content_digest, load_splits
from tasks.sources.progress import tell
from tasks.sources.rows import row_name

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

_DECODING = "images-1"
"""To be changed with the code that decodes, so that arrays decoded before are not used again."""

_IMAGE_COLUMNS = ("img", "image")
_LABEL_COLUMNS = ("label", "labels", "fine_label")
_VALIDATION_SPLITS = ("validation", "valid", "val", "dev", "test")
_TOLD_EVERY = 1000
_GREY_MODES = ("1", "L")
_COLOUR_MODES = ("RGB", "RGBA", "P", "LA", "PA", "CMYK", "YCbCr")

NamedRow = Callable[[int], str]
"""Says where a row lies."""


class ImageArrays(NamedTuple):
    """Decoded images of one split.

    Attributes:
        pixels: (n, C, H, W), uint8.
        labels: (n,), int64.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where a task's images come from; pixels are read when asked for.

    Attributes:
        image_size: native height and width.
        in_chans: colour channels.
        num_classes: classes; labels are 0 to num_classes - 1.
        read_train: returns the training images.
        read_validation: returns those of the validation split; None where there is none.
        train_shares: share of each class in the training split.
        validation_shares: in the validation split; in the training split where there is none.
    """

    image_size: int
    in_chans: int
    num_classes: int
    read_train: Callable[[], ImageArrays]
    read_validation: Callable[[], ImageArrays] | None
    train_shares: tuple[float, ...]
    validation_shares: tuple[float, ...]


def class_shares(labels: NDArray[np.int64], num_classes: int) -> tuple[float, ...]:
    """Return the share of each class among labels 0 to num_classes - 1."""
    counts = np.bincount(labels, minlength=num_classes)
    return tuple((counts / counts.sum()).tolist())


@functools.lru_cache(maxsize=1)
def digits() -> ImageSource:
    """Return scikit-learn's 1,797 handwritten digits, 8x8 grey images of 17 levels in 10 classes.

    They come with the library and without a split.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.ascontiguousarray(bunch.images[:, None].astype(np.uint8))
    arrays = ImageArrays(pixels, bunch.target.astype(np.int64))
    shares = class_shares(arrays.labels, 10)
    return ImageSource(8, 1, 10, lambda: arrays, None, shares, shares)


@functools.lru_cache(maxsize=1)
def digits_digest() -> str:
    """Return the hash of the digits' pixels and labels."""
    pixels, labels = digits().read_train()
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Columns:
    """How a hub-style image data set is to be read; None leaves the choice to its layout.

    Attributes:
        config: configuration (subset) name.
        image: column of images; None for ``img`` or ``image``.
        label: column of labels; None for ``label``, ``labels`` or ``fine_label``.
        validation: split to validate on; None for ``validation`` and, without one, ``test``; a
            number when it is held out from the training split by the caller.
    """

    config: str | None = None
    image: str | None = None
    label: str | None = None
    validation: str | float | None = None


def hub_source(data: str, columns: Columns) -> ImageSource:
    """Return the images of a folder or hub data set with splits train and validation or test.

    Raises:
        DataError: it is missing, or lacks a split or column, or its first image or its labels
            are not usable.
    """
    return _hub_source(data, columns, content_digest(data, columns.config))


@functools.lru_cache(maxsize=4)
def _hub_source(data: str, columns: Columns, digest: str) -> ImageSource:
    splits = load_splits(data, columns.config)
    if "train" not in splits:
        raise DataError(f"{data!r} must have a split 'train'; it has {_listed(splits)}")
    validation = None
    if not isinstance(columns.validation, float):
        wanted = _VALIDATION_SPLITS if columns.validation is None else (columns.validation,)
        validation = next((name for name in wanted if name in splits), None)
        if validation is None:
            raise DataError(
                f"{data!r} must have a split {' or '.join(map(repr, wanted))} to validate on; it "
                f"has {_listed(splits)}. Name another one, or give a number such as "
                "validation=0.1 to hold out that share of the training split"
            )
    splits_in_use = ["train", *([] if validation is None else [validation])]
    for name in splits_in_use:
        if len(splits[name]) == 0:
            raise DataError(f"split {name!r} of {data!r} has no rows; it needs at least one")
    image = existing_column(splits["train"], data, columns.image, _IMAGE_COLUMNS, "image")
    label = existing_column(splits["train"], data, columns.label, _LABEL_COLUMNS, "label")
    num_classes = _num_classes(splits["train"], label)
    shares: dict[str, tuple[float, ...]] = {}
    for name in splits_in_use:
        existing_column(splits[name], data, image, (image,), "image")
        existing_column(splits[name], data, label, (label,), "label")
        named = functools.partial(row_name, data, columns.config, name)
        labels = checked_labels(splits[name], label, f"{data}, split {name!r}", num_classes, named)
        shares[name] = class_shares(labels, num_classes)
    named = functools.partial(row_name, data, columns.config, "train")
    first = _pixels(_encoded(splits["train"], image)[0][image], Path(data), named, 0)
    in_chans, height, width = first.shape
    if height != width:
        raise DataError(
            f"images must be square: the first one of {data!r} has {height} rows and {width} "
            "columns; use StreamedImages, which crops"
        )

    def read(split: str) -> ImageArrays:
        key = hashlib.sha256(
            repr((_DECODING, digest, columns.config, split, image, label)).encode()
        ).hexdigest()
        named = functools.partial(row_name, data, columns.config, split)
        labels = checked_labels(splits[split], label, f"{data}, split {split!r}", num_classes)
        encoded = _encoded(splits[split], image)
        arrays = cached_arrays(
            f"{_DECODING}-{key[:32]}",
            lambda: {
                "pixels": _decode(encoded, image, Path(data), named, first.shape),
                "labels": labels,
            },
        )
        return ImageArrays(
            cast(NDArray[np.uint8], arrays["pixels"]), cast(NDArray[np.int64], arrays["labels"])
        )

    return ImageSource(
        height,
        in_chans,
        num_classes,
        functools.partial(read, "train"),
        None if validation is None else functools.partial(read, validation),
        shares["train"],
        shares[splits_in_use[-1]],
    )


def _decode(
    encoded: "Dataset", image: str, folder: Path, named: NamedRow, shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Return all images, (n, C, H, W)."""
    pixels = np.empty((len(encoded), *shape), dtype=np.uint8)
    for row, example in enumerate(encoded):
        decoded = _pixels(example[image], folder, named, row)
        if decoded.shape[1:] != shape[1:] or decoded.shape[0] not in (1, shape[0]):
            raise DataError(
                f"all images must have the channels, height and width of the first one, {shape}; "
                f"{named(row)} has {decoded.shape}; use StreamedImages for images of several kinds"
            )
        pixels[row] = decoded  # grey among colour images fills all three channels
        if row % _TOLD_EVERY == 0 or row + 1 == len(pixels):
            tell("images", row + 1, len(pixels))
    return pixels


def _pixels(encoded: Any, folder: Path, named: NamedRow, row: int) -> NDArray[np.uint8]:
    """Return (C, H, W) of an image given as the datasets library's {bytes, path}; paths may be
    relative to ``folder``."""
    from PIL import Image, UnidentifiedImageError

    file = ""
    try:
        if encoded is None:
            raise UnidentifiedImageError("there is none")
        if encoded["path"]:
            file = f" ({encoded['path']})"
        content = encoded["bytes"] or (folder / encoded["path"]).read_bytes()
        with Image.open(io.BytesIO(content)) as opened:
            image = _plain(opened, lambda: f"{named(row)}{file}")
    except DataError:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a broken file makes them raise
        # Pillow names the buffer, which tells nothing.
        unknown = isinstance(error, UnidentifiedImageError) and encoded is not None
        why = "in no format that Pillow knows" if unknown else error
        raise DataError(
            f"{named(row)}{file}: the image cannot be read ({why}); replace or remove it"
        ) from error
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _plain(image: "Image", where: Callable[[], str]) -> "Image":
    if image.mode in _GREY_MODES:
        return image.convert("L")
    if image.mode in _COLOUR_MODES:
        return image.convert("RGB")
    raise DataError(
        f"{where()}: images must have 8 bits a channel, not Pillow's mode {image.mode!r}; convert "
        "it"
    )


def _encoded(dataset: "Dataset", image: str) -> "Dataset":
    import datasets

    return dataset.select_columns([image]).cast_column(image, datasets.Image(decode=False))


def existing_column(
    dataset: "Dataset", data: str, given: str | None, usual: tuple[str, ...], role: str
) -> str:
    """Return the column ``given``, or the first of the ``usual`` ones that there is.

    Raises:
        DataError: there is none, or the role is ``image`` and it holds something else.
    """
    wanted = usual if given is None else (given,)
    found = next((name for name in wanted if name in dataset.column_names), None)
    if found is None:
        raise DataError(
            f"{data!r} must have the {role} column {' or '.join(map(repr, wanted))}; it has "
            f"{_listed(dataset.column_names)}. Name it with {role}_column"
        )
    if role == "image" and not _may_hold_images(dataset.features[found]):
        raise DataError(
            f"column {found!r} of {data!r} must hold images, image files as bytes, or paths of "
            f"image files, not {dataset.features[found]}"
        )
    return found


def _may_hold_images(feature: Any) -> bool:
    """Return whether a column can be read as images: as such, or as what they are stored as."""
    if isinstance(feature, dict):
        return set(feature) == {"bytes", "path"}
    kinds = ("binary", "large_binary", "string", "large_string")
    return type(feature).__name__ == "Image" or getattr(feature, "dtype", None) in kinds


def _num_classes(dataset: "Dataset", label: str) -> int:
    named = getattr(dataset.features[label], "num_classes", None)
    if named is not None:
        return int(named)
    values = np.asarray(dataset.data.column(label))
    return int(values.max()) + 1 if np.issubdtype(values.dtype, np.integer) else 0


def checked_labels(
    dataset: "Dataset",
    label: str,
    where: str,
    num_classes: int,
    named: NamedRow | None = None,
) -> NDArray[np.int64]:
    """Return the labels in column ``label``, (n,).

    Args:
        dataset: a split.
        label: its column.
        where: names the split in messages.
        num_classes: classes, numbered from 0.
        named: names a row in messages; by default its number follows ``where``.

    Raises:
        DataError: one is not a whole number in 0..num_classes - 1; the message names the first
            such row.
    """
    column = dataset.data.column(label)
    values = np.asarray(column)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        missing = named(row) if named else f"{where}, row {row}"
        raise DataError(f"{missing}: there is no label; remove the row or give it one")
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            f"{where}: labels must be whole numbers without gaps, and column {label!r} has values "
            f"such as {values[0]!r}; number the classes 0, 1, ..."
        )
    wrong = np.flatnonzero((values < 0) | (values >= num_classes))
    if len(wrong):
        row = named(int(wrong[0])) if named else f"{where}, row {wrong[0]}"
        raise DataError(
            f"{row}: labels must lie in 0..{num_classes - 1}, not "
            f"{values[wrong[0]]}; a split without labels cannot be used"
        )
    return values.astype(np.int64)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"
