"""What was found, in words: the answer in one sentence, verdict names, numbers, axis titles."""

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

from analysis.findings.losses import losses_named
from analysis.findings.results import (
    AxisValue,
    CellCounts,
    FrontClass,
    Interval,
    LeanResult,
    LeanRow,
    LeanVerdict,
    ParetoResult,
    TransitionResult,
    TunedSetting,
)
from analysis.lean_groups import LeanGroups
from analysis.statistics.noninferiority import MOST_SEEDS_ASKED_FOR
from hsweep.design.question import Scale

Tone = Literal["found", "partial", "absent", "unknown"]
"""How a verdict is coloured: an established finding, part of one, none, or no verdict at all."""

MINUS: Final = "\N{MINUS SIGN}"
NONE: Final = "\N{EN DASH}"
"""What stands where there is no number."""

_VERDICTS: Final[dict[str, tuple[str, Tone]]] = {
    "transition": ("transition", "found"),
    "jump_only": ("jump only", "partial"),
    "threshold": ("threshold", "partial"),
    "plateau": ("plateau", "partial"),
    "suggested": ("suggested, not tested", "unknown"),
    "none": ("no transition", "absent"),
    "inconclusive": ("inconclusive", "unknown"),
    "found": ("leaner equivalent found", "found"),
    "excluded": ("no leaner equivalent", "absent"),
    "undecided": ("undecided", "unknown"),
    "untrained": ("baseline not trained", "unknown"),
    "no_candidates": ("no cheaper shape", "unknown"),
    "unsupported": ("unsupported", "unknown"),
}

CLASS_NAMES: Final[dict[FrontClass, str]] = {
    "on": "on the front",
    "undecided": "undecided",
    "off": "off the front",
}

_COST_TITLES: Final = {
    "num_params": "parameters",
    "flops_per_example": "FLOPs per example",
    "train_memory_bytes": "training memory",
    "wall_seconds": "wall time",
    "latency_seconds": "latency",
}
_COST_UNITS: Final = {"train_memory_bytes": "B", "wall_seconds": "s", "latency_seconds": "s"}

Result = TransitionResult | ParetoResult | LeanResult


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
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{number_text(value)} {unit}".rstrip()


def p_text(p: float | None) -> str:
    """Return a p value as ``p = 0.012``, or as a bound where it is too small to print."""
    if p is None or not math.isfinite(p):
        return "p not computed"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def interval_text(interval: Interval, confidence: float = 0.95) -> str:
    """Return an estimate with its interval in words."""
    return (
        f"{number_text(interval.estimate)}, {percent_text(confidence)} interval "
        f"{number_text(interval.low)} to {number_text(interval.high)}"
    )


def percent_text(share: float) -> str:
    """Return a share as a percentage with up to three digits."""
    return f"{number_text(100 * share)}%"


def sentence(text: str) -> str:
    """Return a note as a sentence: with a capital letter and a full stop."""
    said = text.strip()
    return said and f"{said[0].upper()}{said[1:]}{'' if said.endswith(('.', '!', '?')) else '.'}"


def y_unit(scale: Scale) -> str:
    """Return the unit of y on ``scale``."""
    return "nats" if scale == "loss" else "decades"


def metric_title(metric: str, scale: Scale) -> str:
    """Return the axis title of the error that ``scale`` makes of ``metric``."""
    return {"error": metric, "accuracy": f"1 {MINUS} {metric}", "loss": f"{metric} (nats)"}[scale]


def cost_title(cost: str) -> str:
    """Return a cost column's name in words."""
    return _COST_TITLES.get(cost, cost)


def cost_unit(cost: str) -> str:
    """Return the symbol of a cost column's unit, empty for counts."""
    return _COST_UNITS.get(cost, "")


def cost_text(cost: str, value: float | None) -> str:
    """Return a cost with its unit."""
    return si_text(value, cost_unit(cost))


def verdict_badge(result: Result | None) -> tuple[str, Tone]:
    """Return the verdict's name as a reader sees it and the tone it is shown in."""
    if result is None:
        return "no verdict", "unknown"
    if isinstance(result, ParetoResult):
        undecided = any(row.class_ == "undecided" for row in result.table)
        if not result.table:
            return "nothing to compare", "unknown"
        return ("front partly decided", "partial") if undecided else ("front decided", "found")
    return _VERDICTS[result.verdict]


