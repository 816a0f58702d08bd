"""The sweep file in use, under one name in every process that needs its classes and functions.

Where a sweep is loaded, this name stands for its file at once; a worker has under it what it was
sent (``hsweep.ray_tune.pickling``). Any other process, such as a data loader's that was spawned or
a script of yours that opens a pickled model, finds the file by an environment variable.
"""

import importlib.util
import os
import sys

from hsweep.seeding import seed_child
from hsweep.user_packages import SWEEP_FILE_VARIABLE
from hsweep.workspace import set_up_worker

_file = os.environ.get(SWEEP_FILE_VARIABLE)
if _file is None:
    raise ImportError(
        "what is read here needs the sweep file that it was written with: set "
        f"{SWEEP_FILE_VARIABLE} to its path"
    )
set_up_worker()
_spec = importlib.util.spec_from_file_location(__name__, _file)
if _spec is None or _spec.loader is None:
    raise ImportError(f"{SWEEP_FILE_VARIABLE} is the path of a Python file, not {_file!r}")
__file__ = _file
_spec.loader.exec_module(sys.modules[__name__])
seed_child()
