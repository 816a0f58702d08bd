import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import png, random_images, write_split
from task_contract import CPU, TaskContract, measured, same
from torch import Tensor, nn

from tasks.base import DataError, Task
from tasks.sampling import generator, held_out_rows, seeded_globals, stream_seed
from tasks.vision.images import ImageData, Images, augmented, channel_statistics, load
from tasks.vision.learning import timm_data


def linear(task: Images) -> nn.Module:
    spec = task.spec()
    layer = nn.Linear(spec.in_chans * spec.image_size**2, spec.num_classes)
    with torch.no_grad():
        layer.weight.normal_(0, 0.05, generator=torch.Generator().manual_seed(0))
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def opened(task: Images, data_seed: int = 1, batch_size: int = 4) -> ImageData:
    data = task.open(data_seed=data_seed, sampling_seed=2, batch_size=batch_size, device=CPU)
    assert isinstance(data, ImageData)
    return data


def first_batch(task: Images) -> tuple[Tensor, Tensor]:
    return next(opened(task).batches(0))


class TestDigits(TaskContract):
    generated = True  # the data seed decides the split

    @pytest.fixture
    def task(self) -> Task:
        return Images("digits", max_train=40)

    @pytest.fixture
    def variant(self, task: Task) -> Task:
        return Images("digits", max_train=41)

    @pytest.fixture
    def model(self, task: Images) -> nn.Module:
        return linear(task)


class TestDecodedImages(TaskContract):
    @pytest.fixture
    def task(self, tiny_images: Path) -> Task:
        return Images(str(tiny_images), crop_padding=1, flip=True)

    @pytest.fixture
    def variant(self, task: Images) -> Task:
        return Images(task.data, crop_padding=1, flip=False)

    @pytest.fixture
    def model(self, task: Images) -> nn.Module:
        return linear(task)


class TestSplits:
    def test_digits_are_divided_by_class(self) -> None:
        data = opened(Images("digits"))
        tensors = data._tensors
        assert len(tensors.train.labels) + len(tensors.validation.labels) == 1797
        assert data.eval_size == 359
        assert tensors.validation.labels.bincount().tolist() == [
            36,
            36,
            35,
            37,
            36,
            36,
            36,
            36,
            35,
            36,
        ]

    def test_one_data_seed_gives_one_split_whatever_the_model_sees(self) -> None:
        small, large = opened(Images("digits")), opened(Images("digits", image_size=16))
        assert same(small._tensors.train.labels, large._tensors.train.labels)
        assert same(small._tensors.validation.labels, large._tensors.validation.labels)

    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.integers(0, 4), min_size=1, max_size=60),
        st.floats(0.05, 0.95),
        st.integers(0, 2**63 - 1),
    )
    def test_the_held_out_share_of_each_class_is_as_asked(
        self, labels: list[int], held_out: float, seed: int
    ) -> None:
        rows = held_out_rows(torch.tensor(labels), held_out, seed)
        for label in set(labels):
            of_class = rows[torch.tensor(labels) == label]
            assert int(of_class.sum()) == round(held_out * len(of_class))

    def test_a_validation_split_is_preferred_to_a_test_split(self, tiny_images: Path) -> None:
        assert opened(Images(str(tiny_images))).eval_size == 12
        write_split(tiny_images, "validation", random_images(5), [0, 1, 2, 0, 1])
        assert opened(Images(str(tiny_images))).eval_size == 5
        assert opened(Images(str(tiny_images), validation="test")).eval_size == 12
        assert opened(Images(str(tiny_images), validation=0.2)).eval_size == 6

    def test_a_subset_is_the_same_for_equal_data_seeds_alone(self, tiny_images: Path) -> None:
        task = Images(str(tiny_images), max_train=10, max_validation=7)
        assert opened(task).eval_size == 7
        assert len(opened(task)._tensors.train.labels) == 10
        assert same(opened(task)._tensors.train, opened(task)._tensors.train)
        assert not same(opened(task)._tensors.train, opened(task, data_seed=9)._tensors.train)

    def test_training_metrics_can_be_computed_on_a_part(self, tiny_images: Path) -> None:
        data = opened(Images(str(tiny_images), max_train_eval=9))
        assert len(data._tensors.train_eval.labels) == 9
        assert len(data._tensors.train.labels) == 30

    def test_holding_out_must_leave_images_on_both_sides(self, tiny_images: Path) -> None:
        with pytest.raises(DataError, match="no validation images are left"):
            opened(Images(str(tiny_images), validation=0.01))


