"""Folders on a disk of so many bytes, and on one where nothing can be written."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*arguments: str | Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Make a folder on a disk of this size, such as ``48k``."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def read_only(inside: Path, outside: Path) -> Iterator[Path]:
    """Show a folder once more where nothing can be written."""
    for folder in (inside, outside):
        folder.mkdir(exist_ok=True)
    _mount("--bind", inside, outside)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", outside], check=True)
        yield outside
    finally:
        subprocess.run(["umount", outside], check=True)
