"""The data position is part of what a trial resumes from: equal weights to the bit on the CPU."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import every_task
import pytest
import torch
from stepped_trial import train_stepwise
from tiny_runs import assignment_of, content, planned

from hsweep import Recipe, Sweep, epochs, grid
from hsweep.design.trial import Report, Trial
from hsweep.training.checkpoints import CheckpointStore

FAMILIES = ("images-davit", "images-volo", "images-xcit", "images-tnt")
"""The task is that of the first family."""

LONG_RANGE = ("listops", "byte-text", "document-pairs", "pixels", "pathfinder")
CHANGES: dict[str, dict[str, Any]] = {
    "images-vit": {"crop_padding": 1, "flip": True},
    "retrieval-streamed": {"samples": "stream"},
    "glue": {"every_report": True, "dropout": 0.3},
    # Epochs that end amid a pass over the examples.
    **{name: {"steps_per_epoch": 4} for name in LONG_RANGE},
}


def trial_of(name: str, folder: Path) -> Trial:
    """Return a trial of a task whose model drops numbers at random, where it can."""
    found = every_task.pair(name, folder)
    task: Any = replace(found.task, **CHANGES.get(name, {}))
    drops = any(field.name == "dropout" for field in fields(found.model))
    model = replace(found.model, dropout=0.2) if drops else found.model
    sweep = Sweep(
        name="resuming",
        space=grid(heads=[2]),
        task=lambda point: task,
        model=lambda point: model,
        metric=task.metrics[0].name,
        goal=task.metrics[0].goal,
        budget=epochs(3),
        recipe=Recipe(lr=1e-2, batch_size=8, warmup_fraction=0.2),
    )
    return planned(sweep)[0]


def reports(trial: Trial, folder: Path, attempt: int, last: int) -> list[Report]:
    generator = train_stepwise(assignment_of(trial, folder, attempt=attempt))
    made = []
    for report in generator:
        made.append(report)
        if report.unit == last:
            break
    generator.close()
    return made


def weights(trial: Trial, folder: Path) -> dict[str, torch.Tensor]:
    found = CheckpointStore(str(folder), trial.key, attempt=99).search().state
    assert found is not None
    state: dict[str, torch.Tensor] = found["model"]
    return state


@pytest.mark.parametrize("name", sorted({*every_task.NAMES, "retrieval-streamed"} - {*FAMILIES}))
def test_a_trial_interrupted_after_every_report_ends_with_equal_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.lra.pathfinder._STARTED_AT_ONCE", 64)
    trial = trial_of(name, tmp_path / "data")
    straight = reports(trial, tmp_path / "straight", 1, 3)
    resumed = [
        reports(trial, tmp_path / "resumed", attempt, last=attempt)[-1] for attempt in (1, 2, 3)
    ]
    assert [content(report) for report in resumed] == [content(report) for report in straight]
    one, other = (weights(trial, tmp_path / name) for name in ("straight", "resumed"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
