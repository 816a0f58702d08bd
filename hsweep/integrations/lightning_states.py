"""Lightning: the states of the process's random generators, which it does not keep itself."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint


class RandomStates(Checkpoint):
    """Keeps the states of the random generators in Lightning's checkpoints."""

    _loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return random_states()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
        # Lightning makes the first epoch's iterator before it calls any other hook.
        set_random_states(state_dict)

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        loop = trainer.fit_loop
        # Where Lightning counts steps it makes a second one now, and uses that.
        if self._loaded and not (loop.is_resuming or loop.epoch_loop.restarting):
            set_random_states(self._loaded)
        self._loaded = None


def random_states() -> dict[str, Any]:
    """Return the states of the generators of torch, numpy and Python."""
    numpy: Any = np.random.get_state()
    is_in_use: Callable[[], bool] = torch.cuda.is_initialized
    return {
        "torch": torch.get_rng_state(),
        # Asking a device that is not in use would take memory there.
        "cuda": torch.cuda.get_rng_state_all() if is_in_use() else [],
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
