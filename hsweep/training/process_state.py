"""States of the process that a trial can change: read before it, restored after it.

A worker trains many trials. Training that leaves another default dtype, grad mode, environment or
working directory behind would change what the trials after it learn; the states of the random
generators are restored, too. So is what can be done but once in a process: a second trial does it
as well. What cannot be read, as settings of other libraries, is the trial's own affair;
``Sweep.isolate`` gives each trial a process of its own.
"""

import functools
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import backends, distributed

from hsweep.errors import SpentProcessError
from hsweep.training.devices import is_used, seed_torch


def _read_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


_State = tuple[Callable[[], Any], Callable[[Any], object]]
"""The function that reads a state of the process, and the function that writes it."""

_SETTINGS: Final[Mapping[str, _State]] = {
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda values: torch.use_deterministic_algorithms(values[0], warn_only=values[1]),
    ),
    "the working directory": (
        _read_directory,
        lambda path: os.chdir(path or os.curdir),
    ),
}
"""What reports say of a trial that has changed it."""


def _of_list(values: list[Any]) -> _State:
    return lambda: list(values), lambda before: values.__setitem__(slice(None), before)


def _of(owner: Any, name: str) -> _State:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def _of_kernel(name: str) -> _State:
    cuda = backends.cuda
    return getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp")


def _write_variables(values: Mapping[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update(values)


def _write_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # which tells modules that have warned before
    warnings.filters[:] = filters  # type: ignore[index]


def _write_handlers(values: Mapping[signal.Signals, Any]) -> None:
    """Set the handlers that differ; only the main thread can have changed one."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in values.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


def _only_if_new(forget: Callable[[], object]) -> Callable[[bool], object]:
    """Return what forgets a state that was not there before the trial."""
    return lambda was_there: None if was_there else forget()


def _loaded(module: str, name: str) -> Any:
    """Return what a module has under a name, if it was imported."""
    return getattr(sys.modules.get(module), name, None)


def _has_accelerator() -> bool:
    states = (_loaded("accelerate.state", f"{name}State") for name in ("Accelerator", "Partial"))
    return any(state is not None and state._shared_state for state in states)


def _forget_accelerator() -> None:
    _loaded("accelerate.state", "AcceleratorState")._reset_state(reset_partial_state=True)
    _loaded("accelerate.state", "GradientState")._reset_state()


def _hydra() -> Any:
    return _loaded("hydra.core.global_hydra", "GlobalHydra")


_CUDNN: Final[Any] = backends.cudnn
_MKLDNN: Final[Any] = backends.mkldnn
# The more general come first, which set others.
_BACKENDS: Final = (
    *(backends, _CUDNN, _CUDNN.conv, _CUDNN.rnn),
    *(_MKLDNN, _MKLDNN.matmul, _MKLDNN.conv, backends.cuda.matmul),
)
_FLAGS: Final = ("fp32_precision", "enabled", "benchmark", "deterministic")

_STATES: Final[Sequence[_State]] = (
    *_SETTINGS.values(),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    # None where there was none: with one, each operation takes longer.
    (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(_of(owner, flag) for owner in _BACKENDS for flag in _FLAGS if hasattr(owner, flag)),
    *map(_of_kernel, ("flash", "mem_efficient", "math", "cudnn")),
    (torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy),
    (np.geterr, lambda values: np.seterr(**values)),
    (lambda: dict(os.environ), _write_variables),
    (lambda: list(warnings.filters), _write_filters),
    _of(logging.root, "level"),
    _of_list(logging.root.handlers),
    _of(logging.root.manager, "disable"),
    (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()),
    (gc.get_threshold, lambda values: gc.set_threshold(*values)),
    (
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda method: multiprocessing.set_start_method(method, force=True),
    ),
    (
        lambda: distributed.is_available() and distributed.is_initialized(),
        _only_if_new(distributed.destroy_process_group),
    ),
    (
        lambda: {number: signal.getsignal(number) for number in signal.valid_signals()},
        _write_handlers,
    ),
    *map(_of_list, (sys.path, sys.argv)),
    (_has_accelerator, _only_if_new(_forget_accelerator)),
    (
        lambda: bool((hydra := _hydra()) and hydra.instance().is_initialized()),
        _only_if_new(lambda: _hydra().instance().clear()),
    ),
)
"""Also what can be done once in a process, or what only the next trial would notice."""


def _known(read: Callable[[], Any]) -> Any:
    """Return what a function reads; None where torch refuses since it was set in two ways."""
    try:
        return read()
    except RuntimeError:
        return None


_set_num_interop_threads = torch.set_num_interop_threads


def _set_num_interop_threads_again(nthreads: int) -> None:
    """Torch takes this number once; a trial that asks for it as the one before did has it."""
    if nthreads == torch.get_num_interop_threads():
        return
    try:
        _set_num_interop_threads(nthreads)
    except RuntimeError as error:
        raise SpentProcessError(
            f"torch.set_num_interop_threads({nthreads}): torch takes this number once in a "
            f"process, and this one has {torch.get_num_interop_threads()}; set isolate=True "
            "without --runner inline, or train by command(...)"
        ) from error


torch.set_num_interop_threads = _set_num_interop_threads_again


_CPU: Final = torch.device("cpu")


class ProcessState:
    """The settings and random generators of this process as they are now."""

    def __init__(self) -> None:
        self._values = [_known(read) for read, _ in _STATES]
        self._generators = random_states(_CPU)

    def changed(self) -> list[str]:
        before = zip(_SETTINGS.items(), self._values, strict=False)
        return [name for (name, (read, _)), value in before if read() != value]

    def restore(self) -> None:
        """Restore the settings and the states of the CPU's random generators."""
        for (read, write), value in zip(_STATES, self._values, strict=True):
            if _known(read) != value:
                write(value)
        set_random_states(self._generators, _CPU)


class KeptModules:
    """The modules that stand beside a function in its file, and so are there for every trial of the
    process, with how often each of their weights was written to by now."""

    def __init__(self, function: Any) -> None:
        while isinstance(function, functools.partial):
            function = function.func
        call = function if hasattr(function, "__globals__") else type(function).__call__
        self._names: Mapping[str, Any] = getattr(call, "__globals__", {})
        # No module is kept alive by this.
        self._before = {
            name: (weakref.ref(value), _versions(value))
            for name, value in list(self._names.items())
            if isinstance(value, torch.nn.Module)
        }

    def trained(self) -> list[str]:
        """Return the names of those that are still there and were trained on meanwhile."""
        return [
            name
            for name, (module, versions) in self._before.items()
            if module() is not None
            and self._names.get(name) is module()
            and _versions(self._names[name]) != versions
        ]


def _versions(module: torch.nn.Module) -> list[int]:
    return [weight._version for weight in module.parameters()]


def seed_all(seed: int, device: torch.device) -> None:
    """Seed the global random generators of torch (of the CPU and this device), numpy and Python: a
    model of the user's may draw from any of them."""
    seed_torch(seed, device)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators of ``seed_all``, as a checkpoint can hold them."""
    numpy: Any = np.random.get_state()
    states = {
        "cpu": torch.get_rng_state(),
        # A checkpoint is loaded without code, and so without numpy's arrays.
        "numpy": [value.tolist() if hasattr(value, "tolist") else value for value in numpy],
        "python": random.getstate(),
    }
    if is_used(device):
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def set_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Set the generators; a device of which there is no state keeps its own."""
    torch.set_rng_state(states["cpu"])
    np.random.set_state(tuple(states["numpy"]))
    random.setstate(states["python"])
    if is_used(device) and device.type in states:
        torch.get_device_module(device).set_rng_state(states[device.type])
