"""Sets of expressions: made once, part by part, and read as arrays that processes share."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.lra.listops_trees import Expression, expressions
from tasks.lra.texts import Examples, Texts, drawn_parts, joined, numbered, read_texts
from tasks.sources.cache import Arrays, cached_arrays, remove_parts
from tasks.sources.progress import tell

if TYPE_CHECKING:
    from tasks.lra.listops import ListOps

_SPLITS: Final = ("validation", "test", "train")
"""In the order they are generated, so that more training expressions leave the others alone."""

_ROUNDS: Final = 8
"""Rounds of trees drawn for a part. Part of what a seed means."""

_BARREN_PARTS: Final = 16
"""Parts in a row without a new expression, before giving up."""


def generated(task: "ListOps", data_seed: int) -> dict[str, list[Expression]]:
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
    task: "ListOps", data_seed: int, split: str, seen: set[bytes]
) -> Iterator[list[Expression]]:
    """Yield the expressions of one part after the other that are not among those seen before."""

    def make(random: np.random.Generator) -> Arrays:
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

    barren = 0
    for part in drawn_parts(_key(task, data_seed), split, make, data_seed, _SPLITS.index(split)):
        places = itertools.pairwise(part["offsets"].tolist())
        values = part["values"].tolist()
        drawn = {
            part["symbols"][start:end].tobytes(): value
            for (start, end), value in zip(places, values, strict=True)
        }
        new = [Expression(*each) for each in drawn.items() if each[0] not in seen]
        barren = 0 if new else barren + 1
        if barren == _BARREN_PARTS:
            raise DataError(
                f"there are hardly more than {len(seen)} different expressions within these bounds "
                "of length, depth and arguments: loosen them, or ask for fewer expressions"
            )
        yield new


def prepare(task: "ListOps", data_seed: int) -> Arrays:
    """Return all expressions, made if they are missing; parts drawn before an interruption are
    kept.

    Returns:
        ``symbols`` and ``offsets`` as in ``tasks.lra.texts.Texts``, one split after the other, and
        the values of each split under its name, int64.

    Raises:
        DataError: there are not enough expressions, or the cache cannot be written.
    """

    def make() -> Arrays:
        made = generated(task, data_seed)
        texts = joined(each.symbols for split in _SPLITS for each in made[split])
        labels = {
            split: np.array([each.value for each in made[split]], dtype=np.int64)
            for split in _SPLITS
        }
        return {**texts._asdict(), **labels}

    arrays = cached_arrays(_key(task, data_seed), make)
    remove_parts(_key(task, data_seed))
    return arrays


def examples(task: "ListOps", data_seed: int) -> tuple[Texts, dict[str, Examples]]:
    """Return all expressions, and those of each role.

    Raises:
        DataError: as ``prepare``.
    """
    held = prepare(task, data_seed)
    return read_texts(held), numbered(
        {split: cast(NDArray[np.int64], held[split]) for split in _SPLITS}
    )


def _key(task: "ListOps", data_seed: int) -> str:
    return f"listops-arrays-{task.set_digest()[:24]}-{data_seed}"