def answer_sentence(result: Result | None) -> str:
    """Return what was found in one sentence with its uncertainty, for the page and the terminal.

    ``None`` is a study without a question that statistics could answer.
    """
    if result is None:
        return (
            "This sweep asks no question that is settled by a test; the trials and their learning "
            "curves are shown as they are."
        )
    if isinstance(result, TransitionResult):
        return f"{_transition_sentence(result)}{_cells_with_losses(result)}"
    if isinstance(result, LeanResult):
        return _lean_sentence(result)
    return _pareto_sentence(result)


def _transition_sentence(result: TransitionResult) -> str:
    if result.verdict == "inconclusive":
        reason = result.reason.strip().rstrip(".")
        trials = sum(cell.trials for cell in result.missing)
        wanted = f" {trials} more full-budget trials would settle it." if trials else ""
        return f"Inconclusive: {reason}.{wanted}"
    if result.verdict == "suggested":
        return _suggested_sentence(result)
    found = _plateau_sentence(result) if result.verdict == "plateau" else _tested_sentence(result)
    if result.stated_sd is None:
        return found
    stated = f"{number_text(result.stated_sd)} {y_unit(result.scale)}"
    return f"With a stated seed sd of {stated}: {_first_to_lower(found)}"


def _suggested_sentence(result: TransitionResult) -> str:
    drop = f"{number_text(result.drop)} {y_unit(result.scale)}"
    tested = abruptness_text(result)
    trials = sum(cell.trials for cell in result.missing)
    return (
        f"A collapse at {result.x} = {number_text(result.h_star)} is suggested, not tested: "
        f"{result.noise_gap}, so the noise between seeds is not measured. The error drops by "
        f"{drop} there ({tested}). {trials} more full-budget trials would test it: three seeds in "
        "every cell."
    )


def _plateau_sentence(result: TransitionResult) -> str:
    assert result.bracket is not None
    low, high = (f"{result.x} = {number_text(value)}" for value in result.bracket)
    unit = y_unit(result.scale)
    later = number_text(max(result.later_fall or 0.0, 0.0))
    confidence = percent_text(1 - result.settings.alpha)
    growth = result.gamma_above
    delta = result.settings.delta_T
    grows = (
        f"; there it still grows with {result.by} (slope {interval_text(growth)})"
        if result.by is not None and growth is not None and delta is not None and growth.low > delta
        else ""
    )
    return (
        f"A plateau from {high} on: the error drops by {number_text(result.drop)} {unit} from "
        f"{low}, and larger values lower it by no more than {later} {unit} ({confidence} "
        f"bound){grows}. With one value below it, the drop cannot be told from diminishing "
        f"returns{_below_plateau(result)}."
    )


def _below_plateau(result: TransitionResult) -> str:
    """Return what would tell a plateau's drop from diminishing returns."""
    values = sorted({cell.x for cell in result.missing})
    if values:
        trials = sum(cell.trials for cell in result.missing)
        return f"; {trials} trials at {result.x} = {_listed(values)} would tell"
    if result.bracket is not None and result.bracket[0] == 1:
        return (
            f", and {result.x} has no smaller value: a task that needs more would tell (of a "
            "larger dimension, or of several)"
        )
    return f"; more values of {result.x} below it would tell"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(map(number_text, values))


def abruptness_text(result: TransitionResult) -> str:
    """Return the p value of abruptness with what it rests on, or that there is none."""
    if not result.abrupt_testable:
        return "abruptness is not testable on this grid"
    text = p_text(result.p_abrupt)
    if not result.noise_gap:
        return text
    if result.n1_assumed_sd is None:
        return f"{text} by the few seeds there are"
    sd = f"{number_text(result.n1_assumed_sd)} {y_unit(result.scale)}"
    return f"{text} if seeds scatter by {sd}, which is assumed"


