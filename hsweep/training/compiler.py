"""Whether this machine can compile a model; imports nothing that takes time."""

import os
import shlex
import shutil
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from hsweep.design.trial import Trial


def what_is_missing(device: str) -> str:
    """Return what ``torch.compile`` lacks here for ``cpu`` or ``cuda``; empty for nothing."""
    if device == "cuda":
        if find_spec("triton") is None:
            return "the package triton"
        if not _is_there("CC", "gcc", "clang", "cc"):
            return "a C compiler (gcc, or the one that CC names)"
        return ""
    if not _is_there("CXX", "g++", "clang++"):
        return "a C++ compiler (g++, or the one that CXX names)"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        return f"Python's header files ({header}; most systems have them in python3-dev)"
    return ""


def cannot_be_compiled(trials: Iterable[Trial]) -> str:
    """Return why some of these trials cannot be compiled on this machine; empty if all can."""
    devices = {
        "cuda" if trial.resources.gpus else "cpu"
        for trial in trials
        if trial.recipe.compile != "off"
    }
    for device in sorted(devices):
        if missing := what_is_missing(device):
            return no_compiler(missing)
    return ""


def no_compiler(missing: str) -> str:
    return (
        f"the recipe asks for compiled models, and {missing} is missing; install it, or set "
        "compile='off'"
    )


def _is_there(variable: str, *usual: str) -> bool:
    given = shlex.split(os.environ.get(variable, ""))
    return any(shutil.which(name) for name in (given[:1] or usual))
