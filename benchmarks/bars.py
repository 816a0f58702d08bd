"""The measured rates beside what they have to reach."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.ladders import LEAN_SETTLED, SETTLED
from benchmarks.outcomes import BudgetOutcome, FrontOutcome, LeanOutcome, TransitionOutcome
from benchmarks.shapes import (
    LEAN_EQUALS,
    LEAN_FEW,
    LEAN_NULLS,
    LEAN_SCALES,
    LEAN_TUNED_NULLS,
    LEAN_UNTRAINED,
)
from benchmarks.sweeps import (
    DROPPED,
    GRADUAL,
    NULLS,
    PAPER,
    PARTLY_NULLS,
    PARTLY_SHARP,
    PLATEAUS,
    SCATTERED,
    SHARP,
    SINGLE_NULLS,
    SINGLE_SHARP,
    TUNED_NULLS,
    TUNED_SHARP,
)

ONE_LAYER = PAPER[:3]
LOCATED = tuple(name for name in SHARP if name not in ("stuck", "noisy", "second"))
NO_TRANSITION = (*NULLS, "loss_null", "asha_null_cell")
NOT_ABOVE = tuple(name for name in NO_TRANSITION if name != "null_above")


@dataclass(frozen=True)
class Bar:
    """What a rate must reach: at least ``low``, at most ``high``."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Return whether ``value`` reaches the bar."""
        return self.low <= value <= self.high

    def text(self, write: Callable[[float], str]) -> str:
        """Return the bar in words."""
        if math.isinf(self.low) and math.isinf(self.high):
            return "none"
        if math.isinf(self.high):
            return f"at least {write(self.low)}"
        if math.isinf(self.low):
            return f"at most {write(self.high)}"
        return f"{write(self.low)} to {write(self.high)}"


