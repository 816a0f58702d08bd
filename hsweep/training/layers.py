"""A model's weights by depth: those before its blocks, those of each block, those after."""

import itertools
from collections.abc import Iterator
from typing import Any

from torch import nn

from hsweep.errors import UserError


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
