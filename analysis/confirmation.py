"""The command that confirms a lean choice: the same two shapes, alone, with fresh seeds.

The choice was the cheapest of several that passed, which inflates its estimate; seeds that no part
of the study has seen tell whether it holds.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analysis.findings.results import Config, LeanResult
from analysis.lean_groups import LeanGroups
from analysis.statistics.noninferiority import confirming_seeds
from hsweep.command_line import command
from hsweep.record.study import Study

_LIMIT_OPTIONS: Final = {
    "max_params": "--max-params",
    "min_params": "--min-params",
    "max_memory": "--max-memory",
    "max_flops": "--max-flops",
}


def confirm_command(
    study: Study, lean: LeanResult | None, groups: LeanGroups | None = None
) -> str | None:
    """Return the command line that confirms what a study chose, None where it had no choice.

    It runs every chosen shape and its baseline with the next study seed, and with the seeds that
    find an equal shape nine times in ten (the most that any of the comparisons asks for).
    """
    chosen: list[tuple[LeanResult, dict[str, str]]] = []
    if lean is not None and lean.choice_config is not None:
        chosen.append((lean, {}))
    if groups is not None:
        chosen += [
            (result, {groups.within: value})
            for value, result in groups.found.items()
            if result.choice_config is not None
        ]
    usable = [(result, where) for result, where in chosen if result.confirm]
    if not usable:
        return None
    points = _points(study, usable)
    if points is None:
        return None
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = sum(result.settings.alpha for result, _ in usable) if groups is None else 0.05
    seeds = max(
        confirming_seeds(result.margin_over_sd or 0.0, alpha / len(usable)) for result, _ in usable
    )
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
    words += ["--set", f"replicates={seeds}", "--seed", str(manifest.seed + 1)]
    words += ["--study", _free_name(study)]
    return command("run", *words, home=study.paths.home)


def recorded_values(
    points: Sequence[Mapping[str, Any]], config: Config, where: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return a shape's axis values as the sweep's space has them; None if no point has them.

    Args:
        points: those on record.
        config: the shape, as the analysis names it.
        where: the axis that parts the study's comparisons, with its value in words.
    """
    point = next((each for each in points if _is(each, config, where)), None)
    return None if point is None else {axis: point.get(axis) for axis in (*where, *config)}


def _points(
    study: Study, chosen: Sequence[tuple[LeanResult, Mapping[str, str]]]
) -> list[dict[str, Any]] | None:
    """Return the axis values of every baseline and choice, as the sweep's space has them."""
    with study.journal() as journal:
        recorded = [dict(point) for point in journal.points()]
    found: list[dict[str, Any]] = []
    for result, where in chosen:
        assert result.choice_config is not None
        chosen_row = next(row for row in result.table if row.label == result.choice)
        for config, setting in (
            (result.baseline, result.baseline_setting),
            (result.choice_config, chosen_row.setting),
        ):
            # What is confirmed is the shape at the setting that stands for it.
            whole = {**config, **(setting.values if setting is not None else {})}
            point = next((p for p in recorded if _is(p, whole, where)), None)
            if point is None:
                return None
            # All axes: those that did not vary among the baseline's rivals may vary elsewhere.
            if point not in found:
                found.append(point)
    return found


def _is(point: Mapping[str, Any], config: Config, where: Mapping[str, str]) -> bool:
    return all(_shown(point.get(axis)) == value for axis, value in config.items()) and all(
        str(_shown(point.get(axis))) == value for axis, value in where.items()
    )


def _shown(value: Any) -> Any:
    """Return an axis value as the table of trials has it."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        inside = ", ".join(_value(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def _values(values: Sequence[Any]) -> str:
    # A tuple alone must not be read as a list of its parts.
    return ",".join(map(_value, values))


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


def _free_name(study: Study) -> str:
    base = f"{study.name}-confirm"
    studies = study.paths.root.parent
    name, number = base, 2
    while (studies / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name
