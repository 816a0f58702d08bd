"""Parameters, operations and memory from a model's structure, before anything is built.

A model's counts are a sum of blocks, each a ``Cost``. Operations are those of matrix products
alone, a multiply-add counted as two, as in Kaplan et al. 2020 (arXiv 2001.08361), section 2.1, and
in ``torch.utils.flop_counter``; normalisations, activations and additions are left out.
Activations are the numbers that torch's autograd keeps for the backward pass. A tensor kept by
several operations is one tensor: each block counts the inputs it keeps, and says so where another
block has counted them already. Free of torch until a model is built.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from models.base import PARAM_GROUPS, Counts, ModelConfig, TraceableConfig
from models.fields import whole_number
from models.shape import Stage

if TYPE_CHECKING:
    from torch import nn

Activation: TypeAlias = Literal["gelu", "relu"]

_FLOAT32_BYTES: Final = 4
_ACTIVATION_BYTES: Final = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_OPTIMIZER_STATES: Final = {"adamw": 2, "sgd": 1}
_OTHER_STATES: Final = 2
"""Of most other optimizers; some have one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one block of a model.

    Attributes:
        params: number of parameters.
        flops: operations of a forward pass over one example.
        kept: numbers kept for the backward pass over one example.
        kept_float32: those of ``kept`` that stay in float32 under autocast.
        passing: gradients alive at once in the block's own backward pass over one example, beside
            what is kept. Blocks run one after the other, so a sum has that of the largest.
    """

    params: int = 0
    flops: int = 0
    kept: int = 0
    kept_float32: int = 0
    passing: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.params + other.params,
            self.flops + other.flops,
            self.kept + other.kept,
            self.kept_float32 + other.kept_float32,
            max(self.passing, other.passing),
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(
            self.params * times,
            self.flops * times,
            self.kept * times,
            self.kept_float32 * times,
            self.passing if times else 0,
        )

    def of_parts(self, parts: int) -> "Cost":
        """Return the cost of an example whose parts all pass through the block at once."""
        return Cost(
            self.params,
            self.flops * parts,
            self.kept * parts,
            self.kept_float32 * parts,
            self.passing * parts,
        )


def linear(
    rows: int, inputs: int, outputs: int, *, bias: bool = True, keeps_input: bool = True
) -> Cost:
    """Return the cost of ``x W' + b`` over ``rows`` vectors: 2 * rows * inputs * outputs.

    The input is kept, for the gradient of W, unless the block that made it keeps it anyway.
    """
    return Cost(
        params=(inputs + bias) * outputs,
        flops=2 * rows * inputs * outputs,
        kept=rows * inputs * keeps_input,
    )


def conv2d(
    outputs: int,
    in_chans: int,
    out_chans: int,
    kernel: int,
    *,
    kept: int,
    groups: int = 1,
    bias: bool = True,
) -> Cost:
    """Return the cost of a two-dimensional convolution: at each output, a linear map of what lies
    under the kernel.

    Args:
        outputs: positions of the output.
        in_chans: channels of the input.
        out_chans: channels of the output.
        kernel: the kernel's height and width.
        kept: numbers of the input, padding that is written out included, which the gradient of
            the weights needs; 0 where another block keeps them.
        groups: groups of channels that do not see each other.
        bias: whether there is one.
    """
    under_kernel = in_chans // groups * kernel**2
    convolution = linear(outputs, under_kernel, out_chans, bias=bias, keeps_input=False)
    return convolution + Cost(kept=kept)


def batch_norm(rows: int, width: int) -> Cost:
    """Return the cost of a batch norm with gain and bias in training.

    It keeps its input; what it keeps of the batch as a whole is too little to count.
    """
    return Cost(params=2 * width, kept=rows * width)


def gelu(elements: int) -> Cost:
    """Return the cost of a GELU, which keeps its input; a gradient of each side passes."""
    return Cost(kept=elements, passing=2 * elements)


def dropout(elements: int) -> Cost:
    """Return the cost of a dropout, which keeps a mask.

    Counted as the CPU's, which has its input's type; CUDA's has a byte for each number.
    """
    return Cost(kept=elements)


def embedding(rows: int, entries: int, width: int) -> Cost:
    """Return the cost of looking up ``rows`` of a table's ``entries``; it keeps 64-bit indices."""
    kept = 2 * rows
    return Cost(params=entries * width, kept=kept, kept_float32=kept)


def layer_norm(rows: int, width: int) -> Cost:
    """Return the cost of a layer norm with gain and bias.

    It keeps its input and each row's mean and inverse deviation, in float32 under autocast.
    """
    kept = rows * (width + 2)
    return Cost(params=2 * width, kept=kept, kept_float32=kept)


def attention_core(heads: int, head_dim: int, *, queries: int, keys: int) -> Cost:
    """Return the cost of softmax(Q K' / sqrt(head_dim)) V in all heads, without projections.

    Scores and mixing take 2 * queries * keys * head_dim operations each and head (Vaswani et al.
    2017, section 3.2.1). A fused kernel keeps queries, keys, values, its output and one
    normaliser per query and head, but no scores (Dao et al. 2022, arXiv 2205.14135, section 3.1).
    """
    inner = heads * head_dim
    return Cost(
        flops=4 * queries * keys * inner,
        kept=2 * (queries + keys) * inner + queries * heads,
        passing=(queries + 2 * keys) * inner,
    )


