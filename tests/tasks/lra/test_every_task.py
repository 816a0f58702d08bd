"""What holds for each of the five tasks, with the model of the Long Range Arena in small."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from driven import driven
from review_files import texts, write_texts
from task_contract import CPU
from tiny_runs import assignment_of, content, planned

from hsweep import Recipe, Sweep, epochs, grid
from hsweep.design.trial import Report, Trial
from hsweep.training.checkpoints import CheckpointStore
from models.nystromformer import Nystromformer
from tasks.lra.byte_text import ByteText
from tasks.lra.document_pairs import DocumentPairs
from tasks.lra.listops import ListOps
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pixels import Pixels
from tasks.lra.spec import TokenSpec

FEW = {"max_train_eval": 8, "steps_per_epoch": 3}


def listops(_: Path) -> ListOps:
    counts = {"num_train": 40, "num_validation": 8, "num_test": 8}
    return ListOps(seq_len=16, min_length=4, max_length=17, max_depth=3, **counts, **FEW)


def text(folder: Path) -> ByteText:
    for split, count in (("train", 40), ("test", 8)):
        write_texts(folder, split, texts(count, seed=count), [row % 2 for row in range(count)])
    return ByteText(str(folder), seq_len=16, **FEW)


def retrieval(folder: Path) -> DocumentPairs:
    folder.mkdir()
    for split, count in (("train", 40), ("eval", 8), ("test", 8)):
        rows = zip(texts(count), texts(count, seed=3), strict=True)
        lines = [f"{row % 2}\t1\t2\t{one}\t{other}\n" for row, (one, other) in enumerate(rows)]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(lines), "utf-8")
    return DocumentPairs(str(folder), seq_len=16, **FEW)


def image(_: Path) -> Pixels:
    return Pixels("digits", image_size=8, test=0.2, max_train=40, **FEW)


def pathfinder(_: Path) -> Pathfinder:
    counts = {"num_train": 40, "num_validation": 8, "num_test": 8}
    return Pathfinder(contour_length=4, **counts, **FEW)


TASKS: dict[str, Callable[[Path], Any]] = {
    make.__name__: make for make in (listops, text, retrieval, image, pathfinder)
}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("tasks.lra.pathfinder_data._STARTED_AT_ONCE", 64)
    return TASKS[request.param](tmp_path / request.param)


def trial_of(task: Any) -> Trial:
    spec: TokenSpec = task.spec()
    model = Nystromformer(
        **{"embed_dim": 8, "depth": 1, "heads": 2, "landmarks": 8, "head_hidden": 8},
        seq_len=spec.seq_len,
        vocab_size=spec.vocab_size,
        num_classes=spec.num_classes,
        pair=spec.num_texts == 2,
    )
    sweep = Sweep(
        name="every",
        space=grid(heads=[2]),
        task=lambda point: task,
        model=lambda point: model,
        metric="accuracy",
        goal="max",
        budget=epochs(3),
        recipe=Recipe(lr=1e-2, batch_size=16, warmup_fraction=0.2),
    )
    return planned(sweep)[0]


def test_a_trial_interrupted_and_resumed_ends_with_equal_weights_to_the_bit(
    task: Any, tmp_path: Path
) -> None:
    """Three updates an epoch over two batches of examples, so that every epoch ends amid a pass."""
    trial = trial_of(task)
    assert trial.model.dropout > 0

    def reports(folder: Path, attempt: int, last: int) -> list[Report]:
        generator = driven(assignment_of(trial, folder, attempt=attempt))
        made = []
        for report in generator:
            made.append(report)
            if report.unit == last:
                break
        generator.close()
        return made

    def state(folder: Path) -> dict[str, Any]:
        found = CheckpointStore(str(folder), trial.key, attempt=99).search(CPU).state
        assert found is not None
        return found

    straight = reports(tmp_path / "straight", 1, 3)
    first = reports(tmp_path / "resumed", 1, 1)
    rest = reports(tmp_path / "resumed", 2, 3)
    assert [content(report) for report in straight] == [
        content(report) for report in {r.unit: r for r in (*first, *rest)}.values()
    ]
    one, other = state(tmp_path / "straight"), state(tmp_path / "resumed")
    assert one["model"].keys() == other["model"].keys()
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


@pytest.mark.parametrize("task", sorted(TASKS.keys() - {"image"}), indirect=True)
def test_what_is_read_is_mapped_into_memory_and_not_copied(task: Any, cache: Path) -> None:
    data = task.open(data_seed=0, sampling_seed=0, batch_size=16, device=CPU)
    x, _ = next(iter(data.batches(0)))
    assert len(x) == 16
    symbols = data._tensors._symbols
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    mapped = [
        Path(fields[-1])
        for fields in ranges
        for start, end in [(int(bound, 16) for bound in fields[0].split("-"))]
        if start <= symbols.data_ptr() < end
    ]
    assert [path.suffix for path in mapped] == [".npy"]
    assert mapped[0].is_relative_to(cache)
