"""A model's configuration as JSON that makes it again: each class by its module and its name."""

import importlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hsweep.design.function_model import FunctionModel
from hsweep.errors import UserError, shown
from hsweep.user_packages import SWEEP_FILE_PREFIX

SWEEP: Final = "sweep"
"""Stands for the sweep file, which is imported under a name that depends on where it lies."""

FUNCTION: Final = "function"
"""Names the class of a model that the sweep's function builds."""

_PLAIN: Final = (bool, int, float, str, type(None))
_COLLECTIONS: Final = (tuple, set, frozenset, dict)


def encoded(value: Any) -> Any:
    """Return a configuration as plain JSON content.

    A dataclass becomes ``{"class": "module:Name", "fields": {...}}``; what is neither plain nor a
    list becomes ``{"class": "module:Name", "of": content}``, the class's one argument. A module
    that the sweep's function builds becomes ``{"function": NAME}``, the name of its class: sweep
    and point make it again.

    Raises:
        UserError: a part that is neither plain, a collection nor a dataclass.
    """
    kind = type(value)
    if isinstance(value, FunctionModel):
        return {FUNCTION: value.name}
    if kind in _PLAIN:
        return value
    if kind is list:
        return [encoded(part) for part in value]
    if is_dataclass(value):
        content = {each.name: encoded(getattr(value, each.name)) for each in fields(value)}
        given = {each.name for each in fields(value) if each.init}
        return {
            "class": _path_of(kind),
            "fields": {name: content[name] for name in content if name in given},
        }
    if isinstance(value, Enum):
        return {"class": _path_of(kind), "of": encoded(value.value)}
    if isinstance(value, Path):
        return {"class": "pathlib:Path", "of": str(value)}
    if kind in _COLLECTIONS:
        items = [list(item) for item in value.items()] if kind is dict else [*value]
        return {"class": _path_of(kind), "of": [encoded(item) for item in items]}
    raise UserError(
        "a configuration that is kept with weights is made of dataclasses and plain values; found "
        f"{shown(value)} of type {kind.__name__}"
    )


def decoded(content: Any, sweep: ModuleType | None = None) -> Any:
    """Return the configuration that ``encoded`` turned into ``content``.

    Args:
        sweep: the sweep file, imported; None where that is not needed.

    Raises:
        ImportError, AttributeError: a class is not found.
        TypeError, ValueError: a class that is none of a configuration's, or that does not take
            what is recorded.
    """
    if isinstance(content, list):
        return [decoded(part, sweep) for part in content]
    if not isinstance(content, Mapping):
        return content
    kind = _class_at(content["class"], sweep)
    if is_dataclass(kind):
        return kind(**{name: decoded(part, sweep) for name, part in content["fields"].items()})
    # Nothing else is called: what a file names may be anything.
    if kind in _COLLECTIONS or kind is Path or issubclass(kind, Enum):
        return kind(decoded(content["of"], sweep))
    raise TypeError(f"{content['class']} is no part of a configuration")


def _path_of(kind: type) -> str:
    module = SWEEP if kind.__module__.startswith(SWEEP_FILE_PREFIX) else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _class_at(path: str, sweep: ModuleType | None) -> type:
    module, _, name = path.partition(":")
    if module == SWEEP and sweep is None:
        raise ImportError(f"{name} is a class of the sweep file")
    found: Any = sweep if module == SWEEP else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise TypeError(f"{path} is no class")
    return found
