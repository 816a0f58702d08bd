"""The data position is part of what a trial resumes from: equal weights to the bit on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from driven import driven
from image_files import png
from task_contract import CPU
from tiny_runs import assignment_of, content, planned

from hsweep import Recipe, Sweep, epochs, grid
from hsweep.design.trial import Report, Trial
from hsweep.training.checkpoints import CheckpointStore
from models.rank_encoder import nearest_neighbor_encoder
from models.retrieval import RetrievalTransformer
from models.vit import ViT
from tasks.synthetic.nearest_neighbor import NearestNeighbor
from tasks.synthetic.retrieval import Retrieval
from tasks.vision.images import Images
from tasks.vision.streamed_images import StreamedImages


def retrieval(task: Retrieval) -> tuple[Any, Any]:
    shape = {"heads": 2, "head_dim": 2, "seq_len": task.seq_len}
    return task, RetrievalTransformer(**shape, input_dim=task.token_dim)


def fixed(_: Path) -> tuple[Any, Any]:
    return retrieval(Retrieval(seq_len=4, dim=2, num_train=40, num_validation=8))


def streamed(_: Path) -> tuple[Any, Any]:
    return retrieval(Retrieval(seq_len=4, dim=2, num_train=40, sets="blocks", samples="stream"))


def neighbours(_: Path, replay: int | None = None) -> tuple[Any, Any]:
    task = NearestNeighbor(
        seq_len=4, dim=4, steps_per_epoch=3, num_validation=8, replay_batches=replay
    )
    model = nearest_neighbor_encoder(
        depth=1, rank=2, widening=1, embed_dim=4, seq_len=4, mlp_dim=8, positions="none"
    )
    return task, model


def replayed(folder: Path) -> tuple[Any, Any]:
    return neighbours(folder, replay=5)


def digits(_: Path) -> tuple[Any, Any]:
    task = Images("digits", crop_padding=1, flip=True, max_train=40, max_validation=20)
    model = ViT(
        embed_dim=4, depth=1, heads=2, image_size=8, patch_size=4, in_chans=1, num_classes=10
    )
    return task, model


def folder_of_images(folder: Path) -> tuple[Any, Any]:
    pixels = torch.arange(10 * 10 * 3, dtype=torch.uint8).reshape(10, 10, 3).numpy()
    for split in ("train", "val"):
        for number in range(40):
            file = folder / split / f"class{number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(pixels + number))
    task = StreamedImages(str(folder), image_size=8, num_classes=2, num_workers=0)
    model = ViT(embed_dim=4, depth=1, heads=2, image_size=8, patch_size=4, num_classes=2)
    return task, model


MAKERS: list[Callable[[Path], tuple[Any, Any]]] = [
    *(fixed, streamed, neighbours, replayed, digits, folder_of_images)
]


def trial_of(task: Any, model: Any) -> Trial:
    sweep = Sweep(
        name="resuming",
        space=grid(heads=[2]),
        task=lambda point: task,
        model=lambda point: model,
        metric=task.metrics[0].name,
        goal=task.metrics[0].goal,
        budget=epochs(3),
        recipe=Recipe(lr=1e-2, batch_size=16),
    )
    return planned(sweep)[0]


def reports(trial: Trial, folder: Path, attempt: int, last: int) -> list[Report]:
    generator = driven(assignment_of(trial, folder, attempt=attempt))
    made = []
    for report in generator:
        made.append(report)
        if report.unit == last:
            break
    generator.close()
    return made


def weights(trial: Trial, folder: Path) -> dict[str, torch.Tensor]:
    found = CheckpointStore(str(folder), trial.key, attempt=99).search(CPU).state
    assert found is not None
    state: dict[str, torch.Tensor] = found["model"]
    return state


@pytest.mark.parametrize("make", MAKERS)
def test_a_trial_interrupted_after_every_report_ends_with_equal_weights(
    make: Callable[[Path], tuple[Any, Any]], tmp_path: Path
) -> None:
    trial = trial_of(*make(tmp_path / "data"))
    straight = reports(trial, tmp_path / "straight", 1, 3)
    resumed = [
        reports(trial, tmp_path / "resumed", attempt, last=attempt)[-1] for attempt in (1, 2, 3)
    ]
    assert [content(report) for report in resumed] == [content(report) for report in straight]
    one, other = (weights(trial, tmp_path / name) for name in ("straight", "resumed"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
