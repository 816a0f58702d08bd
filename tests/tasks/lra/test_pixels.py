from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import png, write_split
from lra_models import MeanOfTokens
from sklearn.datasets import load_digits
from task_contract import CPU, TaskContract
from torch import nn

from tasks.base import DataError, Task
from tasks.lra.pixels import Pixels, grey_rows
from tasks.lra.tokens import TokenTensors, load


def loaded(task: Pixels, data_seed: int = 0) -> TokenTensors:
    return load(task, task.fingerprint(), data_seed, CPU)


class TestDigits(TaskContract):
    generated = True  # the data seed decides what is held out
    batch_size = 32

    @pytest.fixture
    def task(self) -> Task:
        return Pixels("digits", image_size=8, test=0.2, max_train=200, max_train_eval=50)

    @pytest.fixture
    def variant(self) -> Task:
        return Pixels("digits", image_size=8, test=0.2, max_train=201, max_train_eval=50)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(256, 10)


class TestTinyImages(TaskContract):
    @pytest.fixture
    def task(self, tiny_images: Path) -> Task:
        return Pixels(str(tiny_images), image_size=6, num_classes=3, validation="test", test=None)

    @pytest.fixture
    def variant(self, tiny_images: Path) -> Task:
        return Pixels(str(tiny_images), image_size=6, num_classes=3, validation=0.2, test=None)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return MeanOfTokens(256, 3)


def test_colours_become_grey_by_their_luma_and_rows_follow_one_another() -> None:
    colours = np.array(
        [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [9, 9, 9], [0, 1, 2]]
    )
    pixels = colours.astype(np.uint8).T.reshape(1, 3, 2, 3)
    # 0.299 * 255, 0.587 * 255, 0.114 * 255, and 0.587 + 0.228
    assert grey_rows(pixels).tolist() == [[76, 150, 29, 255, 9, 1]]
    assert grey_rows(pixels[:, :1]).tolist() == [[255, 0, 0, 255, 9, 0]]


def test_tokens_are_the_pixels_of_the_images(tmp_path: Path) -> None:
    folder = tmp_path / "grey"
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (9, 4, 4), np.uint8)
    write_split(folder, "train", [png(image) for image in images], [0, 1, 2] * 3)
    write_split(folder, "test", [png(image) for image in images[::-1]], [2, 1, 0] * 3)
    tensors = loaded(Pixels(str(folder), image_size=4, num_classes=3, validation=0.34))
    assert tensors.test is not None
    assert tensors.tokens(tensors.test.texts).tolist() == images[::-1].reshape(9, 16).tolist()
    parts = [tensors.tokens(part.texts) for part in (tensors.train, tensors.validation)]
    assert sorted(torch.cat(parts).tolist()) == sorted(images.reshape(9, 16).tolist())
    assert torch.bincount(tensors.validation.labels).tolist() == [1, 1, 1]
    assert parts[0].dtype == torch.int64


def test_three_parts_of_the_digits_make_up_the_whole() -> None:
    tensors = loaded(Pixels("digits", image_size=8, test=0.2))
    held = (tensors.train, tensors.validation, tensors.test)
    rows = torch.cat([part.texts for part in held if part is not None]).flatten()
    assert torch.equal(rows.sort().values, torch.arange(1797))
    assert [len(part.labels) for part in held if part is not None] == [1295, 143, 359]
    bunch = load_digits()
    for part in held:
        assert part is not None
        numbers = part.texts[:, 0].numpy()
        assert (tensors.tokens(part.texts).numpy() == bunch.data[numbers]).all()
        assert (part.labels.numpy() == bunch.target[numbers]).all()


def test_cifar10_is_read_in_grey(shared_data: Callable[[str], str]) -> None:
    task = Pixels(shared_data("cifar10"), max_train=1_000, max_test=300)
    tensors = loaded(task)
    tokens = tensors.tokens(tensors.train.texts)
    assert tokens.shape == (1_000, task.seq_len) == (1_000, 1024)
    assert tokens.min() == 0
    assert tokens.max() == 255
    # The mean of CIFAR-10's channels, 0.4914, 0.4822 and 0.4465, by luma; deviation 0.24.
    assert tokens.float().mean() / 255 == pytest.approx(0.481, abs=0.02)
    # A tenth of each class of the sample's 5,000.
    assert len(tensors.validation.labels) == pytest.approx(500, abs=5)
    assert tensors.test is not None
    assert len(tensors.test.labels) == 300


def test_what_is_announced_must_be_what_the_data_have(tiny_images: Path) -> None:
    with pytest.raises(DataError, match=r"image_size must be what .* has, 6, not 32"):
        Pixels(str(tiny_images), num_classes=3).fingerprint()
    with pytest.raises(DataError, match=r"num_classes must be what .* has, 3, not 10"):
        Pixels(str(tiny_images), image_size=6).fingerprint()
    with pytest.raises(DataError, match="must have a split 'dev'"):
        Pixels(str(tiny_images), image_size=6, num_classes=3, validation="dev").fingerprint()


def test_metrics_and_shapes_are_known_without_data() -> None:
    task = Pixels("no/such/images")
    assert task.metrics[1].name == "test_accuracy"
    assert task.spec().seq_len == 1024
    with pytest.raises(DataError, match="does not exist"):
        task.fingerprint()