class TestPixels:
    def test_training_images_are_normalised_by_channel(self) -> None:
        tensors = opened(Images("digits"))._tensors
        values = (tensors.train.pixels.double() - tensors.mean) / tensors.std
        assert values.mean().item() == pytest.approx(0, abs=1e-6)
        assert values.std(correction=0).item() == pytest.approx(1, abs=1e-6)

    def test_a_constant_channel_is_only_centred(self) -> None:
        mean, std = channel_statistics(torch.full((3, 2, 4, 4), 7, dtype=torch.uint8))
        assert mean.flatten().tolist() == [7, 7]
        assert std.flatten().tolist() == [1, 1]

    def test_decoded_pixels_are_those_of_the_files(self, tmp_path: Path) -> None:
        pixels = np.random.default_rng(3).integers(0, 256, (4, 5, 5, 3), np.uint8)
        for split in ("train", "test"):
            write_split(tmp_path / "data", split, [png(image) for image in pixels], [0, 1, 2, 0])
        decoded = opened(Images(str(tmp_path / "data")))._tensors.validation.pixels
        assert np.array_equal(decoded.numpy(), pixels.transpose(0, 3, 1, 2))

    def test_grey_images_have_one_channel_and_among_colour_images_three(
        self, tmp_path: Path
    ) -> None:
        grey = png(np.full((6, 6), 9, np.uint8))
        write_split(tmp_path / "grey", "train", [grey, grey], [0, 1])
        write_split(tmp_path / "grey", "test", [grey], [0])
        assert Images(str(tmp_path / "grey")).spec().in_chans == 1
        write_split(tmp_path / "both", "train", [*random_images(1), grey], [0, 1])
        write_split(tmp_path / "both", "test", [grey], [0])
        pixels = opened(Images(str(tmp_path / "both")))._tensors.validation.pixels
        assert pixels.shape == (1, 3, 6, 6)
        assert pixels.unique().tolist() == [9]

    @pytest.mark.parametrize("fit", ["resize", "border", "edge"])
    def test_images_come_in_the_wanted_size(self, fit: str, tiny_images: Path) -> None:
        task = Images(str(tiny_images), image_size=9, fit=fit)  # type: ignore[arg-type]
        assert task.spec().image_size == 9
        assert first_batch(task)[0].shape == (4, 3, 9, 9)

    def test_a_border_is_the_mean_colour_or_repeats_the_edge(self, tiny_images: Path) -> None:
        native, _ = first_batch(Images(str(tiny_images)))
        border, _ = first_batch(Images(str(tiny_images), image_size=9, fit="border"))
        edge, _ = first_batch(Images(str(tiny_images), image_size=9, fit="edge"))
        for extended in (border, edge):
            assert torch.equal(extended[:, :, 1:7, 1:7], native)
        assert not border[:, :, 0].any()
        assert not border[:, :, 7:].any()
        assert torch.equal(edge[:, :, 8, 1:7], native[:, :, 5])

    def test_a_border_cannot_make_images_smaller(self, tiny_images: Path) -> None:
        with pytest.raises(DataError, match="at least the native 6, not 5"):
            Images(str(tiny_images), image_size=5, fit="edge").spec()
        assert first_batch(Images(str(tiny_images), image_size=5))[0].shape == (4, 3, 5, 5)


