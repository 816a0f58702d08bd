"""The recipe's optimizer, made and used without torch's compiler.

Making one of torch's optimizers imports ``torch._dynamo``: its methods are told at their first call
not to be compiled. That import takes nearly as long as torch's own, in every worker, and here no
optimizer is compiled. So the same methods are called without what surrounds them.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.errors import UserError, unknown_name
from hsweep.training.layers import layers_of

_MATRICES_ALONE: Final = frozenset({"muon"})
"""Optimizers of torch.optim that take no other weights; timm's of that name do."""
ALSO_TIMMS: Final = frozenset(
    ("adabelief", "adahessian", "adamc", "adamp", "adamuon", "adan", "adopt", "kron", "lamb")
) | frozenset(("laprop", "lars", "lion", "madgrad", "mars", "muon", "novograd", "sgdp", "sgdw"))
"""Names that timm and pytorch-optimizer both have. They mean timm's, whether or not it is
installed: one name is one optimizer on every machine."""
_ZERO3_MODULE: Final = "transformers.integrations.deepspeed"
_OURS: Final = frozenset({"self", "params", "lr", "weight_decay"})


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; vectors and scalars are exempt from weight decay.

    With a layer decay, ``lr_scale`` of each group of weights is its share of the learning rate.

    Raises:
        UserError: there is no such optimizer, it has no such argument, or the model has no blocks
            that a layer decay would go by.
    """
    arguments: dict[str, Any] = {}
    if recipe.optimizer == "sgd":
        arguments = {"momentum": recipe.betas[0]}
    elif recipe.optimizer == "adamw":
        arguments = {"betas": recipe.betas, "fused": True}
    make, _ = _maker_of(recipe.optimizer)
    return make(_groups(model, recipe), lr=recipe.lr, **{**arguments, **recipe.optimizer_args})


def step_at(optimizer: torch.optim.Optimizer, lr: float) -> None:
    set_rate(optimizer, lr)
    optimizer.step()


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"] if "lr_scale" in group else lr


def check_arguments(recipe: Recipe) -> None:
    """Refuse an optimizer that no library has, and arguments that it does not take.

    Raises:
        UserError: with the names there are.
    """
    _, known = _maker_of(recipe.optimizer)
    for name in recipe.optimizer_args:
        if known is not None and name not in known:
            kind = f"argument of the optimizer {recipe.optimizer!r}"
            raise unknown_name(kind, name, known - _OURS)
    if recipe.weight_decay and known is not None and "weight_decay" not in known:
        raise UserError(
            f"the optimizer {recipe.optimizer!r} has no weight decay; leave weight_decay="
            f"{recipe.weight_decay:g} out, or choose another"
        )


def _groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    layers = {} if recipe.layer_decay is None else layers_of(model)
    deepest = max(layers.values(), default=0)
    learned = [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    # Matrices first: the order in which a checkpoint has them. Vectors are a group of their own
    # only where weights decay, since each group has its price in every update.
    learned.sort(key=lambda item: item[1].ndim <= 1)
    members: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in learned:
        is_decayed = parameter.ndim > 1 or not recipe.weight_decay
        members.setdefault((layers.get(name, deepest), is_decayed), []).append(parameter)
    groups: list[dict[str, Any]] = []
    for layer, is_decayed in sorted(members, key=lambda key: (key[0], not key[1])):
        decay = recipe.weight_decay if is_decayed else 0.0
        group = {"params": members[layer, is_decayed], "weight_decay": decay}
        if recipe.layer_decay is not None:
            group["lr_scale"] = recipe.layer_decay ** (deepest - layer)
        groups.append(group)
    return groups


@functools.cache
def _maker_of(name: str) -> tuple[Callable[..., torch.optim.Optimizer], frozenset[str] | None]:
    """Return the function that makes an optimizer, and its arguments; None where it takes any.

    Raises:
        UserError: there is no such optimizer, or it cannot be used here.
    """
    of_torch = _of_torch()
    if name in of_torch and name not in _MATRICES_ALONE:
        kind = of_torch[name]
        return kind, _arguments(kind)
    with _no_deepspeed():
        import pytorch_optimizer

    others = pytorch_optimizer.get_supported_optimizers()
    if name in others and name not in ALSO_TIMMS:
        kind = pytorch_optimizer.load_optimizer(name)
        # These take any argument and pass over what they do not know.
        return kind, _named(kind)
    # timm imports torchvision, which does not import beside every build of torch.
    from models.torchvision_compat import make_torchvision_importable

    make_torchvision_importable()
    import timm.optim

    of_timm: Any = timm.optim
    if name not in (names := of_timm.list_optimizers()):
        raise unknown_name("optimizer", name, {*of_torch, *names, *others})
    try:
        kind = of_timm.get_optimizer_class(name, bind_defaults=False)
    except (AssertionError, ImportError) as error:
        raise UserError(
            f"the optimizer {name!r} cannot be used here ({error}); choose another"
        ) from error
    return functools.partial(of_timm.create_optimizer_v2, opt=name), _arguments(kind)


@contextlib.contextmanager
def _no_deepspeed() -> Iterator[None]:
    """Answer in place of transformers, meanwhile, that DeepSpeed shards no weights.

    pytorch-optimizer asks for one optimizer (LOMO), and importing transformers for it takes as long
    as half of torch, in every worker.
    """
    if _ZERO3_MODULE in sys.modules:
        yield
        return
    stand_in: Any = ModuleType(_ZERO3_MODULE)
    stand_in.is_deepspeed_zero3_enabled = lambda: False
    sys.modules[_ZERO3_MODULE] = stand_in
    try:
        yield
    finally:
        del sys.modules[_ZERO3_MODULE]


def _of_torch() -> dict[str, Any]:
    named = vars(torch.optim).items()
    kinds = {name.lower(): kind for name, kind in named if isinstance(kind, type)}
    del kinds["optimizer"]
    return kinds | {"adamw": AdamW}


def _arguments(kind: Any) -> frozenset[str] | None:
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return _named(kind)


def _named(kind: Any) -> frozenset[str]:
    parameters = inspect.signature(kind).parameters.values()
    return frozenset(
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
    )


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, the same to the bit; it takes no closure and calls no step hooks."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        _adam_step(self, closure)

    # Torch would surround it with a mark for profilers, which costs a small model's update more
    # than its arithmetic.
    step.hooked = True  # type: ignore[attr-defined]


_adam_step = inspect.unwrap(torch.optim.Adam.step)
