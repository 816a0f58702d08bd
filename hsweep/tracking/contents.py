"""What the runs of a study show: parameters, metrics, tags and data of a trial, and the answer."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest
from hsweep.record.rows import FIGURES, LogRow, TrialRow
from hsweep.redaction import redact
from hsweep.tracking.client import entities
from hsweep.tracking.study import milliseconds, safe_names, tag_value

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
_LONGEST_NAME: Final = 500
_LONGEST_DIGEST: Final = 36
"""Characters of a data set's, as MLflow allows them."""


def trial_metrics(rows: Iterable[LogRow]) -> list[entities.Metric]:
    """Return what the reports among log entries have measured, in their order."""
    metrics = []
    for row in rows:
        if row.kind == "report":
            values = {name: row.payload.get(name) for name in FIGURES} | row.payload["metrics"]
            names = safe_names(values)
            metrics += [
                entities.Metric(names[name], float(value), milliseconds(row.time), row.unit or 0)
                for name, value in values.items()
                if value is not None
            ]
    return metrics


def trial_tags(trial: TrialRow, rows: Iterable[LogRow]) -> list[entities.RunTag]:
    """Return the tags by which log entries of a trial are known."""
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
    return [entities.RunTag(f"hsweep.{name}", tag_value(value)) for name, value in values.items()]


def trial_params(trial: TrialRow, recipe: Mapping[str, Any], unit: str) -> dict[str, str]:
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
    return {names[name]: str(value) for name, value in values.items()}


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def trial_datasets(
    study: Manifest, tags: Mapping[str, str], trial: TrialRow
) -> list[entities.DatasetInput]:
    """Return what a trial learns from as MLflow's data sets; empty where that is not on record.

    A set is named after the data or else the task, and known by the data's fingerprint. The profile
    holds the settings that all tasks with these data have in common.

    Args:
        tags: of the study's runs, which name the code that makes or finds the data.
    """
    fingerprint = trial.parts.get("data")
    later = [extension.get("provenance", {}) for extension in reversed(study.extensions)]
    tasks = [
        entry["task"]
        for provenance in (*later, study.provenance)
        for entry in provenance.get("data", ())
        if entry.get("fingerprint") == fingerprint
    ]
    if not fingerprint or not tasks:
        return []
    newest, *others = tasks
    common = {
        name: value
        for name, value in newest.items()
        if all(other.get(name) == value for other in others)
    }
    # What a task calls its data, or the first file that training of the user's own depends on.
    names = [common.get("data"), *(common.get("depends_on") or ())[:1]]
    data = next((str(name) for name in names if isinstance(name, str) and name), "")
    source: dict[str, Any] = {"uri": data}
    if is_code := not Path(data).is_absolute():
        code = ("mlflow.source.name", "mlflow.source.git.commit")
        source = {"tags": {name: tags[name] for name in code if name in tags}}
    dataset = entities.Dataset(
        name=redact(data or str(newest.get("type", "data")))[:_LONGEST_NAME],
        digest=fingerprint[:_LONGEST_DIGEST],
        source_type="code" if is_code else "local",
        source=redact(json.dumps(source)),
        profile=redact(json.dumps(common)),
    )
    return [entities.DatasetInput(dataset, [entities.InputTag("mlflow.data.context", "train")])]


def note_tags(note: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that give a study's run its description; none where the user has edited the
    one among the ``present`` tags."""
    known = present.get(NOTE)
    if known and _digest(known) != present.get(_NOTE_DIGEST):
        return {}
    note = tag_value(note)
    return {NOTE: note, _NOTE_DIGEST: _digest(note)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class StoredAnswer:
    """The content of a study's ``analysis.json``; without an answer where that cannot be read."""

    def __init__(self, path: Path) -> None:
        try:
            self._content: Mapping[str, Any] = json.loads(path.read_text())
            numbers: Mapping[str, float] = self._content.get("numbers") or {}
        except (OSError, ValueError, AttributeError):
            self._content, numbers = {}, {}
        names = safe_names(numbers)
        self._numbers = {names[name]: float(number) for name, number in numbers.items()}

    def note(self) -> list[str]:
        """Return paragraphs of Markdown: the answer, what limits it, what to run next."""
        content = self._content
        if not content.get("answer"):
            return []
        limits = "\n".join(f"- {text}" for text in content.get("qualifications") or ())
        commands = {name: content.get(f"{name}_command") for name in ("settle", "confirm")}
        next_runs = [f"To {name} it: `{text}`" for name, text in commands.items() if text]
        return [f"**{content['answer']}**", *filter(None, [limits]), *next_runs]

    def tags(self, present: Mapping[str, str]) -> dict[str, str]:
        """Return what the answer is in a word each, and which numbers it has; empty where the
        ``present`` tags are of an earlier answer that has one and this one has none."""
        names = ("kind", "verdict", "choice")
        words = {f"hsweep.{name}": str(self._content.get(name) or "") for name in names}
        values = {**words, _NUMBERS: ",".join(self._numbers)}
        return {
            name: tag_value(value) for name, value in values.items() if value or name in present
        }

    def metrics(self, present: Mapping[str, str], moment: int) -> list[entities.Metric]:
        """Return the answer's numbers at a moment (milliseconds since the epoch); one that an
        earlier answer had and this one has not becomes NaN, since no metric can be removed."""
        earlier = filter(None, present.get(_NUMBERS, "").split(","))
        values = dict.fromkeys(earlier, math.nan) | self._numbers
        return [entities.Metric(name, value, moment, 0) for name, value in values.items()]
