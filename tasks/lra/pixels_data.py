"""The images of a data set as rows of grey pixels.

Shapes: n images, C channels, H rows, W columns.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.texts import Examples, Texts, held_out, numbered, of_equal_length
from tasks.vision.image_arrays import Columns, ImageArrays, ImageSource, image_source

if TYPE_CHECKING:
    from tasks.lra.pixels import Pixels

_HELD_OUT_TEST: Final = 11
"""Keeps the choice of test images apart from that of validation images."""

_LUMA: Final = np.array([0.299, 0.587, 0.114])
"""Of red, green and blue (ITU-R BT.601)."""


def sources(task: "Pixels") -> dict[str, ImageSource]:
    """Return where the images of each role come from, ``train`` and those with splits of their own;
    reads labels and the first image alone.

    Raises:
        DataError: the data are missing or unusable, or not of the size and classes announced.
    """

    def source(split: str | float) -> ImageSource:
        columns = Columns(task.config, task.image_column, task.label_column, split)
        return image_source(task.data, columns)

    train = source(0.5)  # a number asks for no split
    for field, wanted, found in (
        ("image_size", task.image_size, train.image_size),
        ("num_classes", task.num_classes, train.num_classes),
    ):
        if wanted != found:
            raise DataError(f"{field} must be what {task.data!r} has, {found}, not {wanted}")
    roles = {"validation": task.validation, "test": task.test}
    named = {role: source(split) for role, split in roles.items() if isinstance(split, str)}
    return {"train": train, **named}


def examples(task: "Pixels", data_seed: int) -> tuple[Texts, dict[str, Examples]]:
    """Return the rows of pixels of all images, and the images of each role.

    Raises:
        DataError: an image or label is unusable, or no image is left for a split.
    """
    from tasks.sampling import stream_seed

    train, *others = sources(task).items()
    parts: dict[str, ImageArrays] = {"train": train[1].read_train()}
    for role, source in others:
        assert source.read_validation is not None
        parts[role] = source.read_validation()
    found = numbered({role: part.labels for role, part in parts.items()})
    where = f"{task.data}, split 'train'"
    # The test first: the share held out for validation is one of what is left.
    for role, share, seed in (
        ("test", task.test, stream_seed(data_seed, _HELD_OUT_TEST)),
        ("validation", task.validation, data_seed),
    ):
        if isinstance(share, float):
            found["train"], found[role] = held_out(found["train"], share, seed, where)
    rows = np.concatenate([grey_rows(part.pixels) for part in parts.values()])
    return of_equal_length(rows), found


def grey_rows(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return each image's grey levels, row after row.

    Args:
        pixels: (n, C, H, W) of one or three channels.

    Returns:
        (n, H * W).
    """
    count, channels = pixels.shape[:2]
    if channels == 1:
        return pixels.reshape(count, -1)
    rows = np.empty((count, pixels[0, 0].size), dtype=np.uint8)
    for first in range(0, count, 1024):
        chunk = pixels[first : first + 1024]
        grey = np.rint(np.einsum("nchw,c->nhw", chunk, _LUMA))
        rows[first : first + 1024] = grey.reshape(len(chunk), -1)
    return rows
