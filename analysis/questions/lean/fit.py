"""Which cheaper shapes are established as no worse than the baseline by a stated margin?

Non-inferiority, not equality: "its mean reaches the baseline's minus the margin" is wrong nine
times in ten when every smaller model sits exactly at the margin and the best-looking one is picked.
A shape that is not established may still be as good: it is excluded only where it is shown to be
worse by more than the margin, and otherwise undecided. With a baseline that has learned nothing
there is no answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd
from scipy import special

from analysis.questions.lean.design import Outcome
from analysis.questions.lean.limits import margin_problem
from analysis.questions.lean.result import LeanResult, LeanRow, LeanSettings, LeanVerdict
from analysis.runs.grouped import Grouped, Shape, grouped
from analysis.runs.scale import metric_span
from analysis.runs.table import Runs
from analysis.statistics.bounds import AT_LEAST_0, SHARE, clipped, difference_span
from analysis.statistics.moderated import FAR_IN_TESTS, error_of_difference
from analysis.statistics.noninferiority import MAX_SEEDS, holm, seeds_for
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue, describe
from hsweep.design.missing import Missing
from hsweep.design.scales import Goal
from hsweep.errors import UserError

FIRST_REPORT: Final = "score at the first report"
"""Column of the scores of the baseline's runs at the first of several reports, where these are
known; read where a constant predictor's score is not."""
_FEWEST_SEEDS: Final = 3


class _Shapes:
    """The shapes of a comparison.

    Attributes:
        comparable: the shapes that can be compared, cheapest first.
        base: the baseline; ``at`` is its index.
        stopped: the cheaper shapes that early stopping dropped: they count as tried.
        sign: 1 where higher is better, else -1.
        worst: the largest value of a metric that is minimised and at least 0; None of others.
        sd, df: the seed sd of every shape, and its degrees of freedom; NaN without.
        usual: variance of the mean of the candidate in the middle.
    """

    def __init__(
        self,
        shapes: Grouped,
        baseline: Mapping[str, AxisValue],
        margin: float,
        settings: LeanSettings,
    ) -> None:
        self.comparable, self.metric, self.costs = shapes.comparable, shapes.metric, shapes.costs
        self.at = _find_baseline(shapes, baseline)
        self.base = self.comparable[self.at]
        self.sign, self.margin = 1.0 if shapes.goal == "max" else -1.0, float(margin)
        self.settings = settings
        self.stopped = [shape for shape in shapes.stopped if self.is_cheaper(shape)]
        self.sd, self.df = _seed_sds(self.comparable)
        cheaper = (k for k, shape in enumerate(self.comparable) if self.is_cheaper(shape))
        self.usual = float(np.median([self.variance_of_mean(k) for k in cheaper] or [0.0]))
        values = np.concatenate([shape.values for shape in self.comparable])
        span = metric_span(values, shapes.goal, None)
        self.is_share, self.span = span == SHARE, difference_span(span)
        self.worst = float(values.max()) if span == AT_LEAST_0 else None

    def is_cheaper(self, shape: Shape) -> bool:
        return shape.costs[self.costs[0]] < self.base.costs[self.costs[0]]

    def spread(self, k: int) -> float:
        """Return the seed sd of a shape whose mean would scatter as much with independent runs."""
        return float(self.sd[k]) * math.sqrt(self.comparable[k].inflation)

    def variance_of_mean(self, k: int) -> float:
        shape = self.comparable[k]
        return float(shape.inflation * self.sd[k] ** 2 / shape.values.size)

    def row(self, k: int, margin: float) -> LeanRow:
        """Return a shape tested against the baseline, before Holm's correction.

        Each has its own seed variance (Welch).
        """
        shape, base = self.comparable[k], self.base
        means = float(shape.values.mean()), float(base.values.mean())
        # The same values in another order may add up to a last digit of difference.
        same = math.isclose(*means, rel_tol=1e-12)
        diff = 0.0 if same else self.sign * (means[0] - means[1])
        df = p = p_worse = None
        reach = math.nan
        is_measured = math.isfinite(self.spread(k) + self.spread(self.at))
        if is_measured and min(shape.values.size, base.values.size) > 1:
            variances = [self.variance_of_mean(each) for each in (k, self.at)]
            se, df = error_of_difference(variances, [*self.df[[k, self.at]]], self.usual)
            t = (diff + margin) / se
            p, p_worse = float(special.stdtr(df, -t)), float(special.stdtr(df, t))
            reach = se * float(special.stdtrit(df, (1 + self.settings.confidence) / 2))
        return LeanRow(
            **shape.row_fields,
            sd=self.spread(k),
            diff=diff,
            ci=clipped(Interval(diff, diff - reach, diff + reach), self.span),
            df=df,
            p_raw=p,
            p_worse=p_worse,
            saving={name: 1 - shape.costs[name] / base.costs[name] for name in shape.costs},
        )


