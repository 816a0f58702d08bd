"""What can be wrong in what a user gave, as opposed to what is wrong in this program."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user gave cannot be used.

    The message states the rule, the offending value and what to do. The command line prints it
    alone, without a traceback, and exits with code 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that is not one of ``known``, with the nearest as a suggestion."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return UserError(f"unknown {kind} {name!r}; known: {listed}.{hint}")
