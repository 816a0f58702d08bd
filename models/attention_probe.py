"""Watch a model's attention from outside: what enters each output projection.

An attention module is one that says how many heads it has, or how wide they are, and has an output
projection that is called as a module; that projection's input is [A_1 .. A_h], the heads' outputs
side by side. So it is in this project's modules, in timm's and in most of transformers'. Hooks
look on and copy: outputs stay the same to the bit, and no random number is drawn.

Tensor legend: M matrices (examples, or windows of them), N rows (tokens), D columns, H heads,
d columns of a head, S singular values.
"""

# ruff: noqa: N806  tensors carry their shape as a suffix

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from models.conditioning import LARGEST_CONDITION_NUMBER, LayerConditioning, summarised

_HEADS: Final = ("num_heads", "heads", "num_attention_heads", "n_heads")
_PROJECTIONS: Final = ("proj", "out_proj", "o_proj", "c_proj")


@contextmanager
def watching(model: nn.Module, examples: int = 32) -> Iterator["Watch"]:
    """Watch the attention of a model while the block runs.

    The first ``examples`` examples that pass through an attention layer are looked at; after them
    the layer runs unwatched. Where attention stays within windows (its leading axis is
    a multiple of the model's), one window of each example stands for it, spread evenly over the
    windows. All axes between the first and the last are tokens.

    Left out, and reported as such, are layers that compute one row alone (a class token's read),
    ``nn.MultiheadAttention``, whose one fused call leaves nothing to look at, and what
    ``torch.compile`` made, which calls no hooks.
    """
    watch = Watch(model, examples)
    try:
        yield watch
    finally:
        watch.remove()


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention module as it was found.

    Attributes:
        name: its path in the model.
        module: the module.
        projection: the linear map over the heads' outputs.
        heads: the number of heads that the module says, or None.
        head_dim: the width of a head that it says, or None.
    """

    name: str
    module: nn.Module
    projection: nn.Module
    heads: int | None
    head_dim: int | None

    def heads_among(self, columns: int) -> int | None:
        """Return how many heads share so many columns; None if they cannot do so evenly."""
        heads = self.heads or columns // (self.head_dim or columns)
        return heads if heads and columns % heads == 0 else None


def find_attention(model: nn.Module) -> list[Attention]:
    """Return a model's attention modules in its own order."""
    modules = []
    for name, module in model.named_modules():
        heads, head_dim = _stated_heads(module), _number(module, "head_dim")
        projection = None
        if heads is not None or head_dim is not None:
            projection = _linear_map(module, _PROJECTIONS)
        elif isinstance(inner := getattr(module, "self", None), nn.Module):
            # BERT and its kin in transformers: heads in one child, the projection in another.
            heads = _stated_heads(inner)
            if heads is not None:
                projection = _linear_map(getattr(module, "output", None), ("dense",))
        if projection is not None:
            modules.append(Attention(name, module, projection, heads, head_dim))
    return modules


def _stated_heads(module: nn.Module) -> int | None:
    return next((heads for name in _HEADS if (heads := _number(module, name))), None)


