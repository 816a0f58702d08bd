"""GLUE's examples as tokens and labels."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.glue_tasks import GLUE_TASKS
from tasks.language.subwords import Subwords
from tasks.language.text_columns import TextColumn, read_text_table
from tasks.sources.cache import cached_arrays, content_key
from tasks.sources.hub import content_digest
from tasks.sources.tables import Table

_ENCODING = "glue-1"
"""To be changed with the code that encodes, so that examples encoded before are not used again."""

_LABEL = "label"
_LARGEST_SIMILARITY = 5.0


class Examples(NamedTuple):
    """A split of a task, n examples in one line of tokens.

    Attributes:
        tokens: (tokens,), unsigned.
        ends: (n,), int64: where each example ends in ``tokens``.
        labels: (n,): int64 classes, or float32 numbers.
    """

    tokens: NDArray[np.generic]
    ends: NDArray[np.generic]
    labels: NDArray[np.generic]


def check(data: str, task: str) -> Table:
    """Return a task's splits, if they have what is needed.

    Raises:
        DataError: the data are missing, or lack a split, a column or rows, a text is missing or
            not UTF-8, or a label missing or out of range; the message names split and row.
    """
    table = read_text_table(data, task)
    for split in ("train", *GLUE_TASKS[task].validation):
        for column in GLUE_TASKS[task].columns:
            TextColumn.find(table, split, [column]).check()
        _labels(table, task, split)
    return table


def examples(data: str, task: str, split: str, subwords: Subwords, seq_len: int) -> Examples:
    """Return a split of a task: first token, text, separator (, text, separator), labels.

    Encoded once and kept by content.

    Raises:
        DataError: as ``check``.
    """
    content = content_digest(data, task)
    key = content_key(_ENCODING, content, task, split, subwords.digest, seq_len)

    def make() -> dict[str, NDArray[Any]]:
        table = check(data, task)
        encoded = list(_encoded(table, task, split, subwords, seq_len))
        kind = np.uint16 if subwords.size <= 1 << 16 else np.uint32
        return {
            "tokens": np.concatenate([np.array(each, dtype=kind) for each in encoded]),
            "ends": np.cumsum([len(each) for each in encoded]),
            "labels": _labels(table, task, split),
        }

    return Examples(**cached_arrays(key, make))


def _encoded(
    table: Table, task: str, split: str, subwords: Subwords, seq_len: int
) -> Iterator[list[int]]:
    first, separator = subwords.special("first"), subwords.special("separator")
    columns = [
        TextColumn.find(table, split, [column]).read() for column in GLUE_TASKS[task].columns
    ]
    for batches in zip(*columns, strict=True):
        for parts in zip(*(subwords.encode(batch) for batch in batches), strict=True):
            shortened = _shortened(list(parts), seq_len - 1 - len(parts))
            yield [first, *(token for part in shortened for token in [*part, separator])]


def _shortened(parts: list[list[int]], most: int) -> list[list[int]]:
    """Return the parts with at most ``most`` tokens in all, the longest cut first."""
    lengths = [len(part) for part in parts]
    while sum(lengths) > most:
        # The later one of two equally long ones.
        longest = max(range(len(lengths)), key=lambda number: (lengths[number], number))
        lengths[longest] -= 1
    return [part[:length] for part, length in zip(parts, lengths, strict=True)]


def _labels(table: Table, task: str, split: str) -> NDArray[Any]:
    table.find_column(split, [_LABEL], "label")
    if GLUE_TASKS[task].num_classes:
        return table.labels(split, _LABEL, GLUE_TASKS[task].num_classes)
    try:
        values = table.present(split, _LABEL).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{table.where(split)}: labels must be numbers ({error})") from error
    wrong = np.flatnonzero(~((values >= 0) & (values <= _LARGEST_SIMILARITY)))
    if len(wrong):
        raise DataError(
            f"{table.row_name(split, int(wrong[0]))}: labels must lie in "
            f"0..{_LARGEST_SIMILARITY:g}, not {values[wrong[0]]}; a split without labels cannot be "
            "used"
        )
    return values
