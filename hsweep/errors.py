"""What can be wrong in what a user gave, as opposed to what is wrong in this program."""

import difflib
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

_LONGEST_QUOTED: Final = 300
_OWN: Final = tuple(
    Path(__file__).resolve().parents[1] / name for name in ("hsweep", "models", "tasks", "analysis")
)
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


class UserError(ValueError):
    """Something the user gave cannot be used.

    The message states the rule, the offending value and what to do. The command line prints it
    alone, without a traceback, and exits with code 2.
    """


def unknown_name(kind: str, name: object, known: Iterable[object]) -> UserError:
    """Build the error for a name that is not one of ``known``, with the nearest as a suggestion."""
    names = sorted(map(str, known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) if isinstance(name, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return UserError(f"unknown {kind} {shown(name)}; known: {listed}.{hint}")


def shown(value: object) -> str:
    """Return any value as an error quotes it: on one line, not at length, and never failing."""
    try:
        text = repr(value)
    except Exception:  # whoever wrote its class has made a mistake, but not the one to be told
        return f"a {type(value).__name__}"
    text = " ".join(text.split())
    if len(text) <= _LONGEST_QUOTED:
        return text
    half = _LONGEST_QUOTED // 2
    return f"{text[:half]} ... {text[-half:]}"


def told(error: BaseException) -> str:
    """Return the kind of an exception and what it says, whatever its class makes of it."""
    try:
        text = str(error)
    except Exception:  # as above
        text = ""
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def raised_at(error: BaseException) -> str:
    """Return the file and line that a user looks at first: of the innermost frame of their own
    code, or the innermost of all where none is theirs. Empty without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    for frame in (own or frames)[-1:]:
        return f"{frame.filename}, line {frame.lineno}"
    return ""


def defined_at(function: Callable[..., Any]) -> str:
    """Return the file and line at which a function begins; empty where it has no Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else ""


def _is_users(filename: str) -> bool:
    """Whether code is neither this project's, nor Python's own, nor an installed package's."""
    path = Path(filename)
    if not path.is_absolute() or _INSTALLED & set(path.parts):
        return False
    standard = Path(sysconfig.get_path("stdlib"))
    return not any(path.is_relative_to(folder) for folder in (*_OWN, standard))