@dataclass(frozen=True)
class Row:
    """One measured quantity.

    Attributes:
        quantity: its name.
        value: its value.
        bar: that it must reach.
        cases: number of sweeps (or shapes, or intervals) that were counted.
        is_share: shown in per cent.
        where: the family that decides, where the worst one counts.
    """

    quantity: str
    value: float
    bar: Bar
    cases: int
    is_share: bool = True
    where: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bar is reached."""
        return self.bar.holds(self.value)

    def write(self, value: float) -> str:
        """Return a value as this row shows it."""
        return f"{100 * value:.1f} %" if self.is_share else f"{value:.3g}"

    def to_json(self) -> dict[str, object]:
        """Return the row as plain JSON content."""
        low, high = (None if math.isinf(end) else end for end in (self.bar.low, self.bar.high))
        return {
            "quantity": self.quantity,
            "value": self.value,
            "at_least": low,
            "at_most": high,
            "cases": self.cases,
            "family": self.where,
            "holds": self.holds,
        }


Holds = Callable[[TransitionOutcome], bool]


@dataclass(frozen=True)
class Rate:
    """A share of the sweeps of some families, and its bar.

    Attributes:
        quantity: its name.
        families: whose sweeps count.
        holds: whether an outcome adds to the share.
        bar: that the share must reach.
        is_worst: the share is that of the worst family, not of all sweeps together.
        among: whether an outcome counts at all.
    """

    quantity: str
    families: Sequence[str]
    holds: Holds
    bar: Bar
    is_worst: bool = False
    among: Holds = lambda _: True

    def rows(self, outcomes: Sequence[TransitionOutcome]) -> list[Row]:
        """Return one row; none where there is no such sweep."""
        shares: dict[str, tuple[float, int]] = {}
        for name in self.families if self.is_worst else [""]:
            families = [name] if name else self.families
            cases = [case for case in outcomes if case.family in families and self.among(case)]
            if cases:
                shares[name] = float(np.mean([self.holds(case) for case in cases])), len(cases)
        if not shares:
            return []
        pick = min if math.isinf(self.bar.high) else max
        where = pick(shares, key=lambda name: shares[name][0])
        share, number = shares[where]
        return [Row(self.quantity, share, self.bar, number, where=where)]


def _is_exact(outcome: TransitionOutcome) -> bool:
    return outcome.exact


def _is_positive(outcome: TransitionOutcome) -> bool:
    return outcome.positive


def _is(verdict: str) -> Holds:
    return lambda outcome: outcome.verdict == verdict


SINGLE: Final = (*SINGLE_SHARP, *SINGLE_NULLS)
SHARP_TYPE: Final = (*PAPER, *SHARP, "loss")
MANY: Final = "several settings a cell"
RATES: Final = (
    Rate("h* exact, paper D = 4, E = 32, D = 3", ONE_LAYER, _is_exact, Bar(0.98)),
    Rate("h* exact, sharp-type families", (*PAPER, *LOCATED), _is_exact, Bar(0.95)),
    Rate(
        "h* exact where a verdict is given, sharp-type, stuck, noisy, second",
        SHARP_TYPE,
        _is_exact,
        Bar(0.97),
        among=_is_positive,
    ),
    Rate(
        "gradual accuracy: h* within one step",
        GRADUAL,
        lambda outcome: outcome.steps_off is not None and outcome.steps_off <= 1,
        Bar(0.95),
    ),
    Rate(
        "gradual accuracy: h* exact where a verdict is given",
        GRADUAL,
        _is_exact,
        Bar(0.70),
        among=_is_positive,
    ),
    Rate(
        "95 % set holds h*, worst family",
        (*PAPER, *SHARP, *GRADUAL, "loss", "asha_cell"),
        lambda outcome: outcome.covered,
        Bar(0.95),
        is_worst=True,
    ),
    Rate(
        "retrieval dimension leaves out the true one",
        (*PAPER, *SHARP),
        lambda outcome: outcome.outside,
        Bar(high=0.01),
        among=_is_positive,
    ),
    Rate("claimed on nulls, pooled", NO_TRANSITION, _is_positive, Bar(high=0.03)),
    Rate(
        "claimed, worst null but null_above", NOT_ABOVE, _is_positive, Bar(high=0.05), is_worst=True
    ),
    Rate("claimed, null_above", ["null_above"], _is_positive, Bar(high=0.12)),
    Rate(
        "claimed, single head counts scatter by up to 0.2", SCATTERED, _is_positive, Bar(high=0.05)
    ),
    Rate("detected: a drop of 0.6 on a power law", DROPPED, _is_positive, Bar(0.80)),
    Rate("claimed though a smaller value is as good", ["one_bad"], _is_positive, Bar(high=0.05)),
    Rate("detected: paper and sharp", (*PAPER, "sharp"), _is_positive, Bar(0.98), is_worst=True),
    Rate("detected: stuck", ["stuck"], _is_positive, Bar(0.75)),
    Rate("detected: noisy", ["noisy"], _is_positive, Bar(0.45)),
    Rate("detected: second", ["second"], _is_positive, Bar(0.75)),
    Rate(
        "one seed a cell: anything declared",
        SINGLE,
        lambda outcome: outcome.verdict != "open",
        Bar(high=0.0),
    ),
    Rate(
        "one seed a cell, a true collapse: suggested at the exact h*",
        SINGLE_SHARP,
        lambda outcome: outcome.suggested and outcome.exact,
        Bar(0.85),
    ),
    Rate(
        "a second seed in half of the cells: anything declared on nulls",
        PARTLY_NULLS,
        _is_positive,
        Bar(high=0.06),
    ),
    Rate("a second seed in half of the cells: detected", PARTLY_SHARP, _is_positive, Bar(0.60)),
    Rate(
        "plateau from the second value on: said to be one",
        PLATEAUS,
        lambda outcome: outcome.ends_at_second,
        Bar(0.85),
    ),
    Rate(
        "plateau said to be one on nulls, pooled",
        NO_TRANSITION,
        lambda outcome: outcome.ends_at_second,
        Bar(high=0.01),
    ),
    Rate(
        f"{MANY}: claimed on nulls, pooled",
        TUNED_NULLS,
        _is_positive,
        Bar(high=0.03),
    ),
    Rate(
        f"{MANY}: anything declared, worst null but tuned_null_above",
        [family for family in TUNED_NULLS if family != "tuned_null_above"],
        _is_positive,
        Bar(high=0.05),
        is_worst=True,
    ),
    Rate(f"{MANY}: h* exact, sharp and small jump", TUNED_SHARP[:2], _is_exact, Bar(0.95)),
    Rate(f"{MANY}: detected, sharp", TUNED_SHARP[:1], _is_positive, Bar(0.95)),
    Rate(f"{MANY}: detected, noisy", TUNED_SHARP[2:], _is_positive, Bar(0.45)),
    Rate(
        "whole-sweep pruning is refused",
        ("asha_global", "asha_null_global"),
        _is("open"),
        Bar(1.0),
    ),
    Rate(
        "pruning within cells: h* exact where a verdict is given",
        ["asha_cell"],
        _is_exact,
        Bar(0.95),
        among=_is_positive,
    ),
    Rate(
        "pruning within cells: anything declared on a null",
        ["asha_null_cell"],
        _is_positive,
        Bar(high=0.03),
    ),
)
"""The rates of answers to transitions."""


def transition_rows(outcomes: Sequence[TransitionOutcome]) -> list[Row]:
    """Return the rows of the families that have outcomes."""
    rows = [row for rate in RATES for row in rate.rows(outcomes)]
    if sizes := [outcome.set_size for outcome in outcomes if outcome.family in SHARP_TYPE]:
        size = float(np.mean(sizes))
        rows.append(Row("size of the set, sharp-type", size, Bar(high=1.4), len(sizes), False))
    # Slopes of single runs go by an assumed noise.
    rows += _slope_rows([outcome for outcome in outcomes if outcome.family not in SINGLE])
    if outcomes:
        slowest = max(outcome.seconds for outcome in outcomes)
        rows.append(Row("CPU seconds, slowest sweep", slowest, Bar(high=2.0), len(outcomes), False))
    return rows


def _slope_rows(outcomes: Sequence[TransitionOutcome]) -> list[Row]:
    inside, intervals = Counter[str](), Counter[str]()
    for outcome in outcomes:
        inside[outcome.family] += outcome.slopes_inside
        intervals[outcome.family] += outcome.slopes
    shares = {name: inside[name] / number for name, number in intervals.items() if number}
    if not shares:
        return []
    worst = min(shares, key=lambda name: shares[name])
    total = intervals.total()
    quantity = "95 % slope interval holds the slope"
    return [
        Row(f"{quantity}, pooled", inside.total() / total, Bar(0.93, 0.97), total),
        Row(f"{quantity}, worst family", shares[worst], Bar(0.90), intervals[worst], where=worst),
    ]


def budget_rows(outcomes: Sequence[BudgetOutcome]) -> list[Row]:
    """Return how often an answer is called settled: wrongly among all studies, and at all among
    those that have an answer where training is over."""
    rows: list[Row] = []
    trained_out = {*SETTLED, *(f"lean_{name}" for name in LEAN_SETTLED)}
    trained_out |= {"lean_groups_a", "lean_groups_b", "lean_groups_c"}
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        studies = [outcome for outcome in outcomes if outcome.family == family]
        settled = [outcome for outcome in studies if outcome.verdict == "settled"]
        name = f"budgets, {family}: called settled"
        wrong = sum(not outcome.right for outcome in settled) / len(studies)
        rows.append(Row(f"{name}, and wrong", wrong, Bar(high=0.05), len(studies)))
        answers = sum(outcome.decides for outcome in studies)
        if family in trained_out and answers:
            share = sum(outcome.decides for outcome in settled) / answers
            rows.append(Row(name, share, Bar(0.80), answers))
    return rows


def front_rows(outcomes: Sequence[FrontOutcome]) -> list[Row]:
    """Return Brier score and AUC of P_front, and how often it is sure and wrong."""
    rows: list[Row] = []
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        cases = [outcome for outcome in outcomes if outcome.family == family]
        probability = np.concatenate([case.probability for case in cases])
        on_front = np.concatenate([case.on_front for case in cases])
        brier = float(np.mean((probability - on_front) ** 2))
        shapes = len(probability)
        rows += [
            Row(f"Pareto, {family}: Brier score", brier, Bar(high=0.065), shapes, False),
            Row(f"Pareto, {family}: AUC", _auc(probability, on_front), Bar(0.98), shapes, False),
            Row(
                f"Pareto, {family}: front called off",
                float(np.mean(probability[on_front] <= 0.05)),
                Bar(high=0.02),
                int(on_front.sum()),
            ),
            Row(
                f"Pareto, {family}: dominated called on",
                float(np.mean(probability[~on_front] >= 0.95)),
                Bar(high=0.02),
                int((~on_front).sum()),
            ),
        ]
    return rows


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    """Return the chance that a positive scores above a negative, ties counting one half."""
    above = score[positive][:, None] - score[~positive][None, :]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def lean_rows(outcomes: Sequence[LeanOutcome]) -> list[Row]:
    """Return the family-wise error rates, and how often an equal shape is chosen, and rightly."""
    rows: list[Row] = []
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        cases = [outcome for outcome in outcomes if outcome.family == family]

        def share(quantity: str, hits: list[bool], bar: Bar, family: str = family) -> None:
            value = float(np.mean(hits))
            rows.append(Row(f"lean, {family}: {quantity}", value, bar, len(hits)))

        if family in LEAN_UNTRAINED:
            claimed = [case.verdict != "untrained" for case in cases]
            share("anything claimed", claimed, Bar(high=0.01))
            continue
        is_null = family in (*LEAN_NULLS, *LEAN_SCALES, *LEAN_TUNED_NULLS)
        worse = [case.wrong for case in cases]
        share("a worse shape accepted", worse, Bar(high=0.06 if is_null else 0.03))
        excluded = [case.wrongly_excluded for case in cases]
        # Exactly at the margin is the least favourable case; anything nearer is hardly excluded.
        share("a shape within the margin excluded", excluded, Bar(high=0.075 if is_null else 0.05))
        if family in LEAN_FEW:
            share("called excluded", [case.verdict == "excluded" for case in cases], Bar(high=0.05))
        if family not in LEAN_EQUALS:
            continue
        share("an equal shape found", [case.is_chosen for case in cases], Bar(0.70))
        if choices := [case.choice_right for case in cases if case.is_chosen]:
            share("choice truly no worse", choices, Bar(0.97))
    return rows
