"""What models are trained on: one module a task, all under the contract in ``tasks.base``.

The folders go by kind of data; ``sources`` is where all of them find and keep theirs. Beside a task
(``images.py``) lies what it does with torch (``image_data.py``), which it imports to open the data.
``arrays`` is a task of examples that are there.
"""

from tasks.array_task import arrays

__all__ = ["arrays"]
