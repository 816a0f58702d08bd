"""The sentences and tables of lean comparisons."""

import math
from collections import Counter
from dataclasses import replace
from typing import Final

from analysis.questions.base import Section, tables_with_rows
from analysis.questions.lean.result import (
    RACING,
    LeanResult,
    LeanRow,
    LeanVerdict,
    RowOutcome,
)
from analysis.runs.losses import losses_named
from analysis.statistics.noninferiority import MAX_SEEDS, confirming_seeds
from analysis.text.numbers import (
    NONE,
    Tone,
    amount_text,
    cost_title,
    gain_text,
    gain_title,
    number_text,
    p_text,
    percent_text,
    sentence,
    setting_header,
    setting_text,
    settings_text,
    share_text,
)
from analysis.text.settled import (
    budgets_table,
    missing_table,
    rounds_table,
    sensitivity_badge,
    sensitivity_sentence,
)
from analysis.text.tables import TERMINAL_ROWS, Table
from analysis.values import value_text
from hsweep.design.labels import counted, first_of, listed

_VERDICTS: Final[dict[LeanVerdict, tuple[str, Tone]]] = {
    "found": ("leaner equivalent found", "found"),
    "excluded": ("no leaner equivalent", "absent"),
    "ahead so far": ("so far ahead", "unknown"),
    "undecided": ("undecided", "unknown"),
    "untrained": ("baseline not trained", "unknown"),
    "no_candidates": ("no cheaper shape", "unknown"),
    "unsupported": ("unsupported", "unknown"),
}
OUTCOMES: Final[dict[RowOutcome, str]] = {
    "established": "yes",
    "excluded": "no, worse by more",
    "undecided": "undecided",
    "left early": "unlikely, left the race",
    "not raced": "not raced further",
    "failed": "too few values",
    "ahead so far": "so far ahead",
    "behind so far": "so far worse by more",
}
"""Whether a shape is at most the margin worse, in words."""
_NO_ANSWERS: Final[dict[LeanVerdict, str]] = {
    "untrained": "No answer",
    "no_candidates": "Nothing to compare",
    "unsupported": "Unsupported",
}


def lean_badge(result: LeanResult) -> tuple[str, Tone]:
    return sensitivity_badge(_VERDICTS[result.verdict], result.sensitivity)


def lean_sentences(result: LeanResult) -> list[str]:
    """Return the answer and then its qualifications, a sentence each."""
    sentences = [_headline(result), _left_out(result)]
    chosen = result.chosen
    if chosen is not None and result.verdict == "found":
        looks = " and every look of the race" if result.film else ""
        sentences += [
            f"Over {counted(chosen.n, 'seed')}{chosen.lost.behind} it is "
            f"{gain_of(result, chosen)}.",
            f"A shape that is {_size(result)} worse would pass for as good in at most "
            f"{share_text(chosen.p_holm or 0.0)} of such studies, counting "
            f"{_cheaper(result)}{looks} (Holm).",
        ]
    elif result.verdict == "undecided" and result.film is None:
        sentences.append(_seeds_to_settle(result))
    if result.film is not None:
        sentences.append(result.film.text)
    if result.untried:
        sentences.append(f"It did not try shapes that cost more: {first_of(result.untried)}.")
    if result.table:
        sentences += [
            settings_text(result.nuisance, result.fixed_rate),
            sentence(result.doubt),
            _settings_at_edge(result),
            sensitivity_sentence(result.sensitivity, result.missing),
        ]
    return [text.strip() for text in sentences if text.strip()]


def _headline(result: LeanResult) -> str:
    """Return the answer in one sentence."""
    if result.verdict in _NO_ANSWERS:
        return f"{_NO_ANSWERS[result.verdict]}: {result.reason.strip().rstrip('.')}."
    chosen = result.chosen
    if chosen is not None and result.seeds_planned is not None:
        return (
            f"{chosen.label} is so far ahead, {chosen.n} of {result.seeds_planned} seeds"
            f"{_savings(chosen)}: by these it is {_margin(result)} than "
            f"{result.baseline_label}, and nothing is established before all runs have ended."
        )
    if chosen is not None:
        return (
            f"{chosen.label} does as well as {result.baseline_label}{_savings(chosen)}: it is "
            f"established as {_margin(result)}."
        )
    return _excluded(result) if result.verdict == "excluded" else _undecided(result)


