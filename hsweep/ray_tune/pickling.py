"""Sends the code of a sweep file to workers, which lack such a module: all of it, by value."""

import contextlib
import copyreg
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any, Final

import ray

from hsweep.design.user_training import captured
from hsweep.errors import UserError, format_error, shown
from hsweep.user_packages import SWEEP_FILE_VARIABLE, SWEEP_MODULE

_CACHED = type(functools.cache(lambda: None))
_own: set[str] = set()
_NAMED: Final[dict[tuple[str, str], Any]] = {}
"""The definitions that came to this process by value, by module and name."""
_DATA: Final = (str, bytes, int, float, type(None))
_MOST_ITEMS: Final = 100
"""Items of a list that are looked at for definitions; a longer one is data."""


def send_whole(modules: Iterable[ModuleType]) -> None:
    """Let functions and classes of these modules be sent by value, not by name.

    So are their cached functions, which pickle knows by name alone; a worker begins with an empty
    cache.
    """
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
        _own.add(module.__name__)
    copyreg.pickle(_CACHED, _reduced)


def check_sent(function: Any) -> None:
    """Refuse a sweep's function that cannot be sent.

    Raises:
        UserError: names the object that cannot be sent.
    """
    try:
        ray.cloudpickle.dumps(function)
    except Exception as error:
        raise UserError(
            f"the function {shown(function)} cannot be sent to worker processes "
            f"({format_error(error)}): let it open what it needs itself, in place of holding or "
            "enclosing it, or train in this process with --runner inline"
        ) from error


def name_definitions(value: Any) -> None:
    """Let the classes and functions that a value brought by value be found under their modules'
    names: plain pickle, of a whole model or for a loader's processes, knows them by name alone.

    The sweep file's module has here what was sent of it and no more; a module beside it is imported
    if this node has it, with what was sent in place of its own. What comes again is the first.
    """
    seen: set[int] = set()
    left, undecided, sent = [value], list[type](), {SWEEP_MODULE}
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, _DATA):
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            left += captured(value).values()
            # What was sent by name has a module around it that was imported.
            if "__spec__" not in value.__globals__:
                name = value.__globals__.get("__name__", "__main__")
                sent.add(name)
                left += _named(value.__globals__, name)
        elif isinstance(value, ModuleType):
            # A few of Python's own modules have another's name.
            if sys.modules.get(getattr(value.__spec__, "name", value.__name__)) is not value:
                sent.add(value.__name__)
                left += _named(vars(value), value.__name__)
        elif isinstance(value, type):
            undecided.append(value)
            left += [*vars(value).values(), *value.__bases__]
        elif isinstance(value, functools.partial):
            left += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, staticmethod | classmethod):
            left.append(value.__func__)
        elif isinstance(value, tuple | list):
            left += value[:_MOST_ITEMS]
        else:
            names = [field.name for field in fields(value)] if is_dataclass(value) else ()
            left += [type(value), *(getattr(value, name, None) for name in names)]
    for definition in undecided:
        if definition.__module__ in sent:
            _name(definition)


def _named(namespace: dict[str, Any], module: str) -> list[Any]:
    """Name the definitions of a module's namespace that was sent; return all that it holds."""
    if module == SWEEP_MODULE and "__file__" in namespace:
        os.environ[SWEEP_FILE_VARIABLE] = namespace["__file__"]
    for name, value in namespace.items():
        if isinstance(value, FunctionType | type) and value.__module__ == module:
            namespace[name] = _name(value)
    return list(namespace.values())


def _name(definition: type | FunctionType) -> Any:
    """Put a definition into the module of its name; return what is there, which came before."""
    name, at = definition.__module__, definition.__qualname__
    if name == "__main__" or "." in at:
        return definition
    if (name, at) not in _NAMED:
        if name not in sys.modules and name != SWEEP_MODULE:
            with contextlib.suppress(Exception, SystemExit):  # this node may lack it
                importlib.import_module(name)
        module = sys.modules.setdefault(name, ModuleType(name))
        setattr(module, at, definition)
        _NAMED[name, at] = definition
        send_whole([module])  # it goes on by value, as it came
    return _NAMED[name, at]


def _reduced(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    # A worker has by value what has no module there, and passes it on in the same way.
    if cached.__module__ not in _own and cached.__module__ in sys.modules:
        return str(cached.__qualname__)
    return _cached_again, (cached.__wrapped__, cached.cache_parameters())


def _cached_again(function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    again: Callable[..., Any] = functools.lru_cache(**settings)(function)
    return again
