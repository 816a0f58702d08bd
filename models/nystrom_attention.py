"""The Nyström approximation of attention, whose cost grows linearly with the sequence.

Xiong et al. 2021, "Nyströmformer" (arXiv 2102.03902). Tensor legend: B examples, T tokens,
E embed_dim, H heads, N head_dim, I = H * N, L landmarks, M any number of matrices.
"""

# ruff: noqa: N803, N806  tensors carry their shape as a suffix

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import counts as count
from models.attention import MultiHeadAttention, split_heads
from models.shape import Stage

InverseScale: TypeAlias = Literal["batch", "matrix"]
INVERSE_STEPS: Final = 6
_MASKED: Final = -1e9


class NystromAttention(MultiHeadAttention):
    """Attention through landmarks, with the parameters of ``MultiHeadAttention``.

    Xiong et al. 2021, equations 13 to 15: landmarks are the means of equally many consecutive
    queries and keys, and softmax(Q K') V is replaced by
    softmax(Q K~') pinv(softmax(Q~ K~')) softmax(Q~ K') V, every logit over sqrt(head_dim). The
    products are taken from the right, so that no (T, L) matrix exists: the first and the third
    kernel are fused attentions with keys and queries of their own. All of it is computed in
    float32 whatever autocast says, because the pseudo-inverse amplifies rounding.

    With as many landmarks as tokens each token is its own landmark, and the result is softmax
    attention itself, computed as such.

    Args:
        embed_dim: width of a token.
        heads: number of heads.
        head_dim: width of a head.
        landmarks: number of landmarks; divides the number of tokens.
        conv_kernel: odd length of the filter that each head passes over its values, along the
            sequence, and adds to its output (section 3.3 there); None for no such filter.
        inverse_scale: see ``iterative_pseudo_inverse``.
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        head_dim: int,
        *,
        landmarks: int,
        conv_kernel: int | None = None,
        inverse_scale: InverseScale = "batch",
    ) -> None:
        super().__init__(embed_dim, heads, head_dim, bias=True)
        self.landmarks = landmarks
        self.inverse_scale: InverseScale = inverse_scale
        self.conv = None
        if conv_kernel is not None:
            self.conv = nn.Conv2d(
                heads,
                heads,
                (conv_kernel, 1),
                padding=(conv_kernel // 2, 0),
                groups=heads,
                bias=False,
            )

    def forward(  # type: ignore[override]
        self, x_BTE: Tensor, *, keep_BT: Tensor | None = None
    ) -> Tensor:
        """Return the attention's output, (B, T, E).

        Args:
            x_BTE: the tokens.
            keep_BT: False where a token is padding, which is not attended to. Its query, key and
                value are zero, so it counts as a zero in the mean of its landmark.

        Raises:
            ValueError: the number of tokens is not a multiple of the landmarks.
        """
        tokens = x_BTE.shape[1]
        check_landmarks(tokens, self.landmarks)
        qkv_BTJ = self.qkv(x_BTE)
        dtype = torch.promote_types(qkv_BTJ.dtype, torch.float32)
        bias = None
        with _autocast_off(x_BTE.device.type):
            qkv_BTJ = qkv_BTJ.to(dtype)
            if keep_BT is not None:
                qkv_BTJ = qkv_BTJ * keep_BT.unsqueeze(-1).to(dtype)
                bias = padding_bias(keep_BT, dtype)
            query, key, value = split_heads(qkv_BTJ, 3, self.heads)
            if self.landmarks == tokens:
                mixed_BHTN = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
            else:
                mixed_BHTN = nystrom_heads(
                    query,
                    key,
                    value,
                    landmarks=self.landmarks,
                    inverse_scale=self.inverse_scale,
                    bias=bias,
                )
            if self.conv is not None:
                mixed_BHTN = mixed_BHTN + self.conv(value)
        projected: Tensor = self.proj(mixed_BHTN.transpose(1, 2).flatten(2))
        return projected


def nystrom_heads(
    query_BHTN: Tensor,
    key_BHTN: Tensor,
    value_BHTN: Tensor,
    *,
    landmarks: int,
    inverse_scale: InverseScale = "batch",
    inverse_steps: int = INVERSE_STEPS,
    bias: Tensor | None = None,
) -> Tensor:
    """Return the heads' outputs, (B, H, T, N); the formula is that of ``NystromAttention``.

    Args:
        query_BHTN: the queries; keys and values look alike.
        key_BHTN: the keys.
        value_BHTN: the values.
        landmarks: number of landmarks, which divides T.
        inverse_scale: see ``iterative_pseudo_inverse``.
        inverse_steps: iterations of the pseudo-inverse.
        bias: added to the logits of the third kernel, (B, 1, 1, T): see ``padding_bias``.
    """
    batch, heads, _, head_dim = query_BHTN.shape
    query_BHLN, key_BHLN = (
        rows_BHTN.view(batch, heads, landmarks, -1, head_dim).mean(3)
        for rows_BHTN in (query_BHTN, key_BHTN)
    )
    logits_BHLL = query_BHLN @ key_BHLN.mT * head_dim**-0.5
    inverse_BHLL = iterative_pseudo_inverse(
        logits_BHLL.softmax(-1).flatten(0, 1), steps=inverse_steps, scale=inverse_scale
    ).view_as(logits_BHLL)
    gathered_BHLN = F.scaled_dot_product_attention(query_BHLN, key_BHTN, value_BHTN, attn_mask=bias)
    return F.scaled_dot_product_attention(query_BHTN, key_BHLN, inverse_BHLL @ gathered_BHLN)


def iterative_pseudo_inverse(
    matrices_MLL: Tensor, *, steps: int = INVERSE_STEPS, scale: InverseScale = "batch"
) -> Tensor:
    """Return an approximation of the pseudo-inverses of matrices whose rows sum to one.

    Razavi et al. 2014, as in Xiong et al. 2021, equation 11:
    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, starting at
    A' / (max row sum * max column sum).

    Args:
        matrices_MLL: non-negative matrices A whose rows sum to one.
        steps: iterations; the error shrinks with their third power once it is below one.
        scale: whether the largest column sum is that of the ``batch``, as published, which makes
            an example's result depend slightly on the others, or of each ``matrix``.
    """
    columns_ML = matrices_MLL.sum(-2)
    largest = columns_ML.amax() if scale == "batch" else columns_ML.amax(-1)[:, None, None]
    inverse_MLL = matrices_MLL.mT / largest
    size = matrices_MLL.shape[-1]
    identity = torch.eye(size, dtype=matrices_MLL.dtype, device=matrices_MLL.device)
    for _ in range(steps):
        product = torch.bmm(matrices_MLL, inverse_MLL)
        inner = torch.baddbmm(product, product, product, beta=-7) + 15 * identity
        outer = torch.baddbmm(identity, product, inner, beta=13 / 4, alpha=-1 / 4)
        inverse_MLL = torch.bmm(inverse_MLL, outer)
    return inverse_MLL


def padding_bias(keep_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to logits to leave padding out, (B, 1, 1, T): 0 or -1e9.

    Finite, so that an example of nothing but padding attends evenly instead of dividing by zero.
    """
    zeros = torch.zeros(keep_BT.shape, dtype=dtype, device=keep_BT.device)
    return zeros.masked_fill(~keep_BT, _MASKED)[:, None, None]


