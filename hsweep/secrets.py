"""Keep secrets out of everything that is written or shown."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from hsweep.errors import UserError

HIDDEN: Final = "***"
"""Stands where a secret was."""

_SECRET_NAME: Final = (
    r"(?:[\w-]*[-_])?(?:token|password|passwd|pwd|passphrase|secret|credentials?|signature"
    r"|(?:api|access|secret|account|private)[-_]?key(?:[-_]?id)?|(?<=[-_])(?:key|pass|pat))"
)
_TOKEN: Final = re.compile(
    r"\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|npm_|pypi-|dapi|AKIA|ASIA|AIza|eyJ)"
    r"(?=[\w-]*\d)[\w-]{16,}(?:\.[\w-]+)*"
)
"""The tokens that well-known services give out, by how they begin."""
_USER_AND_PASSWORD: Final = re.compile(r"://[^\s\"'/:@]*:[^\s\"']*@")
_USER_ALONE: Final = re.compile(r"://[^\s\"'/@]+@")
_ASSIGNMENT: Final = re.compile(
    rf"""(?<![\w-])(-*{_SECRET_NAME}=|--?{_SECRET_NAME}\s+)("[^"]*"|'[^']*'|[^\s&"']+)""",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(
    rf"""(["']{_SECRET_NAME}["']\s*:\s*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.IGNORECASE
)
_PARAMETER: Final = re.compile(
    rf"""([?&](?:{_SECRET_NAME}|sig|key|auth)=)([^\s&"']+)""", re.IGNORECASE
)
_HEADER: Final = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_FLAG_ALONE: Final = re.compile(rf"--?{_SECRET_NAME}", re.IGNORECASE)
_FLAG_WITH_VALUE: Final = re.compile(rf"(-*{_SECRET_NAME}=).*", re.IGNORECASE | re.DOTALL)
_VARIABLE: Final = re.compile(_SECRET_NAME, re.IGNORECASE)
_FOLDERS: Final = frozenset({"PWD", "OLDPWD"})
"""Variables in which a shell keeps where it is: the home of most studies lies below."""

_SHORTEST_VALUE: Final = 6
"""Characters of an environment variable that is looked for in texts; shorter ones are words."""


def redact(text: str) -> str:
    """Return ``text`` with everything that looks like a secret replaced by ``***``.

    Covered: what ``redact_patterns`` covers, and the values of environment variables with such
    names, wherever they stand.
    """
    for value in _secret_values():
        text = text.replace(value, HIDDEN)
    return redact_patterns(text)


def redact_patterns(text: str) -> str:
    """Return ``text`` with everything of the form of a secret replaced by ``***``.

    Covered: ``user:password@`` and ``token@`` in a URL; the value of an option, variable, query
    parameter or dictionary entry whose name ends in token, password, secret, credential,
    signature, pass, pat or key; the ``Bearer`` and ``Basic`` headers; tokens of well-known
    services. When in doubt it hides too much.
    """
    text = _TOKEN.sub(HIDDEN, _USER_AND_PASSWORD.sub(f"://{HIDDEN}@", text))
    text = _USER_ALONE.sub(f"://{HIDDEN}@", text)
    text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    text = _ASSIGNMENT.sub(rf"\1{HIDDEN}", text)
    text = _ENTRY.sub(rf"\1'{HIDDEN}'", text)
    return _HEADER.sub(rf"\1 {HIDDEN}", text)


def redact_command(command: Sequence[str]) -> list[str]:
    """Return a command line's arguments without secrets, also where an option's value follows it
    as an argument of its own or contains spaces."""
    safe: list[str] = []
    hide_next = False
    for argument in command:
        if hide_next:
            safe.append(HIDDEN)
        elif whole := _FLAG_WITH_VALUE.fullmatch(argument):
            safe.append(f"{whole[1]}{HIDDEN}")
        else:
            safe.append(redact(argument))
        hide_next = not hide_next and _FLAG_ALONE.fullmatch(argument) is not None
    return safe


def refuse_secrets(values: Iterable[object], subject: str, remedy: str) -> None:
    """Refuse texts that surely hold a secret, where they would be recorded as they are: a password
    or key in a URL, or a secret of the environment. A UserError calls them ``subject`` and ends
    with ``remedy``; other values than texts pass."""
    secret_values = _secret_values()
    # The points of a large plan have few different ones.
    for value in dict.fromkeys(value for value in values if isinstance(value, str)):
        if (
            _USER_AND_PASSWORD.search(value)
            or _TOKEN.search(value)
            or ("://" in value and _PARAMETER.search(value))
            or any(secret in value for secret in secret_values)
        ):
            raise UserError(
                f"{subject} must hold no password, key or token, since it is recorded with the "
                f"study; got {redact(value)!r}. {remedy}"
            )


def _secret_values() -> list[str]:
    """Return the secrets of the environment, the longest first."""
    values = {
        value
        for name, value in os.environ.items()
        if _VARIABLE.fullmatch(name) and name not in _FOLDERS and len(value) >= _SHORTEST_VALUE
    }
    return sorted(values, key=lambda value: (-len(value), value))
