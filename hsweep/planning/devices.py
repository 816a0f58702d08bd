"""What a trial takes of one device, and of each of several that train it."""

from collections.abc import Sequence
from typing import Any, Final

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from models.base import Counts
from models.counts import train_memory_bytes

SEVERAL: Final = 8
_LARGE: Final = 80_000_000
"""Parameters from which a trial is thought of on several devices: ViT-B has 86 million."""


def training_memory(counts: Counts, recipe: Recipe, processes: int, *, is_sharded: bool) -> int:
    """Return the peak memory that each process is expected to need, in bytes.

    Args:
        counts: of the model.
        recipe: of which batch, optimizer, precision and averaging count.
        processes: that train the trial.
        is_sharded: whether weights are spread over them.
    """
    return train_memory_bytes(
        counts,
        batch_size=recipe.at_once or recipe.batch_size,
        optimizer=recipe.optimizer,
        precision=recipe.precision,
        averaged=recipe.ema is not None,
        processes=processes,
        is_sharded=is_sharded,
    )


def on_devices(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Return the memory and FLOPs of the largest trial on one device, and on each of eight; None
    where no trial is as large as ViT-B, or its memory is not known."""
    counted = [each for each in trials if each.model is not None and each.train_memory_bytes]
    large = [each for each in counted if each.counts and each.counts.num_params >= _LARGE]
    if not large:
        return None
    trial = max(large, key=lambda each: each.train_memory_bytes or 0)
    counts, recipe = trial.counts, trial.recipe
    assert counts is not None
    flops = counts.train_flops * recipe.batch_size
    rows = [
        {
            "devices": devices,
            "sharding": "full" if is_sharded else "none",
            "memory_bytes": training_memory(counts, recipe, devices, is_sharded=is_sharded),
            "flops_per_step": flops // devices,
        }
        for devices, is_sharded in ((1, False), (SEVERAL, False), (SEVERAL, True))
    ]
    return {"key": trial.key, "point": dict(trial.point), "each": rows}