def self_attention(
    stage: Stage, *, qkv_bias: bool, out_bias: bool = True, query_only: int = 0
) -> Cost:
    """Return the cost of one attention block over ``stage.seq_len`` tokens.

    Args:
        stage: width, heads and head width.
        qkv_bias: whether queries, keys and values have biases.
        out_bias: whether the output projection has one.
        query_only: further tokens that ask but are not attended to; keys and values are
            computed for them too, because one product makes all three.
    """
    rows = stage.seq_len + query_only
    core = attention_core(stage.heads, stage.head_width, queries=rows, keys=stage.seq_len)
    unused_keys_and_values = Cost(kept=2 * query_only * stage.inner_dim)
    return (
        linear(rows, stage.embed_dim, 3 * stage.inner_dim, bias=qkv_bias)
        + core
        + unused_keys_and_values
        + linear(rows, stage.inner_dim, stage.embed_dim, bias=out_bias, keeps_input=False)
    )


def class_token_read(
    stage: Stage,
    *,
    tokens: int,
    qkv_bias: bool,
    shared_query: bool = False,
    token_features: int | None = None,
) -> Cost:
    """Return the cost of an attention block of which only the class token is read.

    Counts ``models.attention.class_token_heads``, which projects no token to keys or values: each
    of ``tokens`` takes 4 * heads * width operations, the class token 8 * embed_dim * inner_dim.

    Args:
        stage: width, heads and head width.
        tokens: tokens that are attended to, and kept; the class token is the caller's to count.
        qkv_bias: whether queries, keys and values have biases; the output projection has one.
        shared_query: whether all examples share the class token, so that nothing is kept for
            each; its operations are counted as for a batch of one.
        token_features: width of what a linear map turns into tokens if that map is left to the
            read. Its operations are counted here, its parameters where the map belongs; the
            product of the two maps of values is counted as for a batch of one.
    """
    embed, heads, inner = stage.embed_dim, stage.heads, stage.inner_dim
    width = embed if token_features is None else token_features
    mixing = Cost(flops=4 * tokens * heads * width, kept=tokens * (width + heads) + heads * width)
    mapping = Cost()
    if token_features is not None:
        mapping = Cost(flops=2 * (heads + inner) * embed * token_features)
    query = Cost(flops=4 * embed * inner, kept=0 if shared_query else inner + heads * embed)
    return (
        Cost(params=3 * (embed + qkv_bias) * inner)
        + query
        + mixing
        + mapping
        + Cost(flops=2 * inner * width)
        + linear(1, inner, embed)
    )


def mlp(
    rows: int,
    stage: Stage,
    *,
    activation: Activation = "gelu",
    bias: bool = True,
    has_dropout: bool = False,
) -> Cost:
    """Return the cost of a ``models.blocks.FeedForward`` over ``rows`` tokens.

    A ReLU keeps its output, which the second linear map keeps too unless a dropout lies between;
    a GELU keeps its input, which nothing else does. Gradients of both sides of it pass at once.
    """
    hidden = rows * stage.mlp_dim
    kept = hidden * (activation == "gelu" or has_dropout)
    return (
        linear(rows, stage.embed_dim, stage.mlp_dim, bias=bias)
        + Cost(kept=kept, passing=2 * hidden)
        + linear(rows, stage.mlp_dim, stage.embed_dim, bias=bias)
        + dropout(hidden * has_dropout)
    )


def gated_mlp(rows: int, stage: Stage, *, bias: bool = False) -> Cost:
    """Return the cost of a ``models.blocks.GatedFeedForward`` over ``rows`` tokens.

    Kept are both halves, the GELU of one and the product, each ``stage.mlp_dim`` wide. Gradients of
    the GELU, of both halves and of the two put together pass at once.
    """
    hidden = rows * stage.mlp_dim
    return (
        linear(rows, stage.embed_dim, 2 * stage.mlp_dim, bias=bias)
        + Cost(kept=3 * hidden, passing=5 * hidden)
        + linear(rows, stage.mlp_dim, stage.embed_dim, bias=bias)
    )


def pre_norm_blocks(stage: Stage, *, qkv_bias: bool, full: int, read_only: int) -> dict[str, Cost]:
    """Return the cost of pre-norm blocks with biases, by parameter group.

    Args:
        stage: width, heads and head width; its depth does not count.
        qkv_bias: whether queries, keys and values have biases.
        full: blocks that update all tokens.
        read_only: blocks that update the class token alone.
    """
    tokens, norm = stage.seq_len, layer_norm(stage.seq_len, stage.embed_dim)
    read = class_token_read(stage, tokens=tokens, qkv_bias=qkv_bias)
    return {
        "attention": self_attention(stage, qkv_bias=qkv_bias) * full + read * read_only,
        "mlp": mlp(tokens, stage) * full + mlp(1, stage) * read_only,
        "norm": norm * (2 * full) + (norm + layer_norm(1, stage.embed_dim)) * read_only,
    }


