"""One reading of a sweep: from cell values to a verdict with everything a picture needs."""

from dataclasses import replace

import numpy as np

from analysis.questions.transition.cells import Cells
from analysis.questions.transition.lengths import (
    Slopes,
    fit_slopes,
    independence,
    mean_levels,
    pool_slopes,
)
from analysis.questions.transition.location import (
    Location,
    find_location,
    smallest_set,
    star_probabilities,
    step_drops,
)
from analysis.questions.transition.result import (
    CLAIMS,
    CellValue,
    DropStep,
    Estimate,
    LengthIndependence,
    RetrievalDimension,
    TransitionReading,
)
from analysis.questions.transition.verdict import (
    Context,
    Decision,
    Growth,
    decide,
    noise_words,
)
from analysis.statistics.abruptness import abruptness_p
from analysis.statistics.values import FloatArray
from analysis.values import Number, number
from hsweep.design.question import Scale


def read(cells: Cells, context: Context) -> tuple[TransitionReading, bool]:
    """Return the analysis of one reading, and whether it lacks lengths."""
    blank = _blank(cells, context)
    heads = cells.grid.heads
    refusal = context.coverage.refusal
    if context.coverage.pruned_out or len(heads) < 2:
        reason = refusal or f"{_number_of(len(heads), context.x)} cannot show a collapse"
        if context.coverage.pruned_out:
            reason += "; early stopping chose which, so what is left is not a fair sample"
        return replace(blank, reason=reason), False
    settings, limits = context.settings, context.limits
    rng = np.random.default_rng([settings.rng_seed, 0 if cells.best_of is None else 1])
    location = find_location(cells.z, settings.rho, limits.d_min)
    if location is None:
        return replace(
            blank, reason=f"no two neighbouring values of {context.x} share one of {context.by}"
        ), False
    peak, star = location.peak, location.star
    slopes = fit_slopes(cells)
    level, variance = mean_levels(cells, slopes)
    gap = cells.noise.gap_beside(peak, heads)
    p_h, h_set = {}, blank.h_set
    # Draws by a noise that nobody has measured would look like knowledge of the place.
    if not gap:
        shares = star_probabilities(cells, settings.rho, limits.d_min, settings.B, rng)
        p_h = {number(head): float(share) for head, share in zip(heads, shares, strict=True)}
        h_set = tuple(number(heads[k]) for k in smallest_set(shares, settings.set_mass))
    testable = len(heads) >= 4 and peak >= 2
    p_abrupt = None
    if testable:
        noise = variance + limits.head_sd**2
        p_abrupt = abruptness_p(heads, level, noise, cells.noise.df, slopes.df, settings.n_mc, rng)
    index = np.arange(len(heads))
    below, above = (pool_slopes(slopes, side) for side in (index < star, index >= star))
    found = replace(
        blank,
        noise_gap=gap,
        h_star=number(heads[star]),
        bracket=(number(heads[star - 1]), number(heads[star])),
        h_peak=number(heads[peak]),
        width=star - peak + 1,
        h_set=h_set,
        p_h=p_h,
        p_abrupt=p_abrupt,
        abrupt_testable=testable,
        drop=location.drop,
        excess=_excess(heads, location),
        later_fall=_later_fall(level, variance, star, slopes, context),
        drops=_drop_steps(cells, location, context.scale),
        gamma={
            number(heads[k]): slopes.interval(
                float(slopes.estimate[k]), float(slopes.se[k]), settings.alpha
            )
            for k in index
            if np.isfinite(slopes.estimate[k])
        },
        gamma_below=slopes.interval(below.estimate, below.se, settings.alpha) if below else None,
        gamma_above=slopes.interval(above.estimate, above.se, settings.alpha) if above else None,
        flat_from=_length_independence(heads, slopes, context),
        level={
            number(heads[k]): Estimate(float(level[k]), float(np.sqrt(variance[k]))) for k in index
        },
        phi=slopes.phi,
        h_star_at=_stars_alone(cells, context),
    )
    growth = Growth(slopes, below, above, len(cells.grid.lengths))
    decision = decide(found, growth, noise_words(cells.noise, context.scale), context)
    if refusal:
        decision = Decision("inconclusive", refusal)
    elif len(heads) < 3:
        few = _number_of(len(heads), context.x)
        decision = Decision("inconclusive", f"{few} cannot tell a collapse from a decline")
    return replace(
        found,
        verdict=decision.verdict,
        reason=decision.reason,
        none_kind=decision.none_kind,
        d_eff=_dimension(decision, heads[star - 1], heads[star], heads, context),
    ), decision.needs_lengths


def _number_of(values: int, axis: str) -> str:
    return f"{values} value{'' if values == 1 else 's'} of {axis}"


def _blank(cells: Cells, context: Context) -> TransitionReading:
    """Return a reading that says nothing: no head count of the sweep is excluded."""
    heads, lengths = cells.grid.heads, cells.grid.lengths
    return TransitionReading(
        noise_gap=cells.noise.gap,
        reading="typical" if cells.best_of is None else "attainable",
        h_set=tuple(sorted({cell.x for cell in context.coverage.counts})),
        seed_sd={number(head): float(sd) for head, sd in zip(heads, cells.noise.sd, strict=True)},
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
    se = np.sqrt(variance[star] + variance[star + 1 :] + 2 * context.limits.head_sd**2)
    reach = slopes.quantile(1 - context.settings.alpha) * se
    return float(np.max(level[star] - level[star + 1 :] + reach))


def _drop_steps(cells: Cells, location: Location, scale: Scale) -> tuple[DropStep, ...]:
    points = step_drops(100 * 10**cells.z) if scale == "accuracy" else None
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
                points=None if points is None else float(points[k - 1]),
            )
        )
    return tuple(steps)


def _length_independence(heads: FloatArray, slopes: Slopes, context: Context) -> LengthIndependence:
    lo, hi = independence(slopes, context.limits.max_growth, context.settings.alpha)
    if lo is None or hi is None:
        return LengthIndependence()
    return LengthIndependence(number(heads[hi]), number(heads[lo]), number(heads[hi]))


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
    heads = cells.grid.heads
    stars: dict[Number, Number] = {}
    for j, length in enumerate(cells.grid.lengths):
        present = ~np.isnan(cells.z[:, j])
        column = cells.z[present, j][:, None]
        alone = find_location(column, context.settings.rho, context.limits.d_min)
        if alone is not None and np.isfinite(length):
            stars[number(length)] = number(heads[present][alone.star])
    return stars
