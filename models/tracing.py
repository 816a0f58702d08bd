"""Counts of a module, traced; on meta tensors where it can be."""

import hashlib
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
    return module_counts(model, mapped_tensors(example_input, lambda tensor: tensor.to("meta")))


def params_of(model: nn.Module) -> dict[str, int]:
    """Return the number of a module's parameters by group, shared ones once."""
    params = dict.fromkeys(PARAM_GROUPS, 0)
    for name, parameter in model.named_parameters():
        params[parameter_group(model, name)] += parameter.numel()
    return params


def structure_of(model: nn.Module) -> str:
    """Return a hash of the classes of a module's parts, of what torch's own say of themselves (the
    rate of a dropout), and of the names, shapes and types of parameters and buffers."""
    parts = [
        (name, type(part).__qualname__, part.extra_repr() if _is_torchs(part) else "")
        for name, part in model.named_modules()
    ]
    tensors = [
        (name, tuple(tensor.shape), str(tensor.dtype))
        for named in (model.named_parameters(), model.named_buffers())
        for name, tensor in named
    ]
    return hashlib.sha256(repr((parts, tensors)).encode()).hexdigest()[:20]


def _is_torchs(part: nn.Module) -> bool:
    return type(part).__module__.startswith("torch.nn.")


def module_counts(model: nn.Module, example_input: object, examples: int = 1) -> Counts:
    """Return the counts of a module from one training-mode forward pass, as ``traced_counts``.

    Args:
        model: on the device of its input.
        example_input: a batch.
        examples: in the batch.
    """
    saved_elements: Counter[int] = Counter()
    alive: list[Tensor] = []  # a freed storage's identity could be given to another one
    weights = {storage_identity(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        identity = storage_identity(tensor)
        if identity not in weights:
            alive.append(tensor)
            saved_elements[identity] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    arguments, keywords = _arguments(example_input)
    with (
        FlopCounterMode(display=False) as flop_counter,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        outputs = model(*arguments, **keywords)
    return Counts(
        params=params_of(model),
        forward_flops=int(flop_counter.get_total_flops()) // examples,
        activation_elements=sum(saved_elements.values()) // examples,
        output_elements=sum(
            leaf.numel() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)
        )
        // examples,
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


def mapped_tensors(value: object, change: Callable[[Tensor], Tensor]) -> object:
    """Return a model's input with each of its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(mapped_tensors(item, change) for item in value)
    return value


def _arguments(value: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, dict):
        return (), value
    if isinstance(value, tuple):
        return value, {}
    return (value,), {}
