from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import png, random_images, write_split
from PIL import Image
from sklearn.datasets import load_digits
from task_contract import CPU, TaskContract, measured, same, take, unchanged_global_state
from torch import nn

from models.torchvision_compat import make_torchvision_importable
from tasks.base import DataError, Task, TaskData
from tasks.sampling import generator, seeded_globals
from tasks.vision import streamed_images
from tasks.vision.streamed_images import StreamedImages


@pytest.fixture
def digit_folder(tmp_path: Path) -> Path:
    """Real digits 0 to 2 as PNG files: eight of each for training, four for validation."""
    bunch = load_digits(n_class=3)
    for digit in range(3):
        images = bunch.images[bunch.target == digit] * 15
        for split, chosen in (("train", images[:8]), ("val", images[8:12])):
            folder = tmp_path / "digits" / split / f"digit{digit}"
            folder.mkdir(parents=True)
            for number, image in enumerate(chosen):
                (folder / f"{number}.png").write_bytes(png(image.astype(np.uint8)))
    return tmp_path / "digits"


@pytest.fixture
def task(digit_folder: Path) -> StreamedImages:
    return StreamedImages(str(digit_folder), image_size=12, num_classes=3, num_workers=0)


def linear(task: StreamedImages) -> nn.Module:
    layer = nn.Linear(3 * task.image_size**2, task.num_classes)
    with torch.no_grad():
        layer.weight.normal_(0, 0.05, generator=torch.Generator().manual_seed(0))
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def opened(task: StreamedImages, sampling_seed: int = 2, batch_size: int = 4) -> TaskData:
    return task.open(data_seed=1, sampling_seed=sampling_seed, batch_size=batch_size, device=CPU)


def evaluated(task: StreamedImages) -> dict[str, float]:
    with torch.no_grad():
        return dict(measured(opened(task), linear(task).eval()))


class TestStreamedImages(TaskContract):
    @pytest.fixture
    def task(self, digit_folder: Path) -> Task:
        return StreamedImages(str(digit_folder), image_size=12, num_classes=3, num_workers=0)

    @pytest.fixture
    def variant(self, task: StreamedImages) -> Task:
        return replace(task, auto_augment="rand-m5-mstd0.5-inc1")

    @pytest.fixture
    def model(self, task: StreamedImages) -> nn.Module:
        return linear(task)


def test_batches_do_not_depend_on_the_number_of_workers(task: StreamedImages) -> None:
    alone, helped = opened(task).batches(0), opened(replace(task, num_workers=2)).batches(0)
    for _ in range(7):  # past the end of the first epoch of six batches
        assert same(next(alone), next(helped))
    assert replace(task, num_workers=2).fingerprint() == task.fingerprint()


