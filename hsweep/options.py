"""Options as fields of frozen dataclasses: each stands once, for Python and for the command line.

A field made by ``option`` holds the default, the help and the kind of value; ``options_of`` turns
the fields of a class into the options of a command, which receives one object of it.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from hsweep.errors import UserError, shown, unknown_name
from hsweep.shipped import shipped_sweeps, sweep_path

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_MAX_HOURS: Final = 100_000
_MAX_COUNT: Final = 10**18
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}


def option(default: Any, *flags: str, **settings: Any) -> Any:
    """Return a dataclass field that is also an option of commands.

    Args:
        default: the value where the option is left out.
        flags: as click takes them; the field's name by default.
        settings: further arguments of ``click.option``.
    """
    return field(default=default, metadata={"flags": flags, "settings": settings})


def options_of(kind: type, name: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the options of a dataclass, of which it receives an
    object as the parameter ``name``."""

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def collecting(**values: Any) -> Any:
            own = {option.name: values.pop(option.name) for option in fields(kind)}
            return command(**{name: kind(**own)}, **values)

        decorated: Any = collecting
        for option in reversed(fields(kind)):
            decorated = _click_option(option)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def option_of(kind: type, name: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the option of one field alone, under its name."""
    return _click_option(next(option for option in fields(kind) if option.name == name))


def _click_option(option: Field[Any]) -> Callable[[Decorated], Decorated]:
    flags = option.metadata["flags"] or (f"--{option.name.replace('_', '-')}",)
    settings = {"default": option.default, **option.metadata["settings"]}
    return click.option(*flags, option.name, **settings)


def options_from(values: Mapping[str, Any], *kinds: type) -> list[Any]:
    """Return an object of each class, from values that Python names by their fields: what the
    command line takes, or the same in Python's own types.

    Several settings are a mapping of names to one value or a list, several of anything else a list.

    Raises:
        UserError: a name that none of them has, or a value that it cannot take.
    """
    known = {option.name: option for kind in kinds for option in fields(kind)}
    for name in values:
        if name not in known:
            raise unknown_name("option", name, known)
    read = {name: _from_python(known[name], value) for name, value in values.items()}
    names = [{option.name for option in fields(kind)} for kind in kinds]
    return [
        kind(**{name: read[name] for name in read if name in own})
        for kind, own in zip(kinds, names, strict=True)
    ]


def _from_python(option: Field[Any], value: Any) -> Any:
    settings = option.metadata["settings"]
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise UserError(f"{option.name} is True or False, not {shown(value)}")
        return value
    if value is None:
        return option.default
    if not settings.get("multiple"):
        return _converted(option, str(value))
    if isinstance(settings["type"], Setting):
        return _settings(option, value)
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{option.name} is a list, not {shown(value)}")
    return [_converted(option, item) for item in value]


def _settings(option: Field[Any], value: Any) -> list[tuple[str, list[Any]]]:
    from hsweep.design.domain import as_value

    if not isinstance(value, Mapping):
        raise UserError(
            f"{option.name} is a dictionary such as {{'heads': [1, 2], 'epochs': 50}}, not "
            f"{shown(value)}"
        )
    return [
        (str(name), [as_value(item) for item in (items if isinstance(items, list) else [items])])
        for name, items in value.items()
    ]


def _converted(option: Field[Any], value: Any) -> Any:
    kind = click.types.convert_type(option.metadata["settings"].get("type"), option.default)
    try:
        return kind.convert(value, None, None)
    except click.BadParameter as error:
        raise UserError(f"{option.name}: {error.message}") from error


class Duration(click.ParamType[float]):
    """A time such as 90s, 30m, 2h or 1h30m; a bare number is seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip().lower()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            text += "s"
        match = _DURATION.fullmatch(text)
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no time; write 90s, 30m, 2h or 1h30m", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = 3600 * hours + 60 * minutes + seconds
        if total <= 0:
            self.fail(f"a time must be above zero, not {value!r}", param, ctx)
        if total > _MAX_HOURS * 3600:
            self.fail(f"a time is at most {_MAX_HOURS:,}h, not {str(value)[:40]!r}", param, ctx)
        return total


class Count(click.ParamType[int]):
    """A whole number, possibly with a decimal prefix: 60M, 1.5G, 200k."""

    name = "count"
    _unit = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        text = str(value).strip().lower().replace(",", "").replace("_", "").replace(" ", "")
        match = re.fullmatch(rf"(\d+(?:\.\d+)?)([kmgtp]?){self._unit}", text)
        if not match:
            self.fail(f"{value!r} is no amount; write 60M, 1.5G or 200k", param, ctx)
        is_short = len(match[1]) < 40
        number = round(Decimal(match[1]) * _PREFIXES[match[2]]) if is_short else _MAX_COUNT
        if number >= _MAX_COUNT:
            self.fail(f"an amount is below {_MAX_COUNT:,}, not {value[:40]!r}", param, ctx)
        return number


class Bytes(Count):
    """A number of bytes, with decimal prefixes: 8G, 500MB."""

    name = "bytes"
    _unit = "b?"


class Setting(click.ParamType[tuple[str, list[Any]]]):
    """NAME=VALUE; several values with commas between."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[Any]]:
        """Return the name and its values."""
        name, values = _named_values(str(value))
        if not name or not values:
            self.fail(f"{shown(value)} is not of the form NAME=VALUE", param, ctx)
        return name, values


class AxisValues(click.ParamType[dict[str, Any]]):
    """NAME=VALUE,NAME=VALUE: one value an axis."""

    name = "name=value,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Return the values by axis."""
        if isinstance(value, dict):
            return value
        point: dict[str, Any] = {}
        # A comma separates axes only where a name follows: values may be tuples.
        for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", str(value)):
            name, values = _named_values(part)
            if not name or len(values) != 1:
                self.fail(f"{shown(part)} is not of the form NAME=VALUE", param, ctx)
            point[name] = values[0]
        return point


def _named_values(text: str) -> tuple[str, list[Any]]:
    """Return the name and values of ``NAME=VALUE,...``; no name or no values where the text has not
    that form."""
    from hsweep.design.domain import as_value
    from hsweep.design.space import parse_values

    name, equals, values = text.partition("=")
    is_whole = equals and values.strip()
    return name.strip(), [as_value(item) for item in parse_values(values)] if is_whole else []


class SweepFile(click.ParamType[Path]):
    """A sweep file, or the name of a sweep that comes with hsweep."""

    name = "sweep"

    def convert(self, value: Any, *_: object) -> Path:
        """Return the path of the file, which need not exist."""
        return sweep_path(Path(value))

    def shell_complete(self, *context: Any) -> list[CompletionItem]:
        """Return the names that fit and the files beside; without any, let the shell look."""
        incomplete = context[-1]
        names = [name for name in shipped_sweeps() if name.startswith(incomplete)]
        if not names:
            return [CompletionItem(incomplete, type="file")]
        names += sorted(path.name for path in Path().glob(f"{incomplete}*.py"))
        return [CompletionItem(name) for name in names]