def _tested_sentence(result: TransitionResult) -> str:
    reason = result.reason.strip().rstrip(".")
    if result.verdict == "none":
        kind = {
            None: "",
            "above_range": f" If there is one, it lies above the largest {result.x} tried.",
            "below_range": f" Either the smallest {result.x} tried is enough or none tried is: "
            "these runs do not tell which.",
        }[result.none_kind]
        return f"No transition in {result.x} is established: {reason}.{kind}"
    where = _where(result)
    drop = f"{number_text(result.drop)} {y_unit(result.scale)}"
    if result.verdict == "transition":
        return (
            f"The error collapses at {where}: it drops by {drop}, abruptly "
            f"({p_text(result.p_abrupt)}){_growth_above(result, 'and')}."
        )
    if result.verdict == "jump_only":
        return (
            f"The error drops abruptly at {where}, by {drop} ({p_text(result.p_abrupt)})"
            f"{_growth_above(result, 'but')}: a jump, not a full transition."
        )
    if result.abrupt_testable:
        abrupt = f"is not shown to be abrupt ({p_text(result.p_abrupt)})"
    else:
        abrupt = f"cannot be tested for abruptness with so few {result.x} below it"
    return (
        f"A threshold at {where}: the error drops by {drop}{_growth_above(result, 'and')}; "
        f"the drop {abrupt}, so a transition is not claimed."
    )


def _cells_with_losses(result: TransitionResult) -> str:
    lossy = [(cell_name(cell, result), cell.losses) for cell in result.counts if cell.losses.total]
    if not lossy:
        return ""
    return (
        f" {len(lossy)} of {len(result.counts)} cells are read from the runs that are left: "
        f"{losses_named(lossy)}."
    )


def cell_name(cell: CellCounts, result: TransitionResult) -> str:
    """Return a cell in words: ``heads=3, seq_len=16``."""
    by = f", {result.by}={number_text(cell.by)}" if cell.by is not None else ""
    return f"{result.x}={number_text(cell.x)}{by}"


def _where(result: TransitionResult) -> str:
    place = f"{result.x} = {number_text(result.h_star)}"
    details = []
    if result.h_set:
        listed = ", ".join(number_text(value) for value in result.h_set)
        details.append(f"{percent_text(result.settings.set_mass)} set {{{listed}}}")
    if result.bracket is not None:
        low, high = result.bracket
        details.append(f"bracket ({number_text(low)}, {number_text(high)}]")
    return f"{place} ({'; '.join(details)})" if details else place


def _growth_above(result: TransitionResult, joint: str) -> str:
    if result.by is None or result.gamma_above is None:
        return ""
    slope = f"slope {interval_text(result.gamma_above)}"
    if result.verdict == "jump_only":
        return f", {joint} above it the error still grows with {result.by} ({slope})"
    delta = result.settings.delta_T
    vanishes = delta is not None and result.gamma_above.high <= delta
    if result.verdict == "threshold" or vanishes:
        return f", {joint} from there on it no longer grows with {result.by} ({slope})"
    # A transition only needs that growth is not shown to persist, which is less than its absence.
    return (
        f", {joint} growth with {result.by} from there on is neither shown nor excluded ({slope})"
    )


def _lean_sentence(result: LeanResult) -> str:
    said = _LEAN_SENTENCES[result.verdict](result)
    doubt = f" {sentence(result.doubt)}" if result.doubt and result.table else ""
    return f"{said}{doubt}{_settings_at_edge(result)}{_baseline_losses(result)}"


def _found_sentence(result: LeanResult) -> str:
    chosen = chosen_row(result)
    assert chosen is not None
    savings = ", ".join(
        f"{percent_text(round(share, 3))} of {cost_title(cost)}"
        for cost, share in chosen.saving.items()
        if math.isfinite(share) and share > 0
    )
    return (
        f"The leanest shape established as no worse than {result.baseline_label} by "
        f"{_margin(result)} is {chosen.label}, which saves "
        f"{savings or 'nothing that was recorded'}; its difference is "
        f"{interval_text(chosen.ci, result.settings.confidence)} "
        f"(Holm {p_text(chosen.p_holm)} over {_cheaper(result)}, {chosen.n} seeds"
        f"{chosen.lost.behind}){_at_best(result)}."
    )


def _excluded_sentence(result: LeanResult) -> str:
    worst = p_text(max(row.p_worse or 0.0 for row in result.table))
    one = len(result.table) == 1
    return (
        f"{'The cheaper shape' if one else f'Each of the {_cheaper(result)}'} tried is worse than "
        f"the baseline {result.baseline_label} by more than {_margin(result)} "
        f"({'' if one else 'largest '}Holm {worst}){_at_best(result)}."
    )


