"""Texts of different lengths as one array, and examples made of them.

Symbols are bytes: of a text, of a row of pixels, or numbers that stand for words. Arrays like these
are memory-mapped, so processes of one machine share them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sampling import held_out_rows
from tasks.sources.cache import Arrays

PADDING: Final = 0
"""The token after the last one of a text. A black pixel is 0 as well, and published models take it
for padding."""


class Texts(NamedTuple):
    """Texts, one after the other.

    Attributes:
        symbols: those of all texts, uint8.
        offsets: where each text begins, and the end of the last; (texts + 1,), int64.
    """

    symbols: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Examples(NamedTuple):
    """Classified texts or pairs of texts.

    Attributes:
        texts: numbers of the texts that make up each example, (n, texts of an example), int64.
        labels: (n,), int64.
    """

    texts: NDArray[np.int64]
    labels: NDArray[np.int64]

    def rows(self, rows: NDArray[np.int64]) -> "Examples":
        """Return the examples numbered ``rows``."""
        return Examples(self.texts[rows], self.labels[rows])


def join_texts(pieces: Iterable[bytes]) -> Texts:
    """Return pieces of text as one array."""
    texts = list(pieces)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    symbols = np.frombuffer(bytearray().join(texts), dtype=np.uint8)
    return Texts(symbols, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))


def of_equal_length(symbols: NDArray[np.uint8]) -> Texts:
    """Return the rows of (n, length) as texts, without copying them."""
    count, length = symbols.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return Texts(symbols.reshape(-1), offsets)


def texts_in(arrays: Arrays) -> Texts:
    """Return the texts that lie in arrays ``symbols`` and ``offsets``."""
    return Texts(arrays["symbols"], arrays["offsets"])


def number_texts(labels: Mapping[str, NDArray[np.int64]]) -> dict[str, Examples]:
    """Return examples of one text each, by role; the texts of one role follow those before it."""
    examples = {}
    first = 0
    for role, of_role in labels.items():
        texts = np.arange(first, first + len(of_role), dtype=np.int64)
        examples[role] = Examples(texts[:, None], of_role)
        first += len(of_role)
    return examples


def check_share(labels: NDArray[np.int64], share: float, where: str) -> None:
    """Check that a share of each class, rounded to whole examples, is neither none nor all.

    Args:
        labels: of what is divided, (n,).
        share: of each class, in (0, 1).
        where: what messages call the examples.

    Raises:
        DataError: it is.
    """
    _, counts = np.unique(labels, return_counts=True)
    num_held_out = sum(round(share * count) for count in counts.tolist())
    if num_held_out in (0, len(labels)):
        raise DataError(
            f"{where} has {len(labels)} rows: holding out {share} of each class leaves none "
            f"{'to train on' if num_held_out else 'to hold out'}; change that share"
        )


def hold_out(
    examples: Examples, share: float, data_seed: int, where: str
) -> tuple[Examples, Examples]:
    """Return the examples without a share of each class, and that share; the data seed decides
    which.

    Raises:
        DataError: one of the two would be empty; the message calls the examples ``where``.
    """
    check_share(examples.labels, share, where)
    is_held_out = held_out_rows(torch.from_numpy(examples.labels), share, data_seed).numpy()
    return examples.rows(np.flatnonzero(~is_held_out)), examples.rows(np.flatnonzero(is_held_out))