def _left_out(result: LeanResult) -> str:
    """Return which runs are in no mean, in a sentence; empty where all are."""
    lost = [(result.baseline_label, result.baseline_lost)]
    lost += [(row.label, row.lost) for row in result.table]
    named = losses_named(lost) if result.table else ""
    return f"Left out of the means, which hold for the rest alone: {named}." if named else ""


def _savings(row: LeanRow) -> str:
    saved = [
        f"{percent_text(round(share, 2))} {'fewer' if cost == 'num_params' else 'less'} "
        f"{cost_title(cost)}"
        for cost, share in row.saving.items()
        if math.isfinite(share) and share > 0
    ]
    return f", with {' and '.join(saved)}" if saved else ""


def _excluded(result: LeanResult) -> str:
    worst = p_text(max(row.p_worse or 0.0 for row in result.table))
    tried = "The cheaper shape" if len(result.table) == 1 else f"Each of the {_cheaper(result)}"
    return (
        f"{tried} tried is more than {_size(result)} worse in {result.metric} than the baseline "
        f"{result.baseline_label} (largest Holm {worst})."
    )


def _undecided(result: LeanResult) -> str:
    if result.reason == RACING:
        return f"Undecided: {RACING}."
    counts = Counter(row.outcome for row in result.table)
    worse = counts["excluded"] + counts["behind so far"]
    parts = []
    for number, what in (
        (worse, "worse by more"),
        (counts["left early"], "unlikely to be established and left the race"),
        (len(result.undecided) if worse or result.stopped else 0, "undecided"),
        (len(result.stopped), "not compared, being stopped early"),
    ):
        if number:
            parts.append(f"{number} {'is' if number == 1 else 'are'} {what}")
    rest = f"but {listed(parts)}" if parts else "and none is shown to be worse by more"
    than = f"{_margin(result)} than the baseline {result.baseline_label}"
    if result.num_candidates == 1 and not result.stopped:
        return (
            f"Undecided: the cheaper shape tried is neither established as {than} nor shown to be "
            "worse by more."
        )
    return f"Undecided: of the {_cheaper(result)} tried, none is established as {than}, {rest}."


def _seeds_to_settle(result: LeanResult) -> str:
    """Return in words how many seeds would settle undecided candidates; empty without any."""
    if not result.undecided:
        return ""
    power = percent_text(result.settings.power)
    have = sorted([*(row.n for row in result.undecided), result.baseline_n])
    known = sorted(row.seeds_needed for row in result.undecided if row.seeds_needed is not None)
    uncounted = len(result.undecided) - len(known)
    task = f"To establish an equally good shape with a chance of {power}"
    if not known:
        return f"{task} would take more than {MAX_SEEDS} seeds of each: widen the margin."
    if not uncounted and known[-1] <= have[0]:
        return (
            f"With {have[0]} seeds an equally good shape is established with a chance of at "
            f"least {power}, so what is undecided is more likely worse by about the margin."
        )
    span = f"{known[0]} to {known[-1]}" if known[0] < known[-1] else str(known[0])
    rest = f" ({uncounted} of them more than {MAX_SEEDS})" if uncounted else ""
    few = f"{have[0]} to " * (have[0] < have[-1])
    return f"{task} takes {span} seeds of each{rest}; there are {few}{have[-1]}."


def _size(result: LeanResult) -> str:
    return amount_text(result.margin, is_share=result.is_share)


def _margin(result: LeanResult) -> str:
    return f"at most {_size(result)} worse in {result.metric}"


def _cheaper(result: LeanResult) -> str:
    """Return the number of candidates in words, with those that were stopped early or not tried."""
    return counted(result.num_candidates, "cheaper shape")