def by_group(parts: Iterable[Mapping[str, Cost]]) -> dict[str, Cost]:
    """Return the sum of costs by parameter group."""
    groups = dict.fromkeys(PARAM_GROUPS, Cost())
    for part in parts:
        for name, cost in part.items():
            groups[name] += cost
    return groups


def total(*, outputs: int, **groups: Cost) -> Counts:
    """Return the counts of a model made of these costs, by parameter group.

    Groups that are left out have no parameters.

    Args:
        outputs: numbers the model returns for one example.
        groups: the costs of each of ``PARAM_GROUPS``.
    """
    assert set(groups) <= set(PARAM_GROUPS), f"unknown parameter groups in {sorted(groups)}"
    cost = sum(groups.values(), start=Cost())
    return Counts(
        params={name: groups.get(name, Cost()).params for name in PARAM_GROUPS},
        forward_flops=cost.flops,
        activation_elements=cost.kept,
        float32_activation_elements=cost.kept_float32,
        output_elements=outputs,
        passing_elements=cost.passing,
    )


def train_memory_bytes(
    counts: Counts,
    *,
    batch_size: int,
    optimizer: str,
    precision: str,
    averaged: bool = False,
    processes: int = 1,
) -> int:
    """Return an estimate of a training step's peak memory in each process, in bytes.

    Alive at the end of a forward pass: float32 weights, the gradients of the step before, the
    optimizer's state (one momentum for ``sgd``, two numbers a weight for any other), an average of
    the weights if they are ``averaged``, the activations of ``batch_size`` examples at once, and a
    cross entropy's log-probabilities beside the outputs they come from. When the backward pass
    begins the gradients are gone, and two gradients of the outputs' size are there, or later the
    largest block's passing gradients. Under autocast to two bytes a copy of the weights in that is
    alive too, activations take two bytes, those of normalisations four, and the loss makes a
    float32 copy of the outputs before their log-probabilities.
    Left out: workspaces and an allocator's slack.

    Each of several processes has its part of the batch; left out are buckets of messages.

    Args:
        counts: of the model.
        batch_size: examples that all processes compute at once.
        optimizer: by the name that a recipe has for it.
        precision: ``float32``, ``tf32``, ``bfloat16`` or ``float16``.
        averaged: whether an average of the weights is kept.
        processes: that train the trial.

    Raises:
        ValueError: a batch size or a number of processes below 1, or an unknown precision.
    """
    processes = whole_number("processes", processes)
    batch_size = -(-whole_number("batch_size", batch_size) // processes)
    if precision not in _ACTIVATION_BYTES:
        raise ValueError(f"precision must be one of {sorted(_ACTIVATION_BYTES)}, not {precision!r}")
    activation_bytes = _ACTIVATION_BYTES[precision]
    params = counts.num_params
    states = _OPTIMIZER_STATES.get(optimizer, _OTHER_STATES)
    always = params * (1 + states + averaged) * _FLOAT32_BYTES
    is_narrow = activation_bytes < _FLOAT32_BYTES
    if is_narrow:
        always += params * activation_bytes
    narrow = counts.activation_elements - counts.float32_activation_elements
    always += batch_size * narrow * activation_bytes
    always += batch_size * counts.float32_activation_elements * _FLOAT32_BYTES
    outputs = batch_size * counts.output_elements
    widened = _FLOAT32_BYTES if is_narrow else 0
    loss = outputs * (activation_bytes + widened + _FLOAT32_BYTES)
    forward_ends = params * _FLOAT32_BYTES + loss
    backward_begins = 3 * outputs * _FLOAT32_BYTES
    passing = batch_size * counts.passing_elements * activation_bytes
    return always + max(forward_ends, backward_begins, passing)


def checked_build(config: ModelConfig) -> "nn.Module":
    """Build ``config`` on the meta device, hold its counts against it, and return the model.

    Raises:
        AssertionError: the parameters built are not those counted; the counts are wrong.
    """
    from models.meta_build import build_on_meta

    model = build_on_meta(config)
    built = sum(parameter.numel() for parameter in model.parameters())
    counted = config.counts().num_params
    if built != counted:
        raise AssertionError(f"{config} counts {counted:,} parameters, but builds {built:,}")
    return model


def counts_of(config: object) -> Counts:
    """Return ``config.counts()``; for a configuration without it, counts traced on meta tensors.

    Raises:
        ValueError: ``config`` has neither ``counts()`` nor both ``build()`` and
            ``example_input()``.
    """
    if isinstance(config, ModelConfig):
        return config.counts()
    if isinstance(config, TraceableConfig):
        from models.tracing import traced_counts

        return traced_counts(config.build, config.example_input())
    raise ValueError(
        "a model configuration must have build() and either counts() or example_input(), "
        f"which {type(config).__name__} lacks"
    )
