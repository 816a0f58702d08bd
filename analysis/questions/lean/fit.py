"""Which cheaper shapes are established as no worse than the baseline by a stated margin?

Non-inferiority, not equality: "its mean reaches the baseline's minus the margin" is wrong nine
times in ten when every smaller model sits exactly at the margin and the best-looking one is picked.
That none is established does not mean that none is as good: a shape is excluded only where it is
shown to be worse by more than the margin, and what is neither is undecided. A baseline that has
learned nothing answers nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pandas as pd
from scipy import special

from analysis.questions.lean.result import (
    LeanOutcome,
    LeanResult,
    LeanRow,
    LeanSettings,
    LeanVerdict,
)
from analysis.runs.columns import RunColumns
from analysis.runs.grouped import Grouped, Shape, describe, grouped
from analysis.runs.scale import metric_span
from analysis.runs.table import Runs
from analysis.statistics.bounds import clipped, difference_span
from analysis.statistics.moderated import agree
from analysis.statistics.noninferiority import (
    MOST_SEEDS,
    confirming_seeds,
    holm,
    pair_seeds,
    power,
    seeds_for,
)
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue
from hsweep.design.question import Goal, Missing
from hsweep.errors import UserError

_DEFAULT_SETTINGS = LeanSettings()
_FEWEST_SEEDS = 3


@dataclass(frozen=True, slots=True)
class _Compared:
    """A candidate against the baseline; ``diff`` is positive where the candidate is better.

    ``sds`` are those of one run of the candidate and of the baseline, ``p`` and ``p_worse`` the
    one-sided p values of "worse by the margin or more" and of "worse by no more than that".
    """

    item: Shape
    diff: float
    sds: tuple[float, float]
    se: float = math.nan
    df: float = math.nan
    p: float | None = None
    p_worse: float | None = None


@dataclass(frozen=True, slots=True)
class _Spread:
    """The seed sd of every shape, its own, with the degrees of freedom behind it; NaN without."""

    sd: FloatArray
    df: FloatArray

    @classmethod
    def of(cls, found: Sequence[Shape]) -> "_Spread":
        """Return the spreads. A shape whose seeds agree exactly (a metric that counts few examples)
        has that of the others: no spread is no knowledge of one."""
        fits = [item.tuned.fit if item.tuned is not None else None for item in found]
        df = np.array(
            [
                float(fit.df if fit else max(item.values.size - 1, 0))
                for item, fit in zip(found, fits, strict=True)
            ]
        )
        variance = np.array(
            [
                fit.variance if fit else 0.0 if agree(item.values) else item.values.var(ddof=1)
                for item, fit in zip(found, fits, strict=True)
            ]
        )
        known = variance > 0
        if not known.any():
            return cls(np.full(len(found), np.nan), df)
        usual = float(df[known] @ variance[known] / df[known].sum())
        variance = np.where(known, variance, np.where(df > 0, usual, np.nan))
        return cls(np.sqrt(variance), df)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is compared.

    Attributes:
        found: the shapes, cheapest first.
        stopped: the cheaper ones that early stopping dropped: they were tried as well.
        at: index of the baseline.
        sign: 1 where higher is better, else -1.
        spread: the seed sd of every shape.
    """

    found: list[Shape]
    stopped: list[Shape]
    at: int
    sign: float
    margin: float
    metric: str
    costs: tuple[str, ...]
    spread: _Spread
    settings: LeanSettings

    @property
    def base(self) -> Shape:
        return self.found[self.at]

    @property
    def sd(self) -> float | None:
        """The baseline's seed sd; None where it is not measured."""
        sd = float(self.spread.sd[self.at])
        return sd if self.base.values.size > 1 and math.isfinite(sd) else None

    @property
    def gap(self) -> str:
        """Why it is not measured."""
        return "one run" if self.base.values.size < 2 else "seeds that agree exactly"

    def variance_of_mean(self, k: int) -> float:
        item = self.found[k]
        return float(item.inflation * self.spread.sd[k] ** 2 / item.values.size)

    def compare(self, k: int, margin: float) -> _Compared:
        item, base, spread = self.found[k], self.base, self.spread
        means = float(item.values.mean()), float(base.values.mean())
        # The same values in another order may add up to a last digit of difference.
        same = math.isclose(*means, rel_tol=1e-12)
        diff = 0.0 if same else self.sign * (means[0] - means[1])
        sd, base_sd = (
            float(spread.sd[i]) * math.sqrt(self.found[i].inflation) for i in (k, self.at)
        )
        if min(item.values.size, base.values.size) < 2 or not math.isfinite(sd + base_sd):
            return _Compared(item, diff, (sd, base_sd))
        own, ref = self.variance_of_mean(k), self.variance_of_mean(self.at)
        se = math.sqrt(own + ref)
        df = float((own + ref) ** 2 / (own**2 / spread.df[k] + ref**2 / spread.df[self.at]))
        t = (diff + margin) / se
        p, p_worse = float(special.stdtr(df, -t)), float(special.stdtr(df, t))
        return _Compared(item, diff, (sd, base_sd), se, df, p, p_worse)


