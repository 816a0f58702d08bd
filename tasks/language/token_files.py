"""Texts as one long line of tokens: made once, memory-mapped and shared by all trials of a node."""

import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sources.cache import Arrays, cached_folder, cached_part, content_key, remove_parts
from tasks.sources.progress import report_progress

if TYPE_CHECKING:
    from tasks.language.subwords import Subwords
    from tasks.language.text_data import Corpus, Part

Tokens = NDArray[np.unsignedinteger[Any]]

_TOKENISING: Final = "tokens-1"
"""To be changed with the code that tokenises, so that files made before are not used again."""

_BATCHES_A_PART: Final = 10
"""Some ten thousand documents, which take seconds."""


def token_line(
    corpus: "Corpus",
    part: "Part",
    subwords: "Subwords",
    *,
    end: int | None = None,
    ending: str = "",
) -> Tokens:
    """Return the tokens of all documents of a corpus, one document after the other.

    They are made part by part; what was made before an interruption is not made again.

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
    key = content_key(_TOKENISING, corpus.digest(), part, subwords.digest, end, ending)
    kind = np.dtype(np.uint16 if subwords.size <= 1 << 16 else np.uint32)
    last = [] if end is None else [end]

    def tokenised(texts: list[str]) -> Arrays:
        encoded = subwords.encode([text + ending for text in texts])
        lines = [np.array([*tokens, *last], dtype=kind) for tokens in encoded]
        return {"tokens": np.concatenate(lines)}

    def write(folder: Path) -> None:
        count = done = 0
        total = corpus.num_documents(part)
        documents = corpus.documents(part)
        # The name, given at the end, says what to expect.
        unfinished = folder / "tokens"
        with unfinished.open("wb") as line:
            for number in itertools.count():
                texts = [*itertools.chain(*itertools.islice(documents, _BATCHES_A_PART))]
                if not texts:
                    break
                made = cached_part(key, str(number), functools.partial(tokenised, texts))["tokens"]
                made.tofile(line)
                count += len(made)
                done += len(texts)
                report_progress(f"documents for {part}", done, total)
        if not count:
            raise DataError(f"the texts of {corpus.data!r} for {part} have no tokens")
        unfinished.rename(folder / f"{count}.{kind.name}")

    folder = cached_folder(key, write)
    remove_parts(key)
    file = next(folder.glob(f"*.{kind.name}"), None)
    if file is None or file.stat().st_size != int(file.stem) * kind.itemsize:
        raise DataError(
            f"{folder} is damaged; delete it, or run `hsweep data prepare`, to have it made again"
        )
    return np.memmap(file, dtype=kind, mode="c")


def evenly_spaced(count: int, most: int | None) -> NDArray[np.int64]:
    """Return at most ``most`` of the numbers 0, ..., count - 1, ascending and evenly spaced."""
    chosen = count if most is None else min(count, most)
    return np.arange(chosen, dtype=np.int64) * count // max(chosen, 1)
