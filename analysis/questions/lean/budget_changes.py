"""How shapes changed between budgets, and where training may take their gaps to the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.questions.lean.result import LeanResult, LeanRow
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.training import centre, still_to_come
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue
from hsweep.errors import UserError

_DRAWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Course:
    """Where the baseline, the first, and K shapes are after all their training, and how they go on,
    each by its own last two budgets. Changes are positive where a shape became better.

    Attributes:
        places: of the shapes, by their labels.
        since: draws of what changed after the answer's budget, shape [1 + K, B].
        last: draws of the change over the last two budgets, the same shape; NaN without two.
        budgets: to which each was trained, shape [1 + K].
        ratios: of the last two, the same shape.
        answered: the answer's budget.
        exponent: smallest power of the budget by which what is left falls.
    """

    places: Mapping[str, int]
    since: FloatArray
    last: FloatArray
    budgets: FloatArray
    ratios: FloatArray
    answered: float
    exponent: float

    @classmethod
    def of(cls, result: LeanResult, rows: Sequence[LeanRow], ladder: Ladder) -> "Course":
        *shorter, own = ladder.rungs
        answered = own.budget
        last = np.full((1 + len(rows), _DRAWS), np.nan)
        since = np.zeros_like(last)
        budgets, ratios = np.full(len(last), answered), np.full(len(last), np.nan)
        for before in shorter:  # of which the last one counts that a shape has
            change = _changes(result, rows, before.runs, own.runs, np.random.default_rng(0))
            here = ~np.isnan(change[:, 0])
            last[here], ratios[here] = change[here], answered / before.budget
        for number, after in enumerate(ladder.further, start=1):
            before_that = budgets.copy()
            for before in (own, *ladder.further[: number - 1]):
                rng = np.random.default_rng(number)
                change = _changes(result, rows, before.runs, after.runs, rng)
                here = ~np.isnan(change[:, 0]) & (before_that == before.budget)
                last[here], ratios[here] = change[here], after.budget / before.budget
                since[here] += change[here]
                budgets[here] = after.budget
        places = {row.label: k for k, row in enumerate(rows, start=1)}
        exponent = result.settings.budget_exponent
        return cls(places, since, last, budgets, ratios, answered, exponent)

    @property
    def longest(self) -> float:
        """The longest budget that any shape was trained to."""
        return float(self.budgets.max())

    @property
    def goes_on(self) -> bool:
        """Whether a shape was trained beyond the answer's budget."""
        return self.longest > self.answered

    @property
    def longer(self) -> float:
        """The budget to try next, one usual step beyond the longest."""
        known = self.ratios[~np.isnan(self.ratios)]
        return self.longest * float(known.min()) if known.size else self.longest

    def budget_of(self, row: LeanRow | None) -> float:
        """Return the budget that a shape was trained to; None stands for the baseline."""
        place = self._place(row)
        return self.answered if place is None else float(self.budgets[place])

    def is_known(self, row: LeanRow | None) -> bool:
        """Whether a shape has two budgets; None stands for the baseline."""
        place = self._place(row)
        return place is not None and not np.isnan(self.ratios[place])

    def _place(self, row: LeanRow | None) -> int | None:
        return 0 if row is None else self.places.get(row.label)

    def went_on(self, rows: Iterable[LeanRow]) -> bool:
        """Whether these and the baseline were trained beyond the answer's budget."""
        return all(self.budget_of(row) > self.answered for row in (None, *rows))

    def are_behind(self, rows: Iterable[LeanRow]) -> bool:
        """Whether one of these or the baseline was not trained to the longest budget."""
        return any(self.budget_of(row) < self.longest for row in (None, *rows))

    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Return the least and the most by which each gap ends above the answer's, wherever the
        trainings stop from here on, shapes [K, B]."""
        come = np.array(
            [
                still_to_come(change, float(ratio), exponent=self.exponent, is_log=False)
                for change, ratio in zip(self.last, self.ratios, strict=True)
            ]
        )
        low, high = self.since + np.minimum(come, 0), self.since + np.maximum(come, 0)
        return low[1:] - high[0], high[1:] - low[0]

    def at(self, budget: float) -> FloatArray:
        """Return by how much each gap is above the answer's at a budget, if all go on as over their
        last two, shape [K, B]."""
        steps = np.log(budget / self.budgets) / np.log(self.ratios)
        there = self.since + self.last * steps[:, None]
        return np.asarray(there[1:] - there[0])


def _changes(
    result: LeanResult, rows: Sequence[LeanRow], before: Runs, after: Runs, rng: np.random.Generator
) -> FloatArray:
    """Return draws of how much better the baseline and each shape became, shape [1 + K, B]; NaN for
    a shape with fewer than two seeds at both budgets."""
    settings = [result.baseline_setting, *(row.setting for row in rows)]
    configs = [result.baseline, *(row.config for row in rows)]
    sign = 1.0 if result.goal == "max" else -1.0
    paired = []
    for config, setting in zip(configs, settings, strict=True):
        at = {**config, **(setting.values if setting is not None else {})}
        earlier, now = _by_seed(before, at), _by_seed(after, at)
        common = [seed for seed in now if seed in earlier]
        paired.append(np.array([sign * (now[seed] - earlier[seed]) for seed in common]))
    draws = np.full((len(paired), _DRAWS), np.nan)
    usable = {k: each for k, each in enumerate(paired) if each.size > 1}
    if not usable:
        return draws
    df = sum(each.size - 1 for each in usable.values())
    sd = np.sqrt(sum(float(np.sum((each - each.mean()) ** 2)) for each in usable.values()) / df)
    for k, each in usable.items():
        picks = rng.integers(0, each.size, size=(_DRAWS, each.size))
        scale = sd / np.sqrt(each.size * (each.size - 1))
        draws[k] = centre(each[picks]) + scale * rng.standard_t(df, _DRAWS)
    return draws


def _by_seed(runs: Runs, at: Mapping[str, AxisValue]) -> dict[str, float]:
    try:
        rows, _ = runs.rows(list(at))
    except UserError:
        # Rows that more columns tell apart than the shape has: its settings compete.
        return {}
    here = rows["complete"].to_numpy(bool)
    for name, value in at.items():
        here = here & rows[name].eq(value).to_numpy(bool)
    chosen = rows.loc[here]
    return dict(zip(chosen["replicate"], chosen["value"].astype(float), strict=True))
