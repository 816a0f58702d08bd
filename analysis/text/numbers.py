"""Numbers, units and axes in words."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from analysis.statistics.values import Interval
from analysis.values import describe, value_text
from hsweep.design.scales import Goal, Scale

if TYPE_CHECKING:
    from analysis.runs.tuned import TunedSetting

Tone = Literal["found", "partial", "absent", "unknown"]
"""How a verdict is coloured: an established finding, part of one, none, or no verdict at all."""
MINUS: Final = "\N{MINUS SIGN}"
NONE: Final = "\N{EN DASH}"
"""What stands where there is no number."""
PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COST_TITLES: Final = {
    "num_params": "parameters",
    "flops_per_example": "FLOPs per example",
    "train_memory_bytes": "training memory",
    "wall_seconds": "wall time",
    "latency_seconds": "latency",
}
_COST_UNITS: Final = {"train_memory_bytes": "B", "wall_seconds": "s", "latency_seconds": "s"}


def number_text(value: float | None, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits; an en dash where there is none.

    Whole numbers are written in full up to a million, with a true minus sign throughout.
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == int(value) and abs(value) < 1e6:
        text = str(int(value))
    elif value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:.0f}"
    return text.replace("-", MINUS)


def si_text(value: float | None, unit: str = "") -> str:
    """Return ``value`` with a unit prefix: 86600000 as ``86.6 M``, 3.2e9 bytes as ``3.2 GB``."""
    if value is None or not math.isfinite(value):
        return NONE
    for size, prefix in PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{number_text(value)} {unit}".rstrip()


def p_text(p: float | None) -> str:
    """Return a p value as ``p = 0.012``, or as a bound where it is too small to print."""
    if p is None or not math.isfinite(p):
        return "p not computed"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def fold_text(decades: float) -> str:
    """Return a drop of an error in words: 2 decades are ``about 100 times smaller``."""
    fold = 10**decades
    text = f"{float(f'{fold:.2g}'):,.0f}" if fold >= 10 else f"{fold:.2g}"
    return f"about {text} times smaller"


def text_below(value: float, limit: float) -> str:
    """Return a value below a limit with two decimals, or with as many as show that it is below."""
    texts = (f"{value:.{decimals}f}" for decimals in range(2, 18))
    return next((text for text in texts if float(text) < limit), repr(value))


def interval_text(interval: Interval, confidence: float = 0.95) -> str:
    return f"{number_text(interval.estimate)}, {ends_text(interval, confidence)}"


def ends_text(interval: Interval, confidence: float = 0.95) -> str:
    return (
        f"{percent_text(confidence)} interval "
        f"{number_text(interval.low)} to {number_text(interval.high)}"
    )


def amount_text(difference: float | None, *, is_share: bool, digits: int = 3) -> str:
    """Return a difference of a metric: ``3.5 points`` of a share of 1, else in its own unit."""
    if not is_share or difference is None:
        return number_text(difference, digits)
    points = number_text(float(f"{100 * difference:.12g}"), digits)
    return f"{points} point{'' if points == '1' else 's'}"


def gain_text(gain: Interval, *, is_share: bool, confidence: float = 0.95) -> str:
    """Return how much better something is, in words, with the interval where there is one:
    ``0.8 points worse (95% interval: 2 worse to 0.4 better)``."""
    factor = 100 if is_share else 1
    ends = [f"{number_text(factor * abs(end))} {_way(end)}" for end in gain[1:]]
    estimate = f"{amount_text(abs(gain.estimate), is_share=is_share)} {_way(gain.estimate)}"
    if math.isnan(gain.low):
        return estimate
    return f"{estimate} ({percent_text(confidence)} interval: {' to '.join(ends)})"


def _way(gain: float) -> str:
    return "better" if gain >= 0 else "worse"


def gain_title(metric: str, unit: str = "") -> str:
    """Return the header of a column of differences: whatever the goal, above 0 is better."""
    return f"gain in {metric} ({f'{unit}, ' if unit else ''}above 0 is better)"


def percent_text(share: float) -> str:
    return f"{number_text(100 * share)}%"


def share_text(share: float) -> str:
    """Return a small share with one digit, rounded up as it stands after "at most": 0.4%, 0.1%."""
    size = 10.0 ** math.floor(math.log10(max(share, 0.001)))
    return percent_text(float(f"{math.ceil(max(share, 0.001) / size - 1e-9) * size:.1g}"))


def sentence(text: str) -> str:
    """Return a note as a sentence: with a capital letter and a full stop."""
    note = text.strip()
    return note and f"{note[0].upper()}{note[1:]}{'' if note.endswith(('.', '!', '?')) else '.'}"


def direction_text(metric: str, goal: Goal, scale: Scale | None = None) -> str:
    """Return which way a metric is read: ``loss is minimised (lower is better), in nats``."""
    way = "minimised (lower" if goal == "min" else "maximised (higher"
    axis = {
        "error": ", as an error on a logarithmic axis",
        "accuracy": f", as 1 {MINUS} {metric} on a logarithmic axis",
        "loss": ", in nats",
        None: "",
    }[scale]
    return f"{metric} is {way} is better){axis}"


def y_unit(scale: Scale) -> str:
    """Return the unit of a difference on a scale's axis."""
    return {"loss": "nats", "error": "decades", "accuracy": "powers of ten of the error"}[scale]