def fit(
    table: pd.DataFrame | Runs,
    *,
    baseline: Mapping[str, AxisValue],
    margin: float,
    config: Sequence[str],
    metric: str | None = None,
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    nuisance: Sequence[str] = (),
    settings: LeanSettings = _DEFAULT_SETTINGS,
    first_report: str | None = None,
    **columns: Unpack[RunColumns],
) -> LeanResult:
    """Test every shape whose first cost is below the baseline's for being no worse than ``margin``.

    Args:
        table: one row a run, or `Runs`, which carry the metric and the columns.
        baseline: axis values that pick exactly one shape.
        margin: how much worse still counts as equal, in the metric's own unit, above 0.
        costs: columns to save; the first decides what is cheaper.
        nuisance: columns of settings (a learning rate) of which each shape stands at its best.
        settings: error rate, interval level, crash screening, what a constant predictor scores.
        first_report: column of what each run scored at its first report, empty where that was its
            last; looked at where a constant predictor's score is not known.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a margin that is not a positive number, a baseline that picks no or several
            shapes, or a table that cannot be used.
    """
    if not costs:
        raise UserError("name at least one cost column (num_params, ...)")
    runs = Runs.of(table, metric, columns)
    frame = runs.frame
    if not (isinstance(margin, int | float) and math.isfinite(margin) and margin > 0):
        raise UserError(
            f"margin must be a positive number in the unit of {runs.metric!r}, not {margin!r}"
        )
    shapes = grouped(runs, config, nuisance, goal=goal, costs=costs, crash_sd=settings.crash_sd)
    found, warnings = shapes.found, list(shapes.warnings)
    at = _find_baseline(shapes, baseline, config)
    base, first = found[at], costs[0]
    sign = 1.0 if goal == "max" else -1.0
    asked = _Asked(
        found=found,
        stopped=[each for each in shapes.stopped if each.costs[first] < base.costs[first]],
        at=at,
        sign=sign,
        margin=float(margin),
        metric=runs.metric,
        costs=tuple(costs),
        spread=_Spread.of(found),
        settings=settings,
    )
    cheaper = [k for k, item in enumerate(found) if item.costs[first] < base.costs[first]]
    compared = [asked.compare(k, asked.margin) for k in cheaper]
    tested = sum(each.p is not None for each in compared)
    untaught = _untaught(asked) if tested else ""
    rows = _rows(asked, compared, goal, untaught)
    accepted = [row for row in rows if row.accepted]
    choice = min(accepted, key=lambda row: (row.costs[first], -row.diff)) if accepted else None
    if len(compared) > tested > 0:
        warnings.append(
            f"{len(compared) - tested} candidates have a single run, or seeds without a spread, and"
            " are not tested"
        )
    if settings.looks > 1:
        warnings.append(
            f"seeds were added after an earlier look at the answer, so the family-wise"
            f" error of this one is {settings.level:g} instead of {settings.alpha:g}"
        )
    verdict = _verdict(asked, rows, choice, untaught)
    if choice is not None and choice.crash_share > 0:
        warnings.append(
            f"{choice.crash_share:.0%} of the runs of {choice.label} crashed or failed and are left"
            " out of its mean: it is as good only where it trains"
        )
    doubt = ""
    if first_report is not None and settings.chance is None:
        own = np.logical_and.reduce([frame[name] == value for name, value in base.config.items()])
        scores = frame.loc[own, [runs.metric, first_report]].dropna()
        gains = sign * (scores[runs.metric] - scores[first_report]).to_numpy(float)
        doubt = _doubt(asked, gains)
    return LeanResult(
        verdict=verdict,
        reason=untaught or _reason(asked, verdict, rows, choice),
        baseline=base.config,
        baseline_label=base.label,
        baseline_mean=float(base.values.mean()),
        baseline_values=tuple(float(value) for value in base.values),
        baseline_n=base.values.size,
        baseline_costs=base.costs,
        margin=asked.margin,
        sd=asked.sd,
        margin_over_sd=margin / asked.sd if asked.sd else None,
        table=rows,
        stopped=tuple(each.label for each in asked.stopped),
        missing=_missing(asked, verdict, rows),
        choice=choice.label if choice else None,
        choice_config=choice.config if choice else None,
        power_note=_power_note(asked, tested),
        confirm=_confirm(asked, rows, choice),
        metric=runs.metric,
        goal=goal,
        costs=asked.costs,
        settings=settings,
        warnings=tuple(warnings),
        baseline_lost=base.lost,
        nuisance=tuple(nuisance),
        baseline_setting=base.tuned.setting if base.tuned else None,
        doubt=doubt,
    )


