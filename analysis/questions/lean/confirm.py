"""What confirms a lean choice: the same two shapes, alone, with fresh seeds.

The choice was the cheapest of several that passed, which inflates its estimate; seeds that no part
of the study has seen tell whether it holds.
"""

from collections.abc import Sequence

from analysis.questions.base import Confirmation
from analysis.questions.lean.groups import Comparison
from analysis.statistics.noninferiority import confirming_seeds


def confirmation(comparisons: Sequence[Comparison]) -> Confirmation | None:
    """Return the runs that confirm what a study chose, None where it had no choice.

    Every chosen shape and its baseline is run with the seeds that find an equal shape nine times in
    ten (the most that any of the comparisons asks for).
    """
    usable = [
        each
        for each in comparisons
        if each.result.choice_config is not None and each.result.confirm
    ]
    if not usable:
        return None
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = 0.05 if usable[0].at else usable[0].result.settings.alpha
    at, seeds = [], 0
    for each in usable:
        result = each.result
        assert result.choice_config is not None
        wanted = confirming_seeds(result.margin_over_sd or 0.0, alpha / len(usable))
        seeds = max(seeds, wanted)
        chosen = next(row for row in result.table if row.label == result.choice)
        for config, setting in (
            (result.baseline, result.baseline_setting),
            (result.choice_config, chosen.setting),
        ):
            # What is confirmed is the shape at the setting that stands for it.
            at.append({**each.at, **config, **(setting.values if setting is not None else {})})
    return Confirmation(tuple(at), seeds)
