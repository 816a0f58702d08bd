"""Small sets of texts in the hub's layout, written by the tests that read them."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

WORDS = ("the", "a", "cat", "dog", "fox", "sat", "ran", "saw", "big", "small", "red", "house", "it")


def sentences(count: int, seed: int = 0, words: int = 12) -> list[str]:
    """Sentences of words drawn at random, no two alike."""
    draw = random.Random(seed)
    return [
        f"Story {seed} {number}: {' '.join(draw.choices(WORDS, k=words))}."
        for number in range(count)
    ]


def write_table(folder: Path, split: str, columns: Mapping[str, Sequence[Any] | pa.Array]) -> Path:
    """Write one split of a data set in the hub's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}-00000-of-00001.parquet"
    parquet.write_table(pa.table(dict(columns)), path)
    return path


def undecodable(texts: Sequence[bytes]) -> pa.Array:
    """A column that claims to hold texts, whatever the bytes."""
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text))
    offsets = pa.array(starts, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, offsets, pa.py_buffer(b"".join(texts))]
    )


def write_tokenizer(folder: Path, tokens: Sequence[str]) -> None:
    """Write a tokenizer of whole words that has these tokens."""
    from tokenizers import Tokenizer, models

    numbers = {token: number for number, token in enumerate(tokens)}
    Tokenizer(models.WordLevel(numbers, "[UNK]")).save(str(folder / "tokenizer.json"))
