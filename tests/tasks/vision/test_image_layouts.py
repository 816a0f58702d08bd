"""Layouts of image sets that nobody prepared for this project: they work, or say what is wrong."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from image_files import random_images

from tasks.base import DataError
from tasks.vision.images import Images

IMAGES = random_images(4)
LABELS = [0, 1, 0, 1]
CPU = torch.device("cpu")


def folders(root: Path) -> Path:
    """One folder of images a class."""
    for split in ("train", "test"):
        for row, image in enumerate(IMAGES):
            folder = root / split / ("cat", "dog")[LABELS[row]]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{row}.png").write_bytes(image)
    return root


def with_a_text_file(root: Path) -> Path:
    (folders(root) / "train" / "cat" / "notes.txt").write_text("no image")
    return root


def with_a_path_of_many_words(root: Path) -> Path:
    return folders(root / "my images, 2nd try (ann's)")


def with_a_table_of_labels(root: Path) -> Path:
    for split in ("train", "test"):
        (root / split).mkdir(parents=True)
        for row, image in enumerate(IMAGES):
            (root / split / f"{row}.png").write_bytes(image)
        write_csv(root / split / "metadata.csv", "file_name", [f"{row}.png" for row in range(4)])
    return root


def with_paths_in_a_table(root: Path) -> Path:
    (root / "pictures").mkdir(parents=True)
    for row, image in enumerate(IMAGES):
        (root / "pictures" / f"{row}.png").write_bytes(image)
    for split in ("train", "test"):
        write_csv(root / f"{split}.csv", "image", [f"pictures/{row}.png" for row in range(4)])
    return root


def with_bytes(root: Path) -> Path:
    return write_parquet(root, IMAGES)


def with_bytes_and_paths(root: Path) -> Path:
    return write_parquet(root, [{"bytes": image, "path": None} for image in IMAGES])


def write_csv(path: Path, column: str, values: list[str]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([(column, "label"), *zip(values, LABELS, strict=True)])


def write_parquet(root: Path, images: list[Any], labels: list[Any] = LABELS) -> Path:
    root.mkdir(parents=True)
    for split in ("train", "test"):
        pq.write_table(pa.table({"image": images, "label": labels}), root / f"{split}.parquet")
    return root


def pixels_of(data: Path) -> torch.Tensor:
    opened: Any = Images(str(data)).open(data_seed=1, sampling_seed=1, batch_size=2, device=CPU)
    validation = opened._tensors.validation
    assert sorted(validation.labels.tolist()) == sorted(LABELS)
    return torch.stack(sorted(validation.pixels, key=lambda image: image.flatten().tolist()))


@pytest.mark.parametrize(
    "layout",
    [
        with_a_text_file,
        with_a_path_of_many_words,
        # The datasets library leaves its table open.
        pytest.param(
            with_a_table_of_labels,
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
        with_paths_in_a_table,
        with_bytes,
        with_bytes_and_paths,
    ],
)
def test_the_same_images_are_read_from_any_layout(
    layout: Callable[[Path], Path], tmp_path: Path
) -> None:
    expected = pixels_of(folders(tmp_path / "folders"))
    assert torch.equal(pixels_of(layout(tmp_path / "other")), expected)


def test_a_broken_file_is_named_by_its_path(tmp_path: Path) -> None:
    data = folders(tmp_path / "data")
    (data / "train" / "dog" / "1.png").write_bytes(b"no image at all")
    with pytest.raises(DataError, match=r"row 2 \(.*train/dog/1\.png\).* no format that Pillow"):
        pixels_of(data)


def test_a_file_that_a_table_names_and_nobody_has_is_said(tmp_path: Path) -> None:
    data = with_paths_in_a_table(tmp_path / "data")
    (data / "pictures" / "2.png").unlink()
    with pytest.raises(DataError, match=r"row 2 .*No such file or directory.*pictures/2\.png"):
        pixels_of(data)


@pytest.mark.parametrize(
    ("images", "labels", "complaint"),
    [
        ([*IMAGES[:3], None], LABELS, r"row 3: .* \(there is none\)"),
        (IMAGES, [0, None, 1, 1], r"row 1: there is no label"),
        (IMAGES, ["cat", "dog", "cat", "dog"], "labels must be whole numbers .* such as 'cat'"),
        ([1, 2, 3, 4], LABELS, "column 'image' of .* must hold images, .* not Value\\('int64'\\)"),
    ],
)
def test_what_is_no_image_or_no_label_is_said(
    tmp_path: Path, images: list[Any], labels: list[Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        pixels_of(write_parquet(tmp_path / "data", images, labels))
