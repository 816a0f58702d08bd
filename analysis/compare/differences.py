"""What is on record of several studies and not the same in all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.text.numbers import NONE
from analysis.text.tables import leaves
from hsweep.record.study import StudyFolder

Tasks = Mapping[str, Mapping[str, Any]]
"""The tasks that a study learns, by the fingerprints of their data."""
_COMMIT_LENGTH: Final = 12
_MAX_TASKS: Final = 4
_MANIFEST_FIELDS: Final = (
    *("sweep", "preset", "points", "limits", "seed", "metric", "goal", "budget"),
    *("question", "axes", "metrics"),
)
_PROVENANCE_FIELDS: Final = {
    **{name: name for name in ("training", "python", "packages")},
    **{"hardware": "hardware (where it ran)", "tool": "code of the tool"},
    "sweep": "code of the sweep",
}


def task_text(tasks: Tasks, all_tasks: Sequence[Tasks]) -> str:
    """Return a study's tasks in words, by the settings in which the studies' tasks differ."""
    contents = [_flat(task) for some in all_tasks for task in some.values()]
    names = dict.fromkeys(name for content in contents for name in content)
    unlike = [name for name in names if len({content.get(name, NONE) for content in contents}) > 1]
    texts = []
    for fingerprint, task in tasks.items():
        content = _flat(task)
        settings = [f"{name}={content[name]}" for name in unlike if name in content]
        texts.append(", ".join(settings) or f"data {fingerprint[:_COMMIT_LENGTH]}")
    text = " or ".join(texts[:_MAX_TASKS])
    unnamed = len(texts) - _MAX_TASKS
    return (f"{text} and {unnamed} more" if unnamed > 0 else text) or "not on record"


def differences(
    studies: Sequence[StudyFolder], tasks: Sequence[Tasks]
) -> dict[str, tuple[str, ...]]:
    """Return what is recorded of the studies and not the same in all of them, the task first."""
    sides = []
    for study, study_tasks in zip(studies, tasks, strict=True):
        manifest = study.manifest
        settings = {f"--set {key}": value for key, value in manifest.settings or ()}
        fingerprints = [
            str(data.get("fingerprint", NONE)) for data in manifest.provenance.get("data", ())
        ]
        content = {
            **({"task": task_text(study_tasks, tasks)} if study_tasks else {}),
            **{name: getattr(manifest, name) for name in _MANIFEST_FIELDS},
            **settings,
            "added or edited later": "; ".join(manifest.later_commands),
            **{label: manifest.provenance.get(name) for name, label in _PROVENANCE_FIELDS.items()},
            "data": ", ".join(sorted(name[:_COMMIT_LENGTH] for name in fingerprints)),
        }
        sides.append(_flat(content))
    names = dict.fromkeys(name for side in sides for name in side)
    rows = {name: tuple(side.get(name, NONE) for side in sides) for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _flat(content: Mapping[str, Any]) -> dict[str, str]:
    """Return nested values in words, their names joined by dots."""
    texts = {name: _value_text(value) or NONE for name, value in leaves(content)}
    return {
        name: text[:_COMMIT_LENGTH] if name.endswith(".commit") else text
        for name, text in texts.items()
    }


def _value_text(value: Any) -> str:
    """Return a value as a user writes it; a mapping, also one that is recorded as pairs, by its
    names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_value_text(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, list) and len(part) == 2 for part in value):
            return _value_text(dict(value))
        return ", ".join(map(_value_text, value))
    return "" if value is None else str(value)
