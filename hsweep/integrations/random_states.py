"""The states of the process's random generators, as plain values that a checkpoint can hold."""

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Return the states of the generators of torch, numpy and Python."""
    numpy: Any = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        # Asking a device that is not in use would take memory there.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        # A checkpoint is loaded without code, and so without numpy's arrays.
        "numpy": [value.tolist() if hasattr(value, "tolist") else value for value in numpy],
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Set the generators as ``random_states`` found them; states of devices that are not there are
    left out."""
    torch.set_rng_state(states["torch"])
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)
    np.random.set_state(tuple(states["numpy"]))
    random.setstate(states["python"])
