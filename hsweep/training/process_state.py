"""Settings of the process that a trial can change: named in its reports, restored afterwards.

A worker trains many trials. Training that leaves another default dtype, number of threads, choice
of deterministic algorithms or working directory behind would change what the trials after it learn,
so these are read before a trial and restored after it, as are the states of the random generators.
Other settings of torch, numpy and the process are the trial's own affair; ``Sweep.isolate`` gives
each trial a process of its own.
"""

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from hsweep.training.devices import seed_torch


def _read_deterministic() -> tuple[bool, bool]:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warns


def _write_deterministic(values: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(values[0], warn_only=values[1])


def _read_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


def _write_directory(directory: str) -> None:
    if directory:
        os.chdir(directory)


_SETTINGS: Final[Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]]] = {
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's deterministic algorithms": (_read_deterministic, _write_deterministic),
    "the working directory": (_read_directory, _write_directory),
}
"""The function that reads each setting, and the function that writes it."""


class ProcessState:
    """The settings and random generators of this process as they are now."""

    def __init__(self) -> None:
        self._values = {name: read() for name, (read, _) in _SETTINGS.items()}
        self._generators = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def changed(self) -> list[str]:
        return [name for name, (read, _) in _SETTINGS.items() if read() != self._values[name]]

    def restore(self) -> None:
        """Restore the settings and the states of the CPU's random generators."""
        for name in self.changed():
            _SETTINGS[name][1](self._values[name])
        torch.set_rng_state(self._generators[0])
        np.random.set_state(self._generators[1])
        random.setstate(self._generators[2])


def seed_all(seed: int, device: torch.device) -> None:
    """Seed the global random generators of torch (of the CPU and this device), numpy and Python: a
    model of the user's may draw from any of them."""
    seed_torch(seed, device)
    random.seed(seed)
    np.random.seed(seed % 2**32)