def _find_baseline(
    shapes: Grouped, baseline: Mapping[str, AxisValue], config: Sequence[str]
) -> int:
    foreign = [name for name in baseline if name not in config]
    if foreign or not baseline:
        named = ", ".join(foreign) or "no axis"
        raise UserError(f"the baseline names {named}; the axes are {', '.join(config)}")
    found = shapes.found
    matches = [k for k, item in enumerate(found) if _is_at(item.config, baseline)]
    if len(matches) == 1:
        return matches[0]
    words = describe(dict(baseline))
    if not matches and any(_is_at(each.config, baseline) for each in shapes.stopped):
        raise UserError(
            f"the baseline {words} lost runs to early stopping, and those it kept are the ones that"
            " did well; run all of its seeds to the full budget"
        )
    shown = [item.label for item in ([found[k] for k in matches] or found)][:8]
    raise UserError(
        f"the baseline {words} picks {len(matches)} shapes with a full-budget run, need exactly 1;"
        f" there are: {'; '.join(shown)}"
    )


def _is_at(config: Mapping[str, AxisValue], values: Mapping[str, AxisValue]) -> bool:
    return all(config[name] == value for name, value in values.items())


def _rows(
    asked: _Asked, compared: Sequence[_Compared], goal: Goal, untaught: str
) -> tuple[LeanRow, ...]:
    base, settings = asked.base, asked.settings
    bounds = metric_span(np.concatenate([item.values for item in asked.found]), goal, None)
    p_holm = holm([each.p for each in compared], len(asked.stopped))
    p_worse = holm([each.p_worse for each in compared])
    tried = sum(each.p is not None for each in compared) + len(asked.stopped)
    rows = []
    for each, accept, exclude in zip(compared, p_holm, p_worse, strict=True):
        item = each.item
        outcome: LeanOutcome = "undecided"
        if not untaught and accept is not None and accept <= settings.level:
            outcome = "established"
        elif not untaught and exclude is not None and exclude <= settings.level:
            outcome = "excluded"
        is_open = outcome == "undecided" and not untaught
        reach = each.se * float(special.stdtrit(each.df, (1 + settings.confidence) / 2))
        interval = Interval(each.diff, each.diff - reach, each.diff + reach)
        rows.append(
            LeanRow(
                config=item.config,
                label=item.label,
                mean=float(item.values.mean()),
                n=item.values.size,
                values=tuple(float(value) for value in item.values),
                sd=each.sds[0],
                diff=each.diff,
                ci=clipped(interval, difference_span(bounds)),
                df=each.df if each.p is not None else None,
                p_raw=each.p,
                p_holm=accept,
                p_worse=exclude,
                outcome=outcome,
                seeds_needed=_seeds_needed(asked, each, tried) if is_open else None,
                costs=item.costs,
                saving={name: 1 - item.costs[name] / base.costs[name] for name in asked.costs},
                crash_share=item.crash_share,
                lost=item.lost,
                setting=item.tuned.setting if item.tuned else None,
            )
        )
    return tuple(rows)