def _seed_sds(shapes: Sequence[Shape]) -> tuple[FloatArray, FloatArray]:
    """Return the seed sd of every shape with its degrees of freedom.

    A shape whose seeds agree exactly (a metric that counts few examples) gets the pooled sd of the
    other shapes: agreement does not show that its seeds never differ. So does one with a single
    run, which is not tested by it: it tells how many seeds a test would take.
    """
    variance, df = np.array([shape.seed_variance for shape in shapes]).T
    known = variance > 0
    if not known.any():
        return np.full(len(shapes), np.nan), df
    usual = float(df[known] @ variance[known] / df[known].sum())
    return np.sqrt(np.where(known, variance, usual)), df


def fit(
    runs: Runs,
    *,
    baseline: Mapping[str, AxisValue],
    margin: float,
    config: Sequence[str],
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    nuisance: Sequence[str] = (),
    settings: LeanSettings = LeanSettings(),
) -> LeanResult:
    """Test every shape whose first cost is below the baseline's for being no worse than ``margin``.

    Args:
        baseline: axis values that pick exactly one shape.
        margin: how much worse still counts as equal, in the metric's own unit, above 0.
        costs: columns to save; the first decides what is cheaper.
        nuisance: columns of settings (a learning rate); each shape has its best setting.

    Raises:
        UserError: a margin that is not a positive number, a baseline that picks no or several
            shapes, or a table that cannot be used.
    """
    if not (isinstance(margin, int | float) and math.isfinite(margin) and margin > 0):
        raise UserError(
            f"margin must be a positive number in the unit of {runs.metric!r}, not {margin!r}"
        )
    candidates = grouped(runs, config, nuisance, goal=goal, costs=costs, far=FAR_IN_TESTS)
    shapes = _Shapes(candidates, baseline, margin, settings)
    if problem := _margin_problem(shapes, runs.frame):
        raise UserError(problem)
    base, base_sd = shapes.base, shapes.sd[shapes.at]
    rows = [
        shapes.row(k, margin)
        for k, shape in enumerate(shapes.comparable)
        if shapes.is_cheaper(shape)
    ]
    untrained = _untrained(shapes) if any(row.p_raw is not None for row in rows) else ""
    rows = _with_outcomes(shapes, rows, is_open=not untrained)
    accepted = [row for row in rows if row.accepted]
    choice = min(accepted, key=lambda row: (row.costs[costs[0]], -row.diff)) if accepted else None
    verdict = _verdict(shapes, rows, choice, untrained)
    return LeanResult(
        verdict=verdict,
        reason=untrained or _reason(shapes, verdict, rows),
        baseline=base.config,
        baseline_label=base.label,
        baseline_mean=float(base.values.mean()),
        baseline_n=base.values.size,
        margin=shapes.margin,
        sd=float(base_sd) if base.values.size > 1 and math.isfinite(base_sd) else None,
        table=tuple(rows),
        stopped=tuple(shape.label for shape in shapes.stopped),
        missing=_missing(shapes, verdict, rows),
        choice=choice.label if choice else None,
        metric=runs.metric,
        goal=goal,
        costs=tuple(costs),
        settings=settings,
        warnings=(*candidates.warnings, *_warnings(rows, settings)),
        baseline_lost=base.lost,
        nuisance=tuple(nuisance),
        baseline_setting=base.tuned.setting if base.tuned else None,
        doubt=_doubt(shapes, runs.frame),
        is_share=shapes.is_share,
    )


def _find_baseline(shapes: Grouped, baseline: Mapping[str, AxisValue]) -> int:
    foreign = [name for name in baseline if name not in shapes.columns]
    if foreign or not baseline:
        named = ", ".join(foreign) or "no axis"
        raise UserError(f"the baseline names {named}; the axes are {', '.join(shapes.columns)}")

    def is_at(shape: Shape) -> bool:
        return all(shape.config[name] == value for name, value in baseline.items())

    matches = [k for k, shape in enumerate(shapes.comparable) if is_at(shape)]
    if len(matches) == 1:
        return matches[0]
    words = describe(dict(baseline))
    if not matches and any(map(is_at, shapes.stopped)):
        raise UserError(
            f"the baseline {words} lost runs to early stopping, and those it kept are the ones that"
            " did well; run all of its seeds to the full budget"
        )
    listed = [shapes.comparable[k] for k in matches] or shapes.comparable
    raise UserError(
        f"the baseline {words} picks {len(matches)} shapes with a full-budget run, need exactly 1;"
        f" there are: {'; '.join(shape.label for shape in listed[:8])}"
    )


