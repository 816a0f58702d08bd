"""Sets of expressions: made once, kept as Parquet, read as arrays that processes share."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.listops import ListOps
from tasks.lra.listops_trees import WORDS, Expression, expressions
from tasks.lra.texts import Examples, Splits, Texts, concatenated, joined, one_text_each
from tasks.lra.token_data import TokenTensors
from tasks.sampling import stream_seed
from tasks.sources.cache import cached_arrays, cached_folder

_SPLITS: Final = ("validation", "test", "train")
"""In the order they are generated, so that more training expressions leave the others alone."""

_PATIENCE: Final = 100_000
"""Expressions in a row that are like earlier ones, before giving up."""

FIRST_ID: Final = 1
"""Token of symbol 0; 0 is padding."""


def generated(task: ListOps, data_seed: int) -> dict[str, list[Expression]]:
    """Return the expressions of every split, no two of them alike.

    Raises:
        DataError: there are not enough different ones within the bounds.
    """
    counts = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    seen: set[bytes] = set()
    made = {}
    for stream, split in enumerate(_SPLITS):
        random = np.random.default_rng(stream_seed(data_seed, stream))
        stream_of_trees = expressions(
            random,
            min_length=task.min_length,
            max_length=task.max_length,
            max_depth=task.max_depth,
            max_args=task.max_args,
        )
        made[split] = [_unseen(stream_of_trees, seen) for _ in range(counts[split])]
    return made


def _unseen(found: Iterator[Expression], seen: set[bytes]) -> Expression:
    for _, expression in zip(range(_PATIENCE), found, strict=False):
        if expression.symbols not in seen:
            seen.add(expression.symbols)
            return expression
    raise DataError(
        f"there are hardly more than {len(seen)} different expressions within these bounds of "
        "length, depth and arguments: loosen them, or ask for fewer expressions"
    )


def prepare(task: ListOps, data_seed: int) -> Path:
    """Return the folder with one Parquet file a split, made if it is missing.

    Columns: ``tokens`` (list of the tokens 1 to 15, without padding) and ``label`` (0 to 9). The
    words that the tokens stand for are in the file's metadata, separated by blanks.

    Raises:
        DataError: there are not enough expressions, or the cache cannot be written.
    """

    def write(folder: Path) -> None:
        for split, made in generated(task, data_seed).items():
            _write(folder / f"{split}.parquet", made)

    return cached_folder(_key(task, data_seed), write)


@functools.lru_cache(maxsize=2)
def load(task: ListOps, data_seed: int, device: torch.device) -> TokenTensors:
    """Return the expressions on ``device``; the last two sets are kept for reuse.

    Raises:
        DataError: as ``prepare``, or a file is damaged.
    """

    def arrays() -> dict[str, NDArray[np.generic]]:
        folder = prepare(task, data_seed)
        read = [_read(folder / f"{split}.parquet") for split in _SPLITS]
        texts = concatenated(part for part, _ in read)
        labels = {split: part for split, (_, part) in zip(_SPLITS, read, strict=True)}
        return {"symbols": texts.symbols, "offsets": texts.offsets, **labels}

    held = cached_arrays(f"{_key(task, data_seed)}-arrays", arrays)
    examples: dict[str, Examples] = {}
    first = 0
    for split in _SPLITS:
        examples[split] = one_text_each(first, held[split].astype(np.int64))
        first += len(held[split])
    return TokenTensors(
        Splits(
            Texts(held["symbols"], held["offsets"]),  # type: ignore[arg-type]
            examples["train"],
            examples["validation"],
            examples["test"],
        ),
        spec=task.spec(),
        first_id=FIRST_ID,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


def _key(task: ListOps, data_seed: int) -> str:
    return f"listops-{task.set_digest()[:24]}-{data_seed}"


def _write(path: Path, made: list[Expression]) -> None:
    import pyarrow
    from pyarrow import parquet

    texts = joined(expression.symbols for expression in made)
    columns = {
        "tokens": pyarrow.LargeListArray.from_arrays(texts.offsets, texts.symbols + FIRST_ID),
        "label": pyarrow.array([expression.value for expression in made], pyarrow.uint8()),
    }
    words = {"words": " ".join(WORDS), "first_token": str(FIRST_ID)}
    table = pyarrow.table(columns).replace_schema_metadata(words)
    parquet.write_table(table, path, compression="zstd")


def _read(path: Path) -> tuple[Texts, NDArray[np.int64]]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path).combine_chunks()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(
            f"{path} is damaged ({error}); delete its folder to have it made anew"
        ) from error
    tokens = table["tokens"].chunk(0)
    offsets = tokens.offsets.to_numpy()
    symbols = tokens.values.to_numpy() - np.uint8(FIRST_ID)
    return Texts(symbols, offsets.astype(np.int64)), table["label"].to_numpy().astype(np.int64)
