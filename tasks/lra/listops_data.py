"""Sets of expressions: made once, kept as Parquet, read as arrays that processes share."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.listops_config import ListOpsConfig
from tasks.lra.listops_trees import WORDS, Expression, expressions
from tasks.lra.texts import Texts, concatenated, joined, numbered, read_texts
from tasks.lra.token_data import TokenTensors
from tasks.sampling import stream_seed
from tasks.sources.cache import cached_arrays, cached_folder
from tasks.sources.kept import kept
from tasks.sources.parts import cached_part, remove_parts
from tasks.sources.progress import tell

_SPLITS: Final = ("validation", "test", "train")
"""In the order they are generated, so that more training expressions leave the others alone."""

_ROUNDS: Final = 8
"""Rounds of trees drawn for a part. Part of what a seed means."""

_BARREN_PARTS: Final = 16
"""Parts in a row without a new expression, before giving up."""

_ROW_GROUP: Final = 4_000
"""Expressions that Parquet handles at once; it takes many times their size to do so."""

FIRST_ID: Final = 1
"""Token of symbol 0; 0 is padding."""


def generated(task: ListOpsConfig, data_seed: int) -> dict[str, list[Expression]]:
    """Return the expressions of every split, no two of them alike.

    They are drawn part by part, and parts drawn before an interruption are read from the cache.

    Raises:
        DataError: there are not enough different ones within the bounds, or the cache cannot be
            written.
    """
    counts = {"train": task.num_train, "validation": task.num_validation, "test": task.num_test}
    seen: set[bytes] = set()
    made: dict[str, list[Expression]] = {}
    for split in _SPLITS:
        unseen = _unseen(task, data_seed, split, seen)
        made[split] = []
        while len(made[split]) < counts[split]:
            missing = counts[split] - len(made[split])
            kept = next(unseen)[:missing]
            seen.update(expression.symbols for expression in kept)
            made[split] += kept
            tell("expressions", len(seen), sum(counts.values()))
    return made


def _unseen(
    task: ListOpsConfig, data_seed: int, split: str, seen: set[bytes]
) -> Iterator[list[Expression]]:
    """Yield the expressions of one part after the other that are not among those seen before."""
    barren = 0
    for number in itertools.count():
        part = {each.symbols: each for each in _part(task, data_seed, split, number)}
        new = [each for symbols, each in part.items() if symbols not in seen]
        barren = 0 if new else barren + 1
        if barren == _BARREN_PARTS:
            raise DataError(
                f"there are hardly more than {len(seen)} different expressions within these bounds "
                "of length, depth and arguments: loosen them, or ask for fewer expressions"
            )
        yield new


def _part(task: ListOpsConfig, data_seed: int, split: str, number: int) -> Iterator[Expression]:
    """Yield the expressions that are drawn together; some may be alike."""

    def make() -> dict[str, NDArray[np.generic]]:
        random = np.random.default_rng(stream_seed(data_seed, _SPLITS.index(split), number))
        drawn = list(
            expressions(
                random,
                min_length=task.min_length,
                max_length=task.max_length,
                max_depth=task.max_depth,
                max_args=task.max_args,
                rounds=_ROUNDS,
            )
        )
        values = np.array([each.value for each in drawn], dtype=np.uint8)
        return {**joined(each.symbols for each in drawn)._asdict(), "values": values}

    held = cached_part(_key(task, data_seed), f"{split}-{number}", make)
    for (start, end), value in zip(
        itertools.pairwise(held["offsets"].tolist()), held["values"].tolist(), strict=True
    ):
        yield Expression(held["symbols"][start:end].tobytes(), value)


def prepare(task: ListOpsConfig, data_seed: int) -> Path:
    """Return the folder with one Parquet file a split, made if it is missing; parts drawn before
    an interruption are kept.

    Columns: ``tokens`` (list of the tokens 1 to 15, without padding) and ``label`` (0 to 9). The
    words that the tokens stand for are in the file's metadata, separated by blanks.

    Raises:
        DataError: there are not enough expressions, or the cache cannot be written.
    """

    def write(folder: Path) -> None:
        for split, made in generated(task, data_seed).items():
            _write(folder / f"{split}.parquet", made)

    folder = cached_folder(_key(task, data_seed), write)
    remove_parts(_key(task, data_seed))
    return folder


@kept(most=2)
def load(task: ListOpsConfig, data_seed: int, device: torch.device) -> TokenTensors:
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
    labels = {split: held[split].astype(np.int64) for split in _SPLITS}
    return TokenTensors(
        read_texts(held),
        numbered(labels),
        spec=task.spec(),
        first_id=FIRST_ID,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


def _key(task: ListOpsConfig, data_seed: int) -> str:
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
    parquet.write_table(table, path, compression="zstd", row_group_size=_ROW_GROUP)


def _read(path: Path) -> tuple[Texts, NDArray[np.int64]]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path).combine_chunks()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(
            f"{path} is damaged ({error}); delete its folder to have it made again"
        ) from error
    tokens = table["tokens"].chunk(0)
    offsets = tokens.offsets.to_numpy()
    symbols = tokens.values.to_numpy() - np.uint8(FIRST_ID)
    return Texts(symbols, offsets.astype(np.int64)), table["label"].to_numpy().astype(np.int64)
