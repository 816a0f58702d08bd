"""Multi-head attention with heads and head_dim free of embed_dim, and its class-token form.

Tensor legend: B examples, T tokens, E embed_dim, H heads, N head_dim, F features of a token
before the linear map that makes it E wide.
"""

# ruff: noqa: N803, N806  tensors carry their shape as a suffix

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_VECTOR: Final = 16
_MOST_AT_ONCE: Final = 65_535
"""Sequences in a call of a device's attention kernels: CUDA's grids are no longer than that in any
but their first dimension, and the kernels fail beyond it, in all precisions."""


class MultiHeadAttention(nn.Module):
    """Self-attention over all tokens.

    Vaswani et al. 2017, section 3.2.2, with an inner width of ``heads * head_dim`` that the output
    projection brings back to ``embed_dim``, whatever the inner width is.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
        bias: whether queries, keys and values have biases.
        out_bias: whether the output projection has one.
        dropout: share of the attention weights that are dropped in training. The CPU has no fused
            kernel for it, and keeps the weights then.
        learnable_temperature: whether each head learns a factor on its logits, starting at 1.
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        head_dim: int,
        *,
        bias: bool = False,
        out_bias: bool = True,
        dropout: float = 0.0,
        learnable_temperature: bool = False,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = head_dim
        self.qkv = nn.Linear(embed_dim, 3 * heads * head_dim, bias=bias)
        self.proj = nn.Linear(heads * head_dim, embed_dim, bias=out_bias)
        self.dropout = dropout
        self.log_temperature = nn.Parameter(torch.zeros(heads)) if learnable_temperature else None

    def forward(
        self,
        x_BTE: Tensor,
        *,
        query_only: int = 0,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return the attention's output, (B, T, E).

        Args:
            x_BTE: the tokens.
            query_only: so many tokens at the front ask, but are not attended to.
            mask: what may be attended to, as ``F.scaled_dot_product_attention`` takes it.
            causal: whether a token attends to itself and earlier tokens only.
        """
        query, key, value = split_heads(self.qkv(x_BTE), 3, self.heads)
        if query_only:
            key, value = key[:, :, query_only:], value[:, :, query_only:]
        if self.log_temperature is not None:
            query = query * self.log_temperature.exp().view(-1, 1, 1)
        dropout = self.dropout if self.training else 0.0
        if mask is None:
            mixed_BHTN = attended(query, key, value, dropout_p=dropout, is_causal=causal)
        else:
            mixed_BHTN = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal
            )
        projected: Tensor = self.proj(mixed_BHTN.transpose(1, 2).flatten(2))
        return projected


def attended(query: Tensor, key: Tensor, value: Tensor, **settings: Any) -> Tensor:
    """Return ``F.scaled_dot_product_attention`` of any number of sequences, (B, H, T, N) each.

    Windows and the pixels of patches are many small sequences: of 512 images of 224 x 224 pixels
    100,352. What a device cannot take at once is computed in parts, each of which a probe of the
    attention sees for itself.
    """
    if query.device.type == "cpu" or len(query) <= _MOST_AT_ONCE:
        return F.scaled_dot_product_attention(query, key, value, **settings)
    return attended_in_parts(_MOST_AT_ONCE, query, key, value, **settings)


def attended_in_parts(
    at_once: int, query: Tensor, key: Tensor, value: Tensor, **settings: Any
) -> Tensor:
    """Return the attention's output, computed for ``at_once`` sequences at a time."""
    parts = zip(*(torch.split(tensor, at_once) for tensor in (query, key, value)), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*part, **settings) for part in parts])


