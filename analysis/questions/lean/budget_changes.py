"""How shapes changed between budgets, and where training may take their gaps to the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.questions.lean.result import LeanResult, LeanRow
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.training import Trained, gains
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue
from hsweep.errors import UserError

_DRAWS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Course(Trained):
    """Where the baseline, the first, and K shapes are after all their training, and how they go on,
    each by its own budgets. Changes are positive where a shape became better;
    budgets and ratios have the shape [1 + K].

    Attributes:
        places: of the shapes, by their labels.
        since: draws of what changed after the answer's budget, shape [1 + K, B].
        last: draws of the change over the last two budgets, the same shape; NaN without two.
        left: draws of what is left to gain after the last one, the same shape; NaN without two.
        others: to which the shapes were trained that decide nothing, by their labels.
    """

    places: Mapping[str, int]
    since: FloatArray
    last: FloatArray
    left: FloatArray
    others: Mapping[str, float]

    @classmethod
    def of(cls, result: LeanResult, rows: Sequence[LeanRow], ladder: Ladder) -> "Course":
        own = len(ladder.rungs) - 1
        rungs = (*ladder.rungs, *ladder.further)
        amounts = np.array([rung.budget for rung in rungs])
        known = {row.label for row in rows}
        rest = [row for row in result.table if row.label not in known]
        every = [
            _curve([_by_seed(rung.runs, at) for rung in rungs], own, result.goal == "max")
            for at in _places(result, [*rows, *rest])
        ]
        curves, beside = every[: 1 + len(rows)], every[1 + len(rows) :]
        usable = [k for k, curve in enumerate(curves) if curve is not None]
        last = np.full((len(curves), _DRAWS), np.nan)
        left, since = last.copy(), np.zeros_like(last)
        budgets = np.full(len(curves), amounts[own])
        ratios = np.full(len(curves), np.nan)
        if usable:
            found = gains(
                [curve for curve in curves if curve is not None],
                amounts.tolist(),
                exponent=result.settings.budget_exponent,
                draws=_DRAWS,
                rng=np.random.default_rng(0),
            )
            last[usable], left[usable] = found.last, found.left
            for k, at in zip(usable, found.at, strict=True):
                before, end = np.flatnonzero(~np.isnan(at[0]))[-2:]
                since[k] = at[:, end] - at[:, own]
                budgets[k], ratios[k] = amounts[end], amounts[end] / amounts[before]
        places = {row.label: k for k, row in enumerate(rows, start=1)}
        others = {
            row.label: float(amounts[~np.isnan(curve[0])][-1])
            for row, curve in zip(rest, beside, strict=True)
            if curve is not None
        }
        return cls(
            places=places,
            since=since,
            last=last,
            left=left,
            budgets=budgets,
            ratios=ratios,
            answered=float(amounts[own]),
            others=others,
        )

    def budget_of(self, row: LeanRow | None) -> float:
        """Return the budget that a shape was trained to; None stands for the baseline."""
        place = self._place(row)
        if place is None:
            assert row is not None
            return self.others.get(row.label, self.answered)
        return float(self.budgets[place])

    def is_known(self, row: LeanRow | None) -> bool:
        """Whether a shape has two budgets; None stands for the baseline."""
        place = self._place(row)
        return place is not None and not np.isnan(self.ratios[place])

    def _place(self, row: LeanRow | None) -> int | None:
        return 0 if row is None else self.places.get(row.label)

    def went_on(self, rows: Iterable[LeanRow]) -> bool:
        """Whether these and the baseline were trained beyond the answer's budget."""
        return all(self.budget_of(row) > self.answered for row in (None, *rows))

    def behind(self, rows: Iterable[LeanRow], budget: float) -> list[LeanRow | None]:
        """Return which of these and of the baseline, None, were not trained to a budget."""
        return [row for row in (None, *rows) if self.budget_of(row) < budget]

    def end(self) -> FloatArray:
        """Return by how much each gap ends above the answer's, shape [K, B]."""
        there = self.since + self.left
        return np.asarray(there[1:] - there[0])

    def at(self, budget: float) -> FloatArray:
        """Return by how much each gap is above the answer's at a budget, if all go on as over their
        last two, shape [K, B]."""
        steps = np.log(budget / self.budgets) / np.log(self.ratios)
        there = self.since + self.last * steps[:, None]
        return np.asarray(there[1:] - there[0])


def _places(result: LeanResult, rows: Sequence[LeanRow]) -> list[dict[str, AxisValue]]:
    """Return the columns that pick the runs of the baseline and of each shape."""
    settings = [result.baseline_setting, *(row.setting for row in rows)]
    configs = [result.baseline, *(row.config for row in rows)]
    return [
        {**config, **(setting.values if setting is not None else {})}
        for config, setting in zip(configs, settings, strict=True)
    ]


def _curve(values: Sequence[Mapping[str, float]], own: int, is_max: bool) -> FloatArray | None:
    """Return how good the seeds of a shape were at each budget, shape [seeds, budgets], higher is
    better: those that were trained to all of its budgets, or to as many of the longest as two
    seeds have. NaN at the others; None with fewer than two budgets.

    Args:
        values: by seed, at each budget.
        own: place of the answer's budget.
    """
    common, shown = set(values[own]), []
    for place in reversed(range(len(values))):
        both = common & values[place].keys()
        if len(both) > 1:
            common = both
            shown.append(place)
    if len(shown) < 2:
        return None
    curve = np.full((len(common), len(values)), np.nan)
    for place in shown:
        curve[:, place] = [values[place][seed] for seed in sorted(common)]
    return curve if is_max else -curve


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
