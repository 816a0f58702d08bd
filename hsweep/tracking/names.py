"""How runs, metrics, parameters and tags are called in an MLflow store."""

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from hsweep.record.rows import TrialRow
from hsweep.redaction import redact

if TYPE_CHECKING:
    from hsweep.record.manifest import Manifest

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


def run_name(trial: TrialRow, tags: Mapping[str, str]) -> str:
    """Return a readable name, for example ``heads=3 seq_len=16 #1`` for the second replicate, on a
    ladder of budgets ``heads=3 seq_len=16 #1 at 38``.

    ``tags`` are the study's.
    """
    shape = " ".join(f"{axis}={value}" for axis, value in trial.point.items())
    at = f" at {trial.budget}" if LADDER in tags else ""
    return f"{shape} #{trial.replicate}{at}".strip()


def run_params(trial: TrialRow) -> dict[str, str]:
    """Return what runs are compared by: every axis, the replicate, and what the model costs."""
    values = {
        **trial.point,
        "replicate": trial.replicate,
        "budget": trial.budget,
        **trial.counts,
    }
    names = safe_names(values)
    return {names[name]: str(value) for name, value in values.items()}


def acceptable(value: str) -> str:
    """Return a tag's value without secrets and not too long for a store."""
    value = redact(value)
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 4]} ..."


def study_tags(manifest: "Manifest") -> dict[str, str]:
    identity = f"{manifest.name}\n{manifest.created!r}"
    tags = {
        "hsweep.sweep": manifest.sweep,
        "hsweep.preset": manifest.preset,
        STUDY_ID: hashlib.sha256(identity.encode()).hexdigest()[:32],
    }
    if ladder := manifest.budget.get("ladder"):
        tags[LADDER] = f"{', '.join(map(str, ladder))} {manifest.budget['unit']}"
    if manifest.scouts:
        tags[SCOUTS] = str(manifest.scouts)
    if manifest.training:
        tags["hsweep.training"] = acceptable(manifest.training)
    for name in ("tool", "sweep"):
        if state := manifest.provenance.get(name):
            tags[f"hsweep.{name}_commit"] = state["commit"] + ("-dirty" if state["dirty"] else "")
            tags["mlflow.source.git.commit"] = state["commit"]
    return tags
