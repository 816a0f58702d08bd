"""Names and tags of a study's runs, as an MLflow store takes them. Needs no MLflow."""

import contextlib
import getpass
import hashlib
import posixpath
import re
from collections.abc import Iterable
from typing import Final

from hsweep.record.manifest import Manifest
from hsweep.redaction import redact

STUDY_ID: Final = "hsweep.study_id"
"""The tag by which a study's runs are found; it tells studies of one name in two homes apart."""
LADDER: Final = "hsweep.ladder"
"""The tag with the budgets of a study that trains each point to several."""
SCOUTS: Final = "hsweep.scouts"
"""The tag with the number of a point's seeds that only choose its setting."""

# MLflow allows 250; the rest is room for a prefix.
_LONGEST_NAME: Final = 240
_LONGEST_VALUE: Final = 5000
"""Characters of a tag; MLflow itself takes 8,000, databases and older servers less."""


def study_tags(manifest: Manifest) -> dict[str, str]:
    """Return the tags of every run of a study."""
    identity = f"{manifest.name}\n{manifest.created!r}"
    tags = {
        "hsweep.sweep": manifest.sweep,
        "hsweep.preset": manifest.preset,
        STUDY_ID: hashlib.sha256(identity.encode()).hexdigest()[:32],
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(manifest.provenance.get("sweep_file") or "hsweep"),
    }
    with contextlib.suppress(OSError, KeyError):  # no name for the number of a container's user
        tags["mlflow.user"] = getpass.getuser()
    if ladder := manifest.budget.get("ladder"):
        tags[LADDER] = f"{', '.join(map(str, ladder))} {manifest.budget['unit']}"
    if manifest.scouts:
        tags[SCOUTS] = str(manifest.scouts)
    if manifest.training:
        tags["hsweep.training"] = tag_value(manifest.training)
    for name in ("tool", "sweep"):
        if state := manifest.provenance.get(name):
            tags[f"hsweep.{name}_commit"] = state["commit"] + ("-dirty" if state["dirty"] else "")
    if state := manifest.provenance.get("sweep"):
        tags["mlflow.source.git.commit"] = state["commit"]
        tags["mlflow.source.git.dirty"] = str(state["dirty"]).lower()
    return tags


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


def tag_value(text: str) -> str:
    """Return a text without secrets and short enough for a tag."""
    text = redact(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]} ..."


def milliseconds(seconds: float) -> int:
    """Return a time as MLflow counts it."""
    return int(seconds * 1000)
