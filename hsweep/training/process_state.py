"""What a trial can change of its process: told in its reports, and put back for the next trial.

Worker processes train many trials. A model or task that changes a setting of torch, of numpy or of
the process would change what the trials after it learn. Here every such setting is read before a
trial and put back after it, and the trial's reports name those that differed. What is set once for
ever (the threads between operations, libraries that were loaded) is not covered, nor is what a
library keeps to itself; ``Sweep.isolate`` gives each trial a process of its own.
"""

import gc
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch


class _Setting(NamedTuple):
    """One thing that a process has once, or a thread.

    Attributes:
        read: returns its value, in a form that can be compared.
        write: gives it back a value that was read.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _write_default_device(device: torch.device) -> None:
    # None takes the mode away under which every call of torch would be slower.
    torch.set_default_device(None if device.type == "cpu" else device)


def _write_warnings(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    # As the library does after every change of its own, so that nothing known before counts.
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _write_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _read_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


def _write_folder(folder: str) -> None:
    if folder:
        os.chdir(folder)


def _read_deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _write_deterministic(flags: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


def _flushes_denormals() -> bool:
    smallest = torch.full((1,), 1e-40, dtype=torch.float32, device="cpu")
    return smallest.mul_(1.0).item() == 0.0


def _flag(owner: Any, name: str) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _autocast(device: str) -> _Setting:
    def write(state: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, state[0])
        torch.set_autocast_dtype(device, state[1])

    return _Setting(
        lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), write
    )


def _read_autocast_depth() -> int:
    # Nothing tells it but entering and leaving.
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _write_autocast_depth(depth: int) -> None:
    for _ in range(_read_autocast_depth() - depth):
        torch.autocast_decrement_nesting()
    for _ in range(depth - _read_autocast_depth()):
        torch.autocast_increment_nesting()
    # Casts of weights are kept until the outermost context is left: one that never was would let
    # every later update go unseen.
    torch.clear_autocast_cache()


_OF_LIBRARIES: Final[Mapping[str, _Setting]] = {
    "torch's number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "torch's default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": _Setting(torch.get_default_device, _write_default_device),
    "gradients": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast on the CPU": _autocast("cpu"),
    "autocast on CUDA": _autocast("cuda"),
    "contexts of autocast that were entered": _Setting(_read_autocast_depth, _write_autocast_depth),
    "autocast's cache": _Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "deterministic algorithms": _Setting(_read_deterministic, _write_deterministic),
    "anomaly detection": _Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "flushing of denormal numbers": _Setting(_flushes_denormals, torch.set_flush_denormal),
    "the precision of float32 products": _Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "cuDNN": _flag(torch.backends.cudnn, "enabled"),
    "cuDNN's benchmark": _flag(torch.backends.cudnn, "benchmark"),
    "cuDNN's determinism": _flag(torch.backends.cudnn, "deterministic"),
    "oneDNN": _flag(torch.backends.mkldnn, "enabled"),
    "flash attention": _Setting(
        torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp
    ),
    "memory-efficient attention": _Setting(
        torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp
    ),
    "attention by products": _Setting(
        torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp
    ),
    "numpy's treatment of errors": _Setting(np.geterr, lambda kinds: np.seterr(**kinds)),
}
"""Nobody but trials changes these."""

_OF_THE_PROCESS: Final[Mapping[str, _Setting]] = {
    "the filters of warnings": _Setting(lambda: list(warnings.filters), _write_warnings),
    "environment variables": _Setting(lambda: dict(os.environ), _write_environment),
    "the working folder": _Setting(_read_folder, _write_folder),
    "the limit of recursion": _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "garbage collection": _Setting(
        gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()
    ),
}


_claimed: Final = threading.Event()


def claim_process() -> None:
    """Say that this process is there for trials alone, so that all its settings are put back."""
    _claimed.set()


class ProcessState:
    """The settings of this process and thread as they are now.

    In a process that is not there for trials alone, only those that nobody else changes.
    """

    def __init__(self) -> None:
        self._settings = _OF_LIBRARIES
        if _claimed.is_set():
            self._settings = {**_OF_LIBRARIES, **_OF_THE_PROCESS}
        self._values = {name: setting.read() for name, setting in self._settings.items()}
        self._num_modules = len(sys.modules)

    def changed(self) -> list[str]:
        """Return what differs by now, in words; what a library may set when it is first loaded only
        where none was."""
        names = [
            name for name, setting in self._settings.items() if setting.read() != self._values[name]
        ]
        was_loading = len(sys.modules) != self._num_modules
        return [name for name in names if name not in _OF_THE_PROCESS or not was_loading]

    def restore(self) -> None:
        """Put back what differs."""
        for name, setting in self._settings.items():
            if setting.read() != self._values[name]:
                setting.write(self._values[name])


def seed_all(seed: int) -> None:
    """Seed the global random generators of torch, numpy and Python, on every device.

    A model of the user's may draw from any of them.

    Args:
        seed: a whole number from 0 to 2**63 - 1.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
