"""Nests of tensors (batches, arguments, states), walked by one function."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from tasks.base import Batch, Divisible, TaskData

Parts = Sequence[tuple[Batch, float]]
"""Parts of a batch, each with its share of the batch's loss."""

_PLAIN: Final = (bool, int, float, type(None))


def mapped(nest: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nest of dictionaries, lists, tuples and dataclasses with every leaf changed."""
    if isinstance(nest, dict):
        copied = copy.copy(nest)  # and what a dictionary of weights has beside its items
        for name, value in nest.items():
            copied[name] = mapped(value, change)
        return copied
    if isinstance(nest, tuple | list):
        values = [mapped(value, change) for value in nest]
        return type(nest)(*values) if hasattr(nest, "_fields") else type(nest)(values)
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        names = [field.name for field in dataclasses.fields(nest) if field.init]
        return dataclasses.replace(nest, **{n: mapped(getattr(nest, n), change) for n in names})
    return change(nest)


def leaves(nest: Any) -> list[Any]:
    """Return the values of a nest that are no collections, in a fixed order."""
    values: list[Any] = []

    def collect(leaf: Any) -> Any:
        values.append(leaf)
        return leaf

    mapped(nest, collect)
    return values


def moved(nest: Any, device: torch.device) -> Any:
    """Return a nest with every tensor on a device."""
    return mapped(nest, lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf)


def rows_of(nest: Any, rows: slice | Tensor) -> Any:
    """Return these rows (a slice, or int64 indices) of every tensor of a nest."""
    return mapped(nest, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) and leaf.ndim else leaf)


def num_examples(nest: Any) -> int | None:
    """Return the common first dimension of a nest's tensors.

    None where the tensors differ in it, or the nest holds an object of unknown length.
    """
    sizes: set[int | None] = set()
    for leaf in leaves(nest):
        if not isinstance(leaf, Tensor):
            sizes |= set() if isinstance(leaf, _PLAIN) else {None}
        elif leaf.ndim:
            sizes.add(len(leaf))
    return sizes.pop() if len(sizes) == 1 else None


def parts_of(data: TaskData, batch: Batch, at_once: int) -> Parts:
    """Return the parts of a batch, each of at most ``at_once`` examples and with its share of the
    loss.

    Data that are ``tasks.base.Divisible`` divide the batch themselves. Otherwise its tensors are
    cut along their common first dimension, and shares are in proportion to the numbers of examples.
    A batch without a common first dimension stays whole.
    """
    if isinstance(data, Divisible):
        return data.parts(batch, at_once)
    size = num_examples(batch)
    if size is None:
        return [(batch, 1.0)]
    return [
        (rows_of(batch, slice(start, start + at_once)), min(at_once, size - start) / size)
        for start in range(0, size, at_once)
    ]


def part_alone(value: Any) -> Any:
    """Copy a tensor that is a part of a larger one to the CPU; return any other value unchanged."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return value
    if value.untyped_storage().nbytes() <= value.nbytes:
        return value
    return value.detach().to("cpu", copy=True)