def _number(module: nn.Module, name: str) -> int | None:
    value = getattr(module, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _linear_map(parent: Any, names: tuple[str, ...]) -> nn.Module | None:
    for name in names:
        child = getattr(parent, name, None)
        # Known by its weight, since transformers has a linear map of its own making.
        weight = getattr(child, "weight", None)
        if isinstance(child, nn.Module) and isinstance(weight, Tensor) and weight.ndim == 2:
            return child
    return None


class Watch:
    """Hooks on a model, and what they have seen so far."""

    def __init__(self, model: nn.Module, examples: int) -> None:
        self.batch: int | None = None
        self._layers = [_Layer(attention, examples, self) for attention in find_attention(model)]
        self._handles: list[RemovableHandle] = []
        attached = [layer.attach() for layer in self._layers]
        if any(attached):
            self._handles.append(
                model.register_forward_pre_hook(self._note_batch, with_kwargs=True)
            )

    def layers(self) -> tuple[LayerConditioning, ...]:
        """Return every attention layer in the model's own order, those left out as well."""
        return tuple(layer.figures() for layer in self._layers)

    def metrics(self) -> dict[str, float | None]:
        """Return the figures of ``METRICS`` and each layer's condition number."""
        return summarised(self.layers())

    def remove(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()
        for layer in self._layers:
            layer.remove()

    def _note_batch(self, _model: nn.Module, args: Any, kwargs: Any) -> None:
        first = _first_tensor((args, kwargs))
        self.batch = len(first) if first is not None else None


def _first_tensor(content: Any) -> Tensor | None:
    if isinstance(content, Tensor):
        return content if content.ndim else None
    if isinstance(content, Mapping):
        content = tuple(content.values())
    parts = content if isinstance(content, (list, tuple)) else ()
    return next((tensor for part in parts if (tensor := _first_tensor(part)) is not None), None)


class _Layer:
    """One attention module under observation."""

    def __init__(self, attention: Attention, examples: int, watch: Watch) -> None:
        self._attention, self._num_examples, self._watch = attention, examples, watch
        self._handles: list[RemovableHandle] = []
        self._num_seen = 0
        self._left_out = "its output projection was not called"
        self._size = (0, 0)
        self._heads: int | None = None
        self._matrices, self._each_head, self._ranks = _Values(), _Values(), _Values()

    def attach(self) -> bool:
        """Begin to look, and return whether there is anything to look at."""
        module = self._attention.module
        if isinstance(module, nn.MultiheadAttention):
            # A mere hook would put it off its fast path, and so change its rounding.
            self._left_out = "nn.MultiheadAttention projects inside one fused call"
            return False
        if not any(isinstance(part, nn.MultiheadAttention) for part in module.modules()):
            self._handles.append(module.register_forward_hook(self._end))
        self._handles.append(
            self._attention.projection.register_forward_pre_hook(self._look, with_kwargs=True)
        )
        return True

    def remove(self) -> None:
        """Leave the module as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def figures(self) -> LayerConditioning:
        """Return the layer's figures, from all examples observed so far."""
        name, (rows, columns) = self._attention.name, self._size
        if not len(self._matrices):
            return LayerConditioning(name, rows, columns, self._heads, left_out=self._left_out)
        return LayerConditioning(
            name=name,
            rows=rows,
            columns=columns,
            heads=self._heads,
            num_matrices=len(self._matrices),
            condition_number=self._matrices.median(),
            condition_number_mean=self._matrices.mean(),
            condition_number_per_head=self._each_head.median(),
            capped_share=self._matrices.share_of(LARGEST_CONDITION_NUMBER),
            effective_rank=self._ranks.median(),
        )

    def _picked(self, leading: int) -> list[int]:
        """Return the entries of a leading axis to look at, one for each example still wanted."""
        batch = self._watch.batch or leading
        windows, remainder = divmod(leading, batch)
        if remainder or not windows:
            batch, windows = leading, 1
        first = self._num_seen
        return [
            index * windows + (first + index) * windows // self._num_examples
            for index in range(min(batch, self._num_examples - first))
        ]

    def _end(self, *_call: Any) -> None:
        if self._num_seen >= self._num_examples:
            self.remove()

    @torch.no_grad()
    def _look(self, _projection: nn.Module, args: Any, kwargs: Any) -> None:
        outputs = _first_tensor((args, kwargs))
        if outputs is None or not (picked := self._picked(len(outputs))):
            return
        self._num_seen += len(picked)
        outputs_MND = outputs[picked].reshape(len(picked), -1, outputs.shape[-1])
        if outputs_MND.shape[1] == 1:
            self._left_out = "it computes a single row of each example"
            return
        self._size = (outputs_MND.shape[1], outputs_MND.shape[2])
        self._heads = self._attention.heads_among(outputs_MND.shape[2])
        with torch.autocast(outputs.device.type, enabled=False):
            values_MS = singular_values(outputs_MND)
            self._matrices.add(condition_numbers(values_MS))
            self._ranks.add(effective_ranks(values_MS))
            if self._heads is not None:
                heads_MNHd = outputs_MND.view(*outputs_MND.shape[:2], self._heads, -1)
                self._each_head.add(condition_numbers(singular_values(heads_MNHd.transpose(1, 2))))


class _Values:
    """Numbers gathered over batches; no figure of theirs exists if one of them does not."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, values: Tensor) -> None:
        self._values += values.flatten().tolist()

    def mean(self) -> float | None:
        return statistics.fmean(self._values) if self._all_exist() else None

    def median(self) -> float | None:
        return statistics.median(self._values) if self._all_exist() else None

    def share_of(self, value: float) -> float | None:
        return self._values.count(value) / len(self._values) if self._all_exist() else None

    def _all_exist(self) -> bool:
        return bool(self._values) and all(map(math.isfinite, self._values))


def singular_values(matrices: Tensor) -> Tensor:
    """Return the singular values of matrices (..., rows, columns), ascending, in float64.

    They are the roots of the eigenvalues of the smaller Gram matrix. In float64 these resolve
    condition numbers up to ``LARGEST_CONDITION_NUMBER`` to better than a percent, which a float32
    decomposition of the matrix itself does not, and cost less than either. NaN where a matrix is
    not finite.
    """
    matrices = matrices.double()
    is_finite = matrices.isfinite().flatten(-2).all(-1)[..., None]
    matrices = matrices.where(is_finite[..., None], 0.0)
    rows, columns = matrices.shape[-2:]
    gram = matrices @ matrices.mT if rows <= columns else matrices.mT @ matrices
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp(min=0).sqrt().where(is_finite, math.nan)


def condition_numbers(singular: Tensor) -> Tensor:
    """Return the condition numbers for singular values (..., S), ascending, the last axis gone.

    Never above ``LARGEST_CONDITION_NUMBER``, which is also that of a matrix of zeros.
    """
    smallest, largest = singular[..., 0], singular[..., -1]
    is_singular = smallest * LARGEST_CONDITION_NUMBER <= largest
    return (largest / smallest).where(~is_singular, LARGEST_CONDITION_NUMBER)


def effective_ranks(singular: Tensor) -> Tensor:
    """Return the effective ranks for singular values (..., S), the last axis gone.

    The exponential of the entropy of the singular values over their sum (Roy & Vetterli 2007, "The
    effective rank", section 2): between 1 and S, and NaN for a matrix of zeros.
    """
    shares = singular / singular.sum(-1, keepdim=True)
    entropies: Tensor = torch.special.entr(shares).sum(-1)
    return entropies.exp()
