"""The answer of a sweep's cells: one function from cells and settings to numbers and a verdict."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.questions.transition.cells import Cells, Grid, SeedNoise, read_cells
from analysis.questions.transition.judge import Judge, Judgement
from analysis.questions.transition.location import smallest_set, star_probabilities, step_drops
from analysis.questions.transition.result import (
    CellValue,
    DropStep,
    Estimate,
    Growth,
    Need,
    OtherReading,
    RetrievalDimension,
    TransitionSettings,
    Verdict,
)
from analysis.runs.scale import Thresholds
from analysis.statistics.values import FloatArray
from analysis.text.numbers import text_below, y_size
from analysis.values import Number, number
from hsweep.design.question import Scale


@dataclass(frozen=True, slots=True)
class Asked:
    """What cells are asked, besides their numbers.

    Attributes:
        settings: with every threshold filled in.
        limits: the thresholds that decide: those of the scale where the settings give none.
        scale: of the metric.
        layers: attention layers of the models.
        x, by: the searched axis and the modulating one, which may be None.
        refusal: why no verdict may be given, whatever the cells say; empty when one may.
        is_selected: early stopping chose which runs are left, so nothing is read from them.
        without_floor: how many runs have no error at all and no known place on the log axis.
    """

    settings: TransitionSettings
    limits: Thresholds
    scale: Scale
    layers: int
    x: str
    by: str | None
    refusal: str = ""
    is_selected: bool = False
    without_floor: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What cells answer.

    Attributes:
        fields: of the result, by name.
        cells: the reading that leads; None where nothing was read.
        judge: the rules at its noise; None where there is no step to judge.
        needs: what an open answer lacks.
    """

    fields: dict[str, Any]
    cells: Cells
    judge: Judge | None
    needs: Need


def answer(grid: Grid, noise: SeedNoise, asked: Asked, is_pruned: bool) -> Answer:
    """Return what the reading that leads answers: the attainable one where runs get stuck or were
    selected inside cells, else the typical one."""
    counts = grid.counts
    fewest = int(counts[counts > 0].min()) if (counts > 0).any() else 0
    best_of = 0 if is_pruned else fewest
    typical = _read(read_cells(grid, noise, None), asked)
    wish = asked.settings.reading
    if not is_pruned and (best_of < 2 or wish == "typical" or (wish == "auto" and best_of < 3)):
        return typical
    attainable = _read(read_cells(grid, noise, best_of), asked)
    leads = wish != "typical" and (
        is_pruned
        or wish == "attainable"
        or _stuck_share(attainable, grid, asked.limits) >= asked.settings.stuck_share
    )
    first, second = (attainable, typical) if leads else (typical, attainable)
    other = OtherReading(
        second.fields["reading"], second.fields["verdict"], second.fields.get("h_star")
    )
    return replace(first, fields={**first.fields, "other": other})


def _stuck_share(reading: Answer, grid: Grid, limits: Thresholds) -> float:
    """Return the share of runs at h >= h* that lie over half the drop above their cell's best."""
    star, drop = reading.fields.get("h_star"), reading.fields.get("drop")
    if star is None or drop is None or drop < limits.min_drop:
        return 0.0
    rows = [row for head, row in zip(grid.heads, grid.runs, strict=True) if head >= star]
    behind = np.concatenate([cell - cell.min() for row in rows for cell in row if cell.size])
    return float(np.mean(behind > drop / 2))


