"""What models are trained on: one module a task, all under the contract in ``tasks.base``.

The folders go by kind of data; ``sources`` is where all of them find and keep theirs. Beside the
settings of a task (``images.py``) lies what it does with torch (``image_data.py``). ``arrays`` is
a task of examples that are there.
"""

from tasks.array_task import arrays

__all__ = ["arrays"]
