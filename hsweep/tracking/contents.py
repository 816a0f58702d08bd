"""What the runs of a study show in MLflow: names, tags, parameters, metrics and the answer.

Plain values: needs no MLflow.
"""

import hashlib
import json
import math
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest
from hsweep.record.rows import FIGURES, LogRow, TrialRow
from hsweep.secrets import redact

STUDY_ID: Final = "hsweep.study_id"
"""The tag by which a study's runs are found; it tells studies of one name in two homes apart."""
NOTE: Final = "mlflow.note.content"
"""MLflow's tag for a description, which its pages show as Markdown and let a user edit."""
WEIGHTS: Final = "hsweep.weights"
"""The tag of a trial's run with the path or URI of its final weights."""
RUN_STATUS: Final = {
    TrialStatus.PLANNED: "SCHEDULED",
    TrialStatus.RUNNING: "RUNNING",
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "KILLED",
    TrialStatus.NOT_NEEDED: "KILLED",
    TrialStatus.DIVERGED: "FAILED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.TOO_LARGE: "FAILED",
}

_NOTE_DIGEST: Final = "hsweep.note_digest"
"""The tag with the digest of the description that was written last: another one is the user's."""
_NUMBERS: Final = "hsweep.numbers"
"""The tag that tells the numbers of the answer from metrics that a user has added."""
_MAX_NAME: Final = 240
"""Characters of a parameter or metric; MLflow allows 250, the rest is room for a prefix."""
_MAX_VALUE: Final = 5000
"""Characters of a tag; MLflow itself takes 8,000, databases and older servers less."""

MetricPoint = tuple[str, float, int, int]
"""Name, value, time in milliseconds and step, in the order of MLflow's ``Metric``."""


def milliseconds(seconds: float) -> int:
    """Return a time as MLflow counts it."""
    return int(seconds * 1000)


def tag_value(text: str) -> str:
    """Return a text without secrets and short enough for a tag."""
    text = redact(text)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 4]} ..."


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Map metric or parameter names to ones MLflow accepts, different ones to different ones.

    MLflow allows letters, digits and ``_ - . /`` and space, and wants a name to be its own
    normalised path.
    """
    chosen: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (_safe_name(name) != name, name)):
        safe = _safe_name(name)
        if len(safe) > _MAX_NAME or safe in chosen.values():
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            safe = f"{safe[: _MAX_NAME - 9]}_{digest}"
        chosen[name] = safe
    return chosen


def _safe_name(name: str) -> str:
    safe = re.sub(r"[^\w.\- /]", "_", name) or "_"
    if safe.startswith(("/", "..")) or safe in (".", "..") or posixpath.normpath(safe) != safe:
        safe = re.sub(r"[/.]", "_", safe)
    return safe


def study_tags(study: Manifest) -> dict[str, str]:
    """Return the tags of every run of a study."""
    tags = {
        "hsweep.study": study.name,
        "hsweep.sweep": study.sweep,
        "hsweep.preset": study.preset,
        STUDY_ID: study.study_id,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(study.provenance.get("sweep_file") or "hsweep"),
    }
    if ladder := study.budget.get("ladder"):
        tags["hsweep.ladder"] = f"{', '.join(map(str, ladder))} {study.budget['unit']}"
    if study.scouts:
        tags["hsweep.scouts"] = str(study.scouts)
    if study.training:
        tags["hsweep.training"] = tag_value(study.training)
    for name in ("tool", "sweep"):
        if state := study.provenance.get(name):
            tags[f"hsweep.{name}_commit"] = state["commit"] + ("-dirty" if state["dirty"] else "")
    if state := study.provenance.get("sweep"):
        tags["mlflow.source.git.commit"] = state["commit"]
        tags["mlflow.source.git.dirty"] = str(state["dirty"]).lower()
    return tags | {name: tag_value(text) for name, text in study.tags.items()}


def trial_metrics(rows: Iterable[LogRow]) -> list[MetricPoint]:
    """Return the metrics of the reports among log entries, in their order."""
    points = []
    for row in rows:
        if row.kind == "report":
            values = {name: row.payload.get(name) for name in FIGURES} | row.payload["metrics"]
            names, moment = safe_names(values), milliseconds(row.time)
            points += [
                (names[name], float(value), moment, row.unit or 0)
                for name, value in values.items()
                if value is not None
            ]
    return points


def trial_tags(trial: TrialRow, rows: Iterable[LogRow]) -> dict[str, str]:
    """Return the tags that log entries of a trial set."""
    values = {"reused_from": trial.reused_from, "continues": trial.continues}
    values = {name: value for name, value in values.items() if value}
    for row in rows:
        content = row.payload
        if row.kind == "report":
            remarks = {name: content.get(name) for name in ("micro_batch", "note")}
            values |= {name: str(remark) for name, remark in remarks.items() if remark}
        else:
            values |= {name: content[name] for name in ("status", "reason")}
            if "orphaned" in content:
                values["orphaned"] = content["orphaned"] or "false"
    return {f"hsweep.{name}": tag_value(value) for name, value in values.items()}


def trial_values(trial: TrialRow, recipe: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """Return what runs are compared by: every axis, the replicate, the budget under the name of
    its ``unit``, what the model costs, and the fields of the recipe.

    A field that an axis of the same name has set is the axis; one that differs from it is called
    as on the command line (``recipe.lr``).
    """
    values = {
        **trial.point,
        "replicate": trial.replicate,
        "budget" if unit in trial.point else unit: trial.budget,
        **trial.counts,
    }
    for name, value in _flat(recipe).items():
        if name not in values:
            values[name] = value
        elif value != values[name]:
            values[f"recipe.{name}"] = value
    names = safe_names(values)
    return {names[name]: value for name, value in values.items()}


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def note_tags(note: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that give a study's run its description; none where the user has edited the
    description that is among the ``present`` tags."""
    known = present.get(NOTE)
    if known and _digest(known) != present.get(_NOTE_DIGEST):
        return {}
    note = tag_value(note)
    return {NOTE: note, _NOTE_DIGEST: _digest(note)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def answer_contents(
    path: Path, present: Mapping[str, str]
) -> tuple[list[str], dict[str, str], dict[str, float]]:
    """Return what a study's ``analysis.json`` says: paragraphs of Markdown, tags and numbers.

    A word or number that an earlier answer had, by the ``present`` tags, and this one has not
    becomes empty or NaN, since no metric can be removed. A file that cannot be read has no answer.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        numbers: dict[str, float] = content.get("numbers") or {}
    except (OSError, ValueError, AttributeError):
        content, numbers = {}, {}
    paragraphs = []
    if content.get("answer"):
        limits = "\n".join(f"- {text}" for text in content.get("qualifications") or ())
        commands = {name: content.get(f"{name}_command") for name in ("settle", "confirm")}
        next_runs = [f"To {name} it: `{text}`" for name, text in commands.items() if text]
        paragraphs = [f"**{content['answer']}**", *filter(None, [limits]), *next_runs]
    names = safe_names(numbers)
    values = {names[name]: float(number) for name, number in numbers.items()}
    words = {f"hsweep.{name}": content.get(name) for name in ("kind", "verdict", "choice")}
    tags = {name: str(word or "") for name, word in words.items()} | {_NUMBERS: ",".join(values)}
    earlier = filter(None, present.get(_NUMBERS, "").split(","))
    return (
        paragraphs,
        {name: tag_value(text) for name, text in tags.items() if text or name in present},
        dict.fromkeys(earlier, math.nan) | values,
    )