def _seeds_needed(asked: _Asked, compared: _Compared, tried: int) -> int | None:
    """Return the seeds of both that would establish the candidate if it equalled the baseline."""
    if not all(math.isfinite(sd) and sd > 0 for sd in compared.sds):
        return None
    # They would be added after this look, and the next one has half its error rate.
    alpha, power = asked.settings.level / 2, asked.settings.power
    return pair_seeds(asked.margin, compared.sds, max(tried, 1), alpha, power)


def _untaught(asked: _Asked) -> str:
    """Return why the baseline cannot be compared with: it is not shown to be better than a constant
    predictor, or not by more than the margin. Empty where it is, or where that is not known."""
    chance, alpha, margin = asked.settings.chance, asked.settings.alpha, asked.margin
    if chance is None:
        return ""
    mean = float(asked.base.values.mean())
    gain = asked.sign * (mean - chance)
    se = math.sqrt(asked.variance_of_mean(asked.at))
    beyond, by_more = (
        float(special.stdtr(asked.spread.df[asked.at], (least - gain) / se))
        for least in (0.0, margin)
    )
    numbers = f"{asked.metric} {mean:.3g}, chance {chance:.3g}"
    if beyond > alpha:
        return f"the baseline has not learned more than a constant predictor ({numbers})"
    if by_more > alpha:
        return (
            "the baseline is not shown to be better than a constant predictor by more than the"
            f" margin ({numbers}, margin {margin:g}), so a shape that has learned nothing would"
            " count as no worse; train it longer or narrow the margin"
        )
    return ""


def _doubt(asked: _Asked, gains: FloatArray) -> str:
    """Return why the baseline may have learned nothing, where a constant predictor's score is not
    known: it is no better than the worst shape tried, nor than at its own first report.

    ``gains`` are what its runs gained between their first and their last report.
    """
    found, alpha = asked.found, asked.settings.alpha
    if gains.size < 2 or len(found) < 2 or _p_above_zero(gains) <= alpha:
        return ""
    others = (k for k in range(len(found)) if k != asked.at)
    worst = min(others, key=lambda k: asked.sign * float(found[k].values.mean()))
    p_worse = asked.compare(worst, 0.0).p_worse
    if p_worse is None or p_worse <= alpha:
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


def _verdict(
    asked: _Asked, rows: Sequence[LeanRow], choice: LeanRow | None, untaught: str
) -> LeanVerdict:
    if not rows:
        return "undecided" if asked.stopped else "no_candidates"
    if all(row.p_raw is None for row in rows):
        return "unsupported"
    if untaught:
        return "untrained"
    if choice is not None:
        return "found"
    is_excluded = not asked.stopped and all(row.outcome == "excluded" for row in rows)
    return "excluded" if is_excluded else "undecided"


