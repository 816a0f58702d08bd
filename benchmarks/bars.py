"""The measured rates beside what they have to reach."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.ladders import LEAN_SETTLED, SETTLED
from benchmarks.outcomes import BudgetFound, Found, FrontFound, LeanFound
from benchmarks.shapes import (
    LEAN_EQUALS,
    LEAN_FEW,
    LEAN_NULLS,
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
        quantity: what was measured.
        value: its value.
        bar: what it must reach.
        cases: sweeps (or shapes, or intervals) behind it.
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


Holds = Callable[[Found], bool]


@dataclass(frozen=True)
class Rate:
    """A share of the sweeps of some families, and its bar.

    Attributes:
        quantity: what it is.
        families: of which sweeps.
        holds: what is counted.
        bar: what the share must reach.
        is_worst: it is that of the worst family, not of all sweeps together.
        among: which sweeps count.
    """

    quantity: str
    families: Sequence[str]
    holds: Holds
    bar: Bar
    is_worst: bool = False
    among: Holds = lambda _: True

    def rows(self, found: Sequence[Found]) -> list[Row]:
        """Return one row; none where there is no such sweep."""
        shares: dict[str, tuple[float, int]] = {}
        for name in self.families if self.is_worst else [""]:
            families = [name] if name else self.families
            cases = [one for one in found if one.family in families and self.among(one)]
            if cases:
                shares[name] = float(np.mean([self.holds(one) for one in cases])), len(cases)
        if not shares:
            return []
        pick = min if math.isinf(self.bar.high) else max
        where = pick(shares, key=lambda name: shares[name][0])
        share, number = shares[where]
        return [Row(self.quantity, share, self.bar, number, where=where)]


def _is_exact(one: Found) -> bool:
    return one.exact


def _is_positive(one: Found) -> bool:
    return one.positive


def _is(verdict: str) -> Holds:
    return lambda one: one.verdict == verdict


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
        lambda one: one.steps_off is not None and one.steps_off <= 1,
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
        lambda one: one.covered,
        Bar(0.95),
        is_worst=True,
    ),
    Rate(
        "retrieval dimension leaves out the true one",
        (*PAPER, *SHARP),
        lambda one: one.outside,
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
        lambda one: one.verdict != "open",
        Bar(high=0.0),
    ),
    Rate(
        "one seed a cell, a true collapse: suggested at the exact h*",
        SINGLE_SHARP,
        lambda one: one.suggested and one.exact,
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
        lambda one: one.ends_at_second,
        Bar(0.85),
    ),
    Rate(
        "plateau said to be one on nulls, pooled",
        NO_TRANSITION,
        lambda one: one.ends_at_second,
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
"""What is asked of the answers to transitions."""


def transition_rows(found: Sequence[Found]) -> list[Row]:
    """Return the rows that the families in ``found`` allow."""
    rows = [row for rate in RATES for row in rate.rows(found)]
    if sizes := [one.set_size for one in found if one.family in SHARP_TYPE]:
        size = float(np.mean(sizes))
        rows.append(Row("size of the set, sharp-type", size, Bar(high=1.4), len(sizes), False))
    # Slopes of single runs go by an assumed noise.
    rows += _slope_rows([one for one in found if one.family not in SINGLE])
    if found:
        slowest = max(one.seconds for one in found)
        rows.append(Row("CPU seconds, slowest sweep", slowest, Bar(high=2.0), len(found), False))
    return rows


def _slope_rows(found: Sequence[Found]) -> list[Row]:
    inside, intervals = Counter[str](), Counter[str]()
    for one in found:
        inside[one.family] += one.slopes_inside
        intervals[one.family] += one.slopes
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


def budget_rows(found: Sequence[BudgetFound]) -> list[Row]:
    """Return how often an answer is called settled: wrongly among all studies, and at all among
    those that have an answer where training is over."""
    rows: list[Row] = []
    reached = {*SETTLED, *(f"lean_{name}" for name in LEAN_SETTLED)}
    reached |= {"lean_groups_a", "lean_groups_b", "lean_groups_c"}
    for family in dict.fromkeys(one.family for one in found):
        mine = [one for one in found if one.family == family]
        called = [one.settled == "settled" for one in mine]
        wrong = [is_settled and not one.right for one, is_settled in zip(mine, called, strict=True)]
        name = f"budgets, {family}: called settled"
        rows.append(Row(f"{name}, and wrong", float(np.mean(wrong)), Bar(high=0.05), len(mine)))
        has = [yes for one, yes in zip(mine, called, strict=True) if one.decides]
        if family in reached and has:
            rows.append(Row(name, float(np.mean(has)), Bar(0.80), len(has)))
    return rows


def front_rows(found: Sequence[FrontFound]) -> list[Row]:
    """Return Brier score and AUC of P_front, and how often it is sure and wrong."""
    rows: list[Row] = []
    for family in dict.fromkeys(one.family for one in found):
        mine = [one for one in found if one.family == family]
        probability = np.concatenate([one.probability for one in mine])
        on_front = np.concatenate([one.on_front for one in mine])
        brier = float(np.mean((probability - on_front) ** 2))
        cases = len(probability)
        rows += [
            Row(f"Pareto, {family}: Brier score", brier, Bar(high=0.065), cases, False),
            Row(f"Pareto, {family}: AUC", _auc(probability, on_front), Bar(0.98), cases, False),
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


def lean_rows(found: Sequence[LeanFound]) -> list[Row]:
    """Return the family-wise error rates, and how often equals are found and rightly chosen."""
    rows: list[Row] = []
    for family in dict.fromkeys(one.family for one in found):
        mine = [one for one in found if one.family == family]

        def share(quantity: str, hits: list[bool], bar: Bar, family: str = family) -> None:
            value = float(np.mean(hits))
            rows.append(Row(f"lean, {family}: {quantity}", value, bar, len(hits)))

        if family in LEAN_UNTRAINED:
            share("anything claimed", [one.verdict != "untrained" for one in mine], Bar(high=0.01))
            continue
        is_null = family in (*LEAN_NULLS, *LEAN_TUNED_NULLS)
        worse = [one.wrong for one in mine]
        share("a worse shape accepted", worse, Bar(high=0.06 if is_null else 0.03))
        excluded = [one.wrongly_excluded for one in mine]
        # Exactly at the margin is the least favourable case; anything nearer is hardly excluded.
        share("a shape within the margin excluded", excluded, Bar(high=0.075 if is_null else 0.05))
        if family in LEAN_FEW:
            share("called excluded", [one.verdict == "excluded" for one in mine], Bar(high=0.05))
        if family not in LEAN_EQUALS:
            continue
        share("an equal shape found", [one.found for one in mine], Bar(0.70))
        if chosen := [one.choice_right for one in mine if one.found]:
            share("choice truly no worse", chosen, Bar(0.97))
    return rows
