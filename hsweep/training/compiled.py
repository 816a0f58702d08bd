"""Models whose training steps are compiled, and replayed as CUDA graphs where a recipe says so.

Evaluation, latency and checkpoints use the model that is not compiled: it has the trained weights
under the same names, so a checkpoint does not depend on compiling. ``what_is_missing`` works
without importing torch.
"""

import os
import shlex
import shutil
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.errors import UserError
from hsweep.paths import cache_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

_KERNELS_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"
_THREADS_VARIABLE: Final = "TORCHINDUCTOR_COMPILE_THREADS"


def what_is_missing(device: str) -> str:
    """Return the tool that ``torch.compile`` lacks on this machine for the CPU or a kind of
    device, in words; empty if it has all."""
    if device != "cpu":
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
    missing = filter(None, map(what_is_missing, sorted(devices)))
    return next(map(_no_compiler, missing), "")


def compiled(
    model: "nn.Module", recipe: Recipe, device: "torch.device", *, backend: str = "inductor"
) -> "nn.Module":
    """Return the model that computes losses: ``model``, compiled if the recipe asks for it.

    All processes of a machine share compiled kernels on disk, so trials of one shape compile them
    once. The models compiled for earlier trials are forgotten: a process that compiles model
    after model would reach the limit at which torch silently stops compiling.

    Raises:
        UserError: there is no compiler.
    """
    if recipe.compile == "off":
        return model
    import torch

    missing = what_is_missing(device.type) if backend == "inductor" else ""
    if missing:
        raise UserError(_no_compiler(missing))
    # Kernels for the CPU are written for a number of threads.
    kernels = cache_folder() / "compiled" / f"{torch.__version__}-{torch.get_num_threads()}"
    if Path(os.environ.get(_KERNELS_VARIABLE) or kernels).parent == kernels.parent:
        os.environ[_KERNELS_VARIABLE] = str(kernels)
    # Read when the compiler is first imported. A trial has its own processor and no more.
    os.environ.setdefault(_THREADS_VARIABLE, str(torch.get_num_threads()))
    torch.compiler.reset()
    options: dict[str, Any] = {"triton.cudagraphs": True} if is_graphed(recipe, device) else {}
    compiled_model = torch.compile(model, backend=backend, dynamic=False, options=options or None)
    return cast("nn.Module", compiled_model)


def is_graphed(recipe: Recipe, device: "torch.device") -> bool:
    return recipe.compile == "graphs" and device.type == "cuda"


def forget_replays(model: "nn.Module") -> None:
    """Drop the recorded steps of compiled models and their memory; the next call compiles again."""
    if hasattr(model, "_orig_mod"):
        import torch

        torch.compiler.reset()
        # It forgets that steps are marked, too. Unmarked, each part of a batch would be a step of
        # its own, and the gradients of the parts before it would be written over.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


def _no_compiler(missing: str) -> str:
    return (
        f"the recipe asks for compiled models, and {missing} is missing; install it, or set "
        "compile='off'"
    )


def _is_there(variable: str, *usual: str) -> bool:
    words = shlex.split(os.environ.get(variable, ""))
    return any(shutil.which(name) for name in (words[:1] or usual))
