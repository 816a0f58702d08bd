"""What trained a trial beside what its settings say: code, and versions of what computes.

Versions are no part of a trial's key: a study goes on with what it has. But a result is taken from
another study only if they agree.
"""

import functools
import importlib.metadata
import json
import sys
from collections.abc import Collection, Mapping
from typing import Final

_ALWAYS: Final = ("torch", "timm", "transformers", "numpy")


def origin_text(code: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Return what trained a trial as JSON in one form.

    Args:
        code: digest of the code, by the parts of a key (see ``hsweep.planning.code``).
        versions: of Python and of the installed packages that compute.
    """
    content = {"code": dict(code), "versions": dict(versions)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def versions_of(libraries: Collection[str]) -> dict[str, str]:
    """Return the versions of packages that compute, by their names, and Python's without its patch.

    Args:
        libraries: import names of installed packages, beside those that always compute.
    """
    names = {name for each in libraries for name in _packages(each)}
    found = {name: _version(name) for name in sorted({*_ALWAYS, *names})}
    python = ".".join(map(str, sys.version_info[:2]))
    return {"python": python, **{name: text for name, text in found.items() if text}}


def differing(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names that both have with different versions."""
    return [name for name in mine if name in other and mine[name] != other[name]]


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def _packages(library: str) -> tuple[str, ...]:
    """Return the packages that an import name comes from."""
    if _version(library):
        return (library,)
    return tuple(dict.fromkeys(_by_import_name().get(library, ())))


@functools.cache
def _by_import_name() -> Mapping[str, list[str]]:
    # Reads what every installed package holds, which takes some tenths of a second.
    return importlib.metadata.packages_distributions()
