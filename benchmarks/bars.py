"""The measured rates beside what they have to reach."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.ladders import SETTLED
from benchmarks.lean_ladders import LEAN_SETTLED
from benchmarks.outcomes import BudgetFound, Found, FrontFound, LeanFound
from benchmarks.shapes import (
    LEAN_EQUALS,
    LEAN_FEW,
    LEAN_NULLS,
    LEAN_TUNED_NULLS,
    LEAN_UNTRAINED,
)
from benchmarks.sweeps import (
    GRADUAL,
    NULLS,
    PAPER,
    PARTLY_NULLS,
    PARTLY_SHARP,
    PLATEAUS,
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


def _of(found: Sequence[Found], families: Iterable[str]) -> list[Found]:
    wanted = set(families)
    return [one for one in found if one.family in wanted]


def _share(found: Sequence[Found], holds: Callable[[Found], bool]) -> float:
    return float(np.mean([holds(one) for one in found]))


def transition_rows(found: Sequence[Found]) -> list[Row]:
    """Return the rows that the families in ``found`` allow."""
    rows: list[Row] = []

    def pooled(
        quantity: str,
        families: Iterable[str],
        holds: Callable[[Found], bool],
        bar: Bar,
        among: Callable[[Found], bool] = lambda _: True,
    ) -> None:
        cases = [one for one in _of(found, families) if among(one)]
        if cases:
            rows.append(Row(quantity, _share(cases, holds), bar, len(cases)))

    def each(
        quantity: str,
        families: Iterable[str],
        measure: Callable[[Sequence[Found]], float],
        bar: Bar,
    ) -> None:
        values = {family: measure(cases) for family in families if (cases := _of(found, [family]))}
        values = {family: value for family, value in values.items() if not math.isnan(value)}
        if values:
            pick = min if math.isinf(bar.high) else max
            where = pick(values, key=lambda family: values[family])
            behind = len(_of(found, [where]))
            rows.append(Row(quantity, values[where], bar, behind, where=where))

    transitions = (*PAPER, *SHARP, *GRADUAL, "loss", "asha_cell")
    # Slopes of single runs go by an assumed noise.
    single = (*SINGLE_SHARP, *SINGLE_NULLS)
    measured = tuple(dict.fromkeys(one.family for one in found if one.family not in single))
    pooled("h* exact, paper D = 4, E = 32, D = 3", ONE_LAYER, lambda one: one.exact, Bar(0.98))
    pooled("h* exact, sharp-type families", (*PAPER, *LOCATED), lambda one: one.exact, Bar(0.95))
    pooled(
        "h* exact where a verdict is given, sharp-type, stuck, noisy, second",
        (*PAPER, *SHARP, "loss"),
        lambda one: one.exact,
        Bar(0.97),
        among=lambda one: one.positive,
    )
    pooled(
        "gradual accuracy: h* within one step",
        GRADUAL,
        lambda one: one.steps_off is not None and one.steps_off <= 1,
        Bar(0.95),
    )
    pooled(
        "gradual accuracy: h* exact where a verdict is given",
        GRADUAL,
        lambda one: one.exact,
        Bar(0.70),
        among=lambda one: one.positive,
    )
    each(
        "95 % set holds h*, worst family",
        transitions,
        lambda cases: _share(cases, lambda one: one.covered),
        Bar(0.95),
    )
    sizes = [one.set_size for one in _of(found, (*PAPER, *SHARP, "loss"))]
    if sizes:
        size = float(np.mean(sizes))
        rows.append(Row("size of the set, sharp-type", size, Bar(high=1.4), len(sizes), False))
    declared = ("transition", "jump_only")
    pooled(
        "transition or jump declared on nulls, pooled",
        NO_TRANSITION,
        lambda one: one.verdict in declared,
        Bar(high=0.03),
    )
    each(
        "transition or jump declared, worst null but null_above",
        NOT_ABOVE,
        lambda cases: _share(cases, lambda one: one.verdict in declared),
        Bar(high=0.05),
    )
    each(
        "transition or jump declared, null_above",
        ["null_above"],
        lambda cases: _share(cases, lambda one: one.verdict in declared),
        Bar(high=0.12),
    )
    pooled(
        "threshold declared on nulls, pooled",
        NO_TRANSITION,
        lambda one: one.verdict == "threshold",
        Bar(high=0.02),
    )
    each(
        "threshold declared on nulls, worst family",
        NO_TRANSITION,
        lambda cases: _share(cases, lambda one: one.verdict == "threshold"),
        Bar(high=0.05),
    )
    for families, bar in (
        ((*PAPER, "sharp"), Bar(0.98)),
        (("stuck",), Bar(0.75)),
        (("noisy",), Bar(0.45)),
        (("second",), Bar(0.75)),
    ):
        each(
            f"detected: {', '.join(families) if len(families) == 1 else 'paper and sharp'}",
            families,
            lambda cases: _share(cases, lambda one: one.positive),
            bar,
        )
    pooled(
        "one seed a cell: anything declared",
        single,
        lambda one: one.positive or one.verdict == "plateau" or one.none_kind is not None,
        Bar(high=0.0),
    )
    pooled(
        "one seed a cell, a true collapse: suggested at the exact h*",
        SINGLE_SHARP,
        lambda one: one.verdict == "suggested" and one.exact,
        Bar(0.85),
    )
    pooled(
        "a second seed in half of the cells: anything declared on nulls",
        PARTLY_NULLS,
        lambda one: one.positive,
        Bar(high=0.06),
    )
    pooled(
        "a second seed in half of the cells: detected",
        PARTLY_SHARP,
        lambda one: one.positive,
        Bar(0.60),
    )
    pooled(
        "plateau from the second value on: said to be one",
        PLATEAUS,
        lambda one: one.verdict == "plateau",
        Bar(0.85),
    )
    pooled(
        "collapse or plateau at the second value: placed above the range",
        (*PLATEAUS, "second"),
        lambda one: one.none_kind == "above_range",
        Bar(high=0.01),
    )
    pooled(
        "plateau declared on nulls, pooled",
        NO_TRANSITION,
        lambda one: one.verdict == "plateau",
        Bar(high=0.01),
    )
    pooled(
        "several settings a cell: transition or jump declared on nulls, pooled",
        TUNED_NULLS,
        lambda one: one.verdict in declared,
        Bar(high=0.03),
    )
    each(
        "several settings a cell: anything declared, worst null but tuned_null_above",
        [family for family in TUNED_NULLS if family != "tuned_null_above"],
        lambda cases: _share(cases, lambda one: one.positive),
        Bar(high=0.05),
    )
    pooled(
        "several settings a cell: plateau declared on nulls, pooled",
        TUNED_NULLS,
        lambda one: one.verdict == "plateau",
        Bar(high=0.01),
    )
    pooled(
        "several settings a cell: h* exact, sharp and small jump",
        TUNED_SHARP[:2],
        lambda one: one.exact,
        Bar(0.95),
    )
    each(
        "several settings a cell: detected, sharp",
        TUNED_SHARP[:1],
        lambda cases: _share(cases, lambda one: one.positive),
        Bar(0.95),
    )
    each(
        "several settings a cell: detected, noisy",
        TUNED_SHARP[2:],
        lambda cases: _share(cases, lambda one: one.positive),
        Bar(0.45),
    )
    rows += _slope_rows(found, measured)
    pooled(
        "whole-sweep pruning is refused",
        ("asha_global", "asha_null_global"),
        lambda one: one.verdict == "inconclusive",
        Bar(1.0),
    )
    pooled(
        "pruning within cells: h* exact where a verdict is given",
        ("asha_cell",),
        lambda one: one.exact,
        Bar(0.95),
        among=lambda one: one.positive,
    )
    pooled(
        "pruning within cells: anything declared on a null",
        ("asha_null_cell",),
        lambda one: one.positive,
        Bar(high=0.03),
    )
    if found:
        slowest = max(one.seconds for one in found)
        rows.append(Row("CPU seconds, slowest sweep", slowest, Bar(high=2.0), len(found), False))
    return rows


def _slope_rows(found: Sequence[Found], families: Sequence[str]) -> list[Row]:
    inside = {
        family: (
            sum(one.slopes_inside for one in _of(found, [family])),
            sum(one.slopes for one in _of(found, [family])),
        )
        for family in families
    }
    inside = {family: counts for family, counts in inside.items() if counts[1]}
    if not inside:
        return []
    total = sum(of for _, of in inside.values())
    share = sum(hits for hits, _ in inside.values()) / total
    worst = min(inside, key=lambda family: inside[family][0] / inside[family][1])
    hits, of = inside[worst]
    return [
        Row("95 % slope interval holds the slope, pooled", share, Bar(0.93, 0.97), total),
        Row(
            "95 % slope interval holds the slope, worst family",
            hits / of,
            Bar(0.90),
            of,
            where=worst,
        ),
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
