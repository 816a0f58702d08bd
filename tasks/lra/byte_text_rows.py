"""The rows of a hub-style data set of texts, looked at without any learning library."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.text_columns import TextColumn, text_table
from tasks.lra.byte_text_config import ByteTextConfig
from tasks.lra.texts import check_share
from tasks.sources.hub import content_digest
from tasks.vision.image_arrays import checked_labels, existing_column


class UsedSplit(NamedTuple):
    """A split whose texts and labels have been looked at.

    Attributes:
        texts: its texts, read from disk when asked for.
        labels: (n,), int64.
    """

    texts: TextColumn
    labels: NDArray[np.int64]

    def encoded(self) -> Iterator[bytes]:
        """Yield the texts as UTF-8."""
        for several in self.texts.read():
            for text in several:
                yield text.encode()


def splits_in_use(task: ByteTextConfig) -> dict[str, UsedSplit]:
    """Return the splits that ``task`` needs, by role: train, validation (if one is used), test.

    Raises:
        DataError: the data are missing, or lack a split or column, or a split has no rows, or a
            text is missing, empty or not UTF-8, or a label is out of range, or a share held out
            leaves no text; the message names file and row, where it is about one.
    """
    return dict(_splits_in_use(task, content_digest(task.data, task.config)))


@functools.lru_cache(maxsize=4)
def _splits_in_use(task: ByteTextConfig, _digest: str) -> dict[str, UsedSplit]:
    names = {"train": "train"}
    if isinstance(task.validation, str):
        names["validation"] = task.validation
    if task.test is not None:
        names["test"] = task.test
    table = text_table(task.data, task.config)
    used = {}
    for role, name in names.items():
        texts = table.column(name, task.text_column, hint="; name it with text_column")
        texts.check()
        _refuse_empty(texts)
        dataset = table.rows(name)
        existing_column(dataset, task.data, task.label_column, (), "label")
        labels = checked_labels(
            dataset,
            task.label_column,
            f"{task.data}, split {name!r}",
            task.num_classes,
            functools.partial(table.row_name, name),
        )
        used[role] = UsedSplit(texts, labels)
    if isinstance(task.validation, float):
        check_share(used["train"].labels, task.validation, f"{task.data}, split 'train'")
    return used


def _refuse_empty(texts: TextColumn) -> None:
    from pyarrow import compute

    column = texts.table.rows(texts.split).data.column(texts.name)
    row = compute.index(compute.binary_length(column), 0).as_py()
    if row >= 0:
        where = texts.table.row_name(texts.split, row)
        raise DataError(f"{where}: the text is empty; remove the row")
