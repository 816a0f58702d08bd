"""Classifying texts read byte by byte: film reviews (IMDB) in the Long Range Arena."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.fields import at_least
from tasks.base import DataError, Metric, not_in_key
from tasks.language.text_data import TextColumn
from tasks.lra.texts import (
    Examples,
    Texts,
    check_share,
    hold_out,
    join_texts,
    number_texts,
    texts_in,
)
from tasks.lra.tokens import BYTE_VOCABULARY, BytesTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.sources.cache import cached_arrays, content_key
from tasks.sources.digest import definition_digest
from tasks.sources.hub import content_digest, place
from tasks.sources.progress import report_progress
from tasks.sources.tables import read_table, split_or_share

_VERSION: Final = "1"
_READING: Final = "byte-text-2"
"""To be changed with the code that reads, so that arrays read before are not used again."""


@dataclass(frozen=True, slots=True)
class ByteText(BytesTask):
    """Classify texts by their UTF-8 bytes, as the Long Range Arena (arXiv 2011.04006) does with
    the IMDB reviews.

    The benchmark has no development set and chooses models by the test set. Here a share of each
    class of the training split is held out instead; the data seed decides which texts, so that all
    shapes of a replicate share them.

    Batches are pairs (x, y): x of shape (batch, seq_len), int64, each byte plus one and 0 for
    padding, and labels y of shape (batch,), int64. A model maps x to logits (batch, num_classes).

    Attributes:
        data: a folder in a hub layout, or a hub name (downloaded only if HSWEEP_HUB is 1).
        num_classes: classes; compared with the data's labels.
        validation: share of each class of the training split to validate on, in (0, 1), or the
            name of a split.
        test: name of the test split; None for no test accuracy.
        config: configuration (subset) name of the data set.
        text_column: column of texts.
        label_column: column of labels.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("stanfordnlp/imdb")
    num_classes: int = 2
    validation: str | float = 0.1
    test: str | None = "test"
    config: str | None = None
    text_column: str = "text"
    label_column: str = "label"

    name = "byte_text"

    def __post_init__(self) -> None:
        self.settle(data=place(), num_classes=at_least(2), validation=split_or_share())

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, self.num_classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation texts (main), on test and training ones, and losses."""
        return token_metrics(even_shares(self.num_classes), with_test=self.test is not None)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of the data's file names, sizes and contents."""
        digest = content_digest(self.data, self.config)
        _splits(self, digest)
        return definition_digest(self, _VERSION, digest)

    def examples(self, data_seed: int) -> tuple[Texts, dict[str, Examples]]:
        """Return the texts of all splits, one split after the other, in memory that processes
        share, and the examples by role."""
        content = content_digest(self.data, self.config)
        splits = _splits(self, content)
        examples = number_texts({role: split.labels for role, split in splits.items()})
        if isinstance(self.validation, float):
            examples["train"], examples["validation"] = hold_out(
                examples["train"], self.validation, data_seed, f"{self.data}, split 'train'"
            )

        def read() -> Iterator[bytes]:
            total = sum(len(split.labels) for split in splits.values())
            count = 0
            for split in splits.values():
                for batch in split.texts.read():
                    for text in batch:
                        yield text.encode()[: self.bytes_read]
                        count += 1
                        report_progress("texts", count, total, interval=1_000)

        names = [split.texts.split for split in splits.values()]
        key = content_key(_READING, content, self.config, names, self.text_column, self.bytes_read)
        return texts_in(cached_arrays(key, lambda: join_texts(read())._asdict())), examples


class _Split(NamedTuple):
    """A split that was checked: its texts, read from disk when asked for, and labels, (n,)."""

    texts: TextColumn
    labels: NDArray[np.int64]


@functools.lru_cache(maxsize=4)
def _splits(task: ByteText, _digest: str) -> dict[str, _Split]:
    """Return the splits of a task by role: train, validation (if it is a split), test."""
    names = {"train": "train"}
    if isinstance(task.validation, str):
        names["validation"] = task.validation
    if task.test is not None:
        names["test"] = task.test
    table = read_table(task.data, task.config)
    splits = {}
    for role, name in names.items():
        texts = TextColumn.find(table, name, [task.text_column], "text_column")
        texts.check()
        _refuse_empty(texts)
        table.find_column(name, [task.label_column], "label", "label_column")
        splits[role] = _Split(texts, table.labels(name, task.label_column, task.num_classes))
    if isinstance(task.validation, float):
        check_share(splits["train"].labels, task.validation, f"{task.data}, split 'train'")
    return splits


def _refuse_empty(texts: TextColumn) -> None:
    from pyarrow import compute

    column = texts.table.splits[texts.split].data.column(texts.name)
    row = compute.index(compute.binary_length(column), 0).as_py()
    if row >= 0:
        where = texts.table.row_name(texts.split, row)
        raise DataError(f"{where}: the text is empty; remove the row")