def y_size(y: float | None, scale: Scale, points: float | None = None) -> str:
    """Return a difference on a scale's axis in words: ``1.5 decades``, ``0.2 nats``.

    Of an accuracy it is ``66 points`` where that is known, and else by what factor the error
    differs: ``a factor of 3.2``.
    """
    if scale != "accuracy":
        return f"{number_text(y)} {y_unit(scale)}"
    if points is not None and math.isfinite(points):
        return f"{number_text(points)} points"
    return f"a factor of {number_text(None if y is None else 10**y, 2)}"


def metric_title(metric: str, scale: Scale) -> str:
    return {"error": metric, "accuracy": f"1 {MINUS} {metric}", "loss": f"{metric} (nats)"}[scale]


def cost_title(cost: str) -> str:
    return _COST_TITLES.get(cost, cost)


def cost_unit(cost: str) -> str:
    """Return the symbol of a cost column's unit, empty for counts."""
    return _COST_UNITS.get(cost, "")


def cost_text(cost: str, value: float | None) -> str:
    return si_text(value, cost_unit(cost))


def setting_text(setting: "TunedSetting | None") -> str:
    """Return a shape's best setting: ``lr=0.01 of 4 (largest or smallest tried)``."""
    if setting is None:
        return NONE
    edge = f", {' and '.join(setting.at_edge)} at the edge" if setting.at_edge else ""
    single = ", a single run" if setting.is_single else ""
    return f"{describe(setting.values)} (of {setting.tried}{edge}{single})"


def first_to_lower(sentence: str) -> str:
    """Return a sentence that can follow a colon."""
    return sentence[:1].lower() + sentence[1:]


def at_best(nuisance: Sequence[str], noun: str = "shape") -> str:
    """Return the clause that each shape is at its best setting; empty without nuisance axes."""
    return f", each {noun} at its best {' and '.join(nuisance)}" if nuisance else ""


def settings_text(nuisance: Sequence[str], rate: float | None = None, noun: str = "shape") -> str:
    """Return the sentence that each shape is at its best setting, or that all runs had one learning
    rate; empty where neither is so."""
    if nuisance:
        return f"Each {noun} is taken at its best {' and '.join(nuisance)}."
    if rate is None:
        return ""
    return f"All runs had the one learning rate {value_text(rate)}, which was not tuned."


def setting_header(nuisance: Sequence[str]) -> tuple[str, ...]:
    """Return the title of the column of best settings, where there is one."""
    return (f"best {', '.join(nuisance)}",) if nuisance else ()
