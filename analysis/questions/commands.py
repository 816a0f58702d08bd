"""Commands that follow from an answer, and the recorded points that the commands name."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analysis.questions.base import Finding
from analysis.values import AxisValue
from hsweep.command_line import command
from hsweep.design.question import Missing
from hsweep.record.study import StudyFolder

_LIMIT_OPTIONS: Final = {
    "max_params": "--max-params",
    "min_params": "--min-params",
    "max_memory": "--max-memory",
    "max_flops": "--max-flops",
}


def settle_command(study: StudyFolder, findings: Iterable[Finding]) -> str | None:
    """Return the command line that runs, in the same study, only the trials that findings lack.

    None where no trial is missing, and for a study whose search proposes trials one by one: the
    user cannot fill a cell of such a study.
    """
    if study.is_adaptive() or not any(finding.missing for finding in findings):
        return None
    words = ("--study", study.name, "--only-missing")
    return command("run", sweep_file(study), *words, home=study.paths.home)


def confirm_command(study: StudyFolder, findings: Iterable[Finding]) -> str | None:
    """Return the command line that runs every chosen shape and its baseline with the next study
    seed, which confirms the choice; None where the study chose no shape."""
    choices = (finding.confirm for finding in findings if finding.confirm)
    return next(filter(None, (_confirm_command(study, choice) for choice in choices)), None)


def _confirm_command(study: StudyFolder, runs: Sequence[Missing]) -> str | None:
    points = _points(study, [shape.at for shape in runs])
    if points is None:
        return None
    manifest = study.manifest
    words = [str(sweep_file(study))]
    if manifest.preset != "quick":
        words += ["--preset", manifest.preset]
    for name, values in manifest.settings:
        if name != "replicates":
            words += ["--set", f"{name}={_values(values)}"]
    for name, limit in manifest.limits.items():
        if limit is not None:
            words += [_LIMIT_OPTIONS[name], str(limit)]
    for point in points:
        words += ["--point", ",".join(f"{axis}={_value(value)}" for axis, value in point.items())]
    seeds = max(shape.seeds for shape in runs)
    words += ["--set", f"replicates={seeds}", "--seed", str(manifest.seed + 1)]
    words += ["--study", _free_name(study)]
    return command("run", *words, home=study.paths.home)


def _points(study: StudyFolder, places: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    with study.journal() as journal:
        recorded = list(journal.points())
    points: list[dict[str, Any]] = []
    for at in places:
        point = recorded_point(recorded, at)
        if point is None:
            return None
        # The point names all axes: an axis with one value here may vary elsewhere in the study.
        if point not in points:
            points.append(dict(point))
    return points


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        inside = ", ".join(_value(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def _values(values: Sequence[Any]) -> str:
    # A tuple alone must not be read as a list of its parts.
    return ",".join(map(_value, values))


def _free_name(study: StudyFolder) -> str:
    base = f"{study.name}-confirm"
    studies = study.paths.root.parent
    name, number = base, 2
    while (studies / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name


def recorded_point(
    points: Sequence[Mapping[str, Any]], at: Mapping[str, AxisValue]
) -> Mapping[str, Any] | None:
    """Return the recorded point at axis values of the table of trials; None if there is none."""
    return next((point for point in points if _is_at(point, at)), None)


def _is_at(point: Mapping[str, Any], at: Mapping[str, AxisValue]) -> bool:
    shown = {axis: _shown(point.get(axis)) for axis in at}
    # The value of the axis that divides a study into comparisons is known as text alone.
    return all(value in (shown[axis], str(shown[axis])) for axis, value in at.items())


def _shown(value: Any) -> Any:
    """Return an axis value as the table of trials has it."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | tuple) else value


def sweep_file(study: StudyFolder) -> Path:
    """Return the sweep file the study began with, or its copy if that has gone or changed."""
    copy = study.paths.sweep_source
    words = [str(word) for word in study.manifest.provenance.get("command", ())]
    for word in words:
        # The command names a sweep that comes with hsweep without a path.
        name = f"{Path(word).name.removesuffix('.py')}.py"
        original = Path(study.manifest.sweep_folder) / name
        if original.is_file():
            try:
                if original.read_text("utf-8") == copy.read_text("utf-8"):
                    return original
            except (OSError, UnicodeDecodeError):
                break
    return copy
