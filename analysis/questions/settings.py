"""The options of one kind of question, and its settings, which users write as NAME=VALUE."""

import dataclasses
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hsweep.errors import UserError, unknown_name

_MAX_WHOLE_NUMBER: Final = 1_000_000

Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of ``hsweep analyze`` that only some kinds have.

    Attributes:
        name: ``eval_size`` for ``--eval-size``.
        reads: the type of the option's value.
        multiple: whether the option may be repeated.
        of_table: whether only a table needs the option, because a study records the value.
    """

    name: str
    help: str
    reads: type[str | int | float] = str
    multiple: bool = False
    of_table: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


def check_fields(settings: object, rule: str, is_right: Callable[[Any], bool], *names: str) -> None:
    """Refuse settings whose fields ``names`` break a rule (``be at least 1``).

    Raises:
        UserError: with the field, the rule and the value.
    """
    for name in names:
        if not is_right(value := getattr(settings, name)):
            raise UserError(f"{name} must {rule}, not {value!r}")


def with_settings(defaults: Settings, texts: Sequence[str]) -> Settings:
    """Return the dataclass ``defaults`` with the values of ``texts`` (``max_growth=0.2``).

    Raises:
        UserError: an unknown setting, or a value that the setting cannot have.
    """
    assert dataclasses.is_dataclass(defaults)
    assert not isinstance(defaults, type)
    hints = typing.get_type_hints(type(defaults))
    names = [field.name for field in dataclasses.fields(defaults)]
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise UserError(f"a setting is NAME=VALUE, not {text!r}; names: {', '.join(names)}")
        if name not in names:
            raise unknown_name("setting", name, names)
        values[name] = _read(hints[name], name, value)
    try:
        return dataclasses.replace(defaults, **values)
    except ValueError as error:
        raise UserError(f"setting {error}") from None


def _read(hint: Any, name: str, text: str) -> Any:
    kind = int if hint is int else float
    try:
        value = kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise UserError(f"setting {name} is {noun}, not {text!r}") from None
    # Whole numbers count draws and the like: more of them would only take longer.
    if kind is int and abs(value) > _MAX_WHOLE_NUMBER:
        raise UserError(f"setting {name} is at most {_MAX_WHOLE_NUMBER:,}, not {text!r}")
    return value
