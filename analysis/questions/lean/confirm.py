"""What confirms a lean choice: the same two shapes, alone, with fresh seeds.

The choice was the cheapest of several that passed, which inflates its estimate; seeds that no part
of the study has seen tell whether it holds.
"""

from collections.abc import Mapping, Sequence

from analysis.questions.base import Confirmation
from analysis.questions.lean.result import LeanResult
from analysis.statistics.noninferiority import confirming_seeds
from analysis.values import AxisValue


def confirmation(
    comparisons: Sequence[tuple[LeanResult, Mapping[str, AxisValue]]],
) -> Confirmation | None:
    """Return the runs that confirm what a study chose, None where it had no choice.

    Every chosen shape and its baseline is run with the seeds that find an equal shape nine times in
    ten (the most that any of the comparisons asks for).

    Args:
        comparisons: each with the axis value that tells it from the others.
    """
    usable = [
        (result, where)
        for result, where in comparisons
        if result.choice_config is not None and result.confirm
    ]
    if not usable:
        return None
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = 0.05 if usable[0][1] else usable[0][0].settings.alpha
    seeds = max(
        confirming_seeds(result.margin_over_sd or 0.0, alpha / len(usable)) for result, _ in usable
    )
    at = []
    for result, where in usable:
        assert result.choice_config is not None
        chosen_row = next(row for row in result.table if row.label == result.choice)
        for config, setting in (
            (result.baseline, result.baseline_setting),
            (result.choice_config, chosen_row.setting),
        ):
            # What is confirmed is the shape at the setting that stands for it.
            at.append({**where, **config, **(setting.values if setting is not None else {})})
    return Confirmation(tuple(at), seeds)
