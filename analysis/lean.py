"""Which cheaper shapes are established as no worse than the baseline by a stated margin?

Non-inferiority, not equality: "its mean reaches the baseline's minus the margin" is wrong nine
times in ten when every smaller model sits exactly at the margin and the best-looking one is picked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pandas as pd
from scipy import stats

from analysis.findings.results import AxisValue, Interval, LeanResult, LeanRow, LeanSettings
from analysis.runs.columns import RunColumns
from analysis.runs.configurations import Configuration, Grouped, describe, group_configurations
from analysis.statistics.moderated import Moderated, moderate
from hsweep.design.question import Goal
from hsweep.errors import UserError

_DEFAULT_SETTINGS = LeanSettings()
_MOST_SEEDS = 200


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A candidate against the baseline; ``diff`` is positive where the candidate is better."""

    item: Configuration
    diff: float
    se: float
    df: float
    sd: float
    p: float | None


def fit(
    table: pd.DataFrame,
    *,
    baseline: Mapping[str, AxisValue],
    margin: float,
    config: Sequence[str],
    metric: str,
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    settings: LeanSettings = _DEFAULT_SETTINGS,
    **columns: Unpack[RunColumns],
) -> LeanResult:
    """Test every shape whose first cost is below the baseline's for being no worse than ``margin``.

    Args:
        table: one row a run.
        baseline: axis values that pick exactly one shape.
        margin: how much worse still counts as equal, in the metric's own unit, above 0.
        config: columns that name a shape.
        metric: column of the result.
        goal: whether it is minimised or maximised.
        costs: columns to save; the first decides what is cheaper.
        settings: error rate, interval level, crash screening.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a margin that is not a positive number, a baseline that picks no or several
            shapes, or a table that cannot be used.
    """
    if not (isinstance(margin, int | float) and math.isfinite(margin) and margin > 0):
        raise UserError(
            f"margin must be a positive number in the unit of {metric!r}, not {margin!r}"
        )
    grouped = group_configurations(
        table,
        config=config,
        metric=metric,
        goal=goal,
        costs=costs,
        crash_sd=settings.crash_sd,
        **columns,
    )
    found, warnings = grouped.found, grouped.warnings
    at = _find_baseline(grouped, baseline, config)
    base = found[at]
    sign = 1.0 if goal == "max" else -1.0
    spread = moderate([sign * item.values for item in found], settings.max_prior_df)
    first = costs[0]
    compared = [
        _compare(found, spread, k, at, sign, margin)
        for k, item in enumerate(found)
        if item.costs[first] < base.costs[first]
    ]
    # A cheaper shape that early stopping dropped was tried as well.
    dropped = sum(costs_of[first] < base.costs[first] for _, costs_of in grouped.stopped)
    holm = _holm([comparison.p for comparison in compared], dropped)
    rows = tuple(
        _row(comparison, p_holm, base, costs, settings)
        for comparison, p_holm in zip(compared, holm, strict=True)
    )
    accepted = [row for row in rows if row.accepted]
    choice = min(accepted, key=lambda row: (row.costs[first], -row.diff)) if accepted else None
    tested = sum(comparison.p is not None for comparison in compared)
    untested = len(compared) - tested
    if untested and tested:
        warnings.append(f"{untested} candidates have a single run and are not tested")
    sd = float(spread.sd[at]) if base.values.size > 1 else None
    reason = _reason(rows, tested, base, margin, settings, choice, first)
    if choice is not None and choice.crash_share > 0:
        warnings.append(
            f"{choice.crash_share:.0%} of the runs of {choice.label} crashed or failed and are left"
            " out of its mean: it is as good only where it trains"
        )
    return LeanResult(
        verdict="found" if choice else "none_found" if tested or not rows else "unsupported",
        reason=reason,
        baseline=base.config,
        baseline_label=base.label,
        baseline_mean=float(base.values.mean()),
        baseline_values=tuple(float(value) for value in base.values),
        baseline_n=base.values.size,
        baseline_costs=base.costs,
        margin=float(margin),
        sd=sd,
        margin_over_sd=margin / sd if sd else None,
        table=rows,
        choice=choice.label if choice else None,
        choice_config=choice.config if choice else None,
        power_note=_power_note(base, spread, sd, margin, tested, settings.alpha),
        confirm=_confirm(choice, base, sd, margin, settings.alpha, len(rows) + dropped),
        metric=metric,
        goal=goal,
        costs=tuple(costs),
        settings=settings,
        warnings=tuple(warnings),
        baseline_lost=base.lost,
    )


def power(margin_over_sd: float, n: int, candidates: int, alpha: float, prior_df: float) -> float:
    """Return the chance to establish one exactly equal candidate with n seeds each.

    The other candidates are taken to be hopeless, so that the first step of Holm, alpha over their
    number, applies.
    """
    df = min(2 * (n - 1) + prior_df, 1e6)
    critical = float(stats.t.ppf(1 - alpha / candidates, df))
    return float(stats.nct.sf(critical, df, margin_over_sd / math.sqrt(2 / n)))


def _find_baseline(
    grouped: Grouped, baseline: Mapping[str, AxisValue], config: Sequence[str]
) -> int:
    foreign = [name for name in baseline if name not in config]
    if foreign or not baseline:
        named = ", ".join(foreign) or "no axis"
        raise UserError(f"the baseline names {named}; the axes are {', '.join(config)}")
    found = grouped.found
    matches = [k for k, item in enumerate(found) if _is_at(item.config, baseline)]
    if len(matches) == 1:
        return matches[0]
    words = describe(dict(baseline))
    if not matches and any(_is_at(values, baseline) for values, _ in grouped.stopped):
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