class TestAugmentation:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 3), st.booleans(), st.integers(0, 1000))
    def test_each_image_is_a_crop_of_its_padded_self_or_of_its_mirror_image(
        self, padding: int, flip: bool, seed: int
    ) -> None:
        pixels = torch.randint(1, 256, (5, 2, 4, 4), generator=generator(seed)).byte()
        result = augmented(pixels, padding, flip, generator(seed, 1))
        padded = nn.functional.pad(pixels, (padding,) * 4)
        for image, wide in zip(result, padded, strict=True):
            sides = [wide, wide.flip(-1)] if flip else [wide]
            crops = [
                side[:, top : top + 4, left : left + 4]
                for side in sides
                for top in range(2 * padding + 1)
                for left in range(2 * padding + 1)
            ]
            assert any(torch.equal(image, crop) for crop in crops)

    def test_images_of_a_batch_move_independently(self) -> None:
        pixels = torch.arange(16).byte().reshape(1, 1, 4, 4).expand(64, 1, 4, 4)
        distinct = {
            tuple(image.flatten().tolist()) for image in augmented(pixels, 1, True, generator(0))
        }
        assert len(distinct) > 10

    def test_it_is_off_by_default_and_never_in_evaluation(self, tiny_images: Path) -> None:
        plain, moved = Images(str(tiny_images)), Images(str(tiny_images), crop_padding=2, flip=True)
        assert not same(first_batch(plain), first_batch(moved))
        model = linear(plain).eval()
        with torch.no_grad():
            assert measured(opened(plain), model) == measured(opened(moved), model)

    def test_label_smoothing_changes_the_loss_and_not_the_metrics(self, tiny_images: Path) -> None:
        plain, smooth = (
            opened(Images(str(tiny_images))),
            opened(Images(str(tiny_images), label_smoothing=0.5)),
        )
        model, batch = linear(Images(str(tiny_images))).eval(), next(plain.batches(0))
        assert plain.loss(model, batch).item() != smooth.loss(model, batch).item()
        with torch.no_grad():
            assert measured(plain, model) == measured(smooth, model)


class TestMixing:
    def test_it_is_timms_drawn_anew_at_each_step_and_never_in_evaluation(self) -> None:
        settings = {"max_train": 16, "max_validation": 8}
        plain = Images(**settings)
        mixing = {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1}
        mixed = opened(Images(**settings, **mixing), batch_size=4)
        batches = list(itertools.islice(mixed.batches(0), 5))
        assert same(list(itertools.islice(mixed.batches(3), 2)), batches[3:])
        mix = timm_data().Mixup(0.8, 1.0, label_smoothing=0.1, num_classes=10)
        for step, (images, labels) in enumerate(
            itertools.islice(opened(plain, batch_size=4).batches(0), 5)
        ):
            with seeded_globals(stream_seed(2, step, 2)):
                assert same(batches[step], mix(images, labels))
        model = linear(plain).eval()
        images, targets = batches[0]
        assert targets.shape == (4, 10)
        expected = nn.functional.cross_entropy(model(images), targets)
        assert torch.equal(mixed.loss(model, batches[0]), expected)
        with torch.no_grad():
            assert measured(mixed, model) == measured(opened(plain, batch_size=4), model)

    def test_it_needs_pairs(self) -> None:
        with pytest.raises(ValueError, match="a batch must be even, not 3"):
            opened(Images(max_train=16, mixup=0.8), batch_size=3)


class TestMetrics:
    def test_they_agree_with_counting_by_hand(self) -> None:
        task = Images("digits", max_validation=50)
        data, model = opened(task), linear(task).eval()
        tensors = data._tensors
        images = (tensors.validation.pixels.float() - tensors.mean) / tensors.std
        with torch.no_grad():
            logits, values = model(images), measured(data, model)
        right = sum(
            int(row.argmax()) == int(label)
            for row, label in zip(logits, tensors.validation.labels, strict=True)
        )
        assert values["top1"] == right / 50
        log_p = logits.double().log_softmax(1)
        loss = -log_p.gather(1, tensors.validation.labels[:, None]).mean().item()
        assert values["validation_loss"] == pytest.approx(loss, rel=1e-5)

    def test_top5_is_reported_from_six_classes_on(self, tmp_path: Path) -> None:
        names = [str(number) for number in range(6)]
        for split in ("train", "test"):
            write_split(tmp_path / "d", split, random_images(6), list(range(6)), names)
        task = Images(str(tmp_path / "d"))
        assert [metric.name for metric in task.metrics][:2] == ["top1", "top5"]
        model = linear(task).eval()
        with torch.no_grad():
            values = measured(opened(task), model)
        assert set(values) == {metric.name for metric in task.metrics}
        assert values["top1"] <= values["top5"] <= 1
        assert values["train_top1"] <= values["train_top5"] <= 1

    def test_top5_agrees_with_counting_by_hand(self) -> None:
        task = Images("digits", max_validation=60, max_train_eval=70)
        data, model = opened(task), linear(task).eval()
        tensors = data._tensors
        with torch.no_grad():
            values = measured(data, model)
            for name, images in (("top5", tensors.validation), ("train_top5", tensors.train_eval)):
                logits = model((images.pixels.float() - tensors.mean) / tensors.std)
                right = sum(
                    int(label) in sorted(range(10), key=row.tolist().__getitem__)[-5:]
                    for row, label in zip(logits, images.labels, strict=True)
                )
                assert values[name] == right / len(images.labels)

    def test_five_classes_have_no_top5(self, tiny_images: Path) -> None:
        assert not {metric.name for metric in Images(str(tiny_images)).metrics} & {
            "top5",
            "train_top5",
        }

    def test_a_linear_model_learns_the_digits(self) -> None:
        task = Images("digits")
        data, model = opened(task, batch_size=64), linear(task)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        batches = data.batches(0)
        for _ in range(5 * data.steps_per_epoch):
            optimizer.zero_grad()
            data.loss(model, next(batches)).backward()
            optimizer.step()
        with torch.no_grad():
            values = measured(data, model.eval())
        assert values["top1"] > 0.9
        assert values["train_top1"] > 0.9

    def test_the_model_must_return_one_logit_a_class(self, tiny_images: Path) -> None:
        data = opened(Images(str(tiny_images)))
        model = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
        with pytest.raises(ValueError, match=r"shape \(4, 3\) for 4 images, not \(4, 4\)"):
            data.loss(model, next(data.batches(0)))