def _with_outcomes(shapes: _Shapes, rows: Sequence[LeanRow], *, is_open: bool) -> list[LeanRow]:
    """Return the candidates with their outcomes; all are undecided unless ``is_open``."""
    settings, base_spread = shapes.settings, shapes.spread(shapes.at)
    p_holm = holm([row.p_raw for row in rows], len(shapes.stopped))
    p_worse = holm([row.p_worse for row in rows])
    tried = sum(row.p_raw is not None for row in rows) + len(shapes.stopped)
    judged = []
    for row, accept, exclude in zip(rows, p_holm, p_worse, strict=True):
        outcome: Outcome = "undecided"
        if is_open and accept is not None and accept <= settings.level:
            outcome = "established"
        elif is_open and exclude is not None and exclude <= settings.level:
            outcome = "excluded"
        seeds, sds = None, (row.sd, base_spread)
        if is_open and outcome == "undecided" and all(0 < sd < math.inf for sd in sds):
            # The seeds would be added after this look, and the next look has half its error rate.
            alpha = settings.level / 2
            seeds = seeds_for(shapes.margin, max(tried, 1), alpha, settings.power, sds, MAX_SEEDS)
        judged.append(
            replace(row, p_holm=accept, p_worse=exclude, outcome=outcome, seeds_needed=seeds)
        )
    return judged


def _untrained(shapes: _Shapes) -> str:
    """Return why no shape can be compared with the baseline: it is not shown to be better than a
    constant predictor by more than the margin. Empty where it is, or where chance is not known."""
    settings, margin = shapes.settings, shapes.margin
    chance = settings.chance
    if chance is None:
        return ""
    mean = float(shapes.base.values.mean())
    gain = shapes.sign * (mean - chance)
    se = math.sqrt(shapes.variance_of_mean(shapes.at))
    beyond, by_more = (
        float(special.stdtr(shapes.df[shapes.at], (least - gain) / se)) for least in (0.0, margin)
    )
    numbers = f"{shapes.metric} {mean:.3g}, chance {chance:.3g}"
    if gain <= 0:
        return f"the baseline is no better than a constant predictor ({numbers})"
    if beyond > settings.alpha:
        return (
            "the baseline is not shown to be better than a constant predictor: its "
            f"{shapes.base.values.size} seeds scatter too far for that ({numbers}); give it more "
            "seeds or train it longer"
        )
    if by_more > settings.alpha:
        return (
            "the baseline is not shown to be better than a constant predictor by more than the"
            f" margin ({numbers}, margin {margin:g}), so a shape that has learned nothing would"
            " count as no worse; train it longer or narrow the margin"
        )
    return ""


def _margin_problem(shapes: _Shapes, frame: pd.DataFrame) -> str:
    """Return what is wrong with a margin as wide as the metric's range; empty if nothing is.

    Where a constant predictor's score is not known, the worst value of a table stands for it; that
    of a study does not, since its runs may all be good, and were paid for.
    """
    chance, metric = shapes.settings.chance, shapes.metric
    if not shapes.is_share and shapes.worst is None:
        return ""
    if chance is None and shapes.worst is not None and FIRST_REPORT not in frame:
        chance, metric = shapes.worst, f"{metric} in this table"
    return margin_problem(shapes.margin, metric, chance, is_share=shapes.is_share)


