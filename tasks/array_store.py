"""The arrays of this process's tasks, by the hash of their content, and how they are read.

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

IGNORED: Final = -100
"""The class of what has none, which torch's losses leave out."""

_SENT_WHOLE: Final = 1 << 20
"""Bytes of arrays up to which they go with their task."""
_SPLIT_SEED: Final = 0
_ARRAYS: Final[dict[str, dict[str, Array]]] = {}


class Part(NamedTuple):
    """Examples to train or to validate on: an array for each input of the model, and targets."""

    inputs: tuple[Array, ...]
    targets: Array


def put(arrays: Mapping[str, Array]) -> str:
    """Keep arrays, and return the hash of their names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    content = digest.hexdigest()
    _ARRAYS[content] = dict(arrays)
    return content


def arrays_of(content: str) -> dict[str, Array]:
    """Return the arrays of a hash.

    Raises:
        DataError: neither this process nor the cache folder has them.
    """
    if content not in _ARRAYS:

        def missing() -> dict[str, Array]:
            raise DataError(
                f"the arrays {content[:12]} of the sweep are not in the cache folder of this "
                "machine; set HSWEEP_CACHE to a folder that all machines of the study share"
            )

        _ARRAYS[content] = cached_arrays(f"arrays-{content}", missing)
    return _ARRAYS[content]


def to_send(content: str) -> dict[str, Array] | None:
    """Return arrays that go with their task; larger ones are written to the cache folder.

    Raises:
        DataError: that cannot be written.
    """
    arrays = arrays_of(content)
    if sum(array.nbytes for array in arrays.values()) <= _SENT_WHOLE:
        return arrays
    cached_arrays(f"arrays-{content}", lambda: arrays)
    return None


def examples(content: str, num_inputs: int, validation: float | None) -> tuple[Part, Part]:
    """Return the examples to train on and those to validate on.

    Args:
        content: hash of the arrays.
        num_inputs: of the model.
        validation: the share that is held out, of each class where targets are classes; None where
            there are others to validate on.
    """
    arrays = arrays_of(content)
    names = [f"x{number}" for number in range(num_inputs)]
    all_examples = Part(tuple(arrays[name] for name in names), arrays["y"])
    if validation is None:
        validation_inputs = tuple(arrays[f"validation_{name}"] for name in names)
        return all_examples, Part(validation_inputs, arrays["validation_y"])
    rows = held_out(all_examples.targets, validation)
    train, held_out_part = (
        Part(
            tuple(array[part_rows] for array in all_examples.inputs),
            all_examples.targets[part_rows],
        )
        for part_rows in (~rows, rows)
    )
    return train, held_out_part


def by_name(inputs: Iterable[Array], targets: Array, prefix: str) -> dict[str, Array]:
    """Return the arrays of examples by the names under which ``put`` keeps them."""
    arrays = {f"{prefix}x{number}": array for number, array in enumerate(inputs)}
    return arrays | {f"{prefix}y": targets}


def of_constant(metric: str, targets: Array) -> float:
    """Return what the best constant scores on targets, by the name of a metric."""
    if metric == "top1":
        classes = targets[targets != IGNORED]
        return float(np.unique(classes, return_counts=True)[1].max() / classes.size)
    if metric == "nmse":
        return 1.0
    numbers = targets.astype(np.float64)
    if metric == "mae":
        return float(np.abs(numbers - np.median(numbers, axis=0)).mean())
    return float(np.square(numbers - numbers.mean(axis=0)).mean())


def held_out(targets: Array, share: float) -> NDArray[np.bool_]:
    """Return which examples are held out: a share of all, or of each class."""
    random = np.random.default_rng(_SPLIT_SEED)
    mask = np.zeros(len(targets), dtype=bool)
    is_classified = targets.dtype.kind == "i" and targets.ndim == 1
    groups = [np.flatnonzero(targets == target) for target in np.unique(targets)]
    # Of a class with few examples a share may be none.
    if not is_classified or not all(round(share * len(group)) for group in groups):
        groups = [np.arange(len(targets))]
    for group in groups:
        mask[random.permutation(group)[: round(share * len(group))]] = True
    return mask


def read_examples(x: Any, y: Any, prefix: str) -> tuple[dict[str | int, Array], Array]:
    """Return the inputs of ``tasks.arrays`` by the names of the model's arguments, and the targets,
    as arrays of few types.

    Raises:
        ValueError: they are no arrays, do not go together, or hold what cannot be learned from; the
            message calls them ``{prefix}x`` and ``{prefix}y``.
    """
    if y is None:
        x, y = _of_dataset(x, prefix)
    if isinstance(x, Mapping):
        columns: dict[str | int, Any] = {str(name): column for name, column in x.items()}
    else:
        columns = dict(enumerate(x if isinstance(x, tuple) else (x,)))
    if not columns:
        raise ValueError(f"{prefix}x holds no array")
    targets = _array(y, f"{prefix}y", is_target=True)
    inputs = {}
    for name, column in columns.items():
        label = f"{prefix}x" if len(columns) == 1 else f"{prefix}x[{name!r}]"
        inputs[name] = _array(column, label)
        if len(inputs[name]) != len(targets):
            raise ValueError(
                f"{label} has {len(inputs[name]):,} examples and {prefix}y {len(targets):,}; "
                "examples are counted along the first dimension"
            )
    return inputs, targets


def _of_dataset(dataset: Any, prefix: str) -> tuple[Any, Any]:
    """Return the examples of a ``torch.utils.data.Dataset``, read one by one."""
    is_array = hasattr(dataset, "dtype") or isinstance(dataset, str | Mapping | tuple | list)
    if is_array or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ValueError(
            f"{prefix}y is missing: give arrays(x, y), or arrays(dataset) with a Dataset of pairs"
        )
    pairs = [dataset[row] for row in range(len(dataset))]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"an example of the {prefix}data set is a pair (x, y), not {type(pair).__name__}"
            )
    if not pairs:
        raise ValueError(f"the {prefix}data set is empty")
    if not np.array_equal(np.asarray(pairs[0][0]), np.asarray(dataset[0][0])):
        raise ValueError(
            f"the {prefix}data set gives another first example when it is asked again, as with a "
            "random transform, and arrays stay as they are: leave the transform out, or write a "
            "task of your own"
        )
    x, y = (np.stack([np.asarray(part) for part in column]) for column in zip(*pairs, strict=True))
    return x, y


def _array(value: Any, label: str, *, is_target: bool = False) -> Array:
    """Return a tensor, array or list as an array of float32, int64 or, of inputs, bool."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{label} is no array: {error}") from None
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{label} holds no examples")
    if array.dtype.kind in "iu" or (array.dtype.kind == "b" and is_target):
        integers = array.astype(np.int64)
        if is_target and (lowest := integers[integers != IGNORED].min(initial=0)) < 0:
            raise ValueError(
                f"{label} holds the class {lowest}; classes are 0, 1, ..., and {IGNORED} where "
                "there is none"
            )
        return integers
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind != "f":
        raise ValueError(f"{label} must hold numbers, not {array.dtype}")
    numbers = array.astype(np.float32)
    if len(bad_places := np.argwhere(~np.isfinite(numbers))):
        place = tuple(map(int, bad_places[0]))
        raise ValueError(
            f"{label} holds {numbers[place]} at {list(place)}; replace it, or leave the example out"
        )
    return numbers


def check_alike(train: Mapping[Any, Array], validation: Mapping[Any, Array]) -> None:
    """Check that examples to validate on are like those to train on.

    Raises:
        ValueError: they are not.
    """
    for name, train_array in train.items():
        validation_array = validation.get(name)
        if validation_array is None or (train_array.dtype, train_array.shape[1:]) != (
            validation_array.dtype,
            validation_array.shape[1:],
        ):
            validation_kind = (
                "none"
                if validation_array is None
                else f"{validation_array.dtype} of shape {validation_array.shape[1:]}"
            )
            label = "x" if name == 0 else name if name == "y" else f"x[{name!r}]"
            raise ValueError(
                f"an example's {label} is {train_array.dtype} of shape {train_array.shape[1:]}, "
                f"and that of an example to validate on must be like it, not {validation_kind}"
            )
