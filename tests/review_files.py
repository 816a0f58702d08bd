"""Small sets of texts in the hub's layout, written by the tests that read them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow
from pyarrow import parquet

WORDS = ("good", "bad", "long", "short", "dull", "bright", "rêve")


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 12 words, no two alike."""
    return [
        " ".join(WORDS[(row * 7 + seed + place) % len(WORDS)] for place in range(1 + row % 12))
        + f" {seed}{row}"
        for row in range(count)
    ]


def write_texts(
    folder: Path,
    split: str,
    rows: Sequence[str | bytes | None],
    labels: Sequence[int],
    columns: tuple[str, str] = ("text", "label"),
) -> None:
    """Write one split; bytes are written as they are, and called a text."""
    encoded = [row.encode() if isinstance(row, str) else row for row in rows]
    binary = pyarrow.array(encoded, pyarrow.binary())
    held = pyarrow.Array.from_buffers(pyarrow.string(), len(binary), binary.buffers())
    folder.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({columns[0]: held, columns[1]: pyarrow.array(labels, pyarrow.int64())})
    parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