def _undecided_sentence(result: LeanResult) -> str:
    excluded = sum(row.outcome == "excluded" for row in result.table)
    parts = [f"{excluded} {'is' if excluded == 1 else 'are'} worse by more"] if excluded else []
    if result.undecided and (excluded or result.stopped):
        verb = "is" if len(result.undecided) == 1 else "are"
        parts.append(f"{len(result.undecided)} {verb} undecided")
    if result.stopped:
        verb = "was" if len(result.stopped) == 1 else "were"
        parts.append(f"{len(result.stopped)} {verb} stopped early and not compared")
    said = f"but {', '.join(parts)}" if parts else "and none is shown to be worse by more"
    if len(result.table) + len(result.stopped) == 1 and not result.stopped:
        return (
            f"Undecided: the cheaper shape tried is neither established as no worse than the "
            f"baseline {result.baseline_label} by {_margin(result)} nor shown to be worse by more"
            f"{_at_best(result)}. {_what_it_takes(result)}"
        )
    return (
        f"Undecided: of the {_cheaper(result)} tried, none is established as no worse than the "
        f"baseline {result.baseline_label} by {_margin(result)}, "
        f"{said}"
        f"{_at_best(result)}. {_what_it_takes(result)}"
    ).rstrip()


def _what_it_takes(result: LeanResult) -> str:
    """Return how many seeds would settle what is undecided; empty where none can be named."""
    if not result.undecided:
        return ""
    power = percent_text(result.settings.power)
    needed = [row.seeds_needed for row in result.undecided]
    known = sorted(number for number in needed if number is not None)
    have = max(row.n for row in result.undecided)
    if not known:
        return (
            f"To establish an equal shape with a power of {power} would take more than "
            f"{MOST_SEEDS_ASKED_FOR} seeds of each: widen the margin."
        )
    if len(known) == len(needed) and known[-1] <= min(row.n for row in result.undecided):
        return (
            f"With {have} seeds a shape that equals the baseline is established with a power of at "
            f"least {power}, so what is undecided is more likely somewhat worse, by about the "
            "margin."
        )
    span = number_text(known[-1])
    if known[0] < known[-1]:
        span = f"{known[0]} to {known[-1]}"
    more = len(needed) - len(known)
    rest = f" ({more} of them more than {MOST_SEEDS_ASKED_FOR})" if more else ""
    return (
        f"To establish an equal shape with a power of {power} takes {span} seeds of each{rest}; "
        f"there are {have}."
    )


def _unsupported_sentence(result: LeanResult) -> str:
    # The reason stands alone in JSON, where it names the verdict itself.
    return f"Unsupported: {_plain_reason(result).removeprefix('unsupported: ')}."


def _untrained_sentence(result: LeanResult) -> str:
    return f"No answer: {_plain_reason(result)}."


def _no_candidates_sentence(result: LeanResult) -> str:
    return f"Nothing to compare: {_plain_reason(result)}."


_LEAN_SENTENCES: Final[dict[LeanVerdict, Callable[[LeanResult], str]]] = {
    "found": _found_sentence,
    "excluded": _excluded_sentence,
    "undecided": _undecided_sentence,
    "untrained": _untrained_sentence,
    "no_candidates": _no_candidates_sentence,
    "unsupported": _unsupported_sentence,
}


def _plain_reason(result: LeanResult) -> str:
    return result.reason.strip().rstrip(".")


def _margin(result: LeanResult) -> str:
    return f"{number_text(result.margin)} in {result.metric}"


def _cheaper(result: LeanResult) -> str:
    """Return the candidates in words, those that early stopping dropped included."""
    tried = len(result.table) + len(result.stopped)
    return f"{tried} cheaper shape{'' if tried == 1 else 's'}"


def _at_best(result: LeanResult | ParetoResult) -> str:
    if not result.nuisance:
        return ""
    return f", each shape at its best {' and '.join(result.nuisance)}"


