"""One reading of a sweep: from cell values to a verdict with everything a picture needs."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from analysis.questions.transition.cells import Cells, Grid
from analysis.questions.transition.coverage import Coverage
from analysis.questions.transition.lengths import (
    Slopes,
    fit_slopes,
    independence,
    interval,
    law_weights,
    mean_levels,
    pool_slopes,
)
from analysis.questions.transition.location import (
    Location,
    find_location,
    smallest_set,
    star_probabilities,
)
from analysis.questions.transition.result import (
    CLAIMS,
    CellValue,
    DropStep,
    Estimate,
    LengthIndependence,
    RetrievalDimension,
    TransitionReading,
    TransitionSettings,
)
from analysis.questions.transition.verdict import Decision, Evidence, Limits, decide
from analysis.statistics.abruptness import abruptness_p
from analysis.statistics.values import FloatArray, Interval
from analysis.values import Number, number


@dataclass(frozen=True, slots=True)
class Context:
    """What a reading needs besides its cells.

    Attributes:
        settings: with every threshold filled in.
        limits: the thresholds that decide.
        d_min: smallest next drop that can move h* up.
        head_sd: scatter of single head counts that no seed shows.
        layers: attention layers of the models.
        counts_heads: the searched axis counts heads, so a retrieval dimension makes sense.
        has_by: the sweep has a modulating axis.
        coverage: which trials ended how.
    """

    settings: TransitionSettings
    limits: Limits
    d_min: float
    head_sd: float
    layers: int
    counts_heads: bool
    has_by: bool
    coverage: Coverage


def read(cells: Cells, context: Context) -> tuple[TransitionReading, bool]:
    """Return the analysis of one reading, and whether it lacks lengths."""
    blank = _blank(cells, context)
    heads = cells.grid.heads
    refusal = context.coverage.refusal
    if context.coverage.pruned_out or len(heads) < 2:
        reason = refusal or f"{len(heads)} head count(s) cannot show a collapse"
        if context.coverage.pruned_out:
            reason += "; early stopping chose which, so what is left is not a fair sample"
        return replace(blank, reason=reason), False
    settings, limits = context.settings, context.limits
    rng = np.random.default_rng([settings.rng_seed, 0 if cells.best_of is None else 1])
    location = find_location(cells.z, settings.rho, context.d_min)
    if location is None:
        return replace(blank, reason="no two neighbouring head counts share a length"), False
    slopes = fit_slopes(cells)
    level, variance = mean_levels(cells, slopes)
    gap = cells.noise.gap_beside(location.peak, heads)
    # Draws by a noise that nobody has measured would look like knowledge of the place.
    p_h = None
    if not gap:
        p_h = star_probabilities(cells, settings.rho, context.d_min, settings.B, rng)
    testable = len(heads) >= 4 and location.peak >= 2
    p_abrupt = None
    if testable:
        p_abrupt = abruptness_p(
            heads,
            level,
            variance + context.head_sd**2,
            cells.noise.df,
            slopes.df,
            settings.n_mc,
            rng,
        )
    index = np.arange(len(heads))
    below = pool_slopes(slopes, index < location.star)
    above = pool_slopes(slopes, index >= location.star)
    excess = _excess(heads, location)
    later_fall = _later_fall(level, variance, location.star, slopes, context)
    evidence = Evidence(
        h_star=f"{heads[location.star]:g}",
        star=location.star,
        noise_gap=gap,
        noise_words=cells.noise.words(limits.unit),
        drop=location.drop,
        width=location.star - location.peak + 1,
        excess=excess,
        later_fall=later_fall,
        p_abrupt=p_abrupt,
        below=below,
        above=above,
        slopes=slopes,
        asks_about_growth=context.has_by,
        num_lengths=len(cells.grid.lengths),
    )
    decision = decide(evidence, limits)
    if refusal:
        decision = Decision("inconclusive", refusal)
    elif len(heads) < 3:
        decision = Decision("inconclusive", "two head counts cannot tell a collapse from a decline")
    success, h_50 = _success(cells.grid, level, location)
    star, before = heads[location.star], heads[location.star - 1]
    return replace(
        blank,
        verdict=decision.verdict,
        reason=decision.reason,
        none_kind=decision.none_kind,
        noise_gap=gap,
        h_star=number(star),
        bracket=(number(before), number(star)),
        h_peak=number(heads[location.peak]),
        width=location.star - location.peak + 1,
        h_set=blank.h_set
        if p_h is None
        else tuple(number(heads[k]) for k in smallest_set(p_h, settings.set_mass)),
        p_h={}
        if p_h is None
        else {number(head): float(share) for head, share in zip(heads, p_h, strict=True)},
        p_abrupt=p_abrupt,
        abrupt_testable=testable,
        drop=location.drop,
        excess=excess,
        later_fall=later_fall,
        drops=_drop_steps(cells, location),
        gamma={
            number(heads[k]): interval(
                float(slopes.estimate[k]), float(slopes.se[k]), slopes, settings.alpha
            )
            for k in index
            if np.isfinite(slopes.estimate[k])
        },
        gamma_below=interval(below.estimate, below.se, slopes, settings.alpha) if below else None,
        gamma_above=interval(above.estimate, above.se, slopes, settings.alpha) if above else None,
        h_T=_length_independence(heads, slopes, limits),
        law_weights=law_weights(cells, index < location.star),
        level={
            number(heads[k]): Estimate(float(level[k]), float(np.sqrt(variance[k]))) for k in index
        },
        phi=slopes.phi,
        success=success,
        h_50=h_50,
        d_eff=_dimension(decision, before, star, heads, context),
        per_T=_stars_alone(cells, context),
    ), decision.needs_lengths


def _blank(cells: Cells, context: Context) -> TransitionReading:
    """Return a reading that says nothing: no head count of the sweep is excluded."""
    swept = sorted({cell.x for cell in context.coverage.counts})
    heads, lengths = cells.grid.heads, cells.grid.lengths
    return TransitionReading(
        verdict="inconclusive",
        reason="",
        none_kind=None,
        noise_gap=cells.noise.gap,
        reading=cells.reading,
        h_star=None,
        bracket=None,
        h_peak=None,
        width=None,
        h_set=tuple(swept),
        p_h={},
        p_abrupt=None,
        abrupt_testable=False,
        drop=None,
        excess=None,
        later_fall=None,
        drops=(),
        gamma={},
        gamma_below=None,
        gamma_above=None,
        h_T=LengthIndependence(None, None, None),
        law_weights={},
        level={},
        seed_sd={number(head): float(sd) for head, sd in zip(heads, cells.noise.sd, strict=True)},
        phi=1.0,
        cells=tuple(
            CellValue(
                number(heads[k]),
                None if np.isnan(lengths[j]) else number(lengths[j]),
                float(cells.z[k, j]),
                cells.grid.runs[k][j].size,
            )
            for k in range(len(heads))
            for j in range(len(lengths))
            if cells.grid.runs[k][j].size
        ),
        success={},
        h_50=None,
        d_eff=None,
        per_T={},
    )


def _excess(heads: FloatArray, location: Location) -> float:
    """Return the drop at the peak beyond the median earlier drop per head over the same step."""
    steps = np.diff(heads)
    at = location.peak - 1
    earlier = (location.drops / steps)[:at]
    earlier = earlier[np.isfinite(earlier)]
    usual = float(np.median(earlier)) if earlier.size else 0.0
    return float(location.drops[at] - usual * steps[at])


def _later_fall(
    level: FloatArray, variance: FloatArray, star: int, slopes: Slopes, context: Context
) -> float | None:
    """Return the largest upper bound of the fall from h* to a later head count, None without one.

    Each bound is one-sided at level alpha; every one of them must be small for "no further fall",
    so no correction is needed (intersection-union).
    """
    if star + 1 >= len(level):
        return None
    se = np.sqrt(variance[star] + variance[star + 1 :] + 2 * context.head_sd**2)
    reach = slopes.quantile(1 - context.settings.alpha) * se
    return float(np.max(level[star] - level[star + 1 :] + reach))


def _drop_steps(cells: Cells, location: Location) -> tuple[DropStep, ...]:
    heads, lengths = cells.grid.heads, cells.grid.lengths
    steps = []
    for k in range(1, len(heads)):
        difference = cells.z[k - 1] - cells.z[k]
        drop = float(location.drops[k - 1])
        steps.append(
            DropStep(
                number(heads[k - 1]),
                number(heads[k]),
                drop,
                drop / float(heads[k] - heads[k - 1]),
                {
                    number(length): float(value)
                    for length, value in zip(lengths, difference, strict=True)
                    if np.isfinite(value) and np.isfinite(length)
                },
            )
        )
    return tuple(steps)


def _length_independence(heads: FloatArray, slopes: Slopes, limits: Limits) -> LengthIndependence:
    lo, hi = independence(slopes, limits.delta_T, limits.alpha)
    if lo is None or hi is None:
        return LengthIndependence(None, None, None)
    return LengthIndependence(number(heads[hi]), number(heads[lo]), number(heads[hi]))


def _success(
    grid: Grid, level: FloatArray, location: Location
) -> tuple[dict[Number, Interval], Number | None]:
    """Return the share of runs below the middle of the collapse, and the h where half succeed."""
    middle = float(level[location.star - 1] + level[location.star]) / 2
    rates: dict[Number, Interval] = {}
    weights = []
    for head, row in zip(grid.heads, grid.runs, strict=True):
        runs = np.concatenate(row)
        wins, n = int(np.sum(runs < middle)), runs.size
        low, high = (stats.beta.ppf(q, wins + 0.5, n - wins + 0.5) for q in (0.025, 0.975))
        rates[number(head)] = Interval(
            wins / n,
            0.0 if wins == 0 else float(low),
            1.0 if wins == n else float(high),
        )
        weights.append(n)
    rising = optimize.isotonic_regression(
        [rate.estimate for rate in rates.values()], weights=weights
    ).x
    reached = np.flatnonzero(rising >= 0.5 - 1e-9)
    return rates, number(grid.heads[reached[0]]) if reached.size else None


def _dimension(
    decision: Decision, before: float, star: float, heads: FloatArray, context: Context
) -> RetrievalDimension | None:
    """Return D in (L h_before, L h*], D <= L h* on a plateau from h* on, or D > L h_K when the
    collapse lies above the range.

    One layer needs h >= D (paper H); for more layers L h >= D is a conjecture from its ablation.
    """
    layers = context.layers
    if not context.counts_heads or any(not float(head).is_integer() for head in heads):
        return None
    if decision.verdict in CLAIMS:
        return RetrievalDimension(int(before) * layers + 1, int(star) * layers, layers, layers > 1)
    if decision.verdict == "plateau":
        return RetrievalDimension(1, int(star) * layers, layers, layers > 1)
    if decision.none_kind == "above_range":
        return RetrievalDimension(int(heads[-1]) * layers + 1, None, layers, layers > 1)
    return None


def _stars_alone(cells: Cells, context: Context) -> dict[Number, Number]:
    """Return h* located at each T alone."""
    heads = cells.grid.heads
    stars: dict[Number, Number] = {}
    for j, length in enumerate(cells.grid.lengths):
        present = ~np.isnan(cells.z[:, j])
        alone = find_location(cells.z[present, j][:, None], context.settings.rho, context.d_min)
        if alone is not None and np.isfinite(length):
            stars[number(length)] = number(heads[present][alone.star])
    return stars