class TestFingerprint:
    def test_it_follows_the_content_and_not_the_place(self, tiny_images: Path) -> None:
        before = Images(str(tiny_images)).fingerprint()
        moved = tiny_images.with_name("moved")
        shutil.copytree(tiny_images, moved)
        assert Images(str(moved)).fingerprint() == before
        write_split(moved, "test", random_images(12, seed=2), [row % 3 for row in range(12)])
        assert Images(str(moved)).fingerprint() != before

    def test_changed_data_are_read_again(self, tiny_images: Path) -> None:
        task = Images(str(tiny_images))
        before = opened(task)._tensors.validation
        write_split(tiny_images, "test", random_images(7, seed=2), [0, 1, 2, 0, 1, 2, 0])
        assert opened(task).eval_size == 7
        assert not torch.equal(opened(task)._tensors.validation.pixels, before.pixels[:7])


def test_images_are_decoded_once(
    tiny_images: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Images(str(tiny_images))
    first = opened(task)._tensors
    load.cache_clear()

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr("tasks.vision.image_arrays._decode", refuse)
    again = opened(task)._tensors
    assert again is not first
    assert same(again.train, first.train)
    assert not [path for path in cache.iterdir() if path.is_dir() and "." in path.name]


class TestBadData:
    @pytest.mark.parametrize("data", ["no/such/folder", "uoft-cs/cifar10"])
    def test_nothing_is_downloaded_unasked(self, data: str) -> None:
        with pytest.raises(DataError, match=f"'{data}' does not exist.*HSWEEP_HUB=1"):
            Images(data).fingerprint()
        with pytest.raises(DataError, match="HSWEEP_HUB=1"):
            opened(Images(data))

    def test_a_file_is_not_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match=r"must be a folder.*file"):
            Images(str(tmp_path / "file")).fingerprint()

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="holds no files"):
            Images(str(tmp_path)).fingerprint()

    def test_a_folder_without_data(self, tmp_path: Path) -> None:
        (tmp_path / "notes.xyz").write_text("nothing")
        with pytest.raises(DataError, match="cannot load"):
            Images(str(tmp_path)).fingerprint()

    def test_a_damaged_file(self, tiny_images: Path) -> None:
        (tiny_images / "train-00000-of-00001.parquet").write_bytes(b"PAR1 not really")
        with pytest.raises(DataError, match="cannot load"):
            Images(str(tiny_images)).fingerprint()

    def test_no_split_to_validate_on(self, tmp_path: Path) -> None:
        write_split(tmp_path / "d", "train", random_images(6), [0, 1, 2] * 2)
        with pytest.raises(DataError, match=r"'validation' or .*'test'.* it has 'train'"):
            Images(str(tmp_path / "d")).fingerprint()
        assert opened(Images(str(tmp_path / "d"), validation=0.5)).eval_size == 3

    def test_no_split_to_train_on(self, tmp_path: Path) -> None:
        write_split(tmp_path / "d", "test", random_images(3), [0, 1, 2])
        with pytest.raises(DataError, match="must have a split 'train'; it has 'test'"):
            Images(str(tmp_path / "d")).fingerprint()

    def test_an_empty_split(self, tiny_images: Path) -> None:
        write_split(tiny_images, "test", [], [])
        with pytest.raises(DataError, match=r"'test'.* has no rows|cannot load"):
            Images(str(tiny_images)).fingerprint()

    def test_other_column_names_have_to_be_given(self, tmp_path: Path) -> None:
        for split in ("train", "test"):
            write_split(tmp_path / "d", split, random_images(3), [0, 1, 2], columns=("pic", "kind"))
        with pytest.raises(DataError, match="image column 'img' or 'image'; it has 'pic', 'kind'"):
            Images(str(tmp_path / "d")).fingerprint()
        with pytest.raises(DataError, match=r"label column .* it has 'pic', 'kind'"):
            Images(str(tmp_path / "d"), image_column="pic").fingerprint()
        with pytest.raises(DataError, match="must hold images"):
            Images(str(tmp_path / "d"), image_column="kind", label_column="kind").fingerprint()
        named = Images(str(tmp_path / "d"), image_column="pic", label_column="kind")
        assert opened(named).eval_size == 3

    def test_an_unreadable_image_is_named_by_its_row(self, tiny_images: Path) -> None:
        images = random_images(3)
        images[1] = images[1][:40]
        write_split(tiny_images, "test", images, [0, 1, 2])
        with pytest.raises(
            DataError,
            match=r"split 'test', row 1: the image cannot be read",
        ):
            opened(Images(str(tiny_images)))

    def test_images_of_several_sizes(self, tiny_images: Path) -> None:
        write_split(tiny_images, "test", random_images(1) + random_images(1, size=7), [0, 1])
        with pytest.raises(DataError, match=r"split 'test', row 1 has \(3, 7, 7\)"):
            opened(Images(str(tiny_images)))

    def test_images_that_are_not_square(self, tiny_images: Path) -> None:
        write_split(tiny_images, "train", [png(np.zeros((4, 6, 3), np.uint8))], [0])
        with pytest.raises(DataError, match="4 rows and 6 columns"):
            Images(str(tiny_images)).spec()

    def test_sixteen_bit_images(self, tiny_images: Path) -> None:
        write_split(tiny_images, "train", [png(np.zeros((6, 6), np.uint16))], [0])
        with pytest.raises(DataError, match=r"row 0: images must have 8 bits .*'I;16'"):
            Images(str(tiny_images)).spec()

    @pytest.mark.parametrize("names", [None, ("cat", "dog", "fox")])
    def test_labels_outside_the_classes(
        self, tiny_images: Path, names: tuple[str, ...] | None
    ) -> None:
        write_split(tiny_images, "train", random_images(3), [0, 1, 2], names)
        write_split(tiny_images, "test", random_images(3), [0, -1, 2], names)
        with pytest.raises(
            DataError, match=r"split 'test', row 1: labels must lie in 0..2, not -1"
        ):
            Images(str(tiny_images)).fingerprint()

    def test_labels_that_are_not_numbers(self, tiny_images: Path) -> None:
        for split in ("train", "test"):
            write_split(tiny_images, split, random_images(2), ["cat", "dog"])
        with pytest.raises(DataError, match="labels must be whole numbers"):
            Images(str(tiny_images)).fingerprint()


def test_cifar10_in_the_hubs_layout(shared_data: Callable[[str], str]) -> None:
    task = Images(shared_data("cifar10"), crop_padding=4, flip=True)
    spec = task.spec()
    assert (spec.image_size, spec.in_chans, spec.num_classes) == (32, 3, 10)
    data = opened(task, batch_size=128)
    assert (data.steps_per_epoch, data.eval_size) == (39, 1000)
    tensors = data._tensors
    # The published channel means of CIFAR-10, which the first 5,000 images come close to.
    means = (tensors.mean.flatten() / 255).tolist()
    assert means == pytest.approx([0.491, 0.482, 0.447], abs=0.01)
    images, labels = next(data.batches(0))
    assert images.shape == (128, 3, 32, 32)
    assert labels.unique().tolist() == list(range(10))


def test_a_name_is_found_under_the_data_root(tmp_path, monkeypatch):
    monkeypatch.setenv("HSWEEP_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    assert Images(data="uoft-cs/cifar10").data == str(tmp_path / "cifar10")
    assert Images(data="cifar10").data == str(tmp_path / "cifar10")
    assert Images(data="uoft-cs/cifar100").data == "uoft-cs/cifar100"
