"""How runs, metrics, parameters and tags are called in an MLflow store."""

import hashlib
import posixpath
import re
from collections.abc import Iterable
from typing import Final

from hsweep.redaction import redact

STUDY_ID: Final = "hsweep.study_id"
"""The tag by which a study's runs are found; it tells studies of one name in two homes apart."""

SCOUTS: Final = "hsweep.scouts"
"""The tag with the number of a point's seeds that only choose its setting."""

NOTE: Final = "mlflow.note.content"
"""MLflow's tag for a description, which its pages show as Markdown and let a user edit."""

# MLflow allows 250; the rest is room for a prefix.
_LONGEST_NAME: Final = 240

_LONGEST_VALUE: Final = 5000
"""Characters of a tag; MLflow itself takes 8,000, databases and older servers less."""


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Map metric or parameter names to ones MLflow accepts, different ones to different ones.

    MLflow allows letters, digits and ``_ - . /`` and space, and wants a name to be its own
    normalised path.
    """
    chosen: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (_safe_name(name) != name, name)):
        safe = _safe_name(name)
        if len(safe) > _LONGEST_NAME or safe in chosen.values():
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            safe = f"{safe[: _LONGEST_NAME - 9]}_{digest}"
        chosen[name] = safe
    return chosen


def _safe_name(name: str) -> str:
    safe = re.sub(r"[^\w.\- /]", "_", name) or "_"
    if safe.startswith(("/", "..")) or safe in (".", "..") or posixpath.normpath(safe) != safe:
        safe = re.sub(r"[/.]", "_", safe)
    return safe


def acceptable(value: str) -> str:
    """Return a tag's value without secrets and not too long for a store."""
    value = redact(value)
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 4]} ..."
