"""Options as fields of frozen dataclasses: one definition serves Python and the command line.

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

from hsweep.errors import UserError, shown, unknown_name
from hsweep.secrets import refuse_secrets

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_MAX_HOURS: Final = 100_000
_MAX_COUNT: Final = 10**18
_WHOLE: Final = 1000
"""Letters that the summary of a command may have: as many as it needs."""
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}


class HeadedOption(click.Option):
    """An option that may begin a group of them in the help, with a heading."""

    def __init__(self, *args: Any, heading: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heading = heading


class HeadedCommand(click.Command):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each below the last heading before it."""
        heading, groups = "Options", dict[str, list[tuple[str, str]]]()
        for param in self.get_params(ctx):
            heading = getattr(param, "heading", "") or heading
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class HeadedGroup(click.Group):
    """Commands whose help shows the whole first sentence of each, below the heading by its name."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.headings: dict[str, str] = {}

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, in the order in which they were added."""
        groups, widest = dict[str, list[tuple[str, str]]](), max(map(len, self.commands))
        for name, command in self.commands.items():
            rows = groups.setdefault(self.headings.get(name, "Commands"), [])
            rows.append((name.ljust(widest), command.get_short_help_str(_WHOLE)))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def option(default: Any, *flags: str, **settings: Any) -> Any:
    """Return a dataclass field that is also an option of commands.

    Args:
        default: the value where the option is left out.
        flags: as click takes them; the field's name by default.
        settings: further arguments of ``click.option``, and a ``heading`` above it in the help.
    """
    return field(default=default, metadata={"flags": flags, "settings": settings})


def options_of(kind: type, name: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the options of a dataclass; the command receives an
    object of that class as the parameter ``name``."""

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def collecting(**values: Any) -> Any:
            own_values = {option.name: values.pop(option.name) for option in fields(kind)}
            return command(**{name: kind(**own_values)}, **values)

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
    return click.option(*flags, option.name, cls=HeadedOption, **settings)


def option_words(options: Any) -> list[str]:
    """Return an object of such a class as words of a command line, defaults left out."""
    words: list[str] = []
    for option in fields(options):
        value, flags = getattr(options, option.name), option.metadata["flags"]
        if value == option.default:
            continue
        flag = flags[0] if flags else f"--{option.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag.split("/")[0 if value else 1])
        elif option.metadata["settings"].get("multiple"):
            for item in value:
                words += [flag, item_text(item)]
        else:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def item_text(item: Any) -> str:
    """Return a setting, a tag, the axis values of a point or a plain text as options take it."""
    if isinstance(item, Mapping):
        return ",".join(f"{axis}={value}" for axis, value in item.items())
    if isinstance(item, str):
        return item
    name, value = item
    return f"{name}={value if isinstance(value, str) else ','.join(map(str, value))}"


def options_from(values: Mapping[str, Any], *kinds: type) -> list[Any]:
    """Return an object of each class, from values that Python names by their fields: what the
    command line takes, or the same in Python's own types. UserError for a name that none of them
    has, or a value that it cannot take.

    Several settings are a mapping of names to one value or a list, several of anything else a list.
    """
    options = {option.name: option for kind in kinds for option in fields(kind)}
    for name in values:
        if name not in options:
            raise unknown_name("option", name, options)
    parsed = {name: _from_python(options[name], value) for name, value in values.items()}
    names = [{option.name for option in fields(kind)} for kind in kinds]
    return [
        kind(**{name: parsed[name] for name in parsed if name in own_names})
        for kind, own_names in zip(kinds, names, strict=True)
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
    if settings["type"] is SETTING:
        return _settings(option, value)
    if settings["type"] is TAG and isinstance(value, Mapping):
        value = [f"{name}={text}" for name, text in value.items()]
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


class OptionType(click.ParamType[Any]):
    """A kind of value, read by a function that raises ``click.BadParameter`` or a UserError."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, *_: object) -> Any:
        """Return the value of a text."""
        return self._read(value)


def _read_duration(value: Any) -> float:
    """Return a time such as 90s, 30m, 2h or 1h30m in seconds; a bare number is seconds."""
    if isinstance(value, (int, float)):
        return float(value)
    text = str(value).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text += "s"
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total <= _MAX_HOURS * 3600:
        raise click.BadParameter(
            f"{shown(value)} is no time; write 90s, 30m, 2h or 1h30m, up to {_MAX_HOURS:,}h"
        )
    return total


def _read_count(value: Any, unit: str = "") -> int:
    """Return a whole number, possibly with a decimal prefix: 60M, 1.5G, 200k."""
    text = str(value).strip().lower().replace(",", "").replace("_", "").replace(" ", "")
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)([kmgtp]?){unit}", text)
    is_short = match is not None and len(match[1]) < 40
    number = round(Decimal(match[1]) * _PREFIXES[match[2]]) if match and is_short else _MAX_COUNT
    if number >= _MAX_COUNT:
        raise click.BadParameter(
            f"{shown(value)} is no amount; write 60M, 1.5G or 200k, below {_MAX_COUNT:,}"
        )
    return number


def _read_setting(value: Any) -> tuple[str, list[Any]]:
    """Return the name and the values of NAME=VALUE,VALUE."""
    name, values = _named_values(str(value))
    if not name or not values:
        raise click.BadParameter(f"{shown(value)} is not of the form NAME=VALUE")
    return name, values


def _read_tag(value: Any) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE, which begins with MLflow's own names at most
    where it names the user."""
    name, equals, text = str(value).partition("=")
    if not equals or not re.fullmatch(r"\w[\w.\-:]{0,249}", name):
        raise click.BadParameter(
            f"{shown(value)} is not of the form NAME=VALUE, where a name has at most 250 letters, "
            "digits, '_', '.', '-' and ':'"
        )
    if name.startswith(("hsweep.", "mlflow.")) and name != "mlflow.user":
        raise click.BadParameter(f"the tag {name} is set by the tool; choose another name")
    return name, text


def _read_axis_values(value: Any) -> dict[str, Any]:
    """Return the values of NAME=VALUE,NAME=VALUE by axis."""
    if isinstance(value, dict):
        return value
    point: dict[str, Any] = {}
    # A comma separates axes only where a name follows: values may be tuples.
    for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", str(value)):
        name, values = _named_values(part)
        if not name or len(values) != 1:
            raise click.BadParameter(f"{shown(part)} is not of the form NAME=VALUE")
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


def _read_storage(value: Any) -> str:
    """Return a storage as an absolute folder or a URI: a relative folder differs between nodes."""
    storage = str(value)
    if not storage:
        raise click.BadParameter("a storage is a folder or a URI, not an empty text; leave it out")
    if "://" not in storage:
        return str(Path(storage).expanduser().absolute())
    refuse_secrets(
        [storage],
        "--storage",
        "Give keys to every node another way: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
        "profile, or the role of the machine.",
    )
    return storage


DURATION: Final = OptionType("duration", _read_duration)
COUNT: Final = OptionType("count", _read_count)
BYTES: Final = OptionType("bytes", functools.partial(_read_count, unit="b?"))
SETTING: Final = OptionType("name=value", _read_setting)
TAG: Final = OptionType("name=value", _read_tag)
STORAGE: Final = OptionType("storage", _read_storage)
AXIS_VALUES: Final = OptionType("name=value,...", _read_axis_values)
