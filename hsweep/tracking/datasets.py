"""What trials learn from, as MLflow's data sets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.record.rows import TrialRow
from hsweep.redaction import redact
from hsweep.tracking.study import TrackedStudy

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import DatasetInput

_LONGEST_NAME: Final = 500
_LONGEST_DIGEST: Final = 36
"""Characters, as MLflow allows them."""
_CONTEXT: Final = "mlflow.data.context"


def datasets_of(study: TrackedStudy, trial: TrialRow) -> "list[DatasetInput]":
    """Return what a trial learns from; empty where that is not on record.

    It is named after the data or else the task, and known by the data's fingerprint. The profile
    holds the settings that all tasks with these data have in common.
    """
    from hsweep.tracking.mlflow_api import Dataset, DatasetInput, InputTag

    fingerprint = trial.parts.get("data")
    tasks = [each["task"] for each in study.data if each.get("fingerprint") == fingerprint]
    if not fingerprint or not tasks:
        return []
    common = {
        name: value
        for name, value in tasks[0].items()
        if all(other.get(name) == value for other in tasks)
    }
    data = _data_of(common)
    source_type, source = _source(data, study)
    dataset = Dataset(
        name=redact(data or str(tasks[0].get("type", "data")))[:_LONGEST_NAME],
        digest=fingerprint[:_LONGEST_DIGEST],
        source_type=source_type,
        source=redact(json.dumps(source)),
        profile=redact(json.dumps(common)),
    )
    return [DatasetInput(dataset, [InputTag(_CONTEXT, "train")])]


def _data_of(settings: dict[str, Any]) -> str | None:
    """Return what a task calls its data, or the first file that training of the user's own depends
    on; None where the data are generated."""
    for value in (settings.get("data"), *(settings.get("depends_on") or ())[:1]):
        if isinstance(value, str) and value:
            return value
    return None


def _source(data: str | None, study: TrackedStudy) -> tuple[str, dict[str, Any]]:
    """Return where data lie, or else the code that makes or finds them."""
    if data is not None and Path(data).is_absolute():
        return "local", {"uri": data}
    named = ("mlflow.source.name", "mlflow.source.git.commit")
    return "code", {"tags": {name: study.tags[name] for name in named if name in study.tags}}
