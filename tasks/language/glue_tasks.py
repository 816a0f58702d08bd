"""GLUE's tasks: their examples as tokens and labels, and their scores."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.subwords import Subwords
from tasks.language.text_data import TextColumn
from tasks.sampling import seeded_globals
from tasks.sources.cache import cached_arrays, content_key
from tasks.sources.hub import content_digest
from tasks.sources.tables import Table, read_table

Score = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]

_ENCODING: Final = "glue-1"
"""To be changed with the code that encodes, so that examples encoded before are not used again."""
_LABEL: Final = "label"
_LARGEST_SIMILARITY: Final = 5.0


@dataclass(frozen=True, slots=True)
class GlueTask:
    """One of GLUE's tasks (Wang et al. 2019, arXiv 1804.07461, table 1).

    Attributes:
        columns: the text, or the two texts.
        num_classes: classes; 0 for a number to predict.
        scores: GLUE's scores for it, the first of which counts in the average.
        validation: splits to validate on.
    """

    columns: tuple[str, ...]
    num_classes: int
    scores: tuple[Score, ...]
    validation: tuple[str, ...] = ("validation",)


GLUE_TASKS: Final = {
    "cola": GlueTask(("sentence",), 2, ("matthews",)),
    "sst2": GlueTask(("sentence",), 2, ("accuracy",)),
    "mrpc": GlueTask(("sentence1", "sentence2"), 2, ("f1", "accuracy")),
    "qqp": GlueTask(("question1", "question2"), 2, ("f1", "accuracy")),
    "stsb": GlueTask(("sentence1", "sentence2"), 0, ("pearson", "spearman")),
    "mnli": GlueTask(
        ("premise", "hypothesis"), 3, ("accuracy",), ("validation_matched", "validation_mismatched")
    ),
    "qnli": GlueTask(("question", "sentence"), 2, ("accuracy",)),
    "rte": GlueTask(("sentence1", "sentence2"), 2, ("accuracy",)),
    "wnli": GlueTask(("sentence1", "sentence2"), 2, ("accuracy",)),
}
EIGHT_TASKS: Final = tuple(name for name in GLUE_TASKS if name != "wnli")
"""Those that paper L and Cramming report: WNLI's splits contradict each other."""


def metric_name(task: str, split: str, score: str) -> str:
    """Return what a score is called in reports, for example ``mrpc_f1``.

    MNLI's second validation set is ``mnli_mismatched_accuracy``.
    """
    middle = "mismatched_" if split.endswith("_mismatched") else ""
    return f"{task}_{middle}{score}"


def scored(score: Score, predicted: NDArray[np.generic], truth: NDArray[np.generic]) -> float:
    """Return a score of predictions, at most 1.

    Accuracy; F1 of class 1; Matthews's correlation (all of classes); Pearson's and Spearman's (of
    numbers). A score that is not defined, because predictions or truth do not vary, is 0: nothing
    was told apart.

    Args:
        score: which one.
        predicted: (n,).
        truth: (n,).
    """
    from scipy import stats

    with seeded_globals(0):  # the first import draws from a global generator
        from sklearn import metrics

    if score == "accuracy":
        return float(np.mean(predicted == truth))
    if score == "f1":
        return float(metrics.f1_score(truth, predicted, zero_division=0.0))
    if _constant(predicted) or _constant(truth):
        return 0.0
    if score == "matthews":
        return float(metrics.matthews_corrcoef(truth, predicted))
    correlation: Any = stats.pearsonr if score == "pearson" else stats.spearmanr
    return float(correlation(predicted, truth).statistic)


def _constant(values: NDArray[np.generic]) -> bool:
    return bool((values == values[0]).all())


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
    table = read_table(data, task)
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
            "tokens": np.concatenate([np.array(tokens, dtype=kind) for tokens in encoded]),
            "ends": np.cumsum([len(tokens) for tokens in encoded]),
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


def _shortened(parts: list[list[int]], limit: int) -> list[list[int]]:
    """Return the parts with at most ``limit`` tokens in all, the longest cut first."""
    lengths = [len(part) for part in parts]
    while sum(lengths) > limit:
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
