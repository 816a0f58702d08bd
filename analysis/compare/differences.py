"""What is on record of several studies and not the same in all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.text.numbers import NONE
from hsweep.record.study import StudyFolder

Tasks = Mapping[str, Mapping[str, Any]]
"""The tasks that a study learns, by the fingerprints of their data."""
_COMMIT_LENGTH: Final = 12
_MOST_TASKS_NAMED: Final = 4
_COMPARED: Final = (
    *("sweep", "preset", "points", "limits", "seed", "metric", "goal", "budget"),
    *("question", "axes", "metrics"),
)
_OF_PROVENANCE: Final = {
    **{name: name for name in ("training", "python", "packages")},
    **{"hardware": "hardware (where it ran)", "tool": "code of the tool"},
    "sweep": "code of the sweep",
}


def task_text(own: Tasks, every: Sequence[Tasks]) -> str:
    """Return a study's tasks in words, by the settings in which the studies' tasks differ."""
    contents = [_flat(task) for tasks in every for task in tasks.values()]
    names = dict.fromkeys(name for content in contents for name in content)
    differing = [
        name for name in names if len({content.get(name, NONE) for content in contents}) > 1
    ]
    texts = []
    for fingerprint, task in own.items():
        content = _flat(task)
        named = [f"{name}={content[name]}" for name in differing if name in content]
        texts.append(", ".join(named) or f"data {fingerprint[:_COMMIT_LENGTH]}")
    text = " or ".join(texts[:_MOST_TASKS_NAMED])
    unnamed = len(texts) - _MOST_TASKS_NAMED
    return (f"{text} and {unnamed} more" if unnamed > 0 else text) or "not on record"


def differences(
    studies: Sequence[StudyFolder], tasks: Sequence[Tasks]
) -> dict[str, tuple[str, ...]]:
    """Return what is recorded of the studies and not the same in all of them, the task first."""
    sides = []
    for study, own in zip(studies, tasks, strict=True):
        manifest = study.manifest
        settings = {f"--set {key}": value for key, value in manifest.settings or ()}
        fingerprints = [
            str(data.get("fingerprint", NONE)) for data in manifest.provenance.get("data", ())
        ]
        content = {
            **({"task": task_text(own, tasks)} if own else {}),
            **{name: getattr(manifest, name) for name in _COMPARED},
            **settings,
            "added or edited later": "; ".join(manifest.later_commands),
            **{shown: manifest.provenance.get(name) for name, shown in _OF_PROVENANCE.items()},
            "data": ", ".join(sorted(name[:_COMMIT_LENGTH] for name in fingerprints)),
        }
        sides.append(_flat(content))
    names = dict.fromkeys(name for side in sides for name in side)
    rows = {name: tuple(side.get(name, NONE) for side in sides) for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values in words, their names joined by dots."""
    rows: dict[str, str] = {}
    for name, value in content.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows |= _flat(value, f"{full}.")
        else:
            shown = _written(value) or NONE
            rows[full] = shown[:_COMMIT_LENGTH] if full.endswith(".commit") else shown
    return rows


def _written(value: Any) -> str:
    """Return a value as a user writes it; a mapping, also one that is recorded as pairs, by its
    names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_written(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, list) and len(part) == 2 for part in value):
            return _written(dict(value))
        return ", ".join(map(_written, value))
    return "" if value is None else str(value)