def _reason(
    asked: _Asked, verdict: LeanVerdict, rows: Sequence[LeanRow], choice: LeanRow | None
) -> str:
    base, margin, first = asked.base, asked.margin, asked.costs[0]
    if verdict == "no_candidates":
        return f"no shape has a {first} below the baseline's {base.costs[first]:g}"
    if verdict == "unsupported":
        if base.values.size > 1 and any(row.n > 1 for row in rows):
            return (
                "unsupported: no spread between the seeds of the baseline or of every candidate, so"
                " the noise is not measured and no shape can be called equivalent"
            )
        return (
            "unsupported: a single run of the baseline or of every candidate says nothing about"
            " seeds, so no shape can be called equivalent"
        )
    tested = sum(row.p_raw is not None for row in rows)
    family = f"{tested} candidates tested, family-wise error {asked.settings.level:g}"
    if choice is not None:
        return (
            f"{choice.label} saves {choice.saving[first]:.0%} of {first} and is no worse than"
            f" {base.label} by {margin:g} (Holm p = {choice.p_holm:.3g}; {family})"
        )
    if verdict == "excluded":
        return f"every candidate is worse than the baseline by more than {margin:g} ({family})"
    excluded = sum(row.outcome == "excluded" for row in rows)
    dropped = f", {len(asked.stopped)} were stopped early" if asked.stopped else ""
    return (
        f"no candidate is established as no worse than the baseline by {margin:g}: {excluded} are"
        f" worse by more, {len(rows) - excluded} are undecided{dropped} ({family})"
    )


def _missing(asked: _Asked, verdict: LeanVerdict, rows: Sequence[LeanRow]) -> tuple[Missing, ...]:
    """Return the runs that would settle what is open: an equal shape would then be established.

    Shapes that take over 50 seeds are left out: a wider margin is the better advice.
    """
    if verdict not in ("undecided", "unsupported"):
        return ()
    base, have = asked.base, asked.base.values.size
    found: list[Missing] = []
    most = 0
    for row in rows:
        if row.outcome != "undecided":
            continue
        # Without any two runs of a shape nothing is known of the seeds.
        needed = _FEWEST_SEEDS if verdict == "unsupported" else row.seeds_needed
        if needed is None:
            continue
        most = max(most, needed)
        if needed > row.n:
            why = (
                f"a test needs seeds; {needed} show how much they differ"
                if verdict == "unsupported"
                else "an equal shape would be established with probability "
                f"{asked.settings.power:g} by {needed} seeds"
            )
            found.append(Missing(row.config, needed - row.n, why))
    found += [
        Missing(each.config, each.stopped, "stopped early, so not compared")
        for each in asked.stopped
    ]
    if most > have:
        why = "the baseline needs as many seeds as what is compared with it"
        found.insert(0, Missing(base.config, most - have, why))
    return tuple(found)


def _power_note(asked: _Asked, tested: int) -> str:
    if asked.sd is None:
        return (
            f"with {asked.gap} of the baseline there is no seed sd; run at least 3 different seeds,"
            " better 5"
        )
    if not tested:
        return "nothing was tested"
    settings, ratio, n = asked.settings, asked.margin / asked.sd, asked.base.values.size
    tried = tested + len(asked.stopped)
    chance = power(ratio, n, tried, settings.level)
    words = "one candidate" if tried == 1 else f"{tried} candidates"
    note = (
        f"margin = {ratio:.2g} seed sd; with {n} seeds and {words} an exactly"
        f" equal shape is found with probability {chance:.2f}"
    )
    if chance >= settings.power:
        return note
    enough = seeds_for(ratio, tried, settings.level, settings.power)
    wanted = f"{settings.power:.2f}"
    if enough is None:
        return f"{note}; over {MOST_SEEDS} seeds would be needed for {wanted}, so widen the margin"
    return f"{note}; {enough} seeds would give {wanted}"


def _confirm(asked: _Asked, rows: Sequence[LeanRow], choice: LeanRow | None) -> str:
    """Return what to run to confirm the choice; nothing where there was no choice to make."""
    if choice is None or asked.sd is None or len(rows) + len(asked.stopped) < 2:
        return ""
    seeds = confirming_seeds(asked.margin / asked.sd, asked.settings.alpha)
    return (
        f"run {choice.label} and {asked.base.label} with {seeds} fresh seeds each and test these"
        " alone: the choice was made among several, which inflates its estimate"
    )
