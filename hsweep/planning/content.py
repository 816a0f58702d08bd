"""Configurations as plain content, and hashes of it: equal ones have equal hashes."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from hsweep.design.own_training import OwnTask, without_functions
from hsweep.errors import NESTED, UserError, shown
from tasks.base import is_in_key

_PLAIN_KINDS: Final = frozenset({bool, int, str})
_ONE_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def describe(value: Any, *, for_key: bool = False) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions; for a
    key without the fields that change no result.

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
    if isinstance(value, OwnTask):
        return describe(value.content() if for_key else value.record(), for_key=for_key)
    if hasattr(type(value), "key_content"):
        # What tells it from others is not its fields alone; of functions the names and the code.
        content = without_functions(value.key_content())
        return {"type": type(value).__qualname__, **describe(content, for_key=for_key)}
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
        "a model, task, recipe or argument of a training function is a frozen dataclass of plain "
        "values, or such a value, so that equal trials can be recognised; found "
        f"{shown(value)} of type {type(value).__name__}"
    )


@cache
def _field_names(kind: Hashable, for_key: bool) -> tuple[str, ...] | None:
    assert isinstance(kind, type)
    if not is_dataclass(kind):
        return None
    return tuple(each.name for each in fields(kind) if is_in_key(each) or not for_key)


def content_hash(value: Any, *, for_key: bool = False) -> str:
    """Return 20 hexadecimal digits of the description of ``value``.

    Raises:
        UserError: a part with no content to compare, or a number that is not finite.
    """
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
