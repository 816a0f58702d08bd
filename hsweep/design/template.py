"""A command line with fields, filled in for one trial."""

import functools
import json
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from hsweep.errors import UserError, format_error, shown, unknown_name

_BARE_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*")


def fill(template: str, fields: Mapping[str, object]) -> list[str]:
    """Return the arguments of a command for one trial.

    The template is split as a shell would, then filled in: a value is part of one argument
    whatever is in it, and nothing in it is run. ``{lr:.2e}`` formats a value, ``{{`` is a brace.
    An argument with a field whose value is None is left out, and if it is nothing but that field,
    so is an option before it: ``--resume {resume}`` as well as ``--resume={resume}``. A list alone
    becomes an argument for each value; beside other text it is JSON, as any value is by
    ``{stages:json}``; ``{stages:,}`` joins it by commas. ``{amp:--amp|--no-amp}`` is the text
    before the bar where the value is true and the text behind it where it is not, left out where
    that is empty. Numbers are written out, 0.00001 rather than 1e-05, which YAML 1.1 takes for
    text and argparse, below zero, for an option.

    Args:
        template: the command line, as in ``"python train.py --heads {heads} --out {folder}"``.
        fields: the values, by name.

    Raises:
        UserError: no command line, or a field that is not among ``fields`` or has no such format.
    """
    arguments: list[str] = []
    for part in _split(template):
        if isinstance(values := fields.get(part[1:-1]), tuple) and part == f"{{{part[1:-1]}}}":
            arguments += [_text(value, "") for value in values]
            continue
        if (choices := _choices(part)) and fields.get(choices[0]) is not None:
            arguments += filter(None, [_chosen(part, *choices, fields)])
            continue
        filled = "".join(text for text, _ in _filled(part, fields))
        if all(is_given for _, is_given in _filled(part, fields)):
            arguments.append(filled)
        elif not filled and len(arguments) > 1 and _BARE_OPTION.fullmatch(arguments[-1]):
            arguments.pop()
    return arguments


def fields_in(template: str) -> set[str]:
    """Return the names of a template's fields; UserError if it is no command line."""
    return {
        name for part in _split(template) for _, name, _, _ in _pieces(part) if name is not None
    }


@functools.lru_cache(maxsize=64)
def _split(template: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(template))
    except ValueError as error:
        raise UserError(
            f"a command is quoted as in a shell, and {shown(template)} is not: {error}"
        ) from None


_Piece = tuple[str, str | None, str | None, str | None]


@functools.lru_cache(maxsize=256)
def _pieces(part: str) -> tuple[_Piece, ...]:
    try:
        return tuple(string.Formatter().parse(part))
    except ValueError as error:
        raise UserError(
            f"a command has fields as in {{heads}}, and {{{{ for a brace; {shown(part)} has "
            f"neither: {error}"
        ) from None


def _filled(part: str, fields: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of text of an argument, and whether each has a value."""
    for text, name, form, conversion in _pieces(part):
        yield text, True
        if name is None:
            continue
        if name not in fields:
            raise unknown_name(f"field in the command's {shown(part)},", name, fields)
        value = fields[name]
        if value is None and form != "json":
            yield "", False
            continue
        try:
            yield _text(str(value) if conversion else value, form or ""), True
        except (TypeError, ValueError) as error:
            raise UserError(
                f"the command's {shown(part)} cannot be filled with {name}={shown(value)}: "
                f"{format_error(error)}"
            ) from None


def _choices(part: str) -> tuple[str, str, str] | None:
    """Return field, text if true and text if false of an argument ``{amp:--amp|--no-amp}``."""
    pieces = _pieces(part)
    if len(pieces) != 1 or pieces[0][0] or "|" not in (pieces[0][2] or ""):
        return None
    _, name, form, _ = pieces[0]
    if_true, _, if_false = str(form).partition("|")
    return str(name), if_true, if_false


def _chosen(part: str, name: str, if_true: str, if_false: str, fields: Mapping[str, object]) -> str:
    if not isinstance(value := fields[name], bool):
        raise UserError(
            f"the command's {shown(part)} chooses between two texts by True or False; {name} is "
            f"{shown(value)}"
        )
    return if_true if value else if_false


def _text(value: object, form: str) -> str:
    if isinstance(value, float) and not form and "e" in (text := repr(value)):
        whole = format(Decimal(text), "f")
        return whole if "." in whole else f"{whole}.0"
    if form == "json" or (isinstance(value, tuple) and not form):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if isinstance(value, tuple) and form == ",":
        return ",".join(_text(part, "") for part in value)
    return format(value, form)
