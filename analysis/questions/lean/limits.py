"""The limits of a margin, and of the seeds that a race may train."""

import math
from typing import Final

RACE_SEEDS: Final = 8
"""Seeds of a shape that a race for the leanest one may train, from 0 on."""
BASELINE_MORE: Final = 4
"""Seeds, after those, of the baseline, with which all shapes are compared."""


def margin_problem(margin: float, metric: str, worst: float | None, *, is_share: bool) -> str:
    """Return the rule that the margin of a lean question breaks; empty for none.

    It must be smaller than the metric's range: from a perfect value (1 of a share, or else 0) to
    the ``worst``, which is what a constant predictor scores; None where that is not known.
    """
    reach = 1 - (worst or 0.0) if is_share else worst or math.inf
    if not 0 < reach <= margin:
        return ""
    points = f"; {margin:g} points are {margin / 100:g}" if is_share else ""
    return (
        f"a margin of {margin:g} is no smaller than the range of {metric}, {reach:.3g}, so any "
        f"shape would count as no worse; give it in the metric's own unit{points}"
    )
