"""What a front says in words: sentence and tables."""

import math
from typing import Final

from analysis.questions.pareto.result import FrontClass, ParetoResult, ParetoRow
from analysis.runs.losses import losses_named
from analysis.text.numbers import (
    Tone,
    cost_text,
    cost_title,
    interval_text,
    number_text,
    percent_text,
    sentence,
    setting_header,
    setting_text,
    settings_text,
)
from analysis.text.tables import TERMINAL_ROWS, Table

CLASS_NAMES: Final[dict[FrontClass, str]] = {
    "on": "on the front",
    "undecided": "undecided",
    "off": "off the front",
    "untested_on": "on the front (untested)",
    "untested_off": "behind it (untested)",
}


def pareto_badge(result: ParetoResult) -> tuple[str, Tone]:
    if result.noise_gap:
        return "front shown, not tested", "unknown"
    if any(row.class_ == "undecided" for row in result.table):
        return "front partly decided", "partial"
    return "front decided", "found"


def pareto_sentences(result: ParetoResult) -> tuple[str, ...]:
    """Return what was found, and then what qualifies it."""
    classes = [row.class_ for row in result.table]
    costs = " and ".join(cost_title(cost) for cost in result.costs)
    undecided = classes.count("undecided")
    likely = number_text(1 - result.settings.alpha)
    bound = "" if result.noise_gap else f" (each with a probability of at least {likely})"
    sentences = [
        f"{len(result.front)} of {len(classes)} shapes lie on the front: no other shape has both a "
        f"better {result.metric} and lower {costs}{bound}."
    ]
    if result.noise_gap:
        sentences.append(
            "This is shown, not tested: the noise between seeds is not measured "
            f"({result.noise_gap}), so other seeds may tell otherwise."
        )
    if undecided:
        sentences.append(f"Of {undecided} more these seeds do not tell.")
    sentences += filter(None, [settings_text(result.nuisance, result.fixed_rate)])
    if lossy := [(row.label, row.lost) for row in result.table if row.lost.total]:
        whose = "mean of one shape is" if len(lossy) == 1 else f"means of {len(lossy)} shapes are"
        sentences.append(f"The {whose} over the seeds that are left ({losses_named(lossy)}).")
    if result.film is not None:
        sentences.append(result.film.text)
    return tuple(sentences)


def _likelihood(row: ParetoRow) -> float:
    """Return how likely a shape lies on the front; as measured where that is not tested."""
    return row.p_front if math.isfinite(row.p_front) else float(row.class_ == "untested_on")


def pareto_table(result: ParetoResult) -> Table:
    """Return the shapes, cheapest first; the likeliest first where they are too many to show."""
    shapes = result.table
    if len(shapes) > TERMINAL_ROWS:
        shapes = tuple(sorted(shapes, key=lambda row: -_likelihood(row)))
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
            f"{row.n}{row.lost.behind}",
            percent_text(row.crash_share),
            *(cost_text(cost, row.costs.get(cost)) for cost in result.costs),
            number_text(row.p_front, 2),
            CLASS_NAMES[row.class_],
            *((setting_text(row.setting),) if result.nuisance else ()),
        )
        for row in shapes
    )
    volume = (
        f"Hypervolume {interval_text(result.hv, result.settings.confidence)}. "
        if result.hv is not None
        else ""
    )
    return Table(header, rows, (volume + sentence(result.hv_note)).strip())
