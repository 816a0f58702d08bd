"""Errors of the user: their messages, and the place in the user's code that raised one."""

import difflib
import functools
import inspect
import math
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

_MAX_QUOTED: Final = 300

ROOT: Final = Path(__file__).resolve().parents[1]
"""The folder that holds this project's packages."""
_OWN_FOLDERS: Final = tuple(ROOT / name for name in ("hsweep", "models", "tasks", "analysis"))
"""The folders of this project's code, without the shipped sweeps, which count as a user's code."""
_INSTALLED: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_PACKAGE_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})
NESTED: Final = "a model, task or recipe holds itself, or nests without end"


class UserError(ValueError):
    """A file, an option or a value of the user cannot be used.

    The message states the rule, the offending value and what to do. The command line prints it
    alone, without a traceback, and exits with code 2; a notebook shows it alone, too.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class FinalError(UserError):
    """A trial has failed in a way in which every other attempt would fail."""


class RefusedReportError(FinalError):
    """A report of the user's training cannot be used; another attempt would report the same."""


class FencedError(RuntimeError):
    """Another process has taken the study over, since this one seemed dead."""


class SpentProcessError(RuntimeError):
    """What can be done once in a process was done there before, in another way."""


def refusing_briefly(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function whose UserError has no traceback of what it called."""

    @functools.wraps(function)
    def calling(*arguments: Parameters.args, **named: Parameters.kwargs) -> Returned:
        try:
            return function(*arguments, **named)
        except UserError as error:
            refusal = error
        raise refusal.with_traceback(None) from None

    return calling


def unknown_name(
    kind: str, name: object, choices: Iterable[object], *, unlisted: Iterable[str] = ()
) -> UserError:
    """Return the error for a name that is not among ``choices``, which suggests the nearest of the
    ``choices`` and ``unlisted`` names."""
    names = sorted(map(str, choices))
    suggestions = [*names, *unlisted]
    near = [choice for choice in suggestions if name == choice.rpartition(".")[2]]
    if not near and isinstance(name, str):
        near = nearest(name, suggestions)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return UserError(f"unknown {kind} {shown(name)}; known: {listed}.{hint}")


def nearest(name: str, choices: Iterable[str]) -> list[str]:
    """Return the choice that is nearest to a misspelt name, in a list that is empty where no choice
    is near."""
    return difflib.get_close_matches(name, [*choices], n=1, cutoff=0.6)


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of ``choices``, with a UserError that names the field and
    these."""
    if value not in choices:
        *most, last = map(repr, choices)
        raise UserError(f"{field} must be {', '.join(most)} or {last}, not {shown(value)}")


def is_number(value: object) -> bool:
    """Whether a value is a finite number and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse a value that is not a whole number of at least ``least``, with a UserError that names
    the field."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not {shown(value)}")


def make_plain(settings: Any) -> None:
    """Replace numpy's numbers among the fields of a dataclass by Python's own."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if (number := plain_number(value)) is not value:
            object.__setattr__(settings, each.name, number)


def plain_number(value: Any) -> Any:
    """Return one of numpy's numbers as Python's own, and any other value as it is."""
    is_number = hasattr(value, "item") and getattr(value, "ndim", 0) == 0
    return value.item() if is_number else value


def shown(value: object) -> str:
    """Return any value as an error quotes it: on one line, shortened, and never failing."""
    try:
        text = repr(value)
    except Exception:  # a mistake in its class is not the one to report
        return f"a {type(value).__name__}"
    return without_middle(" ".join(text.split()), _MAX_QUOTED)


def without_middle(text: str, longest: int) -> str:
    """Return a text, without its middle where it is longer than that."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


def format_error(error: BaseException) -> str:
    """Return the class and the message of an exception, whatever its ``__str__`` raises."""
    try:
        text = str(error)
    except Exception:  # as above
        text = ""
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def user_frame(error: BaseException) -> str | None:
    """Return where in the user's own code an exception was raised, as ``path:line``.

    That is the innermost frame outside this project, the standard library and the installed
    packages, or the innermost frame of all where none is outside. A ``SyntaxError`` names the file
    that does not parse. None for an exception that was never raised in Python code.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    user_frames = [place for place in frames if _is_user_code(place.rpartition(":")[0])]
    return (user_frames or frames)[-1] if frames else None


def defined_at(function: Callable[..., Any]) -> str | None:
    """Return where a function begins, as ``path:line``; None where it has no Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None


def failure_text(error: BaseException) -> str:
    """Return the text of an exception that a record keeps: a line with what was raised and where in
    the user's code, then the traceback; of a UserError that no user code raised, its message and
    notes."""
    place = user_frame(error)
    if isinstance(error, UserError) and not (place and _is_user_code(place.rpartition(":")[0])):
        return "\n".join([" ".join(str(error).split()), *getattr(error, "__notes__", ())])
    # The name of our own class tells the user nothing.
    message = " ".join(
        (str(error) if isinstance(error, UserError) else format_error(error)).split()
    )
    trace = "".join(traceback.format_exception(error))
    return f"{message}{f' at {place}' if place else ''}\n{trace}"


def is_installed(file: Path) -> bool:
    """Whether a module's file belongs to the standard library or to an installed package; an
    editable install does not count, since its code lies where it is written."""
    return not _PACKAGE_FOLDERS.isdisjoint(file.parts) or any(
        file.is_relative_to(folder) for folder in _installed_folders()
    )


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    folders = [Path(sysconfig.get_path(name)) for name in _INSTALLED]
    return tuple(dict.fromkeys([*folders, *(folder.resolve() for folder in folders)]))


def _is_user_code(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    is_ours = any(path.is_relative_to(folder) for folder in _OWN_FOLDERS)
    return not is_ours and not is_installed(path)