def _settings_at_edge(result: LeanResult) -> str:
    """Return that the best setting of the baseline or the chosen shape is the last one tried, in
    words; empty where neither is."""
    shapes = [("the baseline", result.baseline_setting)]
    if result.chosen is not None:
        shapes.append((result.chosen.label, result.chosen.setting))
    parts = [
        f"{axis} = {value_text(setting.values[axis])} for {name}"
        for name, setting in shapes
        if setting is not None
        for axis in setting.at_edge
    ]
    if not parts:
        return ""
    return (
        f" The best setting is the last one tried ({'; '.join(parts)}), so a wider range may "
        "change the answer."
    )


def lean_tables(result: LeanResult) -> tuple[Section, ...]:
    rows = result.table
    if len(rows) > TERMINAL_ROWS:
        rows = tuple(sorted(rows, key=lambda row: not row.accepted))
    return tables_with_rows(
        Section("Candidates", lean_table(replace(result, table=rows))),
        Section("Answer at each budget", budgets_table(result.sensitivity)),
        Section("Rounds of the search", rounds_table(result.film)),
        Section("Runs that would settle it", missing_table(result.missing, result.sensitivity)),
    )


def lean_table(result: LeanResult) -> Table:
    factor = 100 if result.is_share else 1
    header = (
        "shape",
        "seeds",
        gain_title(result.metric, "points" if result.is_share else ""),
        f"{percent_text(result.settings.confidence)} interval",
        "p",
        "Holm p",
        f"at most {_size(result)} worse?",
        f"seeds to tell ({percent_text(result.settings.power)} power)",
        *(f"{cost_title(cost)} saved" for cost in result.costs),
        *setting_header(result.nuisance),
    )
    rows = tuple(
        (
            row.label,
            f"{row.n}{row.lost.behind}",
            number_text(factor * row.diff),
            f"{number_text(factor * row.ci.low)} to {number_text(factor * row.ci.high)}",
            number_text(row.p_raw, 2),
            number_text(row.p_holm, 2),
            NONE if result.verdict in ("untrained", "unsupported") else outcome_text(result, row),
            NONE if result.verdict == "untrained" else _seeds_text(row),
            *(
                percent_text(round(row.saving[cost], 3)) if cost in row.saving else NONE
                for cost in result.costs
            ),
            *((setting_text(row.setting),) if result.nuisance else ()),
        )
        for row in result.table
    )
    spread = (
        f"seed standard deviation {number_text(result.sd)}, so the margin is "
        f"{number_text(result.margin_over_sd)} of them"
        if result.sd is not None
        else "no seed standard deviation is known"
    )
    best = f", at its best {setting_text(tuned)}" if (tuned := result.baseline_setting) else ""
    note = (
        f"Baseline {result.baseline_label}: {result.metric} {number_text(result.baseline_mean, 4)} "
        f"over {counted(result.baseline_n, 'seed')}"
        f"{result.baseline_lost.behind}, {spread}{best}. "
        f"{_confirmation(result)}"
    )
    return Table(header, rows, note.strip())


def gain_of(result: LeanResult, row: LeanRow) -> str:
    """Return how much better than the baseline a shape is, in words."""
    return gain_text(row.ci, is_share=result.is_share, confidence=result.settings.confidence)


def outcome_text(result: LeanResult, row: LeanRow) -> str:
    """Return whether a shape is at most the margin worse, in words."""
    seeds = f", {row.n} of {result.seeds_planned} seeds" if "so far" in row.outcome else ""
    return f"{OUTCOMES[row.outcome]}{seeds}"


def _seeds_text(row: LeanRow) -> str:
    """Return the number of seeds that would establish an equal shape, in words."""
    if row.seeds_needed is not None:
        return str(row.seeds_needed)
    is_open = row.outcome == "undecided" and row.p_raw is not None
    return f"more than {MAX_SEEDS}" if is_open else NONE


def _confirmation(result: LeanResult) -> str:
    """Return the advice to confirm a choice among several; empty without one."""
    chosen, ratio = result.chosen, result.margin_over_sd
    if chosen is None or ratio is None or result.num_candidates < 2:
        return ""
    seeds = confirming_seeds(ratio, result.settings.alpha)
    return (
        f"Run {chosen.label} and {result.baseline_label} with {seeds} fresh seeds each and test"
        " these alone: the choice was made among several, which inflates its estimate."
    )
