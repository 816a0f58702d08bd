"""Texts of different lengths as one array, and examples made of them.

Symbols are bytes: of a text, of a row of pixels, or numbers that stand for words. Arrays like these
are memory-mapped, so processes of one machine share them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError


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


def joined(pieces: Iterable[bytes]) -> Texts:
    """Return the given texts as one array."""
    held = list(pieces)
    lengths = np.fromiter(map(len, held), dtype=np.int64, count=len(held))
    symbols = np.frombuffer(bytearray().join(held), dtype=np.uint8)
    return Texts(symbols, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))


def of_equal_length(symbols: NDArray[np.uint8]) -> Texts:
    """Return the rows of (n, length) as texts, without copying them."""
    count, length = symbols.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return Texts(cast(NDArray[np.uint8], symbols.reshape(-1)), offsets)


def read_texts(arrays: Mapping[str, NDArray[np.generic]]) -> Texts:
    """Return the texts kept as arrays ``symbols`` and ``offsets``."""
    return Texts(
        cast(NDArray[np.uint8], arrays["symbols"]), cast(NDArray[np.int64], arrays["offsets"])
    )


def numbered(labels: Mapping[str, NDArray[np.int64]]) -> dict[str, Examples]:
    """Return examples of one text each, by role; the texts of one role follow those before it."""
    examples = {}
    first = 0
    for role, of_role in labels.items():
        texts = np.arange(first, first + len(of_role), dtype=np.int64)
        examples[role] = Examples(texts[:, None], of_role)
        first += len(of_role)
    return examples


def check_share(labels: NDArray[np.int64], share: float, where: str) -> None:
    """See to it that a share of each class, rounded to whole examples, is neither none nor all.

    Args:
        labels: of what is divided, (n,).
        share: of each class, in (0, 1).
        where: how to name the examples in a message.

    Raises:
        DataError: it is.
    """
    _, counts = np.unique(labels, return_counts=True)
    apart = sum(round(share * count) for count in counts.tolist())
    if apart in (0, len(labels)):
        raise DataError(
            f"{where} has {len(labels)} rows: holding out {share} of each class leaves none "
            f"{'to train on' if apart else 'to hold out'}; change that share"
        )


def concatenated(parts: Iterable[Texts]) -> Texts:
    """Return the texts of all parts, in order."""
    held = list(parts)
    shifts = np.cumsum([0, *(part.offsets[-1] for part in held)])
    offsets = [part.offsets[:-1] + shift for part, shift in zip(held, shifts, strict=False)]
    return Texts(
        np.concatenate([part.symbols for part in held]),
        np.concatenate([*offsets, shifts[-1:]]).astype(np.int64),
    )
