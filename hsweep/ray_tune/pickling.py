"""What of a sweep file travels to workers, where there is no such module: all of it, by value."""

import copyreg
import functools
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import ray

_CACHED = type(functools.cache(lambda: None))
_own: set[str] = set()


def send_whole(modules: Iterable[ModuleType]) -> None:
    """Let functions and classes of these modules be sent as what they are, not as names.

    So are their cached functions, which pickle knows by name alone; a worker begins with an empty
    cache.
    """
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
        _own.add(module.__name__)
    copyreg.pickle(_CACHED, _reduced)


def _reduced(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    # A worker has by value what has no module there, and passes it on in the same way.
    if cached.__module__ not in _own and cached.__module__ in sys.modules:
        return str(cached.__qualname__)
    return _cached_again, (cached.__wrapped__, cached.cache_parameters())


def _cached_again(function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    again: Callable[..., Any] = functools.lru_cache(**settings)(function)
    return again