def _read(cells: Cells, asked: Asked) -> Answer:
    heads, settings = cells.grid.heads, asked.settings
    fields: dict[str, Any] = {
        "noise_gap": cells.noise.gap,
        "reading": "typical" if cells.best_of is None else "attainable",
        "seed_sd": {number(h): float(sd) for h, sd in zip(heads, cells.noise.sd, strict=True)},
        "cells": _cell_values(cells),
        "verdict": "open",
    }
    if asked.is_selected or len(heads) < 2:
        reason = asked.refusal or f"{_values(len(heads), asked.x)} cannot show a collapse"
        if asked.is_selected:
            reason += "; early stopping chose which, so what is left is not a fair sample"
        needs: Need = "cells" if asked.refusal else "heads"
        return Answer({**fields, "reason": reason}, cells, None, needs)
    if np.isnan(step_drops(cells.z)).all():
        reason = f"no two neighbouring values of {asked.x} share one of {asked.by}"
        return Answer({**fields, "reason": reason}, cells, None, "cells")
    rng = np.random.default_rng([settings.rng_seed, 0 if cells.best_of is None else 1])
    judge = Judge(cells, settings, asked.limits, rng)
    judged = judge.judge(cells.z[None])
    star, peak = int(judged.places.star[0]), int(judged.places.peak[0])
    gap = cells.noise.gap_beside(peak, heads)
    fields |= _numbers(cells, asked, judge, judged) | {"noise_gap": gap}
    # Draws by a noise that nobody has measured would look like knowledge of the place.
    if not gap:
        shares = star_probabilities(cells, judge.place, settings.B, rng)
        members = smallest_set(shares, settings.set_mass)
        fields["p_h"] = {number(h): float(share) for h, share in zip(heads, shares, strict=True)}
        fields["h_set"] = tuple(number(heads[k]) for k in members)
    verdict, reason, needs = _decide(cells, asked, judge, judged, gap)
    looks_like_one = bool(judged.collapses[0]) or _ends_at_second(judge, judged, asked)
    fields |= {"verdict": verdict, "reason": reason}
    fields["suggested"] = needs == "seeds" and looks_like_one
    if verdict == "collapse":
        fields["shown_by"] = "abruptness" if judged.abrupt[0] else "growth"
        at = [int(np.flatnonzero(heads == h)[0]) for h in fields["h_set"]]
        before = heads[min([*at, star]) - 1] if min([*at, star]) else 0
        fields["d_eff"] = _dimension(before, heads[max([*at, star])], heads, asked)
    return Answer(fields, cells, judge, needs)


def _ends_at_second(judge: Judge, judged: Judgement, asked: Asked) -> bool:
    """Whether the error falls by a large drop to the second head count and no further."""
    drop, later = float(judged.places.drop[0]), _later_fall(judge, 1, asked)
    return (
        int(judged.places.star[0]) == 1
        and drop >= asked.limits.min_drop
        and later is not None
        and later <= min(asked.limits.min_drop, asked.settings.rho * drop)
    )


def _numbers(cells: Cells, asked: Asked, judge: Judge, judged: Judgement) -> dict[str, Any]:
    heads, alpha, slopes = cells.grid.heads, asked.settings.alpha, judge.slopes
    places = judged.places
    star, peak = int(places.star[0]), int(places.peak[0])
    above = (float(judged.above[0]), float(judged.above_se[0]))
    below = (float(judged.below[0]), float(judged.below_se[0]))
    has_growth = np.isfinite(above[0])
    return {
        "h_star": number(heads[star]),
        "bracket": (number(heads[star - 1]), number(heads[star])),
        "h_peak": number(heads[peak]),
        "drop": float(places.drop[0]),
        "excess": float(places.excess[0]),
        "p": float(judged.p[0]) if judged.p[0] < 1 else None,
        "scatter": float(judged.scatter[0]) if judged.p[0] < 1 else None,
        "later_rise": _later_rise(cells, judge, star, asked),
        "drops": _drop_steps(cells, asked.scale),
        "gamma": {
            number(h): slopes.interval(float(slope), float(se), alpha)
            for h, slope, se in zip(heads, slopes.estimate, slopes.se, strict=True)
            if np.isfinite(slope)
        },
        "gamma_below": slopes.interval(*below, alpha) if np.isfinite(below[0]) else None,
        "gamma_above": slopes.interval(*above, alpha) if has_growth else None,
        "growth": _growth(*above, judge, asked) if asked.by is not None else None,
        "level": {
            number(h): Estimate(float(level), float(np.sqrt(variance)))
            for h, level, variance in zip(heads, judge.level, judge.variance, strict=True)
        },
        "phi": slopes.phi,
    }


