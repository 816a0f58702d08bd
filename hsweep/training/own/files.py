"""A user's checkpoint, a folder or a file, as tensors of bytes and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def files_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return the content of a file, or of all files below a folder, by path."""
    if checkpoint.is_file():
        return {checkpoint.name: _content(checkpoint)}
    return {
        str(file.relative_to(checkpoint)): _content(file)
        for file in sorted(checkpoint.rglob("*"))
        if file.is_file()
    }


def holds_files(saved: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is one of files.

    Raises:
        KeyError: it is of another kind.
    """
    return isinstance(saved["files"], dict) and "is_one_file" in saved


def write_files(saved: Mapping[str, Any], folder: Path) -> Path:
    """Write the files of a checkpoint into a folder; return the folder, or the one file in it where
    the checkpoint was a file."""
    for name, content in saved["files"].items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.numpy().data)
    return folder / next(iter(saved["files"])) if saved["is_one_file"] else folder


def _content(file: Path) -> torch.Tensor:
    content = file.read_bytes()
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
