"""Commands that follow from an answer, and the recorded points that they speak of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.questions.base import Finding
from analysis.values import AxisValue
from hsweep.command_line import command
from hsweep.record.study import Study


def settle_command(study: Study, findings: Iterable[Finding]) -> str | None:
    """Return the command line that runs, in the same study, only the trials that findings lack.

    None where they lack none, and for a study whose search proposes the trials one by one: no cell
    of it can be filled.
    """
    if study.is_adaptive() or not any(finding.missing for finding in findings):
        return None
    words = ("--study", study.name, "--only-missing")
    return command("run", sweep_file(study), *words, home=study.paths.home)


def recorded_point(
    points: Sequence[Mapping[str, Any]], at: Mapping[str, AxisValue]
) -> Mapping[str, Any] | None:
    """Return the recorded point at axis values of the table of trials; None if there is none."""
    return next((each for each in points if _is_at(each, at)), None)


def _is_at(point: Mapping[str, Any], at: Mapping[str, AxisValue]) -> bool:
    shown = {axis: _shown(point.get(axis)) for axis in at}
    # A value that parts a study's comparisons is known in words alone.
    return all(value in (shown[axis], str(shown[axis])) for axis, value in at.items())


def _shown(value: Any) -> Any:
    """Return an axis value as the table of trials has it."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | tuple) else value


def sweep_file(study: Study) -> Path:
    """Return the sweep file the study began with, or its copy if that has gone or changed."""
    copy = study.paths.sweep_source
    words = [str(word) for word in study.manifest.provenance.get("command", ())]
    for word in words:
        original = Path(study.manifest.sweep_folder) / Path(word).name
        if word.endswith(".py") and original.is_file():
            try:
                if original.read_text() == copy.read_text():
                    return original
            except (OSError, UnicodeDecodeError):
                break
    return copy
