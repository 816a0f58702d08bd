"""The identity of trials: content hashes of everything that determines a result.

A key covers the model, the task and its data, the recipe, the budget, the seeds and the code that
a trial runs (``hsweep.planning.code``). It does not cover the axis names of the point: two points
that lead to the same model and training are one trial. (A user's training is given the point
itself, with its names, which stands for the model.) Nor does it cover fields that are declared
as changing no result (``tasks.base.not_in_key``), or versions of installed packages: a study goes
on with what it has. But a result is taken from another study only if the versions agree, so these
are recorded beside the code, as a trial's origin.
"""

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from hsweep.design.user_training import TRAINING_PARTS, captured
from hsweep.errors import NESTED, UserError, plain_number, shown
from hsweep.record.provenance import version_of
from tasks.base import is_in_key

if TYPE_CHECKING:
    from hsweep.planning.code import Code

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

_PLAIN_KINDS: Final = frozenset({bool, int, str})
_ONE_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def describe(value: Any, *, for_key: bool = False, names_functions: bool = False) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions.

    Args:
        for_key: leave out the fields that change no result.
        names_functions: describe functions and classes by their names and the arguments bound to
            them; their code is a part of the key by itself.

    Raises:
        UserError: a part with no content to compare, such as a function.
    """
    if value is None or type(value) in _PLAIN_KINDS:
        return value
    if isinstance(value, float) and value.is_integer():
        # A rate written 1 or 1.0 trains the same.
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Enum):
        return describe(value.value)
    if isinstance(value, Path):
        return str(value)
    part = partial(describe, for_key=for_key, names_functions=names_functions)
    if (number := plain_number(value)) is not value:
        return part(number)
    if names_functions and isinstance(value, FunctionType):
        around = part(captured(value))
        return {"name": value.__qualname__, **({"captured": around} if around else {})}
    if names_functions and isinstance(value, type | ModuleType):
        return value.__qualname__ if isinstance(value, type) else value.__name__
    if names_functions and isinstance(value, partial):
        return part((value.func, value.args, value.keywords))
    kind = type(value)
    if hasattr(kind, "key_content"):  # more than its fields identifies it
        is_record = not for_key and hasattr(kind, "record_content")
        content = value.record_content() if is_record else value.key_content()
        described = describe(content, for_key=for_key, names_functions=True)
        return {"type": kind.__qualname__, **described}
    names = _field_names(cast(Hashable, kind), for_key)
    if names is not None:
        content = {name: part(getattr(value, name)) for name in names}
        return {"type": kind.__qualname__, **content}
    if isinstance(value, Mapping):
        return {str(name): part(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [part(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(part, value), key=repr)
    raise UserError(
        "a model, task, recipe or argument of a training function is a frozen dataclass of plain "
        "values, or such a value, so that equal trials can be recognised; found "
        f"{shown(value)} of type {kind.__name__}"
    )


@cache
def _field_names(kind: Hashable, for_key: bool) -> tuple[str, ...] | None:
    assert isinstance(kind, type)
    if not is_dataclass(kind):
        return None
    return tuple(field.name for field in fields(kind) if is_in_key(field) or not for_key)


def content_hash(value: Any, *, for_key: bool = False) -> str:
    """Return 20 hexadecimal digits of the description of ``value``; UserError for a part with no
    content to compare, or a number that is not finite."""
    try:
        text = _ONE_FORM.encode(describe(value, for_key=for_key))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"a model, task or recipe holds finite numbers only; found {shown(value)}"
        ) from error
    except RecursionError as error:
        raise UserError(NESTED) from error
    return hashlib.sha256(text.encode()).hexdigest()[:20]


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
    code: Mapping[str, "Code"],
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
    digests = {name: part.digest for name, part in code.items()}
    return {**hashes, "data": fingerprint, **digests}, _origin(tuple(code.items()))


@cache
def _origin(code: "tuple[tuple[str, Code], ...]") -> str:
    # All trials share the libraries of the training code, so these tell no trials apart.
    libraries = {
        name for part, source in code if part != "training_code" for name in source.libraries
    }
    names = {*_COMPUTE, *(name for library in libraries for name in _packages(library))}
    versions = {name: text for name in names if (text := version_of(name))}
    versions["python"] = ".".join(map(str, sys.version_info[:2]))
    return origin_text({part: source.digest for part, source in code}, versions)


def origin_text(code: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Return the code that trained a trial, digests by the parts of a key, and the versions of
    Python and of the packages that compute, as JSON in one form."""
    content = {"code": dict(code), "versions": dict(versions)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def differing(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names that both have with different versions."""
    return [name for name in mine if name in other and mine[name] != other[name]]


# Reads what every installed package holds, which takes some tenths of a second.
_by_import_name: Final = cache(importlib.metadata.packages_distributions)


@cache
def _packages(library: str) -> tuple[str, ...]:
    """Return the packages that an import name comes from."""
    if version_of(library):
        return (library,)
    return tuple(dict.fromkeys(_by_import_name().get(library, ())))
