"""What makes two trials the same: content hashes of all that determines a result.

A key covers the model, the task and its data, the recipe, the budget, the seeds and the code that
a trial runs (``hsweep.planning.code``). It does not cover the axis names of the point: two points
that lead to the same model and training are one trial. Nor does it cover fields that are declared
as changing no result (``tasks.base.not_in_key``), or versions of installed packages.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from hsweep.errors import UserError, shown
from hsweep.planning.code import Code, code_of, training_code
from hsweep.planning.versions import versions_of
from hsweep.record.origins import Origin
from tasks.base import is_in_key

_KEY_FORMAT: Final = 1
CONTENT_PARTS: Final = ("model", "task", "data", "recipe", "budget", "seeds")
CODE_PARTS: Final = ("model_code", "task_code", "training_code")
"""The parts of a key: what is trained, and the code that trains it."""
_PLAIN_KINDS: Final = frozenset({bool, int, str})
_ONE_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def describe(value: Any, *, for_key: bool = False) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions.

    Args:
        value: what to describe.
        for_key: leave out fields that change no result.

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
    names = _field_names(cast(Hashable, type(value)), for_key)
    if names is not None:
        content = {name: describe(getattr(value, name), for_key=for_key) for name in names}
        return {"type": type(value).__qualname__, **content}
    if isinstance(value, Mapping):
        return {str(name): describe(part, for_key=for_key) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [describe(part, for_key=for_key) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((describe(part, for_key=for_key) for part in value), key=repr)
    raise UserError(
        "a model, task or recipe is a frozen dataclass of plain values, so that equal trials can "
        f"be recognised; found {shown(value)} of type {type(value).__name__}"
    )


@cache
def _field_names(kind: Hashable, for_key: bool) -> tuple[str, ...] | None:
    assert isinstance(kind, type)
    if not is_dataclass(kind):
        return None
    return tuple(each.name for each in fields(kind) if is_in_key(each) or not for_key)


def content_text(value: Any, *, for_key: bool = False) -> str:
    """Return the description of ``value`` as JSON in one form: sorted names, no spaces.

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    try:
        return _ONE_FORM.encode(describe(value, for_key=for_key))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"a model, task or recipe holds finite numbers only; found {shown(value)}"
        ) from error
    except RecursionError as error:
        raise UserError("a model, task or recipe holds itself, or nests without end") from error


def content_hash(value: Any, *, for_key: bool = False) -> str:
    """Return 20 hexadecimal digits of ``content_text``."""
    return _digest(content_text(value, for_key=for_key))


def key_hash(value: Any) -> str:
    """Return the content hash that a key has of ``value``."""
    return content_hash(value, for_key=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


Accepted = Mapping[str, str]
"""Digests of code that a study accepts as doing the same, each with that of the code whose keys
its trials have."""


def key_of(parts: Mapping[str, str], accepted: Accepted | None = None) -> str:
    """Return the key of the trial with these parts: ``t`` and 20 hexadecimal digits (a leading
    letter, since trackers take all-digit names for numbers).

    Args:
        parts: content hashes by name, but for ``data``, which is the task's fingerprint.
        accepted: code that is taken for other code.
    """
    taken = {name: parts[name] for name in CONTENT_PARTS}
    code = {name: parts[name] for name in CODE_PARTS}
    if accepted:
        code = {name: accepted.get(digest, digest) for name, digest in code.items()}
    return "t" + _digest(_ONE_FORM.encode({"format": _KEY_FORMAT, **taken, **code}))


def parts_of(
    model: Any,
    task: Any,
    recipe: Any,
    budget: Any,
    fingerprint: str,
    *,
    hashed: Callable[[Any], str] = key_hash,
    sweep_module: str = "",
) -> tuple[dict[str, str], str]:
    """Return what the keys of a point's trials are made of, part by part, but for their seeds.

    Args:
        model, task, recipe, budget: of the trials.
        fingerprint: of the task's data.
        hashed: returns the content hash that a key has of a value, if it is known already.
        sweep_module: name of the imported sweep file; empty for none.

    Returns:
        The parts, and what the trials are trained with in this process as a text (see
        ``hsweep.record.origins``).

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
    model_code, task_code = code_of(model, sweep_module), code_of(task, sweep_module)
    content = {
        "model": hashed(model),
        "task": hashed(task),
        "data": fingerprint,
        "recipe": hashed(recipe),
        "budget": hashed(budget),
    }
    return content | _code_parts(model_code, task_code), _origin_text(model_code, task_code)


def _code_parts(model_code: Code, task_code: Code) -> dict[str, str]:
    digests = (model_code.digest, task_code.digest, training_code().digest)
    return dict(zip(CODE_PARTS, digests, strict=True))


@cache
def _origin_text(model_code: Code, task_code: Code) -> str:
    versions = versions_of(model_code.libraries | task_code.libraries)
    return Origin(_code_parts(model_code, task_code), versions).text()
