"""The images of a data set as rows of grey pixels, without any learning library.

Shapes: n images, C channels, H rows, W columns.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.pixels_config import PixelsConfig
from tasks.vision.image_arrays import Columns, ImageSource, digits, hub_source

_LUMA: Final = np.array([0.299, 0.587, 0.114])
"""Of red, green and blue (ITU-R BT.601)."""


class Sources(NamedTuple):
    """Where the images of each role come from.

    Attributes:
        train: has the training images.
        validation: has a split to validate on; None where a share is held out.
        test: has the test split; None where there is none or a share is held out.
    """

    train: ImageSource
    validation: ImageSource | None
    test: ImageSource | None


def sources(task: PixelsConfig) -> Sources:
    """Return where the images come from; reads labels and the first image alone.

    Raises:
        DataError: the data are missing or unusable, or not of the size and classes announced.
    """

    def source(split: str | float | None) -> ImageSource:
        if task.data == "digits":
            return digits()
        named = split if isinstance(split, str) else 0.5  # a number asks for no split
        columns = Columns(task.config, task.image_column, task.label_column, named)
        return hub_source(task.data, columns)

    train = source(None)
    for field, wanted, found in (
        ("image_size", task.image_size, train.image_size),
        ("num_classes", task.num_classes, train.num_classes),
    ):
        if wanted != found:
            raise DataError(f"{field} must be what {task.data!r} has, {found}, not {wanted}")
    return Sources(
        train,
        source(task.validation) if isinstance(task.validation, str) else None,
        source(task.test) if isinstance(task.test, str) else None,
    )


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
