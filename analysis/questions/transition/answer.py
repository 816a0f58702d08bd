"""The answer of a sweep's cells: one function from cells and settings to numbers and a verdict."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from analysis.questions.transition.cells import Cells, Grid, Growth, SeedNoise, Verdict, read_cells
from analysis.questions.transition.coverage import Coverage, Need
from analysis.questions.transition.judge import (
    FEWEST_FOR_BEST,
    NEXT_SHARE,
    Judge,
    best_leads,
    step_drops,
)
from analysis.questions.transition.limits import FEWEST_FOR_A_BREAK, FIRST_BREAK
from analysis.questions.transition.result import (
    CellValue,
    DropStep,
    Estimate,
    RetrievalDimension,
    TransitionSettings,
)
from analysis.questions.transition.table import RunTable
from analysis.statistics.values import FloatArray
from analysis.text.numbers import text_below, y_size
from analysis.values import Number, number
from hsweep.design.labels import listed

_FEWEST_VALUES: Final = 3
"""Head counts that tell a collapse from a decline at all."""
_OF_PART: Final = (
    *("verdict", "reason", "shown_by", "h_set", "p_h", "excess", "p", "scatter", "survives"),
    "d_eff",
)
"""Fields of an answer that a part of the head counts gives."""


def answer(
    grid: Grid,
    noise: SeedNoise,
    table: RunTable,
    coverage: Coverage,
    settings: TransitionSettings,
    layers: int,
) -> tuple[dict[str, Any], Need, str]:
    """Return the fields of the result, the need of an open answer, and a note on the reading.

    The attainable reading decides where runs get stuck or early stopping selected them inside
    cells; else the typical reading does, and the note is empty.
    """

    def read(best_of: int | None) -> tuple[dict[str, Any], Need]:
        reading = _Reading(read_cells(grid, noise, best_of), table, coverage, settings, layers)
        fields, needs = reading.read()
        # One more break makes any curve look scattered: behind it a collapse is judged alone.
        if fields["verdict"] == "none" and (first := reading.earlier_break()):
            cells = read_cells(grid.from_head(first), noise.from_head(first), best_of)
            half = replace(settings, alpha=settings.alpha / 2)
            alone, _ = _Reading(cells, table, coverage, half, layers).read()
            if alone["verdict"] == "collapse" and alone["h_star"] == fields["h_star"]:
                return fields | {name: alone.get(name) for name in _OF_PART}, ""
        return fields, needs

    if coverage.pruned_inside:
        return (*read(0), "")
    typical, needs = read(None)
    if grid.fewest < FEWEST_FOR_BEST:
        return typical, needs, ""
    attainable, lacking = read(grid.fewest)
    drop, least = attainable.get("drop") or 0.0, settings.limits(table.scale).min_drop
    if not best_leads(grid, attainable.get("h_star", 0), drop, least):
        return typical, needs, ""
    place = f" at {typical['h_star']:g}" if typical["verdict"] == "collapse" else ""
    note = (
        f"the answer is that of the expected best of {grid.fewest} seeds, since some runs stay far"
        f" behind their cell's best; that of the median seed is {typical['verdict']}{place}"
    )
    return attainable, lacking, note


@dataclass
class _Reading:
    """The answer from cells under one reading of their seeds.

    Attributes:
        star, peak: indices of h* and of the head count that ends the largest drop.
        reach: half the width of a one-sided interval at level alpha, in standard errors.
    """

    cells: Cells
    table: RunTable
    coverage: Coverage
    settings: TransitionSettings
    layers: int

    def __post_init__(self) -> None:
        self.heads, self.limits = self.cells.grid.heads, self.settings.limits(self.table.scale)

    def read(self) -> tuple[dict[str, Any], Need]:
        """Return the fields of the result that follow from the cells, and the need of an open
        answer."""
        cells, heads = self.cells, self.heads
        fields: dict[str, Any] = {
            "noise_gap": cells.noise.gap,
            "reading": "typical" if cells.best_of is None else "attainable",
            "seed_sd": {number(h): float(sd) for h, sd in zip(heads, cells.noise.sd, strict=True)},
            "cells": self._cell_values(),
            "verdict": "open",
        }
        refusal, x, by = self.coverage.refusal, self.table.x, self.table.by
        if self.coverage.pruned_out:
            why = "early stopping chose which, so what is left is not a fair sample"
            return {**fields, "reason": f"{refusal}; {why}"}, "cells"
        if len(heads) < 2:
            reason = refusal or f"{self._values()} cannot show a collapse"
            return {**fields, "reason": reason}, "cells" if refusal else "heads"
        if np.isnan(step_drops(cells.z)).all():
            reason = f"no two neighbouring values of {x} share one of {by}"
            return {**fields, "reason": reason}, "cells"
        judged_fields, needs = self._judge_cells()
        return fields | judged_fields, needs

    def _judge_cells(self) -> tuple[dict[str, Any], Need]:
        cells, heads, settings = self.cells, self.heads, self.settings
        rng = np.random.default_rng([settings.rng_seed, 0 if cells.best_of is None else 1])
        self.judge = Judge(cells, self.limits, rng, settings.alpha, settings.n_mc)
        self.judgement = self.judge.judge(cells.z[None])
        falls = self.judgement.falls
        self.star, self.peak = int(falls.star[0]), int(falls.peak[0])
        self.drop, self.excess = float(falls.drop[0]), float(falls.excess[0])
        self.reach = self.judge.slopes.quantile(1 - settings.alpha)
        gap = cells.noise.gap_beside(self.peak, heads)
        fields = self._numbers() | {"noise_gap": gap}
        members: list[int] = []
        # Draws by a noise that nobody has measured would look like knowledge of the place.
        if not gap:
            members = self.judge.place_set(settings.B, rng)
            fields["p_h"] = dict(zip(map(number, heads), self.judge.shares.tolist(), strict=True))
            fields["h_set"] = tuple(number(heads[k]) for k in members)
        verdict, reason, needs = self._decide(gap)
        if verdict == "none" and (hidden := self._hidden_fall()):
            verdict, reason, needs = "open", hidden, "cells"
        looks_like_one = bool(self.judgement.collapses[0]) or self._ends_at_second()
        fields |= {"verdict": verdict, "reason": reason}
        fields["suggested"] = needs == "seeds" and looks_like_one
        if verdict == "collapse":
            fields["shown_by"] = "abruptness" if self.judgement.abrupt[0] else "growth"
            if self.judgement.abrupt[0]:
                fields["survives"] = self.judge.survived_scatter()
            places, x = [*members, self.star], self.table.x
            fields["d_eff"] = RetrievalDimension.of(
                x, heads.tolist(), min(places), max(places), self.layers
            )
        return fields, needs

    def _numbers(self) -> dict[str, Any]:
        heads, alpha, judge, judgement = self.heads, self.settings.alpha, self.judge, self.judgement
        slopes, is_tested = judge.slopes, judgement.p[0] < 1
        below, above = (
            slopes.interval(float(slope), float(se), alpha) if np.isfinite(slope) else None
            for slope, se in (judgement.below[:, 0], judgement.above[:, 0])
        )
        return {
            "h_star": number(heads[self.star]),
            "bracket": (number(heads[self.star - 1]), number(heads[self.star])),
            "h_peak": number(heads[self.peak]),
            "drop": self.drop,
            "excess": self.excess,
            "p": float(judgement.p[0]) if is_tested else None,
            "scatter": float(judgement.scatter[0]) if is_tested else None,
            "later_rise": self._later_rise(),
            "drops": self._drop_steps(),
            "gamma": {
                number(h): slopes.interval(float(slope), float(se), alpha)
                for h, slope, se in zip(heads, slopes.estimate, slopes.se, strict=True)
                if np.isfinite(slope)
            },
            "gamma_below": below,
            "gamma_above": above,
            "growth": self._growth() if self.table.by is not None else None,
            "level": {
                number(h): Estimate(float(level), float(np.sqrt(variance)))
                for h, level, variance in zip(heads, judge.level, judge.variance, strict=True)
            },
            "phi": slopes.phi,
        }

    def _growth(self) -> Growth:
        estimate, se = self.judgement.above[:, 0]
        reach = self.reach * se
        if estimate + reach <= self.limits.max_growth:
            return "gone"
        return "stays" if estimate - reach > self.limits.max_growth else "open"

    def _decide(self, gap: str) -> tuple[Verdict, str, Need]:
        """Return the verdict, its reason in words, and the need of an open verdict."""
        heads, limits, x = self.heads, self.limits, self.table.x
        if self.coverage.refusal:
            return "open", self.coverage.refusal, "cells"
        if len(heads) < _FEWEST_VALUES:
            return "open", f"{self._values()} cannot tell a collapse from a decline", "heads"
        if self.drop <= 0:
            return "none", "the error falls on no step", ""
        if gap:
            return "open", f"{gap}, so the noise between seeds is not measured", "seeds"
        if self.judgement.collapses[0]:
            return "collapse", "", ""
        if number_of := self.table.without_floor:
            runs = "1 run has" if number_of == 1 else f"{number_of} runs have"
            reason = (
                f"{runs} no error at all, and how small it is depends on the number of evaluation "
                "examples: give eval_size"
            )
            return "open", reason, ""
        if self.drop < limits.min_drop:
            return "none", f"the largest drop is {self._small_drop()}{self._at_the_ends()}", ""
        size = self._size(self.drop, self._points())
        fall = f"the error falls most on the way to {x} = {heads[self.star]:g}, by {size}"
        if self._ends_at_second():
            later = self._size(max(self._later_fall() or 0.0, 0.0))
            reason = (
                f"{fall}, and from there on by no more than {later}; "
                f"with one value of {x} below it a collapse cannot be told from diminishing returns"
            )
            return "open", reason, "below"
        if self.judgement.gap[0] < limits.min_excess:
            best = heads[int(np.argmin(self.judge.level[: self.star]))]
            return "none", f"{fall}, but {x} = {best:g} is about as good", ""
        if len(heads) < FEWEST_FOR_A_BREAK:
            reason = f"{fall}, and {self._values()} cannot tell a collapse from a decline"
            return "open", reason, "heads"
        if self.peak < FIRST_BREAK:
            reason = f"{fall}, which one value of {x} below it cannot tell from a decline"
            return "open", reason, "below"
        if self.excess < limits.min_excess:
            excess = self._size(max(self.excess, 0.0))
            return "none", f"{fall}, of which {excess} exceed the decline before it", ""
        scatter, p = self._size(float(self.judgement.scatter[0])), float(self.judgement.p[0])
        reason = (
            f"{fall}, and {100 * p:.2g} % of declines without a collapse look"
            f" as abrupt where single values scatter by {scatter}"
        )
        return "none", reason, ""

    def earlier_break(self) -> int:
        """Return the index of the head count that ends the last step before the largest drop that
        falls by what counts, too; 0 where none does."""
        if not hasattr(self, "judgement"):
            return 0
        steps = self.judgement.falls.beyond[0, : self.peak - 1]
        breaks = np.flatnonzero(steps >= self.limits.min_drop)
        return int(breaks[-1]) + 1 if breaks.size else 0

    def _hidden_fall(self) -> str:
        """Return in words where cells that are absent hide a fall that counts; empty if nowhere.

        At the lengths where such cells are there, the same stretch falls less.
        """
        z, heads, limits = self.cells.z, self.heads, self.limits
        stretches: dict[tuple[int, int], list[int]] = {}
        for j in range(z.shape[1]):
            for low, high in pairwise(np.flatnonzero(~np.isnan(z[:, j])).tolist()):
                whole = ~np.isnan(z[low : high + 1]).any(axis=0)
                usual = float(np.median((z[low] - z[high])[whole])) if whole.any() else 0.0
                fall = float(z[low, j] - z[high, j])
                hides = fall >= limits.min_drop and fall - max(usual, 0.0) >= limits.min_excess
                if high - low > 1 and hides:
                    stretches.setdefault((low, high), []).append(j)
        places = [
            f"between {self.table.x} = {heads[low]:g} and {heads[high]:g}"
            + (
                f" at {self.table.by} = {listed([f'{self.cells.grid.lengths[j]:g}' for j in at])}"
                if self.table.by is not None
                else ""
            )
            for (low, high), at in stretches.items()
        ]
        return f"the error falls {listed(places)}, where no cell was trained" if places else ""

    def _ends_at_second(self) -> bool:
        """Whether the error falls by a large drop to the second head count and no further."""
        later, least = self._later_fall(), self.limits.min_drop
        return (
            self.star == 1
            and self.drop >= least
            and later is not None
            and later <= min(least, NEXT_SHARE * self.drop)
        )

    def _later_fall(self) -> float | None:
        """Return the largest upper bound of the fall from h* to a later head count; None where h*
        is the last.

        Each bound is one-sided at level alpha. "No further fall" needs all bounds to be small, so
        they need no correction (intersection-union).
        """
        fall, se = self._later_falls()
        return float(np.max(fall + self.reach * se)) if fall.size else None

    def _later_rise(self) -> tuple[Number, float] | None:
        """Return the head count after h* with the highest level, and its rise above h*.

        None where the rise is not surely larger than the smallest step that counts.
        """
        fall, se = self._later_falls()
        k = int(np.argmin(fall)) if fall.size else 0
        if not fall.size or -fall[k] - self.reach * se[k] < self.limits.d_min:
            return None
        return number(self.heads[self.star + 1 + k]), -float(fall[k])

    def _later_falls(self) -> tuple[FloatArray, FloatArray]:
        """Return how far each later level lies below that of h*, and its standard error."""
        level, variance, later = self.judge.level, self.judge.variance, slice(self.star + 1, None)
        variances = variance[self.star] + variance[later] + 2 * self.limits.head_sd**2
        return level[self.star] - level[later], np.sqrt(variances)

    def _at_the_ends(self) -> str:
        """Return in words whether a collapse may lie outside the values that were tried."""
        slopes, limit = self.judge.slopes, self.limits.max_growth
        x, by = self.table.x, self.table.by
        if by is None or not np.isfinite(slopes.estimate[-1]):
            return ""
        lower = slopes.estimate - self.reach * slopes.se
        if lower[-1] > limit:
            return (
                f"; growth with {by} is still there at the largest {x}, so a collapse may lie above"
            )
        if (lower > limit).any():
            return ""
        return (
            f"; growth with {by} is shown at no {x}, so the smallest tried may be enough, or none "
            "may be"
        )

    def _small_drop(self) -> str:
        drop, limits = self.drop, self.limits
        if self.table.scale != "accuracy":
            below = text_below(drop, limits.min_drop)
            return f"{below} {limits.unit}, less than {limits.min_drop:g}"
        factor = text_below(10**drop, 10**limits.min_drop)
        size = self._size(drop, self._points())
        return f"{size} (a factor of {factor}), less than {self._size(limits.min_drop)}"

    def _cell_values(self) -> tuple[CellValue, ...]:
        grid = self.cells.grid
        return tuple(
            CellValue(
                number(grid.heads[k]),
                None if np.isnan(grid.lengths[j]) else number(grid.lengths[j]),
                float(self.cells.z[k, j]),
                grid.runs[k][j].size,
            )
            for k, j in np.argwhere(~np.isnan(self.cells.z))
        )

    def _points(self) -> float | None:
        """Return the largest drop in points of an accuracy; None on another scale."""
        return self._drop_steps()[self.peak - 1].points

    def _drop_steps(self) -> tuple[DropStep, ...]:
        drops = step_drops(self.cells.z)
        points = [None] * len(drops)
        if self.table.scale == "accuracy":
            points = step_drops(100 * 10**self.cells.z).tolist()
        heads = map(number, self.heads)
        return tuple(
            DropStep(before, after, float(drop), size, float(beyond))
            for (before, after), drop, beyond, size in zip(
                pairwise(heads), drops, self.judgement.falls.beyond[0], points, strict=True
            )
        )

    def _size(self, y: float, points: float | None = None) -> str:
        return y_size(y, self.table.scale, points)

    def _values(self) -> str:
        count = len(self.heads)
        return f"{count} value{'' if count == 1 else 's'} of {self.table.x}"
