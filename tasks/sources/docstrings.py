"""The text that comes with every Python: the docstrings of its standard library."""

import ast
import functools
import sysconfig
from pathlib import Path
from typing import Final

from tasks.base import DataError
from tasks.sources.digest import files_digest
from tasks.sources.hub import content_digest

DOCSTRINGS: Final = "docstrings"
"""The name of the docstrings as data of a task."""


@functools.cache
def docstrings() -> tuple[str, ...]:
    """Return the distinct docstrings of the top-level modules of the running interpreter's standard
    library, and of the classes and functions in them.

    Raises:
        DataError: it has no sources.
    """
    texts: dict[str, None] = {}
    for path in _files():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts[ast.get_docstring(node) or ""] = None
    texts.pop("", None)
    return tuple(texts)


@functools.cache
def docstrings_digest() -> str:
    """Return a hash of the standard library's source files.

    Raises:
        DataError: there are none.
    """
    return files_digest(_folder(), _files())


def text_digest(data: str, config: str | None) -> str:
    """Return a hash of the docstrings, or of a data set's files.

    Raises:
        DataError: they are missing or cannot be read.
    """
    return docstrings_digest() if data == DOCSTRINGS else content_digest(data, config)


def _folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _files() -> list[Path]:
    files = sorted(_folder().glob("*.py"))
    if not files:
        raise DataError(
            f"{DOCSTRINGS} need the standard library's sources, and {_folder()} has none; give "
            "data another text"
        )
    return files
