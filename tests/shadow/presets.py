"""The smallest trials of the presets of the shipped sweeps, on a little data of the same kind."""

from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import every_task
from shadow.trials import EVERY, NUM_STEPS
from shipped_plans import Settings, planned

from hsweep import steps
from hsweep.design.trial import Resources, Trial
from hsweep.workspace import shipped_sweeps

_ALIKE: Final = ("family", "task", "optimizer")
"""Axes that have a trial for each of their values."""
_TEXT: Final = ("data", "vocab_size", "tokenizer")
_FEW: Final = ("num_train", "num_validation", "num_test", "max_train_eval")
_LITTLE: Final = {
    "Images": ("images-vit", ("data", "max_train", "max_validation")),
    "StreamedImages": ("streamed", ("data", "num_classes", "num_workers", "max_train_eval")),
    "Stories": ("stories-packed", _TEXT),
    "MaskedText": ("masked-text", _TEXT),
    "Glue": ("glue", ("pretraining", "data", "tasks", "epochs")),
    "Passages": ("passages", ("data", "encoder", "mined", "seq_len", "max_train", "pool")),
    "NearestNeighbor": ("nearest", ("num_validation",)),
    "Retrieval": ("retrieval", ("num_train", "num_validation")),
    "ListOps": ("listops", _FEW),
    "ByteText": ("byte-text", ("data", "max_train_eval")),
    "DocumentPairs": ("document-pairs", ("data", "max_train_eval")),
    "Pixels": ("pixels", ("data", "image_size", "test", "max_train", "max_train_eval")),
    "Pathfinder": ("pathfinder", _FEW),
}
"""The task of ``every_task`` whose data are of a task's kind, and what is taken of it."""
_OF_PAIR: Final = {
    "Passages": ("input_dim", "seq_len"),
    "Stories": ("vocab_size",),
    "MaskedText": ("vocab_size",),
    "Glue": ("vocab_size",),
}
"""What a model takes of that task's model, where the task does not say what a model must be."""
_IMAGE_SIZE: Final = 64
"""Of the images that presets of papers read, instead of 224."""
_NEEDS_DATA: Final[dict[str, Settings]] = {"vit_lean/cifar10": (("data", ("digits",)),)}
_LARGE_BYTES: Final = 2**30

PRESETS: Final = tuple(
    f"{sweep}/{preset}"
    for sweep in shipped_sweeps()
    for preset in ("quick", *import_module(f"sweeps.{sweep}").SWEEP.presets)
)


def smallest(name: str) -> dict[str, Trial]:
    """Return the smallest trial for each family, task and optimizer of a preset."""
    sweep, _, preset = name.partition("/")
    plan = planned(sweep, None if preset == "quick" else preset, _NEEDS_DATA.get(name, ()))
    found: dict[str, Trial] = {}
    for trial in sorted(plan.trials, key=lambda trial: trial.train_memory_bytes or 0):
        kind = " ".join(str(trial.point[axis]) for axis in _ALIKE if axis in trial.point)
        found.setdefault(kind, trial)
    return found


def on_little_data(trial: Trial, folder: Path) -> Trial:
    """Return a trial for the shadow device: of the same model, task and recipe, but for the data,
    what they ask of the model, and the size of a batch."""
    kind = type(trial.task).__name__
    name, of_task = _LITTLE[kind]
    little = every_task.pair(name, folder)
    changes = {field: getattr(little.task, field) for field in of_task}
    if kind == "Images":
        changes["validation"] = None
    elif kind == "StreamedImages":
        changes["image_size"] = _IMAGE_SIZE
    task: Any = replace(trial.task, **changes)
    asked: dict[str, Any] = {
        field: getattr(little.model, field) for field in _OF_PAIR.get(kind, ())
    }
    if hasattr(task, "spec"):
        spec = task.spec()
        asked = {field.name: getattr(spec, field.name) for field in fields(spec)}
    names = {field.name for field in fields(trial.model)}
    is_large = (trial.train_memory_bytes or 0) > _LARGE_BYTES
    recipe = replace(
        trial.recipe,
        batch_size=2 if is_large else min(trial.recipe.batch_size, 8),
        warmup_steps=0,
        warmup_fraction=0.0,
    )
    return replace(
        trial,
        task=task,
        model=replace(trial.model, **{n: value for n, value in asked.items() if n in names}),
        recipe=recipe,
        budget=steps(NUM_STEPS, report_every=EVERY),
        resources=Resources(gpus=1),
    )
