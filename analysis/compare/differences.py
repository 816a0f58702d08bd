"""What is on record of several studies and not the same in all of them."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.compare.result import Difference
from analysis.text.numbers import NONE
from hsweep.record.study import StudyFolder

_MOST_DIFF_LINES: Final = 400
_COMMIT_LENGTH: Final = 12
_MOST_TASKS_NAMED: Final = 4
_COMPARED: Final = (
    *("sweep", "preset", "settings", "points", "limits", "seed", "metric", "goal", "budget"),
    *("question", "axes", "metrics"),
)
_OF_PROVENANCE: Final = (*("tool", "sweep", "training", "python", "packages", "hardware", "data"),)


def task_text(
    own: Mapping[str, Mapping[str, Any]], every: Sequence[Mapping[str, Mapping[str, Any]]]
) -> str:
    """Return a study's tasks in words, by the settings in which the studies' tasks differ."""
    contents = [dict(_flattened("", task)) for tasks in every for task in tasks.values()]
    names = list(dict.fromkeys(name for content in contents for name in content))
    differing = [
        name for name in names if len({content.get(name, NONE) for content in contents}) > 1
    ]
    found = [
        ", ".join(f"{name}={content[name]}" for name in differing if name in content)
        or f"data {fingerprint[:_COMMIT_LENGTH]}"
        for fingerprint, task in own.items()
        for content in [dict(_flattened("", task))]
    ]
    some = " or ".join(found[:_MOST_TASKS_NAMED])
    left = len(found) - _MOST_TASKS_NAMED
    return (f"{some} and {left} more" if left > 0 else some) or "not on record"


def differences(
    studies: Sequence[StudyFolder], tasks: Sequence[Mapping[str, Mapping[str, Any]]]
) -> list[Difference]:
    """Return what is recorded of the studies and not the same in all of them, the task first."""
    sides = []
    for study, own in zip(studies, tasks, strict=True):
        manifest = study.manifest
        content: dict[str, Any] = {"task": task_text(own, tasks)} if own else {}
        for name in _COMPARED:
            if name == "settings":
                given = manifest.settings or ()
                content |= {f"--set {key}": ", ".join(map(str, values)) for key, values in given}
            else:
                content[name] = getattr(manifest, name)
        provenance = {
            f"{name} (where it ran)" if name == "hardware" else name: manifest.provenance.get(name)
            for name in _OF_PROVENANCE
        }
        provenance["code of the tool"] = provenance.pop("tool")
        provenance["code of the sweep"] = provenance.pop("sweep")
        read = provenance["data"] or ()
        provenance["data"] = ", ".join(
            sorted(str(each.get("fingerprint", NONE))[:_COMMIT_LENGTH] for each in read)
        )
        later = "; ".join(manifest.later_commands)
        content = {**content, "added or edited later": later, **provenance}
        sides.append(dict(_flattened("", content)))
    names = list(dict.fromkeys(name for side in sides for name in side))
    rows = [Difference(name, tuple(side.get(name, NONE) for side in sides)) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _flattened(prefix: str, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += _flattened(f"{full}.", value)
        else:
            shown = _written(value) or NONE
            rows.append((full, shown[:_COMMIT_LENGTH] if full.endswith(".commit") else shown))
    return rows


def _written(value: Any) -> str:
    """Return a value as a user writes it; a mapping, also one that is recorded as pairs, by its
    names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_written(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        if value and all(isinstance(each, list) and len(each) == 2 for each in value):
            return _written(dict(value))
        return ", ".join(map(_written, value))
    return "" if value is None else str(value)


def source_diff(studies: Sequence[StudyFolder], labels: Sequence[str]) -> str:
    """Return how each study's sweep file differs from the first one's, as a unified diff."""
    texts = []
    for study in studies:
        try:
            texts.append(study.paths.sweep_source.read_text().splitlines())
        except (OSError, UnicodeDecodeError):
            texts.append([])
    lines: list[str] = []
    for label, text in zip(labels[1:], texts[1:], strict=True):
        lines += difflib.unified_diff(
            texts[0], text, f"{labels[0]}/sweep.py", f"{label}/sweep.py", lineterm="", n=1
        )
    left = len(lines) - _MOST_DIFF_LINES
    return "\n".join(lines[:_MOST_DIFF_LINES] + ([f"... {left} more lines"] if left > 0 else []))
