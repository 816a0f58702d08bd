"""Texts as vectors without a model: a random vector for each word, the same everywhere."""

import functools
import hashlib
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

WORDS: Final = "words"
"""The name that it has among encoders."""
WORDS_WIDTH: Final = 384
WORDS_VERSION: Final = "words-1"


def word_mean_vectors(texts: Sequence[str], *, max_tokens: int) -> NDArray[np.float32]:
    """Return the sum of each text's word vectors over the root of their number.

    A word's vector has entries of 1 and -1 that its hash decides: a random projection of the bag
    of words (Achlioptas 2003, "Database-friendly random projections", theorem 1.1), which nearly
    keeps the angles between texts.

    Args:
        texts: of any length; cut to ``max_tokens`` words. One without a word is all zeros.
        max_tokens: words of a text that count.

    Returns:
        (texts, ``WORDS_WIDTH``), float32.
    """
    vectors = np.zeros((len(texts), WORDS_WIDTH), np.float32)
    for row, text in enumerate(texts):
        words = re.findall(r"\w+", text.casefold())[:max_tokens]
        for word in words:
            vectors[row] += _vector(word)
        vectors[row] /= max(len(words), 1) ** 0.5
    return vectors


@functools.lru_cache(maxsize=100_000)
def _vector(word: str) -> NDArray[np.float32]:
    digest = hashlib.shake_256(word.encode()).digest(WORDS_WIDTH // 8)
    bits = np.unpackbits(np.frombuffer(digest, np.uint8))
    return np.where(bits, np.float32(1), np.float32(-1))
