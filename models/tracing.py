"""Counts of a model that has none of its own, traced on meta tensors."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from models.base import PARAM_GROUPS, Counts
from models.meta_build import without_numbers

_NAME_PARTS: Final = (
    ("norm", ("norm", "ln_", "ln1", "ln2", "bn")),
    ("attention", ("attn", "attention", "qkv", "q_proj", "k_proj", "v_proj", "o_proj")),
    ("mlp", ("mlp", "ffn", "feed_forward", "fc1", "fc2", "linear1", "linear2")),
    ("head", ("head", "classifier", "readout", "read_out", "decoder", "unembed")),
    ("embedding", ("embed", "token", "pos", "wte", "wpe", "patch", "encoder", "stem")),
)


def traced_counts(model_factory: Callable[[], nn.Module], example_input: object) -> Counts:
    """Return a model's counts from one training-mode forward pass on the meta device.

    Operations are ``torch.utils.flop_counter``'s. Activations are what autograd keeps, parameters
    left out and shared storage counted once; on meta tensors fused attention is taken apart, so
    that its weights (heads * queries * keys a layer) count too, which a fused kernel would not
    keep. Groups are guessed from module types and names; what nothing tells apart counts as mlp.

    Args:
        model_factory: builds the model on torch's default device.
        example_input: one example as a batch of one: a tensor, a tuple or list of positional
            arguments, or a mapping of keyword arguments.
    """
    with without_numbers():
        model = model_factory()
    params = dict.fromkeys(PARAM_GROUPS, 0)
    for name, parameter in model.named_parameters():
        params[parameter_group(model, name)] += parameter.numel()

    kept: Counter[int] = Counter()
    alive: list[Tensor] = []  # a freed storage's identity could be given to another one
    own = {storage_identity(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        identity = storage_identity(tensor)
        if identity not in own:
            alive.append(tensor)
            kept[identity] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    arguments, keywords = _arguments(_to_meta(example_input))
    with (
        FlopCounterMode(display=False) as flop_counter,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        outputs = model(*arguments, **keywords)
    return Counts(
        params=params,
        forward_flops=int(flop_counter.get_total_flops()),
        activation_elements=sum(kept.values()),
        output_elements=sum(
            leaf.numel() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)
        ),
    )


def storage_identity(tensor: Tensor) -> int:
    """Return a number that tensors on the same storage share, on the meta device too."""
    return int(tensor.untyped_storage()._cdata)


def parameter_group(model: nn.Module, name: str) -> str:
    """Guess which of ``PARAM_GROUPS`` the parameter ``name`` of ``model`` belongs to.

    The innermost part of the name that tells decides; types of modules go before names.
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = model.get_submodule(".".join(parts[:length]))
        if "norm" in type(module).__name__.lower():
            return "norm"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            return "embedding"
        if (
            isinstance(module, nn.MultiheadAttention)
            or "attention" in type(module).__name__.lower()
        ):
            return "attention"
    for part in reversed(parts[:-1] or parts):
        for group, words in _NAME_PARTS:
            if any(word in part.lower() for word in words):
                return group
    return "embedding" if any(word in name for word in ("token", "pos")) else "mlp"


def _to_meta(value: object) -> object:
    if isinstance(value, Tensor):
        return value.to("meta")
    if isinstance(value, Mapping):
        return {key: _to_meta(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_to_meta(item) for item in value)
    return value


def _arguments(value: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, dict):
        return (), value
    if isinstance(value, tuple):
        return value, {}
    return (value,), {}
