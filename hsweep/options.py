"""Options as fields of frozen dataclasses: each stands once, for Python and for the command line.

A field made by ``option`` holds the default, the help and the kind of value; ``options_of`` turns
the fields of a class into the options of a command, which receives one object of it.
"""

import ast
import functools
import re
from collections.abc import Callable, Container, Iterator, Mapping
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
_LONGEST_HOURS: Final = 100_000
_MOST: Final = 10**18
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}


def option(default: Any, *flags: str, **settings: Any) -> Any:
    """Return a dataclass field that is also an option of commands.

    Args:
        default: the value where the option is left out.
        flags: as click takes them; the field's name by default.
        settings: further arguments of ``click.option``.
    """
    return field(default=default, metadata={"flags": flags, "settings": settings})


def options_of(
    kind: type, name: str, *, but: Container[str] = ()
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the options of a dataclass.

    Args:
        kind: the class; the command receives one object of it.
        name: of the parameter that receives it.
        but: fields that the command does not offer.
    """
    offered = [each for each in fields(kind) if each.name not in but]

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def collecting(**given: Any) -> Any:
            values = {each.name: given.pop(each.name) for each in offered}
            return command(**{name: kind(**values)}, **given)

        decorated: Any = collecting
        for each in reversed(offered):
            decorated = _click_option(each)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def option_of(kind: type, name: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command the option of one field alone, under its name."""
    return _click_option(next(each for each in fields(kind) if each.name == name))


def _click_option(of: Field[Any]) -> Callable[[Decorated], Decorated]:
    flags = of.metadata["flags"] or (f"--{of.name.replace('_', '-')}",)
    settings = {"default": of.default, **of.metadata["settings"]}
    return click.option(*flags, of.name, **settings)


def options_from(given: Mapping[str, Any], *kinds: type) -> list[Any]:
    """Return an object of each class, from values that Python gives by the names of their fields:
    what the command line takes, or the same in Python's own types.

    Several settings are a mapping of names to one value or a list, several of anything else a list.

    Raises:
        UserError: a name that none of them has, or a value that it cannot take.
    """
    known = {each.name: each for kind in kinds for each in fields(kind)}
    for name in given:
        if name not in known:
            raise unknown_name("option", name, known)
    values = {name: _from_python(known[name], value) for name, value in given.items()}
    return [
        kind(**{each.name: values[each.name] for each in fields(kind) if each.name in values})
        for kind in kinds
    ]


def _from_python(of: Field[Any], value: Any) -> Any:
    settings = of.metadata["settings"]
    if isinstance(of.default, bool):
        if not isinstance(value, bool):
            raise UserError(f"{of.name} is True or False, not {shown(value)}")
        return value
    if value is None:
        return of.default
    if not settings.get("multiple"):
        return _converted(of, str(value))
    if isinstance(settings["type"], Setting):
        return _settings(of, value)
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{of.name} is a list, not {shown(value)}")
    return [_converted(of, each) for each in value]


def _settings(of: Field[Any], value: Any) -> list[tuple[str, list[Any]]]:
    from hsweep.design.domain import as_value

    if not isinstance(value, Mapping):
        raise UserError(
            f"{of.name} is a dictionary such as {{'heads': [1, 2], 'epochs': 50}}, not "
            f"{shown(value)}"
        )
    return [
        (str(name), [as_value(each) for each in (found if isinstance(found, list) else [found])])
        for name, found in value.items()
    ]


def _converted(of: Field[Any], value: Any) -> Any:
    kind = click.types.convert_type(of.metadata["settings"].get("type"), of.default)
    try:
        return kind.convert(value, None, None)
    except click.BadParameter as error:
        raise UserError(f"{of.name}: {error.message}") from error


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
        if total > _LONGEST_HOURS * 3600:
            self.fail(f"a time is at most {_LONGEST_HOURS:,}h, not {str(value)[:40]!r}", param, ctx)
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
        number = round(Decimal(match[1]) * _PREFIXES[match[2]]) if len(match[1]) < 40 else _MOST
        if number >= _MOST:
            self.fail(f"an amount is below {_MOST:,}, not {value[:40]!r}", param, ctx)
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
        found: dict[str, Any] = {}
        # A comma separates axes only where a name follows: values may be tuples.
        for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", str(value)):
            name, values = _named_values(part)
            if not name or len(values) != 1:
                self.fail(f"{shown(part)} is not of the form NAME=VALUE", param, ctx)
            found[name] = values[0]
        return found


class SweepFile(click.ParamType[Path]):
    """A sweep file, or the name of a sweep that comes with hsweep."""

    name = "sweep"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> Path:
        """Return the path of the file, which need not exist."""
        return sweep_path(Path(value))

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that fit and the files beside; of no name, let the shell look."""
        named = [name for name in shipped_sweeps() if name.startswith(incomplete)]
        if not named:
            return [CompletionItem(incomplete, type="file")]
        beside = sorted(path.name for path in Path().glob("*.py"))
        named += [name for name in beside if name.startswith(incomplete)]
        return [CompletionItem(name) for name in named]


class PresetName(click.ParamType[str]):
    """The name of a variant of the sweep file before it on the command line."""

    name = "name"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the presets that the text of the sweep file names; the file is not run."""
        # An option that still lacks its value ends click's reading before it names arguments.
        words = [ctx.params.get("sweep_file"), *ctx.args]
        try:
            path = next(sweep_path(Path(word)) for word in words if word)
            tree = ast.parse(path.read_bytes())
        except (StopIteration, OSError, ValueError, SyntaxError, MemoryError, RecursionError):
            return []
        names = {"quick", *_named_presets(tree)}
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _named_presets(tree: ast.AST) -> Iterator[str]:
    """Yield the keys of what a file calls ``preset`` for, in any dictionary that it writes out."""
    for node in ast.walk(tree):
        items = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        for key, value in items:
            made_by = value.func if isinstance(value, ast.Call) else None
            name = getattr(made_by, "id", getattr(made_by, "attr", None))
            if name == "preset" and isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


def _named_values(text: str) -> tuple[str, list[Any]]:
    """Return what ``NAME=VALUE,...`` says; no name or no values where it has not that form."""
    from hsweep.design.domain import as_value
    from hsweep.design.space import parse_values

    name, equals, values = text.partition("=")
    is_whole = equals and values.strip()
    return name.strip(), [as_value(each) for each in parse_values(values)] if is_whole else []
