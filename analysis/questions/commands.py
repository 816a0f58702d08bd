"""Commands that follow from an answer, and the recorded points that the commands name."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from analysis.questions.base import Finding
from analysis.values import AxisValue
from hsweep.command_line import command
from hsweep.record.study import StudyFolder


def settle_command(study: StudyFolder, findings: Iterable[Finding]) -> str | None:
    """Return the command line that runs, in the same study, only the trials that findings lack.

    None where it would train none, as far as the study worked out when it last ended.
    """
    if not any(runs.trials for finding in findings for runs in finding.missing):
        return None
    words = ("--study", study.name, "--only-missing")
    return command("run", sweep_file(study), *words, home=study.paths.home)


def confirm_command(study: StudyFolder, findings: Iterable[Finding]) -> str | None:
    """Return the command line that runs every chosen shape and its baseline with the next study
    seed, which confirms the choice; None where the study chose no shape."""
    runs = next((finding.confirm for finding in findings if finding.confirm), None)
    if runs is None:
        return None
    with study.journal() as journal:
        recorded = list(journal.points())
    points = [recorded_point(recorded, shape.at) for shape in runs]
    manifest = study.manifest
    words = [str(sweep_file(study))]
    if manifest.preset != "quick":
        words += ["--preset", manifest.preset]
    for name, values in manifest.settings:
        if name not in ("replicates", "search"):
            words += ["--set", f"{name}={','.join(map(_value, values))}"]
    for name, limit in manifest.limits.items():
        if limit is not None:
            words += [f"--{name.replace('_', '-')}", str(limit)]
    for at, point in enumerate(points):
        if point is None:
            return None
        if point not in points[:at]:
            # It names all axes: an axis with one value here may vary elsewhere in the study.
            axes = ",".join(f"{axis}={_value(value)}" for axis, value in point.items())
            words += ["--point", axes]
    seeds = max(shape.seeds for shape in runs)
    # Exactly these runs: a search would choose among them by rules of its own.
    words += ["--search", "grid"] * (manifest.is_sequential)
    words += ["--set", f"replicates={seeds}", "--seed", str(manifest.seed + 1)]
    words += ["--study", _free_name(study)]
    return command("run", *words, home=study.paths.home)


def _value(value: Any) -> str:
    """Return a value as an option: a tuple is not read as a list of its parts."""
    if isinstance(value, list | tuple):
        inside = ", ".join(_value(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def _free_name(study: StudyFolder) -> str:
    base, studies = f"{study.name}-confirm", study.paths.root.parent
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(name for name in names if not (studies / name).exists())


def recorded_point(
    points: Sequence[Mapping[str, Any]], at: Mapping[str, AxisValue]
) -> Mapping[str, Any] | None:
    """Return the recorded point at axis values of the table of trials; None if there is none."""

    def shown(value: Any) -> Any:
        if value is None:
            return "none"
        return json.dumps(value) if isinstance(value, list | tuple) else value

    for point in points:
        values = {axis: shown(point.get(axis)) for axis in at}
        # The value of the axis that divides a study into comparisons is known as text alone.
        if all(value in (values[axis], str(values[axis])) for axis, value in at.items()):
            return point
    return None


def sweep_file(study: StudyFolder) -> Path:
    """Return the sweep file the study began with, or its copy if that has gone or changed."""
    copy = study.paths.sweep_source
    original = study.origin() or copy
    try:
        is_same = original.read_text("utf-8") == copy.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return copy
    return original if is_same else copy
