"""A command line with fields, filled in for one trial."""

import functools
import shlex
import string
from collections.abc import Iterator, Mapping

from hsweep.errors import UserError, format_error, shown, unknown_name


def fill(template: str, fields: Mapping[str, object]) -> list[str]:
    """Return the arguments of a command for one trial.

    The template is split as a shell would, then filled in: a value is part of one argument
    whatever is in it, and nothing in it is run. ``{lr:.2e}`` formats a value, ``{{`` is a brace.
    An argument with a field whose value is None is left out, and if it is nothing but that field,
    so is an option before it: ``--resume {resume}`` as well as ``--resume={resume}``.

    Args:
        template: the command line, as in ``"python train.py --heads {heads} --out {folder}"``.
        fields: the values, by name.

    Raises:
        UserError: no command line, or a field that is not among ``fields`` or has no such format.
    """
    arguments: list[str] = []
    for part in _split(template):
        filled = "".join(text for text, _ in _filled(part, fields))
        if all(is_given for _, is_given in _filled(part, fields)):
            arguments.append(filled)
        elif not filled and len(arguments) > 1 and arguments[-1].startswith("-"):
            arguments.pop()
    return arguments


def fields_in(template: str) -> set[str]:
    """Return the names of a template's fields.

    Raises:
        UserError: no command line.
    """
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
        if value is None:
            yield "", False
            continue
        try:
            yield format(str(value) if conversion else value, form or ""), True
        except (TypeError, ValueError) as error:
            raise UserError(
                f"the command's {shown(part)} cannot be filled with {name}={shown(value)}: "
                f"{format_error(error)}"
            ) from None
