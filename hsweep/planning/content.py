"""Configurations as plain content, and hashes of it: equal configurations have equal hashes."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, cast

from hsweep.design.user_training import captured
from hsweep.errors import NESTED, UserError, shown
from tasks.base import is_in_key

_PLAIN_KINDS: Final = frozenset({bool, int, str})
_ONE_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def describe(value: Any, *, for_key: bool = False, names_functions: bool = False) -> Any:
    """Return ``value`` as plain JSON content: equal configurations give equal descriptions.

    Args:
        for_key: without the fields that change no result.
        names_functions: functions and classes are described by their names and what they are
            given; their code counts apart.

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
    if names_functions and isinstance(value, FunctionType):
        around = part(captured(value))
        return {"name": value.__qualname__, **({"captured": around} if around else {})}
    if names_functions and isinstance(value, type | ModuleType):
        return value.__qualname__ if isinstance(value, type) else value.__name__
    if names_functions and isinstance(value, partial):
        return part((value.func, value.args, value.keywords))
    kind = type(value)
    if hasattr(kind, "key_content"):  # not its fields alone tell it from others
        is_record = not for_key and hasattr(kind, "record_content")
        content = value.record_content() if is_record else value.key_content()
        described = describe(content, for_key=for_key, names_functions=True)
        return {"type": kind.__qualname__, **described}
    names = _field_names(cast(Hashable, kind), for_key)
    if names is not None:
        content = {name: part(getattr(value, name)) for name in names}
        return {"type": kind.__qualname__, **content}
    if isinstance(value, Mapping):
        return {str(name): part(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [part(each) for each in value]
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
