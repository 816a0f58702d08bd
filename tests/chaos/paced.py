"""A task that takes its time, and says which processes train; lies beside the sweep."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny_beside import TinyData, TinyTask  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class PacedTask(TinyTask):  # type: ignore[misc]
    """Sleeps before every update, leaves ``pid-PID`` where it trains and a byte in
    ``updates-PID`` for each update, and has as much room as told.

    The seconds (CHAOS_PACE), the folder (CHAOS_TRACES) and the examples that fit at once
    (CHAOS_ROOM) come from the environment, so that the trials are the same however they are run.
    """

    def open(self, **settings: Any) -> "PacedData":
        (Path(os.environ["CHAOS_TRACES"]) / f"pid-{os.getpid()}").touch()
        return PacedData(self, *settings.values())

    def before_update(self, number: int) -> None:
        time.sleep(float(os.environ["CHAOS_PACE"]))
        super().before_update(number)


class PacedData(TinyData):  # type: ignore[misc]
    """The data of one trial."""

    def loss(self, model: "nn.Module", batch: "tuple[int, Tensor, Tensor]") -> "Tensor":
        import torch

        if len(batch[1]) > int(os.environ.get("CHAOS_ROOM", "8")):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        loss: Tensor = super().loss(model, batch)
        if torch.is_grad_enabled():
            with Path(os.environ["CHAOS_TRACES"], f"updates-{os.getpid()}").open("a") as trace:
                trace.write(".")
        return loss
