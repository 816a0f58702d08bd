"""Image files and small data sets in the hub's layout, written by the tests that read them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png")
    return file.getvalue()


def random_images(count: int, size: int = 6, seed: int = 0) -> list[bytes]:
    """Colour images as PNG files."""
    generator = np.random.default_rng(seed)
    return [png(generator.integers(0, 256, (size, size, 3), np.uint8)) for _ in range(count)]


def write_split(
    folder: Path,
    split: str,
    images: Sequence[bytes],
    labels: Sequence[Any],
    names: Sequence[str] | None = ("cat", "dog", "fox"),
    columns: tuple[str, str] = ("img", "label"),
) -> None:
    """Write one split of a data set in the hub's layout."""
    import datasets

    kind = datasets.Value("int64") if names is None else datasets.ClassLabel(names=list(names))
    if labels and isinstance(labels[0], str | float):
        kind = datasets.Value("string" if isinstance(labels[0], str) else "float64")
    features = datasets.Features({columns[0]: datasets.Image(), columns[1]: kind})
    rows = datasets.Dataset.from_dict(
        {columns[0]: [{"bytes": image, "path": None} for image in images], columns[1]: labels},
        features=datasets.Features({columns[0]: datasets.Image(decode=False), columns[1]: kind}),
    ).cast(features)
    folder.mkdir(parents=True, exist_ok=True)
    quiet = datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    rows.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    if not quiet:
        datasets.enable_progress_bars()