@pytest.mark.parametrize(
    ("threads", "kind", "number"), [(1, "cpu", 0), (4, "cpu", 3), (1, "meta", 1), (6, "meta", 5)]
)
def test_as_many_processes_decode_as_the_trial_has_cores_but_one(
    task: StreamedImages,
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    kind: str,
    number: int,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(streamed_images, "_usable_cores", lambda: 16)
    data: Any = replace(task, num_workers=None).open(
        data_seed=1, sampling_seed=2, batch_size=4, device=torch.device(kind)
    )
    assert data._num_workers == number


@pytest.mark.parametrize("mixed", [True, False])
def test_processes_read_the_parts_of_each_batch(task: StreamedImages, mixed: bool) -> None:
    task = task if mixed else replace(task, mixup=0, cutmix=0)
    whole = opened(task, batch_size=6).batches(1)
    parts = [opened(task, batch_size=6).batches_of(1, rank=rank, size=4) for rank in range(4)]  # type: ignore[attr-defined]
    for _ in range(5):
        images, labels = next(whole)
        divided = [next(part) for part in parts]
        shares = [share for _, share in divided]
        # Of three pairs one process has none, and is given another's at no share.
        assert sum(shares) == pytest.approx(1)
        assert (min(shares) == 0) == mixed
        rows = [
            (image, label)
            for (some, labelled), share in divided
            if share
            for image, label in zip(some, labelled, strict=True)
        ]
        assert len(rows) == 6
        for image, label in zip(images, labels, strict=True):
            assert any(same((image, label), row) for row in rows)


def test_a_process_decodes_no_images_but_its_own(task: StreamedImages, digit_folder: Path) -> None:
    task = replace(task, mixup=0, cutmix=0)
    keys = torch.randperm(24, generator=generator(2, 0))[:4].tolist()
    files = sorted((digit_folder / "train").rglob("*.png"))
    files[keys[3]].write_bytes(b"no image")
    mine, others = (opened(task).batches_of(0, rank=rank, size=2) for rank in (0, 1))  # type: ignore[attr-defined]
    (images, _), share = next(mine)
    assert (len(images), share) == (2, 0.5)
    with pytest.raises(DataError, match=files[keys[3]].name):
        next(others)


def test_an_image_is_augmented_differently_in_every_epoch(task: StreamedImages) -> None:
    task = replace(task, mixup=0, cutmix=0)
    data = opened(task, batch_size=24)
    batches = data.batches(0)
    (one, one_labels), (two, two_labels) = next(batches), next(batches)
    assert one_labels.sort().values.equal(two_labels.sort().values)
    assert not any(torch.equal(a, b) for a in one for b in two)


def test_mixed_targets_are_smoothed_probabilities(task: StreamedImages) -> None:
    images, targets = next(opened(task).batches(0))
    assert images.shape == (4, 3, 12, 12)
    assert targets.shape == (4, 3)
    torch.testing.assert_close(targets.sum(1), torch.ones(4))
    assert targets.min().item() == pytest.approx(0.1 / 3)


def test_mixing_is_redrawn_at_every_step(task: StreamedImages) -> None:
    batches = opened(task).batches(0)
    largest = {next(batches)[1].max().item() for _ in range(6)}
    assert len(largest) > 1


def test_without_mixing_targets_are_labels_and_the_loss_smooths_them(
    task: StreamedImages,
) -> None:
    plain = replace(task, mixup=0, cutmix=0, label_smoothing=0)
    smooth = replace(plain, label_smoothing=0.5)
    batch = next(opened(plain).batches(0))
    assert batch[1].dtype == torch.int64
    assert same(batch, next(opened(smooth).batches(0)))
    model = linear(task)
    log_p = model(batch[0]).log_softmax(1)
    hard = -log_p.gather(1, batch[1][:, None]).mean()
    expected = 0.5 * hard - 0.5 * log_p.mean()
    assert opened(smooth).loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_mixing_needs_even_batches(task: StreamedImages) -> None:
    with pytest.raises(ValueError, match="a batch must be even, not 3"):
        opened(task, batch_size=3)
    assert opened(replace(task, mixup=0, cutmix=0), batch_size=3).steps_per_epoch == 8


def test_an_unaugmented_image_is_the_file_resized_and_normalised(
    task: StreamedImages, digit_folder: Path
) -> None:
    """Crops of constant images are constant: the values are those of the file, by channel."""
    colour = np.array([10, 100, 200], np.uint8)
    for path in digit_folder.rglob("*.png"):
        path.write_bytes(png(np.broadcast_to(colour, (16, 16, 3)).copy()))
    images, _ = next(opened(replace(task, mixup=0, cutmix=0, auto_augment="")).batches(0))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = torch.tensor((colour / 255 - mean) / std).float()[:, None, None]
    torch.testing.assert_close(images, expected.expand(4, 3, 12, 12), atol=1e-5, rtol=0)


def test_evaluation_is_without_augmentation_and_of_the_wanted_size(task: StreamedImages) -> None:
    other = replace(task, auto_augment="", mixup=0, cutmix=0, label_smoothing=0)
    assert evaluated(task) == evaluated(other)
    assert opened(task).eval_size == 12
    assert opened(replace(task, max_validation=5)).eval_size == 5


def test_training_metrics_can_be_computed_on_a_part(task: StreamedImages) -> None:
    whole, part = evaluated(task), evaluated(replace(task, max_train_eval=6))
    assert whole["top1"] == part["top1"]
    assert whole["train_loss"] != part["train_loss"]


def test_a_linear_model_learns_from_augmented_images(task: StreamedImages) -> None:
    task = replace(task, auto_augment="", mixup=0, cutmix=0)
    data, model = opened(task, batch_size=8), linear(task)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    batches = data.batches(0)
    before = evaluated(task)["train_loss"]
    for _ in range(60):
        optimizer.zero_grad()
        data.loss(model, next(batches)).backward()
        optimizer.step()
    with torch.no_grad():
        assert measured(data, model.eval())["train_loss"] < before / 2


def test_a_data_set_in_the_hubs_layout_is_read_through_timm(tiny_images: Path) -> None:
    write_split(tiny_images, "validation", random_images(5), [0, 1, 2, 0, 1])
    task = StreamedImages(
        f"hfds/{tiny_images}", image_size=8, num_classes=3, image_column="img", num_workers=0
    )
    assert len(task.fingerprint()) == 64
    assert opened(task).eval_size == 5
    assert opened(task).steps_per_epoch == 7
    assert same(next(opened(task).batches(3)), next(opened(task).batches(3)))
    assert set(evaluated(task)) == {metric.name for metric in task.metrics}


def test_planning_needs_no_data() -> None:
    task = StreamedImages("no/such/folder")
    assert (task.spec().image_size, task.spec().in_chans, task.spec().num_classes) == (224, 3, 1000)
    assert [metric.name for metric in task.metrics][:2] == ["top1", "top5"]


def test_classes_and_splits_of_a_folder_are_compared_when_planning(
    task: StreamedImages, digit_folder: Path
) -> None:
    with pytest.raises(DataError, match="has 3 classes of training images, and num_classes is 5"):
        replace(task, num_classes=5).fingerprint()
    (digit_folder / "val").rename(digit_folder / "later")
    with pytest.raises(DataError, match="must hold a folder 'val' or"):
        replace(task, num_classes=3, image_size=13).fingerprint()


class TestBadData:
    @pytest.mark.parametrize("data", ["no/such/folder", "hfds/ILSVRC/imagenet-1k"])
    def test_nothing_is_downloaded_unasked(self, data: str) -> None:
        for use in (StreamedImages.fingerprint, opened):
            with pytest.raises(DataError, match="HSWEEP_HUB=1"):
                use(StreamedImages(data))

    def test_a_folder_without_splits(self, tmp_path: Path) -> None:
        (tmp_path / "digit0").mkdir()
        with pytest.raises(DataError, match="must hold a folder 'train' or 'training'"):
            opened(StreamedImages(str(tmp_path)))

    def test_a_split_without_images(self, task: StreamedImages, digit_folder: Path) -> None:
        for path in (digit_folder / "val").rglob("*.png"):
            path.unlink()
        with pytest.raises(DataError, match="val cannot be used: Found 0 images"):
            opened(task)

    def test_another_number_of_classes(self, task: StreamedImages) -> None:
        with pytest.raises(
            DataError, match="has 3 classes of training images, and num_classes is 4"
        ):
            opened(replace(task, num_classes=4))

    def test_classes_that_differ_between_splits(
        self, task: StreamedImages, digit_folder: Path
    ) -> None:
        (digit_folder / "val" / "digit2").rename(digit_folder / "val" / "digit7")
        with pytest.raises(DataError, match="only one of them has 'digit2', 'digit7'"):
            opened(task)

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_an_unreadable_image_is_named(
        self, task: StreamedImages, digit_folder: Path, num_workers: int
    ) -> None:
        broken = digit_folder / "val" / "digit1" / "2.png"
        broken.write_bytes(broken.read_bytes()[:50])
        with pytest.raises(DataError, match=r"digit1/2\.png.*cannot be read"):
            evaluated(replace(task, num_workers=num_workers))

    def test_labels_outside_the_classes(self, tiny_images: Path) -> None:
        task = StreamedImages(
            f"hfds/{tiny_images}", num_classes=2, image_column="img", validation="test"
        )
        with pytest.raises(DataError, match=r"split 'train', row 2: labels must lie in 0..1"):
            opened(task)

    def test_a_missing_column_or_split(self, tiny_images: Path) -> None:
        task = StreamedImages(f"hfds/{tiny_images}", num_classes=3, validation="test")
        with pytest.raises(DataError, match="30 of 30 rows have no image in column 'image'"):
            opened(task)
        with pytest.raises(DataError, match="split 'train' cannot be read"):
            opened(replace(task, image_column="label"))
        with pytest.raises(DataError, match="label column 'kind'"):
            opened(replace(task, image_column="img", label_column="kind"))
        with pytest.raises(DataError, match="split 'dev' cannot be read"):
            opened(replace(task, image_column="img", validation="dev"))


def test_seeding_the_globals_leaves_no_trace_even_after_an_error() -> None:
    def fail() -> None:
        with seeded_globals(5):
            torch.rand(3)
            np.random.rand(3)
            raise KeyError

    with unchanged_global_state(), pytest.raises(KeyError):
        fail()
    draws = []
    for _ in range(2):
        with seeded_globals(2**63 - 1):
            draws.append((torch.rand(1).item(), np.random.rand()))
    assert draws[0] == draws[1]


def test_taking_rows_of_a_batch_takes_them_everywhere() -> None:
    batch = (torch.arange(4), {"y": torch.arange(4)})
    assert same(take(batch, slice(2)), (torch.arange(2), {"y": torch.arange(2)}))


def test_the_strongest_posterize_of_the_recipe_runs():
    # Magnitude 9 varies by half a step, so a full 10 comes up, which keeps no bit of the image.
    make_torchvision_importable()
    from timm.data.auto_augment import AugmentOp

    operation = AugmentOp("PosterizeIncreasing", prob=1, magnitude=10)
    image = Image.new("RGB", (4, 4), (200, 100, 50))
    assert operation(image).getpixel((0, 0)) == (0, 0, 0)
