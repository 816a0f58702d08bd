"""What models are trained on: one module a task, all under the contract in ``tasks.base``.

The folders go by kind of data; ``sources`` is where all of them find and keep theirs. ``arrays``
makes a task of the user's own arrays.
"""

from tasks.array_task import arrays

__all__ = ["arrays"]
