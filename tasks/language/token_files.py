"""Texts as one long line of tokens: made once, memory-mapped and shared by all trials of a node."""

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.language.subwords import Subwords
from tasks.language.text_data import Corpus, Part
from tasks.sources.cache import cached_folder

Tokens = NDArray[np.unsignedinteger[Any]]

_TOKENISING: Final = "tokens-1"
"""To be changed with the code that tokenises, so that files made before are not used again."""


def token_line(
    corpus: Corpus, part: Part, subwords: Subwords, *, end: int | None = None, ending: str = ""
) -> Tokens:
    """Return the tokens of all documents of a corpus, one document after the other.

    Args:
        corpus: the documents.
        part: which of them.
        subwords: the tokenizer.
        end: token put after each document; None for none.
        ending: text put after each document before it is tokenised.

    Returns:
        (tokens,), uint16 or, where that is too small for the tokenizer, uint32; memory-mapped copy
        on write.

    Raises:
        DataError: the corpus is missing, unusable or without tokens, or the cache cannot be
            written or is damaged.
    """
    settings = (_TOKENISING, corpus.digest(), part, subwords.digest, end, ending)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()
    kind = np.dtype(np.uint16 if subwords.size <= 1 << 16 else np.uint32)

    def write(folder: Path) -> None:
        count = 0
        # The name, given at the end, says what to expect.
        unfinished = folder / "tokens"
        with unfinished.open("wb") as file:
            for batch in corpus.documents(part):
                for tokens in subwords.encode([text + ending for text in batch]):
                    line = np.array(tokens if end is None else [*tokens, end], dtype=kind)
                    file.write(line.tobytes())
                    count += len(line)
        if not count:
            raise DataError(f"the texts of {corpus.data!r} for {part} have no tokens")
        unfinished.rename(folder / f"{count}.{kind.name}")

    folder = cached_folder(f"{_TOKENISING}-{key[:32]}", write)
    found = next(folder.glob(f"*.{kind.name}"), None)
    if found is None or found.stat().st_size != int(found.stem) * kind.itemsize:
        raise DataError(f"{folder} is damaged; delete it to have it made anew")
    return np.memmap(found, dtype=kind, mode="c")


def evenly_spaced(count: int, most: int | None) -> NDArray[np.int64]:
    """Return at most ``most`` of the numbers 0, ..., count - 1, ascending and evenly spaced."""
    chosen = count if most is None else min(count, most)
    return np.arange(chosen, dtype=np.int64) * count // max(chosen, 1)
