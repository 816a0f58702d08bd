from collections.abc import Callable
from pathlib import Path

import pytest
from image_files import random_images, write_split
from text_tables import sentences, write_table

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing outside the test's own folder is written, and downloads are off."""
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HSWEEP_HUB", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def shared_data() -> Callable[[str], str]:
    def path(name: str) -> str:
        folder = SHARED / "data" / name
        if not folder.is_dir():
            pytest.skip(f"needs the data set {folder}, which is not there")
        return str(folder)

    return path


@pytest.fixture
def tiny_images(tmp_path: Path) -> Path:
    """Thirty training and twelve test images of 6x6 pixels in three classes."""
    folder = tmp_path / "tiny"
    write_split(folder, "train", random_images(30), [row % 3 for row in range(30)])
    write_split(folder, "test", random_images(12, seed=1), [row % 3 for row in range(12)])
    return folder


@pytest.fixture
def tiny_texts(tmp_path: Path) -> Path:
    """Sixty sentences to train on and twenty to validate on."""
    folder = tmp_path / "texts"
    write_table(folder, "train", {"text": sentences(60)})
    write_table(folder, "validation", {"text": sentences(20, seed=1)})
    return folder
