"""The identity of trials: content hashes of everything that determines a result.

A key covers the model, the task and its data, the recipe, the budget, the seeds and the code that
a trial runs (``hsweep.planning.code``). It does not cover the axis names of the point: two points
that lead to the same model and training are one trial. (A user's training is given the point
itself, with its names, which stands for the model.) Nor does it cover fields that are declared
as changing no result (``tasks.base.not_in_key``), or versions of installed packages: a study goes
on with what it has. But a result is taken from another study only if the versions agree, so these
are recorded beside the code, as a trial's origin.
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any, Final

from hsweep.design.user_training import TRAINING_PARTS
from hsweep.planning.code import Code
from hsweep.planning.content import content_hash

_KEY_FORMAT: Final = 1
CONTENT_PARTS: Final = (
    *("model", "task", "data", "recipe", "budget", "seeds"),
    *("point", *TRAINING_PARTS),
)
CODE_PARTS: Final = ("model_code", "task_code", "training_code", *TRAINING_PARTS.values())
"""The parts of a key: what is trained, and the code that trains it. A trial has those that its kind
of training has."""

Accepted = Mapping[str, str]
"""Digests of code that a study accepts as doing the same, each with that of the code whose keys
its trials have."""

_COMPUTE: Final = ("torch", "timm", "transformers", "numpy")
"""Packages whose versions are always recorded."""

hash_for_key: Final = partial(content_hash, for_key=True)


def key_of(parts: Mapping[str, str], accepted: Accepted | None = None) -> str:
    """Return the key of the trial with these parts: ``t`` and 20 hexadecimal digits (a leading
    letter, since trackers take all-digit names for numbers).

    Args:
        parts: content hashes by name, but for ``data``, which is the task's fingerprint.
        accepted: code that is taken for other code.
    """
    content = {name: parts[name] for name in CONTENT_PARTS if name in parts}
    code = {name: parts[name] for name in CODE_PARTS if name in parts}
    if accepted:
        code = {name: accepted.get(digest, digest) for name, digest in code.items()}
    return "t" + content_hash({"format": _KEY_FORMAT, **content, **code})


def parts_of(
    content: Mapping[str, Any],
    code: Mapping[str, Code],
    fingerprint: str,
    hashed: Callable[[Any], str] = hash_for_key,
) -> tuple[dict[str, str], str]:
    """Return the parts of the keys of a point's trials, without budget and seeds.

    Args:
        content: what is trained and how, by the parts of ``CONTENT_PARTS``.
        code: by the parts of ``CODE_PARTS``.
        fingerprint: of the data.
        hashed: hashes one part of the content.

    Returns:
        The parts, and the origin of what is trained in this process (see ``origin_text``).

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    hashes = {name: hashed(value) for name, value in content.items()}
    digests = {name: each.digest for name, each in code.items()}
    return {**hashes, "data": fingerprint, **digests}, _origin(tuple(code.items()))


@cache
def _origin(code: tuple[tuple[str, Code], ...]) -> str:
    # What every training imports is told in any case.
    libraries = {name for part, each in code if part != "training_code" for name in each.libraries}
    return origin_text({part: each.digest for part, each in code}, versions_of(libraries))


def origin_text(code: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Return the code and the versions that trained a trial, as JSON in one form.

    Args:
        code: digest of the code, by the parts of a key.
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
    by_name = {name: _version(name) for name in sorted({*_COMPUTE, *names})}
    python = ".".join(map(str, sys.version_info[:2]))
    return {"python": python, **{name: text for name, text in by_name.items() if text}}


def differing(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names that both have with different versions."""
    return [name for name in mine if name in other and mine[name] != other[name]]


@cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def _packages(library: str) -> tuple[str, ...]:
    """Return the packages that an import name comes from."""
    if _version(library):
        return (library,)
    return tuple(dict.fromkeys(_by_import_name().get(library, ())))


@cache
def _by_import_name() -> Mapping[str, list[str]]:
    # Reads what every installed package holds, which takes some tenths of a second.
    return importlib.metadata.packages_distributions()
