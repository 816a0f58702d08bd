"""What a constant predictor scores in a study, as its tasks declared when it began."""

from collections.abc import Mapping, Sequence
from typing import Any


def study_chance(
    data: Sequence[Mapping[str, Any]], metric: str, at: Mapping[str, object] | None = None
) -> float | None:
    """Return what the best constant predictor scores; None where that is not known.

    Args:
        data: the tasks on record, ``provenance["data"]`` of a study's manifest: each may have
            ``chance``, scores by metric, and ``at``, the axis values at which it is learned where
            other points learn another task.
        metric: which score.
        at: axis values that choose among the tasks. Where those left score differently there is no
            one answer, and so None.
    """
    scores = {
        entry.get("chance", {}).get(metric)
        for entry in data
        if all(
            str(value) == str((at or {}).get(axis, value))
            for axis, value in entry.get("at", {}).items()
        )
    }
    return scores.pop() if len(scores) == 1 else None