def _doubt(shapes: _Shapes, frame: pd.DataFrame) -> str:
    """Return why a shape may pass that has learned nothing: the margin is as wide as any value; or
    the baseline is no better than the worst shape tried, nor than at its own first report. Empty
    where a constant predictor's score is known."""
    settings = shapes.settings
    if FIRST_REPORT in frame and settings.chance is None and shapes.worst is not None:
        worst = float(np.nanmax([shapes.worst, *frame[FIRST_REPORT].dropna()]))
        if worst <= shapes.margin:
            return (
                f"the margin is no smaller than any {shapes.metric} seen, at most {worst:.3g}, so "
                "every shape counts as no worse, whatever its seeds show"
            )
    if FIRST_REPORT not in frame or settings.chance is not None or len(shapes.comparable) < 2:
        return ""
    is_baseline = np.logical_and.reduce(
        [frame[name] == at for name, at in shapes.base.config.items()]
    )
    scores = frame.loc[is_baseline, [shapes.metric, FIRST_REPORT]].dropna()
    gains = shapes.sign * (scores[shapes.metric] - scores[FIRST_REPORT]).to_numpy(float)
    if gains.size < 2 or _p_above_zero(gains) <= settings.alpha:
        return ""
    others = (k for k in range(len(shapes.comparable)) if k != shapes.at)
    worst = min(others, key=lambda k: shapes.sign * float(shapes.comparable[k].values.mean()))
    p_worse = shapes.row(worst, 0.0).p_worse
    if p_worse is None or p_worse <= settings.alpha:
        return ""
    return (
        "it is not known whether the baseline has learned anything: it is no better than the worst"
        " shape tried, nor than at its own first report, and the task does not say what a constant"
        " predictor scores"
    )


def _p_above_zero(gains: FloatArray) -> float:
    spread = float(gains.std(ddof=1))
    if spread == 0:
        return 0.0 if gains.mean() > 0 else 1.0
    return float(special.stdtr(gains.size - 1, -gains.mean() / (spread / math.sqrt(gains.size))))


def _warnings(rows: Sequence[LeanRow], settings: LeanSettings) -> list[str]:
    warnings = []
    if len(rows) > (tested := sum(row.p_raw is not None for row in rows)) > 0:
        warnings.append(
            f"{len(rows) - tested} candidates have a single run, or seeds without a spread, and"
            " are not tested"
        )
    if settings.looks > 1:
        warnings.append(
            f"seeds were added after an earlier look at the answer, so the family-wise"
            f" error of this one is {settings.level:g} instead of {settings.alpha:g}"
        )
    return warnings


def _verdict(
    shapes: _Shapes, rows: Sequence[LeanRow], choice: LeanRow | None, untrained: str
) -> LeanVerdict:
    if not rows:
        return "undecided" if shapes.stopped else "no_candidates"
    if all(row.p_raw is None for row in rows):
        return "unsupported"
    if untrained:
        return "untrained"
    if choice is not None:
        return "found"
    is_excluded = not shapes.stopped and all(row.outcome == "excluded" for row in rows)
    return "excluded" if is_excluded else "undecided"


def _reason(shapes: _Shapes, verdict: LeanVerdict, rows: Sequence[LeanRow]) -> str:
    """Return why there is no answer; empty where there is one."""
    if verdict == "no_candidates":
        first = shapes.costs[0]
        return f"no shape has a {first} below the baseline's {shapes.base.costs[first]:g}"
    if verdict != "unsupported":
        return ""
    if shapes.base.values.size > 1 and any(row.n > 1 for row in rows):
        return (
            "no spread between the seeds of the baseline or of every candidate, so the noise is"
            " not measured and no shape can be called equivalent"
        )
    return (
        "a single run of the baseline or of every candidate says nothing about seeds, so no shape"
        " can be called equivalent"
    )


def _missing(shapes: _Shapes, verdict: LeanVerdict, rows: Sequence[LeanRow]) -> tuple[Missing, ...]:
    """Return the runs that would settle undecided shapes: an equal shape would be established.

    Shapes that need over 50 seeds are left out: a wider margin is the better advice.
    """
    if verdict not in ("undecided", "unsupported"):
        return ()
    # Without two runs of a shape the spread between seeds is not known.
    is_untested = verdict == "unsupported"
    missing: list[Missing] = []
    most = 0
    for row in rows:
        needed = _FEWEST_SEEDS if is_untested else row.seeds_needed
        if row.outcome != "undecided" or needed is None:
            continue
        most = max(most, needed)
        why = (
            f"a test needs seeds; {needed} show how much they differ"
            if is_untested
            else "an equal shape would be established with probability "
            f"{shapes.settings.power:g} by {needed} seeds"
        )
        if needed > row.n:
            missing.append(Missing(row.config, needed - row.n, why))
    missing += [
        Missing(shape.config, shape.stopped, "stopped early, so not compared")
        for shape in shapes.stopped
    ]
    if (lacking := most - shapes.base.values.size) > 0:
        why = "the baseline needs as many seeds as what is compared with it"
        missing.insert(0, Missing(shapes.base.config, lacking, why))
    return tuple(missing)
