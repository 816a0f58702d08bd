"""The trials that the shadow device trains: one small model by every recipe, and every task."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import every_task
from tiny_runs import planned

from hsweep import Recipe, Sweep, grid, steps
from hsweep.design.trial import Resources, Trial

NUM_STEPS: Final = 8
EVERY: Final = 4

_BASE: Final = Recipe(lr=1e-3, batch_size=8)
OPTIMIZERS: Final = (
    *("sgd", "adam", "nadam", "radam", "rmsprop", "asgd", "adafactor", "lion", "lamb", "muon"),
    *("soap", "shampoo", "adamp", "sgdp", "novograd"),
)
RECIPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "tf32": {"precision": "tf32"},
    "bfloat16": {"precision": "bfloat16"},
    "float16": {"precision": "float16"},
    "float16 average": {"precision": "float16", "ema": 0.9},
    "average": {"ema": 0.9},
    "layer decay": {"layer_decay": 0.7},
    "parts": {"accumulate": 4, "clip_norm": 1.0},
    "adamw unfused": {"optimizer_args": {"fused": False}},
    "soap float16": {"optimizer": "soap", "precision": "float16"},
    "mixed": {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1},
} | {name: {"optimizer": name, "clip_norm": 1.0} for name in OPTIMIZERS}
CASES: Final = (
    *(f"recipe {name}" for name in RECIPES),
    "crop and flip",
    *(f"task {name}" for name in every_task.NAMES),
)


def trial_of(case: str, folder: Path) -> Trial:
    """Return the trial of one of ``CASES``, its data written below ``folder``."""
    kind, _, name = case.partition(" ")
    pair = every_task.pair(name if kind == "task" else "images-vit", folder)
    recipe = replace(_BASE, **RECIPES[name]) if kind == "recipe" else _BASE
    if kind == "crop":
        pair = replace(pair, task=replace(pair.task, crop_padding=1, flip=True))
    metric = next(metric for metric in pair.task.metrics if not metric.of_training)
    sweep = Sweep(
        name="shadow",
        space=grid(heads=[2]),
        task=pair.task,
        model=lambda point: pair.model,
        metric=metric.name,
        goal=metric.goal,
        budget=steps(NUM_STEPS, report_every=EVERY),
        recipe=recipe,
        resources=Resources(gpus=1),
    )
    return planned(sweep)[0]
