"""Small image sets as arrays: scikit-learn's digits, and decoded hub-style data sets.

Shapes: n images, C channels, H rows, W columns.
"""

import functools
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sources.cache import cached_arrays, content_key
from tasks.sources.hub import content_digest
from tasks.sources.progress import report_progress
from tasks.sources.tables import Table, read_table

if TYPE_CHECKING:
    from datasets import Dataset

DIGITS: Final = "digits"
"""What scikit-learn's digits are called among data."""

_DECODING = "images-1"
"""To be changed with the code that decodes, so that arrays decoded before are not used again."""

_IMAGE_COLUMNS = ("img", "image")
_LABEL_COLUMNS = ("label", "labels", "fine_label")
_GREY_MODES = ("1", "L")
_COLOUR_MODES = ("RGB", "RGBA", "P", "LA", "PA", "CMYK", "YCbCr")


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
    """Where the images of a hub-style data set lie in it: fields of ``tasks.vision.images.Images``.

    A ``validation`` that is a number says that the caller holds out a share of the training split.
    """

    config: str | None = None
    image: str | None = None
    label: str | None = None
    validation: str | float | None = None


def image_source(data: str, columns: Columns) -> ImageSource:
    """Return the digits, or the images of a folder or hub data set.

    Raises:
        DataError: the data are missing, or lack a split or column, or the first image or the
            labels are not usable.
    """
    if data == DIGITS:
        return digits()
    return _hub_source(data, columns, content_digest(data, columns.config))


def image_digest(data: str, config: str | None) -> str:
    """Return a hash of the images' and labels' content, or of the files that hold them.

    Raises:
        DataError: the data are missing or cannot be read.
    """
    return digits_digest() if data == DIGITS else content_digest(data, config)


@functools.lru_cache(maxsize=4)
def _hub_source(data: str, columns: Columns, digest: str) -> ImageSource:
    table = read_table(data, columns.config)
    table.rows("train")
    used = ["train"]
    if not isinstance(columns.validation, float):
        used.append(table.validation_split(columns.validation))
    for split in used:
        table.rows(split)
    image = _image_column(table, "train", columns.image)
    usual = _LABEL_COLUMNS if columns.label is None else (columns.label,)
    label = table.find_column("train", usual, "label", "label_column")
    num_classes = _num_classes(table.splits["train"], label)
    for split in used[1:]:
        _image_column(table, split, image)
        table.find_column(split, (label,), "label", "label_column")
    shares = [class_shares(table.labels(split, label, num_classes), num_classes) for split in used]
    first = _pixels(table, "train", 0, _encoded(table.splits["train"], image)[0][image])
    in_chans, height, width = first.shape
    if height != width:
        raise DataError(
            f"images must be square: the first one of {data!r} has {height} rows and {width} "
            "columns; use StreamedImages, which crops"
        )

    def read(split: str) -> ImageArrays:
        key = content_key(_DECODING, digest, columns.config, split, image, label)
        labels = table.labels(split, label, num_classes)
        arrays = cached_arrays(
            key, lambda: {"pixels": _decode(table, split, image, first.shape), "labels": labels}
        )
        return ImageArrays(
            cast(NDArray[np.uint8], arrays["pixels"]), cast(NDArray[np.int64], arrays["labels"])
        )

    return ImageSource(
        height,
        in_chans,
        num_classes,
        functools.partial(read, "train"),
        functools.partial(read, used[1]) if used[1:] else None,
        shares[0],
        shares[-1],
    )


def _decode(table: Table, split: str, image: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return all images of a split, (n, C, H, W)."""
    encoded = _encoded(table.splits[split], image)
    pixels = np.empty((len(encoded), *shape), dtype=np.uint8)
    for row, example in enumerate(encoded):
        decoded = _pixels(table, split, row, example[image])
        if decoded.shape[1:] != shape[1:] or decoded.shape[0] not in (1, shape[0]):
            raise DataError(
                f"all images must have the channels, height and width of the first one, {shape}; "
                f"{table.row_name(split, row)} has {decoded.shape}; use StreamedImages for images "
                "of several kinds"
            )
        pixels[row] = decoded  # grey among colour images fills all three channels
        report_progress("images", row + 1, len(pixels), interval=1000)
    return pixels


def _pixels(table: Table, split: str, row: int, encoded: Any) -> NDArray[np.uint8]:
    """Return (C, H, W) of an image given as the datasets library's {bytes, path}; paths may be
    relative to the data's folder."""
    from PIL import Image, UnidentifiedImageError

    file = ""
    try:
        if encoded is None:
            raise UnidentifiedImageError("there is none")
        if encoded["path"]:
            file = f" ({encoded['path']})"
        content = encoded["bytes"] or (Path(table.data) / encoded["path"]).read_bytes()
        with Image.open(io.BytesIO(content)) as opened:
            mode = opened.mode
            plain = "L" if mode in _GREY_MODES else "RGB" if mode in _COLOUR_MODES else None
            array = None if plain is None else np.asarray(opened.convert(plain), dtype=np.uint8)
    except Exception as error:  # Pillow's decoders raise whatever a broken file makes them raise
        # Pillow names the buffer, which tells nothing.
        unknown = isinstance(error, UnidentifiedImageError) and encoded is not None
        why = "in no format that Pillow knows" if unknown else error
        raise DataError(
            f"{table.row_name(split, row)}{file}: the image cannot be read ({why}); replace or "
            "remove it"
        ) from error
    if array is None:
        raise DataError(
            f"{table.row_name(split, row)}{file}: images must have 8 bits a channel, not Pillow's "
            f"mode {mode!r}; convert it"
        )
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _encoded(dataset: "Dataset", image: str) -> "Dataset":
    import datasets

    return dataset.select_columns([image]).cast_column(image, datasets.Image(decode=False))


def _image_column(table: Table, split: str, name: str | None) -> str:
    """Return the column of images, which is of this name, or for None of a usual one."""
    usual = _IMAGE_COLUMNS if name is None else (name,)
    column = table.find_column(split, usual, "image", "image_column")
    feature = table.splits[split].features[column]
    if not _may_hold_images(feature):
        raise DataError(
            f"column {column!r} of {table.data!r} must hold images, image files as bytes, or paths "
            f"of image files, not {feature}"
        )
    return column


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