def _compare(
    found: list[Configuration], spread: Moderated, k: int, at: int, sign: float, margin: float
) -> _Comparison:
    item, base = found[k], found[at]
    means = float(item.values.mean()), float(base.values.mean())
    # The same values in another order may add up to a last digit of difference.
    diff = 0.0 if math.isclose(*means, rel_tol=1e-12) else sign * (means[0] - means[1])
    own, ref = (float(spread.sd[i] ** 2 / found[i].values.size) for i in (k, at))
    se = math.sqrt(own + ref) if math.isfinite(own + ref) else math.nan
    sd = float(spread.sd[k])
    if item.values.size < 2 or base.values.size < 2:
        return _Comparison(item, diff, math.nan, math.nan, sd, None)
    df = (own + ref) ** 2 / (own**2 / spread.df[k] + ref**2 / spread.df[at])
    return _Comparison(item, diff, se, float(df), sd, float(stats.t.sf((diff + margin) / se, df)))


def _holm(p_values: list[float | None], dropped: int = 0) -> list[float | None]:
    """Return Holm's adjusted p values; None stays None and does not count.

    Args:
        p_values: one a candidate.
        dropped: further candidates that were tried and given up; they count as not accepted.
    """
    order = sorted(
        (k for k, p in enumerate(p_values) if p is not None), key=lambda k: p_values[k] or 0.0
    )
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(1.0, (len(order) + dropped - rank) * (p_values[k] or 0.0)))
        adjusted[k] = highest
    return adjusted


def _row(
    comparison: _Comparison,
    p_holm: float | None,
    base: Configuration,
    costs: Sequence[str],
    settings: LeanSettings,
) -> LeanRow:
    item = comparison.item
    reach = comparison.se * float(stats.t.ppf((1 + settings.confidence) / 2, comparison.df))
    return LeanRow(
        config=item.config,
        label=item.label,
        mean=float(item.values.mean()),
        n=item.values.size,
        values=tuple(float(value) for value in item.values),
        sd_eb=comparison.sd,
        diff=comparison.diff,
        ci=Interval(comparison.diff, comparison.diff - reach, comparison.diff + reach),
        df=comparison.df if comparison.p is not None else None,
        p_raw=comparison.p,
        p_holm=p_holm,
        accepted=p_holm is not None and p_holm <= settings.alpha,
        costs=item.costs,
        saving={name: 1 - item.costs[name] / base.costs[name] for name in costs},
        crash_share=item.crash_share,
        lost=item.lost,
    )


def _reason(
    rows: tuple[LeanRow, ...],
    tested: int,
    base: Configuration,
    margin: float,
    settings: LeanSettings,
    choice: LeanRow | None,
    first: str,
) -> str:
    if not rows:
        return f"no shape has a {first} below the baseline's {base.costs[first]:g}"
    if not tested:
        return (
            "unsupported: a single run of the baseline or of every candidate says nothing about"
            " seeds, so no shape can be called equivalent"
        )
    family = f"{tested} candidates tested, family-wise error {settings.alpha:g}"
    if choice is None:
        return f"no candidate is established as no worse than the baseline by {margin:g} ({family})"
    return (
        f"{choice.label} saves {choice.saving[first]:.0%} of {first} and is no worse than"
        f" {base.label} by {margin:g} (Holm p = {choice.p_holm:.3g}; {family})"
    )


def _power_note(
    base: Configuration,
    spread: Moderated,
    sd: float | None,
    margin: float,
    tested: int,
    alpha: float,
) -> str:
    if sd is None:
        return "with one run of the baseline there is no seed sd; run at least 3 seeds, better 5"
    if not tested:
        return "nothing was tested"
    n = base.values.size
    prior_df = 0.0 if spread.prior_df is None else spread.prior_df
    chance = power(margin / sd, n, tested, alpha, prior_df)
    tried = "one candidate" if tested == 1 else f"{tested} candidates"
    note = (
        f"margin = {margin / sd:.2g} seed sd; with {n} seeds and {tried} an exactly"
        f" equal shape is found with probability {chance:.2f}"
    )
    if chance >= 0.8:
        return note
    enough = seeds_for(margin / sd, tested, alpha, 0.8, prior_df)
    if enough is None:
        return f"{note}; over {_MOST_SEEDS} seeds would be needed for 0.80, so widen the margin"
    return f"{note}; {enough} seeds would give 0.80"


def _confirm(
    choice: LeanRow | None,
    base: Configuration,
    sd: float | None,
    margin: float,
    alpha: float,
    tried: int,
) -> str:
    """Return what to run to confirm the choice; nothing where there was no choice to make."""
    if choice is None or sd is None or tried < 2:
        return ""
    seeds = confirming_seeds(margin / sd, alpha)
    return (
        f"run {choice.label} and {base.label} with {seeds} fresh seeds each and test these alone:"
        " the choice was made among several, which inflates its estimate"
    )


def confirming_seeds(margin_over_sd: float, alpha: float) -> int:
    """Return the seeds with which a confirmation of one equal shape succeeds nine times in ten.

    One more than ``power`` asks for: two shapes alone lend each other no variance, and unequal
    sample variances cost degrees of freedom.
    """
    return max((seeds_for(margin_over_sd, 1, alpha, 0.9) or _MOST_SEEDS) + 1, 3)


def seeds_for(
    margin_over_sd: float, candidates: int, alpha: float, target: float, prior_df: float = 0.0
) -> int | None:
    """Return the fewest seeds with which ``power`` reaches ``target``; None if over 200."""
    for n in range(2, _MOST_SEEDS + 1):
        if power(margin_over_sd, n, candidates, alpha, prior_df) >= target:
            return n
    return None