def split_heads(projected_BTJ: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Return what lies side by side in a projection (queries, keys, values), each (B, H, T, N).

    The parts are taken apart where they lie, so that the backward pass puts their gradients
    together in one copy, already in the projection's layout.

    Args:
        projected_BTJ: J = parts * H * N numbers a token.
        parts: how many there are.
        heads: number of heads, H.
    """
    batch, tokens, _ = projected_BTJ.shape
    parts_BTHN = projected_BTJ.view(batch, tokens, parts, heads, -1).unbind(2)
    return tuple(part_BTHN.transpose(1, 2) for part_BTHN in parts_BTHN)


class ClassTokenAttention(MultiHeadAttention):
    """Attention of which only the class token's output is wanted: one query, keys over T tokens.

    It has the parameters of ``MultiHeadAttention`` and returns what that would return for the
    class token, at a cost that hardly depends on ``head_dim``: see ``class_token_heads``.

    Raises:
        ValueError: a dropout of attention weights, which this form has not.
    """

    def __init__(self, embed_dim: int, heads: int, head_dim: int, **settings: Any) -> None:
        super().__init__(embed_dim, heads, head_dim, **settings)
        if self.dropout:
            raise ValueError(
                f"attention that reads the class token alone drops no weights: dropout must be 0, "
                f"not {self.dropout!r}"
            )

    def forward(  # type: ignore[override]
        self,
        class_token: Tensor,
        tokens_BTF: Tensor,
        *,
        token_map: nn.Linear | None = None,
    ) -> Tensor:
        """Return the class token's output, (B, E).

        Args:
            class_token: (E) if all examples share it, else (B, E). It is not attended to itself.
            tokens_BTF: the tokens, or what ``token_map`` makes them from.
            token_map: the linear map that ends the tokens' computation, if left to do here.
        """
        heads_BI = class_token_heads(
            class_token,
            tokens_BTF,
            self.qkv,
            heads=self.heads,
            log_temperature=self.log_temperature,
            token_map=token_map,
        )
        projected: Tensor = self.proj(heads_BI)
        return projected


def softmax_over_few(logits: Tensor) -> Tensor:
    """Return the softmax over the last axis, computed along the one before it.

    Equal to ``logits.softmax(-1)``. The CPU's kernel takes a row at a time, and rows shorter than
    its vectors of 16 numbers several times as long as rows that are; this way round it takes many
    rows at once.

    Args:
        logits: (..., queries, keys), best laid out as (..., keys, queries).
    """
    return logits.mT.softmax(-2).mT


def class_token_heads(
    class_token: Tensor,
    tokens_BTF: Tensor,
    qkv: nn.Linear,
    *,
    heads: int,
    log_temperature: Tensor | None = None,
    token_map: nn.Linear | None = None,
) -> Tensor:
    """Return ``heads_of_one_query`` for queries, keys and values that ``qkv`` makes, E to 3 H N.

    The biases of the keys do not take part: they are the same for every token, which leaves the
    softmax alone.
    """
    query_weight, key_weight, value_weight = qkv.weight.view(3, -1, qkv.in_features).unbind(0)
    query_bias = value_bias = None
    if qkv.bias is not None:
        query_bias, _, value_bias = qkv.bias.view(3, -1).unbind(0)
    return heads_of_one_query(
        class_token,
        tokens_BTF,
        query_weight=query_weight,
        key_weight=key_weight,
        value_weight=value_weight,
        query_bias=query_bias,
        value_bias=value_bias,
        heads=heads,
        log_temperature=log_temperature,
        token_map=token_map,
    )


def heads_of_one_query(
    class_token: Tensor,
    tokens_BTF: Tensor,
    *,
    query_weight: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    query_bias: Tensor | None = None,
    key_bias: Tensor | None = None,
    value_bias: Tensor | None = None,
    heads: int,
    log_temperature: Tensor | None = None,
    token_map: nn.Linear | None = None,
) -> Tensor:
    """Return the heads' outputs for one query, side by side: (B, H * N).

    No token is ever projected to a key or a value. A logit q.(W_k x) is (W_k' q).x, so the query
    is carried into the tokens' space instead; a head's output sum_t p_t W_v x_t is
    W_v (sum_t p_t x_t), so the tokens are mixed first. Both are the associative law, hence exact
    up to rounding. The weights of a head sum to one, hence biases of values and of ``token_map``
    pass through the mixing, and biases of keys (the same for every token) leave the softmax alone.
    For one token this takes 4 H F operations instead of 4 E H N + 4 H N. The maps of tokens and of
    values are multiplied with each other first, whatever the number of examples.

    Args:
        class_token: (E) if all examples share it, else (B, E).
        tokens_BTF: what is attended to; F = E unless there is a ``token_map``.
        query_weight: the queries' projection, (H N, E); so are those of keys and values.
        key_weight: the keys' projection.
        value_weight: the values' projection.
        query_bias: (H N), if there is one; so are those of keys and values.
        key_bias: changes nothing but that it gets its gradient, which is zero up to rounding.
        value_bias: added to every value.
        heads: number of heads, H.
        log_temperature: (H), logarithm of a factor on each head's logits.
        token_map: linear map from F to E that turns features into tokens.
    """
    embed_dim = query_weight.shape[1]
    key_HNE, value_HNE = (
        weight.view(heads, -1, embed_dim) for weight in (key_weight, value_weight)
    )
    head_dim = key_HNE.shape[1]

    query = F.linear(class_token.view(-1, embed_dim), query_weight, query_bias)
    query_HbN = query.view(-1, heads, head_dim).transpose(0, 1) / math.sqrt(head_dim)
    if log_temperature is not None:
        query_HbN = query_HbN * log_temperature.exp().view(-1, 1, 1)
    sought = torch.bmm(query_HbN, key_HNE).transpose(0, 1)
    if class_token.dim() == 1:
        sought = sought.squeeze(0)
    if token_map is not None:
        sought = sought @ token_map.weight

    is_short = tokens_BTF.shape[1] < _VECTOR
    if sought.dim() == 2:
        # A few rows times all tokens: the matrix library takes half as long as for all tokens
        # times a few columns.
        logits_HBT = (sought @ tokens_BTF.flatten(0, 1).mT).view(heads, *tokens_BTF.shape[:2])
        logits_BHT = logits_HBT.transpose(0, 1)
    elif is_short:
        logits_BHT = (tokens_BTF @ sought.mT).mT
    else:
        logits_BHT = torch.bmm(sought, tokens_BTF.mT)
    if key_bias is not None:
        logits_bH1 = (query_HbN * key_bias.view(heads, 1, head_dim)).sum(-1, keepdim=True)
        logits_BHT = logits_BHT + logits_bH1.transpose(0, 1)
    weights_BHT = softmax_over_few(logits_BHT) if is_short else logits_BHT.softmax(-1)
    mixed_HBF = torch.bmm(weights_BHT, tokens_BTF).transpose(0, 1)
    value_HNF = value_HNE
    if token_map is not None:
        # Of the two maps' product there is one, of what they would map in turn one an example.
        value_HNF = (value_weight @ token_map.weight).view(heads, head_dim, -1)
        if token_map.bias is not None:
            from_map = value_weight @ token_map.bias
            value_bias = from_map if value_bias is None else from_map + value_bias
    heads_BI = torch.bmm(mixed_HBF, value_HNF.mT).transpose(0, 1).flatten(1)
    return heads_BI if value_bias is None else heads_BI + value_bias
