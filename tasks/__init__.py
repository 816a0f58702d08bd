"""What models are trained on: one module a task, all under the contract in ``tasks.base``.

The folders go by kind of data; ``sources`` is where all of them find and keep theirs. ``arrays``
makes a task of the user's own arrays.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.array_task import arrays
else:

    def arrays(*args: Any, **settings: Any) -> Any:
        """Return a task of the user's own arrays: ``tasks.array_task.arrays``."""
        # Commands that read records import this package, and need no numpy.
        from tasks.array_task import arrays

        return arrays(*args, **settings)


__all__ = ["arrays"]
