"""How well conditioned attention is: what is measured, the theory beside it, and their names.

Paper L ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802, figure 2) follows the
condition number of each layer's attention output, averaged over layers, while a model trains. It
leaves open which matrix, which images and which mean. Here the matrix is the concatenation of the
heads' outputs [A_1 .. A_h], the one that its theorem 3.2 is about: tokens by ``heads * head_dim``,
before the output projection, one for each example. The figure of a layer is the median over
examples, that of a model the mean over layers.

Nothing here imports torch; ``models.attention_probe`` does the measuring.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.fields import settle

LARGEST_CONDITION_NUMBER: Final = 2.0**23
"""The reciprocal of float32's spacing at 1. Heads compute in float32 at best, so what lies beyond
is their rounding; such a matrix counts as singular and has this condition number."""

METRICS: Final[Mapping[str, str]] = {
    "condition_number": "median over examples, mean over layers",
    "condition_number_mean": "mean over examples, mean over layers",
    "log10_condition_number": "decimal logarithm of the median over examples, mean over layers",
    "condition_number_per_head": "of one head: median over examples and heads, mean over layers",
    "condition_number_capped": "share of the matrices that count as singular",
    "effective_rank": "median over examples, mean over layers",
    "predicted_condition_number": "of Gaussian matrices of the same sizes, mean over layers",
    "probed_layers": "layers that these are means over",
}
"""What a probe adds to a report, by name. The condition number of each layer comes beside it."""

_LAYER_PREFIX: Final = "condition_number_layer_"
PROBED_WORDS: Final = (*METRICS, _LAYER_PREFIX)
"""Texts of which every name of a probed metric holds one."""


def is_probed(name: str) -> bool:
    """Return whether a metric of this name comes from a probe."""
    return name in METRICS or name.startswith(_LAYER_PREFIX)


def layer_metric(index: int) -> str:
    """Return the name of one layer's condition number, its index counted from 0."""
    return f"{_LAYER_PREFIX}{index:02d}"


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A wish to have the conditioning of attention measured while a model trains.

    It is measured on the first examples of an evaluation, by looking on: nothing that the model
    computes changes.

    Attributes:
        every: reports from one measurement to the next; the last report always has one.
        examples: how many examples are looked at.

    Raises:
        ValueError: not a whole number of at least 1.
    """

    every: int = 5
    examples: int = 32

    def __post_init__(self) -> None:
        settle(self)

    def due(self, units: Sequence[int]) -> frozenset[int]:
        """Return those of a trial's report units that have a measurement."""
        return frozenset([*units[self.every - 1 :: self.every], *units[-1:]])


@dataclass(frozen=True, slots=True)
class LayerConditioning:
    """What was seen of one attention layer.

    Attributes:
        name: the attention module's path in the model.
        rows: tokens of an example, N. Padding counts as tokens.
        columns: ``heads * head_dim``, D.
        heads: number of heads; None if the module does not say, or if it does not divide D.
        num_matrices: how many matrices the figures are of: one an example, or one a window of
            examples where attention stays within windows.
        condition_number: the largest over the smallest of the min(N, D) singular values, the
            median over matrices; never above ``LARGEST_CONDITION_NUMBER``.
        condition_number_mean: the mean over matrices instead.
        condition_number_per_head: of the N x head_dim matrices A_i, the median over matrices and
            heads.
        capped_share: share of the matrices whose condition number is the largest there is.
        effective_rank: exponential of the Shannon entropy of the singular values over their sum
            (Roy & Vetterli 2007, "The effective rank", section 2), the median over matrices.
        left_out: why there are no figures; empty if there are.

    A figure is None where a value was not finite.
    """

    name: str
    rows: int = 0
    columns: int = 0
    heads: int | None = None
    num_matrices: int = 0
    condition_number: float | None = None
    condition_number_mean: float | None = None
    condition_number_per_head: float | None = None
    capped_share: float | None = None
    effective_rank: float | None = None
    left_out: str = ""

    @property
    def predicted_condition_number(self) -> float:
        """What a Gaussian matrix of this size would have."""
        return gaussian_condition_number(self.rows, self.columns)


def gaussian_condition_number(rows: int, columns: int) -> float:
    """Return the condition number that theory expects of a Gaussian matrix of this size.

    (sqrt(D) + sqrt(N)) / |sqrt(D) - sqrt(N)| for N x D independent entries, infinite at D = N:
    paper L, section 3, around theorem 3.2, after the bounds on the extreme singular values of
    Gaussian matrices (Vershynin 2012, arXiv 1011.3027, corollary 5.35). It depends on heads and
    their width through D = ``heads * head_dim`` alone.
    """
    gap = abs(math.sqrt(columns) - math.sqrt(rows))
    return (math.sqrt(columns) + math.sqrt(rows)) / gap if gap else math.inf


def summarised(layers: Sequence[LayerConditioning]) -> dict[str, float | None]:
    """Return the figures of ``METRICS`` and each layer's condition number.

    A mean over layers is None if there is no layer, if one of them lacks the figure, or if it
    would be infinite. Layers that were left out are not among them, but keep their number.
    """
    probed = [layer for layer in layers if not layer.left_out]

    def mean(figures: Sequence[float | None]) -> float | None:
        finite = [figure for figure in figures if figure is not None and math.isfinite(figure)]
        return statistics.fmean(finite) if finite and len(finite) == len(figures) else None

    return {
        "condition_number": mean([layer.condition_number for layer in probed]),
        "condition_number_mean": mean([layer.condition_number_mean for layer in probed]),
        "log10_condition_number": mean([_log10(layer.condition_number) for layer in probed]),
        "condition_number_per_head": mean([layer.condition_number_per_head for layer in probed]),
        "condition_number_capped": mean([layer.capped_share for layer in probed]),
        "effective_rank": mean([layer.effective_rank for layer in probed]),
        "predicted_condition_number": mean([layer.predicted_condition_number for layer in probed]),
        "probed_layers": float(len(probed)),
        **{
            layer_metric(index): layer.condition_number
            for index, layer in enumerate(layers)
            if not layer.left_out
        },
    }


def _log10(number: float | None) -> float | None:
    return None if number is None else math.log10(number)