def _settings_at_edge(result: LeanResult) -> str:
    """Return that the best setting of the baseline or the choice is the last one tried."""
    chosen = chosen_row(result)
    shapes = [("the baseline", result.baseline_setting)]
    if chosen is not None:
        shapes.append((chosen.label, chosen.setting))
    said = []
    for name, setting in shapes:
        for axis in setting.at_edge if setting is not None else ():
            assert setting is not None
            value = axis_text(setting.values[axis])
            said.append(f"{axis} = {value} for {name}")
    if not said:
        return ""
    return (
        f" The best setting is the last one tried ({'; '.join(said)}), so a wider range may change "
        "the answer."
    )


def axis_text(value: AxisValue) -> str:
    """Return an axis value in words."""
    return value if isinstance(value, str) else f"{value:g}"


def setting_text(setting: TunedSetting | None) -> str:
    """Return a shape's best setting: ``lr=0.01 of 4 (largest or smallest tried)``."""
    if setting is None:
        return NONE
    values = ", ".join(f"{name}={axis_text(value)}" for name, value in setting.values.items())
    edge = f", {' and '.join(setting.at_edge)} at the edge" if setting.at_edge else ""
    single = ", a single run" if setting.is_single else ""
    return f"{values} (of {setting.tried}{edge}{single})"


def _baseline_losses(result: LeanResult) -> str:
    lost = result.baseline_lost
    if not lost.total:
        return ""
    return f" Of the baseline {lost.text}; its mean is that of the {result.baseline_n} left."


def groups_badge(groups: LeanGroups) -> tuple[str, Tone]:
    """Return what the comparisons come to, and the tone it is shown in."""
    established, every = len(groups.established), len(groups.found) + len(groups.problems)
    if not groups.found:
        return "no verdict", "unknown"
    if len(groups.excluded) == every:
        return _VERDICTS["excluded"]
    unsettled = every - established - len(groups.excluded)
    if not established:
        return f"undecided in {unsettled} of {every}", "unknown"
    tone: Tone = "found" if established == every else "partial"
    rest = f", undecided in {unsettled}" if unsettled else ""
    return f"leaner equivalent in {established} of {every}{rest}", tone


def groups_sentence(groups: LeanGroups) -> str:
    """Return what the comparisons found, in a few sentences."""
    return " ".join(groups_sentences(groups))


def groups_sentences(groups: LeanGroups) -> list[str]:
    """Return in how many comparisons a leaner shape was found, and what each of them found."""
    said = {value: _lean_sentence(result) for value, result in groups.found.items()}
    said |= {value: f"No answer: {problem}." for value, problem in groups.problems.items()}
    parts = []
    for sentence in dict.fromkeys(said.values()):
        values = ", ".join(value for value, other in said.items() if other == sentence)
        parts.append(f"{groups.within} = {values}: {_first_to_lower(sentence)}")
    established, every = len(groups.established), len(groups.found) + len(groups.problems)
    summary = (
        f"A leaner shape is established as no worse than its baseline in {established} of "
        f"{every} comparisons"
    )
    excluded = len(groups.excluded)
    unsettled = every - established - excluded
    rest = [f"excluded in {excluded}"] if excluded else []
    rest += [f"undecided in {unsettled}"] if unsettled else []
    return [f"{', '.join([summary, *rest])}.", *parts]


def _first_to_lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def chosen_row(result: LeanResult) -> LeanRow | None:
    """Return the row of the chosen shape, or None where there is none."""
    return next((row for row in result.table if row.label == result.choice), None)


def _pareto_sentence(result: ParetoResult) -> str:
    counted = {
        name: sum(row.class_ == name for row in result.table) for name in ("on", "undecided", "off")
    }
    if not result.table:
        return "No shape has a finished trial, so there is no front to show."
    costs = " and ".join(cost_title(cost) for cost in result.costs)
    return (
        f"Of {len(result.table)} shapes, {counted['on']} lie on the front of {result.metric} "
        f"against {costs} (probability at least {number_text(result.settings.on)}), "
        f"{counted['undecided']} stay undecided with these seeds, and {counted['off']} do not"
        f"{_at_best(result)}."
        f"{_shapes_with_losses(result)}"
    )


def _shapes_with_losses(result: ParetoResult) -> str:
    lossy = [(row.label, row.lost) for row in result.table if row.lost.total]
    if not lossy:
        return ""
    one = len(lossy) == 1
    return (
        f" {'The mean of one of them is' if one else f'The means of {len(lossy)} of them are'} "
        f"over the seeds that are left ({losses_named(lossy)})."
    )
