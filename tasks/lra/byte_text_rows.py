"""The rows of a hub-style data set of texts, looked at without any learning library."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.byte_text import ByteText
from tasks.lra.texts import check_share
from tasks.sources.hub import load_splits
from tasks.vision.image_arrays import checked_labels, existing_column

if TYPE_CHECKING:
    from datasets import Dataset


class UsedSplit(NamedTuple):
    """A split whose columns and labels have been looked at.

    Attributes:
        name: as the data set calls it.
        dataset: its rows.
        where: how to name it in a message.
        labels: (n,), int64.
    """

    name: str
    dataset: "Dataset"
    where: str
    labels: NDArray[np.int64]


def splits_in_use(task: ByteText) -> dict[str, UsedSplit]:
    """Return the splits that ``task`` needs, by role: train, validation (if one is used), test.

    Texts are not read.

    Raises:
        DataError: the data are missing, or lack a split or column, or a split has no rows, or a
            column holds no texts, or a label is out of range, or a share held out leaves no text.
    """
    names = {"train": "train"}
    if isinstance(task.validation, str):
        names["validation"] = task.validation
    if task.test is not None:
        names["test"] = task.test
    splits = load_splits(task.data, task.config)
    used = {}
    for role, name in names.items():
        if name not in splits:
            raise DataError(
                f"{task.data!r} must have the split {name!r} for {role}; it has "
                f"{', '.join(map(repr, splits))}"
            )
        dataset, where = splits[name], f"{task.data}, split {name!r}"
        if len(dataset) == 0:
            raise DataError(f"{where} has no rows; it needs at least one")
        existing_column(dataset, task.data, task.text_column, (), "text")
        _keep_texts(dataset, task.text_column, where)
        existing_column(dataset, task.data, task.label_column, (), "label")
        labels = checked_labels(dataset, task.label_column, where, task.num_classes)
        used[role] = UsedSplit(name, dataset, where, labels)
    if isinstance(task.validation, float):
        check_share(used["train"].labels, task.validation, used["train"].where)
    return used


def _keep_texts(dataset: "Dataset", column: str, where: str) -> None:
    import pyarrow

    kind = dataset.data.column(column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise DataError(f"{where}: column {column!r} must hold texts, not {kind}")


def utf8_texts(dataset: "Dataset", column: str, where: str) -> Iterator[bytes]:
    """Yield the texts in ``column`` as UTF-8.

    Raises:
        DataError: a text is missing, empty or not valid UTF-8; the message begins with ``where``
            and names the row.
    """
    import pyarrow

    row = 0
    for chunk in dataset.data.column(column).chunks:
        # Files may call any bytes a text; decoding in bulk would not say which row is wrong.
        for encoded in chunk.cast(pyarrow.large_binary()):
            yield usable_text(encoded.as_py(), f"{where}, row {row}")
            row += 1


def usable_text(text: Any, where: str) -> bytes:
    """Return ``text``.

    Raises:
        DataError: it is missing, empty or not valid UTF-8; the message begins with ``where``.
    """
    if not text:
        raise DataError(f"{where}: the text is empty or missing; remove the row")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: the text is not valid UTF-8 ({error}); correct it") from error
    encoded: bytes = text
    return encoded
