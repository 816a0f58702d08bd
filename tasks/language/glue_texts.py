"""GLUE's examples as tokens and labels."""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.glue import GLUE_TASKS
from tasks.language.subwords import Subwords
from tasks.language.text_data import loaded_texts, text_column, texts
from tasks.sources.cache import cached_arrays
from tasks.sources.hub import content_digest
from tasks.vision.image_arrays import checked_labels

if TYPE_CHECKING:
    from datasets import DatasetDict

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


def check(data: str, task: str) -> "DatasetDict":
    """Return a task's splits, if they have what is needed.

    Raises:
        DataError: the data are missing, or lack a split, a column or rows, or a text is missing or
            a label out of range; the message names split and row.
    """
    splits = loaded_texts(data, task)
    for split in ("train", *GLUE_TASKS[task].validation):
        for column in GLUE_TASKS[task].columns:
            text_column(splits, f"{data}, task {task}", split, column, ())
        if _LABEL not in splits[split].column_names:
            raise DataError(
                f"split {split!r} of {data!r}, task {task}, must have the column {_LABEL!r}; it "
                f"has {', '.join(map(repr, splits[split].column_names))}"
            )
        _labels(splits, data, task, split)
    return splits


def examples(data: str, task: str, split: str, subwords: Subwords, seq_len: int) -> Examples:
    """Return a split of a task: first token, text, separator (, text, separator), labels.

    Encoded once and kept by content.

    Raises:
        DataError: as ``check``, or a text is not UTF-8; the message names split and row.
    """
    splits = check(data, task)
    settings = (_ENCODING, content_digest(data, task), task, split, subwords.digest, seq_len)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()

    def make() -> dict[str, NDArray[Any]]:
        labels = _labels(splits, data, task, split)
        encoded = list(_encoded(splits, data, task, split, subwords, seq_len))
        kind = np.uint16 if subwords.size <= 1 << 16 else np.uint32
        return {
            "tokens": np.concatenate([np.array(each, dtype=kind) for each in encoded]),
            "ends": np.cumsum([len(each) for each in encoded]),
            "labels": labels,
        }

    return Examples(**cached_arrays(f"{_ENCODING}-{key[:32]}", make))


def _encoded(
    splits: "DatasetDict", data: str, task: str, split: str, subwords: Subwords, seq_len: int
) -> Iterator[list[int]]:
    first, separator = subwords.special("first"), subwords.special("separator")
    columns = [
        texts(splits, f"{data}, task {task}", split, column) for column in GLUE_TASKS[task].columns
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


def _labels(splits: "DatasetDict", data: str, task: str, split: str) -> NDArray[Any]:
    where = f"{data}, task {task}, split {split!r}"
    if GLUE_TASKS[task].num_classes:
        return checked_labels(splits[split], _LABEL, where, GLUE_TASKS[task].num_classes)
    try:
        values = np.asarray(splits[split].data.column(_LABEL)).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: labels must be numbers ({error})") from error
    wrong = np.flatnonzero(~((values >= 0) & (values <= _LARGEST_SIMILARITY)))
    if len(wrong):
        raise DataError(
            f"{where}, row {wrong[0]}: labels must lie in 0..{_LARGEST_SIMILARITY:g}, not "
            f"{values[wrong[0]]}; a split without labels cannot be used"
        )
    return values
