"""What ``tasks.arrays`` is given, as arrays of few types, or refused in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.array_store import Array


def given_examples(x: Any, y: Any, what: str) -> tuple[dict[str | int, Array], Array]:
    """Return the inputs by what they are called, and the targets."""
    if y is None:
        x, y = _of_dataset(x, what)
    if isinstance(x, Mapping):
        columns: dict[str | int, Any] = {str(name): column for name, column in x.items()}
    else:
        columns = dict(enumerate(x if isinstance(x, tuple) else (x,)))
    if not columns:
        raise ValueError(f"{what}x holds no array")
    targets = _array(y, f"{what}y", is_target=True)
    found = {}
    for name, column in columns.items():
        called = f"{what}x" if len(columns) == 1 else f"{what}x[{name!r}]"
        found[name] = _array(column, called)
        if len(found[name]) != len(targets):
            raise ValueError(
                f"{called} has {len(found[name]):,} examples and {what}y {len(targets):,}; "
                "examples are counted along the first dimension"
            )
    return found, targets


def _of_dataset(dataset: Any, what: str) -> tuple[Any, Any]:
    """Return the examples of a ``torch.utils.data.Dataset``, read one by one."""
    is_array = hasattr(dataset, "dtype") or isinstance(dataset, str | Mapping | tuple | list)
    if is_array or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ValueError(
            f"{what}y is missing: give arrays(x, y), or arrays(dataset) with a Dataset of pairs"
        )
    pairs = [_pair(dataset[row], what) for row in range(len(dataset))]
    if not pairs:
        raise ValueError(f"the {what}data set is empty")
    if not np.array_equal(np.asarray(pairs[0][0]), np.asarray(dataset[0][0])):
        raise ValueError(
            f"the {what}data set gives another first example when it is asked again, as with a "
            "random transform, and arrays stay as they are: leave the transform out, or write a "
            "task of your own"
        )
    x, y = zip(*pairs, strict=True)
    return np.stack([np.asarray(each) for each in x]), np.stack([np.asarray(each) for each in y])


def _pair(item: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(
            f"an example of the {what}data set is a pair (x, y), not {type(item).__name__}"
        )
    return item[0], item[1]


def _array(value: Any, what: str, *, is_target: bool = False) -> Array:
    """Return a tensor, array or list as an array of float32, int64 or, of inputs, bool."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{what} is no array: {error}") from None
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{what} holds no examples")
    if array.dtype.kind in "iu" or (array.dtype.kind == "b" and is_target):
        whole = array.astype(np.int64)
        if is_target and whole.min() < 0:
            raise ValueError(f"{what} holds the class {whole.min()}; classes are 0, 1, ...")
        return whole
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind != "f":
        raise ValueError(f"{what} must hold numbers, not {array.dtype}")
    numbers = array.astype(np.float32)
    if len(odd := np.argwhere(~np.isfinite(numbers))):
        place = tuple(map(int, odd[0]))
        raise ValueError(
            f"{what} holds {numbers[place]} at {list(place)}; replace it, or leave the example out"
        )
    return numbers


def refuse_unlike(ones: Mapping[Any, Array], others: Mapping[Any, Array]) -> None:
    """Refuse examples to validate on that are unlike those to train on."""
    for name, one in ones.items():
        other = others.get(name)
        if other is None or (one.dtype, one.shape[1:]) != (other.dtype, other.shape[1:]):
            found = "none" if other is None else f"{other.dtype} of shape {other.shape[1:]}"
            called = "x" if name == 0 else name if name == "y" else f"x[{name!r}]"
            raise ValueError(
                f"an example's {called} is {one.dtype} of shape {one.shape[1:]}, and that of an "
                f"example to validate on must be like it, not {found}"
            )
