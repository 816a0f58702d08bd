"""Points, trials and lists in words. A label has only the axes in which the trials of a study
differ."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def point_label(point: Mapping[str, Any], varying: tuple[str, ...] | None = None) -> str:
    """Return a point as text, only the given axes of it."""
    axes = point if varying is None else [axis for axis in varying if axis in point]
    return " ".join(
        f"{axis}={value:.4g}" if isinstance(value := point[axis], float) else f"{axis}={value}"
        for axis in axes
    )


def listed(values: Sequence[Any], word: str = "and") -> str:
    """Return values with commas between, and a word before the last."""
    *most, last = map(str, values)
    return f"{', '.join(most)} {word} {last}" if most else last


def counted(number: int, thing: str) -> str:
    """Return a number of things: ``1 run``, ``90 runs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def unit_word(unit: str, number: float) -> str:
    """Return the word for a number of units: ``epoch`` of 1, ``epochs`` of others."""
    return unit.removesuffix("s") if number == 1 else unit


def budget_text(budget: float, unit: str, column: str) -> str:
    """Return a budget of a table in words: with its unit, or its column where it has none."""
    return f"{budget:g} {unit_word(unit, budget)}" if unit else f"{column} = {budget:g}"


def first_of(values: Sequence[Any], most: int = 5, mark: str = ", ") -> str:
    """Return the first values with a mark between, and the number of the rest."""
    num_more = len(values) - most
    rest = [f"and {num_more} more"] if num_more > 0 else []
    return mark.join([*map(str, values[:most]), *rest])


def varying_axes(points: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the axes that take more than one value among points; all axes if none does."""
    values: dict[str, set[Any]] = {}
    # Replicates may share their point.
    for point in {id(point): point for point in points}.values():
        for axis, value in point.items():
            # 2 and 2.0 are one value.
            values.setdefault(axis, set()).add(
                value if isinstance(value, int | float) else repr(value)
            )
    varying = tuple(axis for axis in values if len(values[axis]) > 1)
    return varying or tuple(values)


class TrialLabels:
    """Trials of one study in words, by all its points and budgets: ``heads=2 #0``, on a ladder
    ``heads=2 #0 at 38``."""

    def __init__(self, points: Iterable[Mapping[str, Any]], amounts: Iterable[int]) -> None:
        self._varying = varying_axes(points)
        self._has_ladder = len(set(amounts)) > 1

    def of(self, point: Mapping[str, Any], replicate: int, amount: int) -> str:
        """Return a trial in words, by its point, the number of its seed and its budget, without the
        axes whose value all points share."""
        label = f"{point_label(point, self._varying)} #{replicate}"
        return f"{label} at {amount}" if self._has_ladder else label


def strata_apart(strata: Iterable[str]) -> dict[str, str]:
    """Return the label of each stratum, by the axes in which the strata differ."""
    axes = {stratum: stratum.split(",") for stratum in strata}
    shared = set.intersection(*map(set, axes.values())) if len(axes) > 1 else set()
    return {
        stratum: " ".join(part for part in parts if part not in shared) or "all"
        for stratum, parts in axes.items()
    }
