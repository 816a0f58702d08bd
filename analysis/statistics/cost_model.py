"""The cost of untried shapes, from the costs of those tried.

Parameters, memory and FLOPs are polynomials of a transformer's shape (per layer, sums of products
of heads, widths and depth), so a few monomials fit them nearly exactly. Which ones is chosen by the
largest relative error when each shape is left out.
"""

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np

from analysis.statistics.values import FloatArray

_MOST_TERMS = 40
_FEW_AXES = 3
_ROUNDING = 1e-9


class CostModel:
    """A polynomial of the ordered axes fitted to relative errors.

    Args:
        values: raw axis values, [shapes, axes].
        costs: positive, [shapes].

    Attributes:
        error: largest relative error when a shape is left out; infinite if nothing can be fitted.
    """

    def __init__(self, values: FloatArray, costs: FloatArray) -> None:
        self._scale = np.where(np.abs(values).max(axis=0) > 0, np.abs(values).max(axis=0), 1.0)
        self._exponents: list[tuple[int, ...]] = []
        self._weights: FloatArray = np.zeros(0)
        self.error = float("inf")
        if not (costs > 0).all():
            return
        axes = values.shape[1]
        if axes <= _FEW_AXES:
            pool = [power for power in product(range(2), repeat=axes) if any(power)]
            for size in range(len(pool) + 1):
                for chosen in combinations(pool, size):
                    if size + 1 < len(costs):
                        self._try([(0,) * axes, *chosen], values, costs)
        for highest in (1, 2):
            for total in range(1, axes * highest + 1):
                powers = product(range(highest + 1), repeat=axes)
                exponents = [power for power in powers if sum(power) <= total]
                if len(exponents) < min(len(costs), _MOST_TERMS + 1):
                    self._try(exponents, values, costs)

    def _try(self, exponents: list[tuple[int, ...]], values: FloatArray, costs: FloatArray) -> None:
        terms = self._terms(exponents, values) / costs[:, None]
        if np.linalg.matrix_rank(terms) < len(exponents):
            return
        weights: FloatArray = np.asarray(
            np.linalg.lstsq(terms, np.ones(len(costs)), rcond=None)[0], dtype=np.float64
        )
        hat = np.einsum("ij,ji->i", terms, np.linalg.pinv(terms))
        if (hat > 1 - 1e-9).any():
            return
        error = max(float(np.abs((1 - terms @ weights) / (1 - hat)).max()), _ROUNDING)
        if error < 0.5 * self.error:
            self.error, self._exponents, self._weights = error, exponents, weights

    def _terms(self, exponents: Sequence[tuple[int, ...]], values: FloatArray) -> FloatArray:
        scaled = values / self._scale
        return np.stack([np.prod(scaled**power, axis=1) for power in exponents], axis=1)

    def predict(self, values: FloatArray) -> FloatArray:
        """Return the estimated costs of shapes, [shapes]."""
        return np.asarray(self._terms(self._exponents, values) @ self._weights)
