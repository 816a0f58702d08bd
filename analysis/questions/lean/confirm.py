"""The command that confirms a lean choice: the same two shapes, alone, with fresh seeds.

The choice was the cheapest of several that passed, which inflates its estimate; seeds that no part
of the study has seen tell whether it holds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.questions.commands import recorded_point, sweep_file
from analysis.questions.lean.result import LeanResult
from analysis.statistics.noninferiority import confirming_seeds
from analysis.values import AxisValue
from hsweep.command_line import command
from hsweep.record.study import Study

_LIMIT_OPTIONS: Final = {
    "max_params": "--max-params",
    "min_params": "--min-params",
    "max_memory": "--max-memory",
    "max_flops": "--max-flops",
}


def confirm_command(
    study: Study, comparisons: Sequence[tuple[LeanResult, Mapping[str, AxisValue]]]
) -> str | None:
    """Return the command line that confirms what a study chose, None where it had no choice.

    It runs every chosen shape and its baseline with the next study seed, and with the seeds that
    find an equal shape nine times in ten (the most that any of the comparisons asks for).

    Args:
        study: the study.
        comparisons: each with the axis value that tells it from the others.
    """
    usable = [
        (result, where)
        for result, where in comparisons
        if result.choice_config is not None and result.confirm
    ]
    if not usable:
        return None
    points = _points(study, usable)
    if points is None:
        return None
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = 0.05 if usable[0][1] else usable[0][0].settings.alpha
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


def _points(
    study: Study, chosen: Sequence[tuple[LeanResult, Mapping[str, AxisValue]]]
) -> list[dict[str, Any]] | None:
    """Return the axis values of every baseline and choice, as the sweep's space has them."""
    with study.journal() as journal:
        recorded = list(journal.points())
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
            point = recorded_point(recorded, {**where, **whole})
            if point is None:
                return None
            # All axes: those that did not vary among the baseline's rivals may vary elsewhere.
            if point not in found:
                found.append(dict(point))
    return found


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        inside = ", ".join(_value(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def _values(values: Sequence[Any]) -> str:
    # A tuple alone must not be read as a list of its parts.
    return ",".join(map(_value, values))


def _free_name(study: Study) -> str:
    base = f"{study.name}-confirm"
    studies = study.paths.root.parent
    name, number = base, 2
    while (studies / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name
