"""What a front says in words: sentence and tables."""

from typing import Final

from analysis.questions.pareto.result import FrontClass, ParetoResult
from analysis.runs.losses import losses_named, runs_text
from analysis.text.numbers import (
    Tone,
    all_at_best,
    at_best,
    cost_text,
    cost_title,
    interval_text,
    number_text,
    percent_text,
    sentence,
    setting_header,
    setting_text,
)
from analysis.text.tables import Table

CLASS_NAMES: Final[dict[FrontClass, str]] = {
    "on": "on the front",
    "undecided": "undecided",
    "off": "off the front",
    "untested_on": "on the front (untested)",
    "untested_off": "behind it (untested)",
}


def pareto_badge(result: ParetoResult) -> tuple[str, Tone]:
    if not result.table:
        return "nothing to compare", "unknown"
    if result.is_untested:
        return "front shown, not tested", "unknown"
    if any(row.class_ == "undecided" for row in result.table):
        return "front partly decided", "partial"
    return "front decided", "found"


def pareto_sentence(result: ParetoResult) -> str:
    counted = {
        name: sum(row.class_ == name for row in result.table) for name in ("on", "undecided", "off")
    }
    if not result.table:
        return "No shape has a finished trial, so there is no front to show."
    costs = " and ".join(cost_title(cost) for cost in result.costs)
    if result.is_untested:
        return (
            f"{len(result.front)} of {len(result.table)} shapes lie on the front of "
            f"{result.metric} against {costs}, which is shown and not tested: {result.noise_gap}, "
            f"so the noise between seeds is not measured{at_best(result.nuisance)}."
            f"{_shapes_with_losses(result)}"
        )
    return (
        f"Of {len(result.table)} shapes, {counted['on']} lie on the front of {result.metric} "
        f"against {costs} (probability at least {number_text(result.settings.on)}), "
        f"{counted['undecided']} stay undecided with these seeds, and {counted['off']} do not"
        f"{at_best(result.nuisance)}."
        f"{_shapes_with_losses(result)}"
    )


def plain_front(result: ParetoResult) -> list[str]:
    """Return the answer in everyday words: first what was found, then what qualifies it."""
    if not result.table:
        return [pareto_sentence(result)]
    counted = [row.class_ for row in result.table]
    costs = " and ".join(cost_title(cost) for cost in result.costs)
    undecided = counted.count("undecided")
    untested = (
        f"Other seeds may tell otherwise, as their noise is not measured: {result.noise_gap}."
    )
    return [
        f"{len(result.front)} of {len(counted)} shapes are worth what they cost: no other shape "
        f"has both a better {result.metric} and lower {costs}.",
        *([untested] if result.is_untested else []),
        *([f"Of {undecided} more the seeds do not tell yet."] if undecided else []),
        *([all_at_best(result.nuisance)] if result.nuisance else []),
        *filter(None, [_shapes_with_losses(result).strip()]),
    ]


def _shapes_with_losses(result: ParetoResult) -> str:
    lossy = [(row.label, row.lost) for row in result.table if row.lost.total]
    if not lossy:
        return ""
    one = len(lossy) == 1
    return (
        f" {'The mean of one of them is' if one else f'The means of {len(lossy)} of them are'} "
        f"over the seeds that are left ({losses_named(lossy)})."
    )


def pareto_table(result: ParetoResult) -> Table:
    header = (
        "shape",
        f"{result.metric} (mean)",
        f"{percent_text(result.settings.confidence)} interval",
        "runs",
        "crashed",
        *(cost_title(cost) for cost in result.costs),
        "P(front)",
        "class",
        *setting_header(result.nuisance),
    )
    rows = tuple(
        (
            row.label,
            number_text(row.mean, 4),
            f"{number_text(row.ci.low, 4)} to {number_text(row.ci.high, 4)}",
            runs_text(row.n, row.lost),
            percent_text(row.crash_share),
            *(cost_text(cost, row.costs.get(cost)) for cost in result.costs),
            number_text(row.p_front, 2),
            CLASS_NAMES[row.class_],
            *((setting_text(row.setting),) if result.nuisance else ()),
        )
        for row in result.table
    )
    volume = (
        f"Hypervolume {interval_text(result.hv, result.settings.confidence)}. "
        if result.hv is not None
        else ""
    )
    return Table(header, rows, (volume + sentence(result.hv_note)).strip())
