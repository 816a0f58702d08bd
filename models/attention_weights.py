"""See the attention weights that a module computes, and how spread out they are.

A fused kernel does not return its weights, so they are computed again from its inputs.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from models.attention import softmax_over_few

_SOFTMAXES: Final = frozenset({torch.softmax, Tensor.softmax, F.softmax, torch.special.softmax})
_MOST_QUERIES: Final = 64

Spread = tuple[Tensor, Tensor]
"""Of each matrix of weights, (M): the mean entropy of a query's weights in nats, and the same over
the logarithm of the number of keys. NaN if it does not exist."""


class SoftmaxWatch(TorchFunctionMode):
    """Sees every softmax over a last axis that is computed while it is on.

    It is on while one attention module runs and no longer, because its mere presence has some of
    torch's own modules take a slower path. Of more than 64 queries so many stand for all, evenly
    spread.

    Args:
        picked: returns which entries to look at of a leading axis so long.
    """

    def __init__(self, picked: Callable[[int], list[int]]) -> None:
        super().__init__()
        self._picked = picked
        self._found: list[Spread] = []
        self._is_on = False

    def start(self) -> None:
        """Begin to see, with nothing seen so far."""
        self._found = []
        self._is_on = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """See no more; nothing happens if it did not see."""
        if self._is_on:
            self._is_on = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def taken(self) -> list[Spread]:
        """Return what was seen since the last call, for each softmax, and forget it."""
        found, self._found = self._found, []
        return found

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute as asked, then look at the weights if there are any."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # Attention weights have three axes at least: matrices, queries and keys.
        if isinstance(result, Tensor) and result.ndim > 2:
            if func is F.scaled_dot_product_attention:
                self._note(result, lambda: _fused_spread(self._picked, *args, **kwargs))
            elif func is softmax_over_few or (
                func in _SOFTMAXES and _is_over_last_axis(result, *args[1:], **kwargs)
            ):
                self._note(result, lambda: _spread(self._picked, result))
        return result

    def _note(self, result: Tensor, compute: Callable[[], Spread]) -> None:
        with torch.no_grad(), torch.autocast(result.device.type, enabled=False):
            self._found.append(compute())


def _is_over_last_axis(result: Tensor, dim: int | None = None, *_: Any, **kwargs: Any) -> bool:
    return kwargs.get("dim", dim) in (-1, result.ndim - 1)


def _spread(picked: Callable[[int], list[int]], weights: Tensor) -> Spread:
    chosen = weights[picked(len(weights))][..., _some_queries(weights.shape[-2]), :]
    entropies: Tensor = torch.special.entr(chosen.float()).sum(-1)
    return _over_keys(entropies.flatten(1).mean(1), weights.shape[-1])


def _fused_spread(
    picked: Callable[[int], list[int]],
    query: Tensor,
    key: Tensor,
    value: Tensor,  # noqa: ARG001  the signature is torch's
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Spread:
    """Return the spread of what ``F.scaled_dot_product_attention`` weighs with, by its formula."""
    examples = picked(len(query))
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    queries = _some_queries(num_queries)
    chosen = query[examples][..., queries, :].float()
    keys = key[examples].float()
    if enable_gqa:
        keys = keys.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    logits = chosen @ keys.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        positions = torch.arange(num_keys, device=logits.device)
        asked = torch.tensor(queries, device=logits.device)
        logits = logits.masked_fill(positions > asked[:, None], -math.inf)
    if attn_mask is not None:
        mask = attn_mask[(None,) * (logits.ndim - attn_mask.ndim)]
        mask = mask[examples] if len(mask) > 1 else mask
        mask = mask[..., queries, :] if mask.shape[-2] > 1 else mask
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -math.inf)
        logits = logits + mask
    entropies: Tensor = torch.special.entr(logits.softmax(-1)).sum(-1)
    # A query that may attend to nothing has no weights.
    has_keys = (logits != -math.inf).any(-1)
    sums = entropies.where(has_keys, 0.0).flatten(1).sum(1)
    return _over_keys(sums / has_keys.flatten(1).sum(1), num_keys)


def _some_queries(number: int) -> list[int]:
    few = min(number, _MOST_QUERIES)
    return [(2 * index + 1) * number // (2 * few) for index in range(few)]


def _over_keys(means: Tensor, keys: int) -> Spread:
    means = means.double()
    return means, means / math.log(keys) if keys > 1 else torch.full_like(means, math.nan)
