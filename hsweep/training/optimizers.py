"""The recipe's optimizer, made and used without torch's compiler.

Making one of torch's optimizers imports ``torch._dynamo``: its methods are told at their first call
not to be compiled. That import takes nearly as long as torch's own, in every worker, and here no
optimizer is compiled. So the same methods are called without what surrounds them.
"""

import copy
import functools
import importlib
import inspect
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.errors import UserError, format_error, unknown_name

_MATRICES_ALONE: Final = frozenset({"muon"})
"""Optimizers of torch.optim that take no other weights; timm's of that name do."""
ALSO_TIMMS: Final = frozenset(
    ("adabelief", "adahessian", "adamc", "adamp", "adamuon", "adan", "adopt", "kron", "lamb")
) | frozenset(("laprop", "lars", "lion", "madgrad", "mars", "muon", "novograd", "sgdp", "sgdw"))
"""Names that timm and pytorch-optimizer both have. They mean timm's, whether or not it is
installed: one name is one optimizer on every machine."""
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


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"] if "lr_scale" in group else lr


def check_optimizer(recipe: Recipe) -> None:
    """Refuse an optimizer that does not exist or take its arguments, that cannot update usual
    weights by their gradients alone, or that does not go on from a checkpoint as if it had never
    stopped: it is tried out on a small model.

    Raises:
        UserError: says why the optimizer is refused.
    """
    name, (_, known) = recipe.optimizer, _maker_of(recipe.optimizer)
    for argument in recipe.optimizer_args:
        if known is not None and argument not in known:
            raise unknown_name(f"argument of the optimizer {name!r}", argument, known - _OURS)
    if recipe.weight_decay and known is not None and "weight_decay" not in known:
        raise UserError(
            f"the optimizer {name!r} has no weight decay; leave weight_decay="
            f"{recipe.weight_decay:g} out, or choose another"
        )
    recipe = replace(recipe, layer_decay=None)
    with torch.random.fork_rng(devices=[]):
        # Weights of one to four dimensions.
        layers = nn.Conv2d(2, 4, 2), nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)
        model = nn.Sequential(*layers)
        try:
            optimizer = build_optimizer(model, recipe)
            if hasattr(optimizer, "eval"):
                raise UserError(
                    f"the optimizer {name!r} evaluates other weights than it trains, which is not "
                    "done here; choose another (ema= averages weights)"
                )
            _update_some(model, optimizer, seed=0)
            resumed = copy.deepcopy(model)
            other = build_optimizer(resumed, recipe)
            torch.save(optimizer.state_dict(), content := io.BytesIO())
            other.load_state_dict(torch.load(io.BytesIO(content.getvalue()), weights_only=True))
            _update_some(model, optimizer, seed=1)
            _update_some(resumed, other, seed=2)
        except UserError:
            raise
        except Exception as error:
            arguments = f" with {dict(recipe.optimizer_args)}" if recipe.optimizer_args else ""
            raise UserError(
                f"the optimizer {name!r}{arguments} cannot be used: {format_error(error)}"
            ) from error
    pairs = zip(model.parameters(), resumed.parameters(), strict=True)
    if not all(torch.equal(first, another) for first, another in pairs):
        raise UserError(
            f"the optimizer {name!r} does not go on from a checkpoint as if it had not stopped, so "
            "a trial would depend on where it was interrupted; choose another"
        )


def _update_some(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """Update the model three times on examples that are always the same."""
    torch.manual_seed(seed)  # the optimizer may draw random numbers
    for number in range(3):
        generator = torch.Generator().manual_seed(number)
        images, targets = (torch.randn(6, *n, generator=generator) for n in ((2, 2, 2), (3,)))
        optimizer.zero_grad()
        (model(images) - targets).square().mean().backward()
        set_rate(optimizer, 0.01 / (1 + number))
        optimizer.step()


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
    UserError where there is no such optimizer, or it cannot be used here."""
    kinds = (kind for kind in vars(torch.optim).values() if isinstance(kind, type))
    of_torch: dict[str, Any] = {kind.__name__.lower(): kind for kind in kinds} | {"adamw": AdamW}
    del of_torch["optimizer"]
    if name in of_torch and name not in _MATRICES_ALONE:
        kind = of_torch[name]
        return kind, _arguments(kind)
    of_others: Any = importlib.import_module("pytorch_optimizer")
    others = of_others.get_supported_optimizers()
    if name in others and name not in ALSO_TIMMS:
        kind = of_others.load_optimizer(name)
        return kind, _arguments(kind, passes_over=True)
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


def _arguments(kind: Any, *, passes_over: bool = False) -> frozenset[str] | None:
    """Return the names of a class's arguments; None where it takes any and does not pass over what
    it does not know."""
    parameters = inspect.signature(kind).parameters.values()
    named = frozenset(each.name for each in parameters if each.kind is not each.VAR_KEYWORD)
    return named if passes_over or len(named) == len(parameters) else None


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


def layers_of(model: nn.Module) -> dict[str, int]:
    """Return the layer of every parameter by its name, 0 for the first.

    As the model's ``group_matcher`` says, which timm's models have. Otherwise its blocks are the
    entries of its outermost lists: every ``nn.ModuleList``, and an ``nn.Sequential`` whose entries
    are of one class that is not an operation of torch's own. What lies between two blocks in the
    order of registration is a layer, too.

    Raises:
        UserError: it has no blocks.
    """
    matcher: Any = getattr(model, "group_matcher", None)
    if matcher is not None:
        # timm imports torchvision, which does not import beside every build of torch.
        from models.torchvision_compat import make_torchvision_importable

        make_torchvision_importable()
        import timm.models

        group_of: dict[str, int] = timm.models.group_parameters(
            model, matcher(coarse=False), reverse=True
        )
        numbers = {number: rank for rank, number in enumerate(sorted(set(group_of.values())))}
        return {name: numbers[number] for name, number in group_of.items()}
    lists = list(_outermost_lists(model))
    if not lists:
        raise UserError(
            f"layer_decay goes by a model's blocks, and {type(model).__name__} has no list of "
            "them: keep them in an nn.ModuleList, define group_matcher() as timm's models do, or "
            "leave layer_decay out"
        )

    def block_of(name: str) -> str:
        for name_of_list in lists:
            start = f"{name_of_list}." if name_of_list else ""
            if name.startswith(start):
                return start + name[len(start) :].split(".")[0]
        return ""

    names = [name for name, _ in model.named_parameters()]
    grouped = itertools.groupby(names, key=block_of)
    return {name: number for number, (_, group) in enumerate(grouped) for name in group}


def _outermost_lists(model: nn.Module, name: str = "") -> Iterator[str]:
    if isinstance(model, nn.ModuleList) or _is_list_of_blocks(model):
        yield name
        return
    for child, part in model.named_children():
        yield from _outermost_lists(part, f"{name}.{child}" if name else child)


def _is_list_of_blocks(part: nn.Module) -> bool:
    kinds = {type(child) for child in part.children()}
    if not isinstance(part, nn.Sequential) or len(kinds) != 1:
        return False
    return next(iter(kinds)).__module__.partition(".")[0] != "torch"
