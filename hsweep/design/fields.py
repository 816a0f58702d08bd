"""Fields of a frozen value that are replaced by their names, as by ``--set recipe.lr=3e-3``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from hsweep.design.domain import AxisValue
from hsweep.errors import UserError, shown

T = TypeVar("T")


def field_names(value: Any) -> Iterator[str]:
    """Yield the names that ``replacements`` takes for a dataclass; ``NAME`` stands for any part of
    a field that holds parts by their names."""
    for field in fields(value):
        has_parts = _parts_of(getattr(value, field.name)) is not None
        yield f"{field.name}.NAME" if has_parts else field.name


def has_field(value: Any, name: str) -> bool:
    """Whether ``replacements`` takes a name for a dataclass."""
    field, dot, part = name.partition(".")
    return (f"{field}.NAME" if dot and part else name) in field_names(value)


def replacements(
    value: Any, chosen: Mapping[str, Sequence[AxisValue]], *, prefix: str = ""
) -> dict[str, Any]:
    """Return new values for fields of a dataclass, by the names of the fields, from the values that
    were typed; ``prefix`` goes before the names in an error.

    Raises:
        UserError: several values for a field that takes one, or a word for a truth value.
    """
    new: dict[str, Any] = {}
    for name, values in chosen.items():
        before, first = getattr(value, name, None), next(iter(values), None)
        if isinstance(before, tuple):
            new[name] = first if len(values) == 1 and isinstance(first, tuple) else tuple(values)
        elif isinstance(before, bool):
            word = str(first).lower()
            if len(values) != 1 or word not in ("true", "false"):
                raise UserError(f"{prefix}{name} takes true or false, not {shown(list(values))}")
            new[name] = word == "true"
        elif len(values) != 1:
            raise UserError(
                f"{prefix}{name} takes one value, not {shown(list(values))}; to compare several, "
                "make it an axis of the space"
            )
        else:
            new[name] = first
    return new


def with_replaced(value: T, changes: Mapping[str, Any]) -> T:
    """Return a dataclass with fields replaced, all at once; ``FIELD.NAME`` replaces or adds one
    part of a field."""
    whole: dict[str, Any] = {}
    for name, new in changes.items():
        field, _, part = name.partition(".")
        if not part:
            whole[field] = new
            continue
        before = getattr(value, field)
        parts = {**dict(whole.get(field, before)), part: new}
        whole[field] = parts if isinstance(before, Mapping) else tuple(sorted(parts.items()))
    return cast(T, replace(cast(Any, value), **whole))


def _parts_of(field: object) -> Mapping[str, Any] | None:
    """Return a field that is a mapping, or pairs of names and values, as a mapping; else None."""
    if isinstance(field, Mapping):
        return field
    is_pairs = isinstance(field, tuple) and field and all(isinstance(part, tuple) for part in field)
    return dict(cast(Any, field)) if is_pairs else None
