"""The arrays of this process's tasks, by the hash of their content.

A task is sent to other processes by that hash: small arrays go with it, larger ones lie in the
cache folder, where the processes of a machine share them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sources.cache import cached_arrays

Array = NDArray[Any]

_SENT_WHOLE: Final = 1 << 20
"""Bytes of arrays up to which they go with their task."""
_SPLIT_SEED: Final = 0
_HELD: Final[dict[str, dict[str, Array]]] = {}


class Part(NamedTuple):
    """Examples to train or to validate on: an array for each input of the model, and targets."""

    inputs: tuple[Array, ...]
    targets: Array


def put(arrays: Mapping[str, Array]) -> str:
    """Hold arrays, and return the hash of their names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    content = digest.hexdigest()
    _HELD[content] = dict(arrays)
    return content


def held(content: str) -> dict[str, Array]:
    """Return the arrays of a hash.

    Raises:
        DataError: this process does not hold them, nor does the cache folder.
    """
    if content not in _HELD:

        def missing() -> dict[str, Array]:
            raise DataError(
                f"the arrays {content[:12]} of the sweep are not in the cache folder of this "
                "machine; set HSWEEP_CACHE to a folder that all machines of the study share"
            )

        _HELD[content] = cached_arrays(f"arrays-{content}", missing)
    return _HELD[content]


def to_send(content: str) -> dict[str, Array] | None:
    """Return arrays that go with their task; larger ones are written to the cache folder.

    Raises:
        DataError: that cannot be written.
    """
    arrays = held(content)
    if sum(array.nbytes for array in arrays.values()) <= _SENT_WHOLE:
        return arrays
    cached_arrays(f"arrays-{content}", lambda: arrays)
    return None


def receive(content: str, arrays: dict[str, Array] | None) -> None:
    """Hold what was sent with a task."""
    if arrays is not None:
        _HELD.setdefault(content, arrays)


def examples(content: str, num_inputs: int, validation: float | None) -> tuple[Part, Part]:
    """Return the examples to train on and those to validate on.

    Args:
        content: hash of the arrays.
        num_inputs: of the model.
        validation: the share that is held out, of each class where targets are classes; None where
            there are others to validate on.
    """
    arrays = held(content)
    names = [f"x{number}" for number in range(num_inputs)]
    whole = Part(tuple(arrays[name] for name in names), arrays["y"])
    if validation is None:
        others = tuple(arrays[f"validation_{name}"] for name in names)
        return whole, Part(others, arrays["validation_y"])
    rows = held_out(whole.targets, validation)
    return _rows(whole, ~rows), _rows(whole, rows)


def stored(inputs: Iterable[Array], targets: Array, prefix: str) -> dict[str, Array]:
    """Return examples as they are stored, by name."""
    named = {f"{prefix}x{number}": each for number, each in enumerate(inputs)}
    return named | {f"{prefix}y": targets}


def has_classes(content: str) -> bool:
    """Whether targets are classes: whole numbers."""
    return held(content)["y"].dtype.kind == "i"


def of_constant(metric: str, targets: Array) -> float:
    """Return what the best constant scores on targets, by the name of a metric."""
    if metric == "top1":
        return float(np.unique(targets, return_counts=True)[1].max() / targets.size)
    if metric == "nmse":
        return 1.0
    numbers = targets.astype(np.float64)
    if metric == "mae":
        return float(np.abs(numbers - np.median(numbers, axis=0)).mean())
    return float(np.square(numbers - numbers.mean(axis=0)).mean())


def held_out(targets: Array, part: float) -> NDArray[np.bool_]:
    """Return which examples are held out: a share of all, or of each class."""
    random = np.random.default_rng(_SPLIT_SEED)
    mask = np.zeros(len(targets), dtype=bool)
    is_classified = targets.dtype.kind == "i" and targets.ndim == 1
    groups = [np.flatnonzero(targets == each) for each in np.unique(targets)]
    # Of a class with few examples a share may be none.
    if not is_classified or not all(round(part * len(group)) for group in groups):
        groups = [np.arange(len(targets))]
    for group in groups:
        mask[random.permutation(group)[: round(part * len(group))]] = True
    return mask


def _rows(part: Part, rows: NDArray[np.bool_]) -> Part:
    return Part(tuple(each[rows] for each in part.inputs), part.targets[rows])
