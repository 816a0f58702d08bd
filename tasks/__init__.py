"""What models are trained on: one module a task, all under the contract in ``tasks.base``.

The folders go by kind of data; ``sources`` is where all of them find and keep theirs. ``arrays``
makes a task of the user's own arrays.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.array_task import arrays

__all__ = ["arrays"]


def __getattr__(name: str) -> Any:
    # Commands that read records import this package, and need no numpy.
    if name == "arrays":
        from tasks.array_task import arrays

        return arrays
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
