"""The optional library behind hypervolumes of many costs."""

from types import ModuleType


def moocore() -> ModuleType | None:
    """Return the package moocore, None where it is not installed."""
    try:
        import moocore as library
    except ImportError:
        return None
    return library  # type: ignore[no-any-return]
