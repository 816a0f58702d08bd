"""Texts of a hub-style data set as bytes."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.text_columns import TextColumn, read_text_table
from tasks.lra.texts import Examples, Texts, check_share, held_out, joined, numbered, read_texts
from tasks.sources.cache import cached_arrays, content_key
from tasks.sources.hub import content_digest
from tasks.sources.progress import tell

if TYPE_CHECKING:
    from tasks.lra.byte_text import ByteText

_READING: Final = "byte-text-2"
"""To be changed with the code that reads, so that arrays read before are not used again."""

_TOLD_EVERY: Final = 1_000
"""Texts."""


class UsedSplit(NamedTuple):
    """A split whose texts and labels have been looked at.

    Attributes:
        texts: its texts, read from disk when asked for.
        labels: (n,), int64.
    """

    texts: TextColumn
    labels: NDArray[np.int64]


def splits_in_use(task: "ByteText") -> dict[str, UsedSplit]:
    """Return the splits that ``task`` needs, by role: train, validation (if one is used), test.

    Raises:
        DataError: the data are missing, or lack a split or column, or a split has no rows, or a
            text is missing, empty or not UTF-8, or a label is out of range, or a share held out
            leaves no text; the message names file and row, where it is about one.
    """
    return dict(_splits_in_use(task, content_digest(task.data, task.config)))


@functools.lru_cache(maxsize=4)
def _splits_in_use(task: "ByteText", _digest: str) -> dict[str, UsedSplit]:
    names = {"train": "train"}
    if isinstance(task.validation, str):
        names["validation"] = task.validation
    if task.test is not None:
        names["test"] = task.test
    table = read_text_table(task.data, task.config)
    used = {}
    for role, name in names.items():
        texts = TextColumn.find(table, name, [task.text_column], "text_column")
        texts.check()
        _refuse_empty(texts)
        table.find_column(name, [task.label_column], "label", "label_column")
        used[role] = UsedSplit(texts, table.labels(name, task.label_column, task.num_classes))
    if isinstance(task.validation, float):
        check_share(used["train"].labels, task.validation, f"{task.data}, split 'train'")
    return used


def _refuse_empty(texts: TextColumn) -> None:
    from pyarrow import compute

    column = texts.table.splits[texts.split].data.column(texts.name)
    row = compute.index(compute.binary_length(column), 0).as_py()
    if row >= 0:
        where = texts.table.row_name(texts.split, row)
        raise DataError(f"{where}: the text is empty; remove the row")


def examples(task: "ByteText", data_seed: int) -> tuple[Texts, dict[str, Examples]]:
    """Return the texts of all splits, one split after the other, in memory that processes share;
    and the examples of each role.

    Raises:
        DataError: as ``splits_in_use``.
    """
    used = splits_in_use(task)
    found = numbered({role: split.labels for role, split in used.items()})
    if isinstance(task.validation, float):
        found["train"], found["validation"] = held_out(
            found["train"], task.validation, data_seed, f"{task.data}, split 'train'"
        )

    def read() -> Iterator[bytes]:
        wanted = sum(len(split.labels) for split in used.values())
        done = 0
        for split in used.values():
            for several in split.texts.read():
                for text in several:
                    yield text.encode()[: task.bytes_kept]
                    done += 1
                    if done % _TOLD_EVERY == 0 or done == wanted:
                        tell("texts", done, wanted)

    names = [split.texts.split for split in used.values()]
    content = content_digest(task.data, task.config)
    key = content_key(_READING, content, task.config, names, task.text_column, task.bytes_kept)
    return read_texts(cached_arrays(key, lambda: joined(read())._asdict())), found
