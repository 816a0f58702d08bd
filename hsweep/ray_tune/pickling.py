"""Sends the code of a sweep file to workers, which lack such a module: all of it, by value."""

import copyreg
import functools
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import ray

from hsweep.errors import UserError, format_error, shown

_CACHED = type(functools.cache(lambda: None))
_own: set[str] = set()


def send_whole(modules: Iterable[ModuleType]) -> None:
    """Let functions and classes of these modules be sent by value, not by name.

    So are their cached functions, which pickle knows by name alone; a worker begins with an empty
    cache.
    """
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
        _own.add(module.__name__)
    copyreg.pickle(_CACHED, _reduced)


def check_sent(role: str, function: Any) -> None:
    """Refuse a sweep's function that cannot be sent; its ``role`` is "training" or "model".

    Raises:
        UserError: names the object that cannot be sent.
    """
    try:
        ray.cloudpickle.dumps(function)
    except Exception as error:
        raise UserError(
            f"the {role} function {shown(function)} cannot be sent to worker processes "
            f"({format_error(error)}): let it open what it needs itself, in place of holding or "
            "enclosing it, or train in this process with --runner inline"
        ) from error


def _reduced(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    # A worker has by value what has no module there, and passes it on in the same way.
    if cached.__module__ not in _own and cached.__module__ in sys.modules:
        return str(cached.__qualname__)
    return _cached_again, (cached.__wrapped__, cached.cache_parameters())


def _cached_again(function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    again: Callable[..., Any] = functools.lru_cache(**settings)(function)
    return again