def check_landmarks(tokens: int, landmarks: int) -> None:
    """Refuse landmarks that are not the means of equally many tokens.

    Raises:
        ValueError: ``tokens`` is not a multiple of ``landmarks``.
    """
    if tokens % landmarks:
        way_out = "pad the sequence" if tokens > landmarks else f"use at most {tokens} landmarks"
        raise ValueError(
            f"seq_len must be a multiple of landmarks: {tokens} is not a multiple of {landmarks}; "
            f"{way_out}, choose landmarks that divide it, or use softmax attention"
        )


def nystrom_attention_cost(stage: Stage, *, landmarks: int, conv_kernel: int | None) -> count.Cost:
    """Return the cost of a ``NystromAttention`` over ``stage.seq_len`` tokens with padding.

    Operations of a head: 4 T L N for each of the two fused kernels, 2 L L N for the landmarks' own
    kernel and again for its inverse's product with what they gather, and 2 L^3 for each of the 4
    products in a step of the inverse. Kept, in float32: queries, keys, values and output; the
    landmarks' queries and keys, and what they gather before and after the inverse; of every step
    its 4 factors, and the first and the last matrix.
    """
    tokens, heads, inner = stage.seq_len, stage.heads, stage.inner_dim
    if landmarks == tokens:
        exact = count.attention_core(heads, stage.head_width, queries=tokens, keys=tokens)
        flops, kept = exact.flops, exact.kept
    else:
        square = landmarks * landmarks * heads
        flops = (8 * tokens + 4 * landmarks) * landmarks * inner
        flops += 8 * INVERSE_STEPS * landmarks * square
        kept = 4 * (tokens + landmarks) * inner + (tokens + 2 * landmarks) * heads
        kept += (4 * INVERSE_STEPS + 2) * square
    kept += 2 * tokens  # which tokens are padding, as a factor and as a bias
    if conv_kernel is None:
        # Under bfloat16 the output is kept a second time, in two bytes, for the projection. That
        # weighs what two further bytes for each of these numbers would.
        output = count.Cost(kept_float32=tokens * inner)
    else:
        output = count.Cost(
            params=heads * conv_kernel, flops=2 * tokens * inner * conv_kernel, kept=tokens * inner
        )
    return (
        count.linear(tokens, stage.embed_dim, 3 * inner)
        + count.Cost(flops=flops, kept=kept, kept_float32=kept)
        + output
        + count.linear(tokens, inner, stage.embed_dim, keeps_input=False)
    )


def _autocast_off(device_type: str) -> AbstractContextManager[object]:
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
