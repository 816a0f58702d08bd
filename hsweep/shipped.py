"""The sweeps that come with this project, found by their names alone."""

from pathlib import Path
from typing import Final

from hsweep.errors import ROOT, UserError, unknown_name

_FOLDER: Final = ROOT / "sweeps"


def shipped_sweeps() -> dict[str, Path]:
    """Return the sweep files that are installed with this project, by name."""
    files = sorted(_FOLDER.glob("*.py"))
    return {file.stem: file for file in files if file.stem != "__init__"}


def sweep_path(named: Path) -> Path:
    """Return the file that is meant by a path, or by the name of a sweep that comes with hsweep:
    one word without an ending. No file is opened.

    Raises:
        UserError: no sweep has this name, or a file beside has it too.
    """
    if len(named.parts) != 1 or named.suffix or named.is_file() or named.name in ("", ".."):
        return named
    name, local = named.name, named.with_suffix(".py")
    shipped = shipped_sweeps()
    if name not in shipped:
        if local.is_file():
            raise UserError(f"a sweep is named by its file; {name} is none, but {local} is there")
        if named.exists():  # a folder, which the loader refuses
            return named
        unknown = unknown_name("sweep", name, shipped)
        raise UserError(f"{unknown} One of your own is given by its file, as in {local}")
    if local.is_file() and not local.samefile(shipped[name]):
        raise UserError(
            f"{name} is a sweep that comes with hsweep, and {local} is yours; give {local} for "
            f"yours, or {shipped[name]} for the other"
        )
    return shipped[name]
