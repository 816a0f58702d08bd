"""The sweep file in use, under one name in every process that needs its classes and functions.

Where a sweep is loaded, this name stands for its file at once; a worker has under it what it was
sent (``hsweep.ray_tune.pickling``). Any other process, such as a data loader's that was spawned or
a script of yours that opens a pickled model, finds the file by an environment variable.
"""

import os
from pathlib import Path

from hsweep.user_packages import SWEEP_FILE_VARIABLE
from hsweep.workspace import set_up_worker

_file = os.environ.get(SWEEP_FILE_VARIABLE)
if _file is None:
    raise ImportError(
        "what is read here needs the sweep file that it was written with: set "
        f"{SWEEP_FILE_VARIABLE} to its path"
    )
__file__ = _file
set_up_worker()
exec(compile(Path(_file).read_bytes(), _file, "exec"))