def _growth(estimate: float, se: float, judge: Judge, asked: Asked) -> Growth:
    if not np.isfinite(estimate):
        return "open"
    reach = judge.slopes.quantile(1 - asked.settings.alpha) * se
    if estimate + reach <= asked.limits.max_growth:
        return "gone"
    return "stays" if estimate - reach > asked.limits.max_growth else "open"


def _decide(
    cells: Cells, asked: Asked, judge: Judge, judged: Judgement, gap: str
) -> tuple[Verdict, str, Need]:
    """Return the verdict, its reason in words, and what an open one needs."""
    heads, limits, x = cells.grid.heads, asked.limits, asked.x
    places = judged.places
    star, peak, drop = int(places.star[0]), int(places.peak[0]), float(places.drop[0])
    if asked.refusal:
        return "open", asked.refusal, "cells"
    if len(heads) < 3:
        return "open", f"{_values(len(heads), x)} cannot tell a collapse from a decline", "heads"
    if gap:
        return "open", f"{gap}, so the noise between seeds is not measured", "seeds"
    if judged.collapses[0]:
        return "collapse", "", ""
    if asked.without_floor:
        runs = "1 run has" if asked.without_floor == 1 else f"{asked.without_floor} runs have"
        reason = (
            f"{runs} no error at all, and how small it is depends on the number of evaluation "
            "examples: give eval_size"
        )
        return "open", reason, ""
    at, size = f"{x} = {heads[star]:g}", y_size(drop, asked.scale, _points(cells, peak, asked))
    fall = f"the error falls most on the way to {at}, by {size}"
    if drop < limits.min_drop:
        small = _small(drop, cells, peak, asked)
        return "none", f"the largest drop is {small}{_at_the_ends(asked, judge)}", ""
    if _ends_at_second(judge, judged, asked):
        later = max(_later_fall(judge, 1, asked) or 0.0, 0.0)
        reason = (
            f"{fall}, and from there on by no more than {y_size(later, asked.scale)}; "
            f"with one value of {x} below it a collapse cannot be told from diminishing returns"
        )
        return "open", reason, "below"
    if judged.gap[0] < limits.min_excess:
        return "none", f"{fall}, but {_as_good(heads, judge.level, star, x)}", ""
    if not judge.is_testable(peak):
        return "none", f"{fall}, which one value of {x} below it cannot tell from a decline", ""
    if places.excess[0] < limits.min_excess:
        excess = y_size(max(float(places.excess[0]), 0.0), asked.scale)
        return "none", f"{fall}, of which {excess} exceed the decline before it", ""
    share = f"{100 * float(judged.p[0]):.2g} %"
    scatter = y_size(float(judged.scatter[0]), asked.scale)
    reason = (
        f"{fall}, and {share} of declines without a collapse look as abrupt where single values "
        f"scatter by {scatter}"
    )
    return "none", reason, ""


def _small(drop: float, cells: Cells, peak: int, asked: Asked) -> str:
    limits = asked.limits
    if asked.scale != "accuracy":
        return f"{text_below(drop, limits.min_drop)} {limits.unit}, less than {limits.min_drop:g}"
    factor = text_below(10**drop, 10**limits.min_drop)
    size = y_size(drop, asked.scale, _points(cells, peak, asked))
    return f"{size} (a factor of {factor}), less than {y_size(limits.min_drop, asked.scale)}"


def _at_the_ends(asked: Asked, judge: Judge) -> str:
    """Say where a collapse may lie that the values tried do not show."""
    slopes, limit = judge.slopes, asked.limits.max_growth
    if asked.by is None or not np.isfinite(slopes.estimate[-1]):
        return ""
    lower = slopes.estimate - slopes.quantile(1 - asked.settings.alpha) * slopes.se
    if lower[-1] > limit:
        return (
            f"; growth with {asked.by} is still there at the largest {asked.x}, so a collapse may "
            "lie above"
        )
    if not (lower > limit).any():
        return (
            f"; growth with {asked.by} is shown at no {asked.x}, so the smallest tried may be "
            "enough, or none may be"
        )
    return ""


