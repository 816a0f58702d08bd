"""Models whose training steps are compiled, and replayed as CUDA graphs where that is asked for.

Evaluation, latency and checkpoints are of the model as it is: its weights are the ones that are
trained, under the same names, so a checkpoint says nothing of how it came about.
"""

import os
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.errors import UserError
from hsweep.paths import cache_folder
from hsweep.training.compiler import no_compiler, what_is_missing

_KERNELS_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"
_THREADS_VARIABLE: Final = "TORCHINDUCTOR_COMPILE_THREADS"


def compiled(
    model: nn.Module, recipe: Recipe, device: torch.device, *, backend: str = "inductor"
) -> nn.Module:
    """Return what losses are computed with: ``model``, or that compiled as the recipe says.

    Kernels are kept on disk by what they compute, for all trials of one shape, in all processes of
    a machine. What was compiled for the trial before is forgotten: a process that compiles model
    after model would reach the limit at which torch silently stops compiling.

    Raises:
        UserError: there is no compiler.
    """
    if recipe.compile == "off":
        return model
    missing = what_is_missing(device.type) if backend == "inductor" else ""
    if missing:
        raise UserError(no_compiler(missing))
    kernels = _kernels()
    if Path(os.environ.get(_KERNELS_VARIABLE) or kernels).parent == kernels.parent:
        os.environ[_KERNELS_VARIABLE] = str(kernels)
    # Read when the compiler is first imported. A trial has its own processor and no more.
    os.environ.setdefault(_THREADS_VARIABLE, str(torch.get_num_threads()))
    torch.compiler.reset()
    options: dict[str, Any] = {"triton.cudagraphs": True} if is_graphed(recipe, device) else {}
    made = torch.compile(model, backend=backend, dynamic=False, options=options or None)
    return cast(nn.Module, made)


def is_graphed(recipe: Recipe, device: torch.device) -> bool:
    return recipe.compile == "graphs" and device.type == "cuda"


def forget_replays(model: nn.Module) -> None:
    """Give up what a compiled model keeps to replay its steps, memory and all; it is compiled anew
    when it is called next. Other models keep nothing."""
    if hasattr(model, "_orig_mod"):
        torch.compiler.reset()


def _kernels() -> Path:
    # Kernels for the CPU are written for a number of threads.
    return cache_folder() / "compiled" / f"{torch.__version__}-{torch.get_num_threads()}"