def _as_good(heads: FloatArray, level: FloatArray, star: int, x: str) -> str:
    best = int(np.argmin(level[:star]))
    if level[best] - level[star] <= np.nanmedian(level[star:]) - level[star]:
        return f"rises again: {x} = {heads[best]:g} is as good as what follows"
    return f"{x} = {heads[best]:g} is about as good"


def _later_fall(judge: Judge, star: int, asked: Asked) -> float | None:
    """Return the largest upper bound of the fall from h* to a later head count, None without one.

    Each bound is one-sided at level alpha; every one of them must be small for "no further fall",
    so no correction is needed (intersection-union).
    """
    level, variance = judge.level, judge.variance
    if star + 1 >= len(level):
        return None
    se = np.sqrt(variance[star] + variance[star + 1 :] + 2 * asked.limits.head_sd**2)
    reach = judge.slopes.quantile(1 - asked.settings.alpha) * se
    return float(np.max(level[star] - level[star + 1 :] + reach))


def _later_rise(cells: Cells, judge: Judge, star: int, asked: Asked) -> tuple[Number, float] | None:
    """Return the highest later level with how far it lies above that of h*, where that is surely
    more than the smallest step that counts."""
    level, variance = judge.level, judge.variance
    if star + 1 >= len(level):
        return None
    k = star + 1 + int(np.argmax(level[star + 1 :]))
    rise = float(level[k] - level[star])
    se = np.sqrt(variance[star] + variance[k] + 2 * asked.limits.head_sd**2)
    if rise - judge.slopes.quantile(1 - asked.settings.alpha) * float(se) < asked.limits.d_min:
        return None
    return number(cells.grid.heads[k]), rise


def _dimension(
    before: float, last: float, heads: FloatArray, asked: Asked
) -> RetrievalDimension | None:
    """Return D in (L h_before, L h_last] over the set of h*.

    One layer needs h >= D (paper H); for more layers L h >= D is a conjecture from its ablation.
    """
    if "head" not in asked.x or any(not float(head).is_integer() for head in heads):
        return None
    layers = asked.layers
    return RetrievalDimension(int(before) * layers + 1, int(last) * layers, layers, layers > 1)


def _cell_values(cells: Cells) -> tuple[CellValue, ...]:
    grid = cells.grid
    return tuple(
        CellValue(
            number(head),
            None if np.isnan(length) else number(length),
            float(cells.z[k, j]),
            grid.runs[k][j].size,
        )
        for k, head in enumerate(grid.heads)
        for j, length in enumerate(grid.lengths)
        if grid.runs[k][j].size
    )


def _points(cells: Cells, peak: int, asked: Asked) -> float | None:
    if asked.scale != "accuracy":
        return None
    return float(step_drops(100 * 10**cells.z)[peak - 1])


def _drop_steps(cells: Cells, scale: Scale) -> tuple[DropStep, ...]:
    drops = step_drops(cells.z)
    points = step_drops(100 * 10**cells.z) if scale == "accuracy" else None
    heads, lengths = cells.grid.heads, cells.grid.lengths
    return tuple(
        DropStep(
            number(heads[k - 1]),
            number(heads[k]),
            float(drops[k - 1]),
            {
                number(length): float(value)
                for length, value in zip(lengths, cells.z[k - 1] - cells.z[k], strict=True)
                if np.isfinite(value) and np.isfinite(length)
            },
            points=None if points is None else float(points[k - 1]),
        )
        for k in range(1, len(heads))
    )


def _values(count: int, axis: str) -> str:
    return f"{count} value{'' if count == 1 else 's'} of {axis}"
