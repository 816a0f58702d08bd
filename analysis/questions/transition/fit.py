"""At which head count does the error collapse, and is that more than diminishing returns?

Location and existence are two procedures: the largest drop finds the place well and proves nothing;
a test against every convex decline decides whether there is anything to find.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Unpack

import numpy as np
import pandas as pd

from analysis.questions.transition.cells import Grid, read_cells, seed_noise
from analysis.questions.transition.coverage import (
    Coverage,
    audit,
    trials_below,
    trials_for_more_heads,
    trials_for_more_lengths,
    trials_to_fill,
    trials_to_repeat,
)
from analysis.questions.transition.reading import read
from analysis.questions.transition.result import (
    CLAIMS,
    LIMITS,
    MissingTrials,
    RetrievalDimension,
    RunValue,
    TransitionReading,
    TransitionResult,
    TransitionSettings,
)
from analysis.questions.transition.run_table import RunTable
from analysis.questions.transition.table import build_grid, canonical
from analysis.questions.transition.verdict import Context, noise_words
from analysis.runs.columns import RunColumns
from analysis.runs.table import Runs
from analysis.values import number
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError

_DEFAULT_SETTINGS = TransitionSettings()


def fit(
    table: pd.DataFrame | Runs | RunTable,
    *,
    metric: str | None = None,
    x: str = "heads",
    by: str | None = "seq_len",
    goal: Goal = "min",
    scale: Scale = "error",
    eval_size: int | None = None,
    nuisance: Sequence[str] = (),
    layers: int = 1,
    settings: TransitionSettings = _DEFAULT_SETTINGS,
    **columns: Unpack[RunColumns],
) -> TransitionResult:
    """Fit the transition of ``metric`` along ``x``, modulated by ``by``.

    Args:
        table: one row a run; or `Runs`, which carry metric and columns; or a `RunTable`, which
            carries the arguments up to ``nuisance``.
        x: ordered axis that is searched.
        by: modulating axis, or None for a sweep at one length.
        scale: error, accuracy or loss (see `analysis.runs.scale`).
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes whose settings compete within a cell.
        layers: attention layers of the models, for the retrieval dimension.
        settings: levels, thresholds, draws and the seed.

    Raises:
        UserError: a table that cannot be used, with what to change.
    """
    if not isinstance(table, RunTable):
        table = canonical(
            Runs.of(table, metric, columns),
            x=x,
            by=by,
            goal=goal,
            scale=scale,
            eval_size=eval_size,
            nuisance=nuisance,
        )
    if layers < 1:
        raise UserError(f"layers must be at least 1, not {layers!r}")
    limits = settings.limits(table.scale)
    settings = replace(settings, **{name: getattr(limits, name) for name in LIMITS})
    coverage = audit(table, settings.min_cell_share)
    grid = build_grid(table)
    axes = (table.x, table.by)
    context = Context(settings, limits, table.scale, layers, "head" in table.x, *axes, coverage)
    noise = seed_noise(grid, limits, settings.assumed_sd)
    typical, needs_lengths = read(read_cells(grid, noise, None), context)
    attainable: TransitionReading | None = None
    best_of = 0 if coverage.pruned_inside else _smallest_count(grid)
    if coverage.pruned_inside or best_of >= 2:
        attainable, also = read(read_cells(grid, noise, best_of), context)
        needs_lengths |= also
    leading = _leading(typical, attainable, grid, best_of, context)

    qualifications = [
        *_noise_notes(leading, noise_words(noise, context.scale)),
        *_reading_notes(leading, typical, best_of, context),
        *table.warnings,
        *coverage.qualifications,
    ]
    return TransitionResult(
        **{field.name: getattr(leading, field.name) for field in fields(TransitionReading)},
        typical=typical,
        attainable=attainable,
        x=table.x,
        by=table.by,
        metric=table.metric,
        goal=table.goal,
        scale=table.scale,
        runs=_run_values(table.frame),
        counts=coverage.counts,
        missing=_missing(leading, coverage, needs_lengths, grid),
        n1_assumed_sd=noise.stand_in if len(grid.heads) else None,
        settings=settings,
        qualifications=tuple(dict.fromkeys(qualifications)),
        warnings=tuple(dict.fromkeys([*qualifications, *coverage.warnings])),
        nuisance=table.nuisance,
    )


def common_dimension(dimensions: Sequence[RetrievalDimension]) -> RetrievalDimension | None:
    """Return the intersection of several sweeps' dimensions, or None where they disagree.

    Raises:
        UserError: no dimension given.
    """
    if not dimensions:
        raise UserError("need at least one retrieval dimension to intersect")
    lo = max(dimension.lo for dimension in dimensions)
    bounds = [dimension.hi for dimension in dimensions if dimension.hi is not None]
    hi = min(bounds) if bounds else None
    if hi is not None and hi < lo:
        return None
    return RetrievalDimension(
        lo,
        hi,
        max(dimension.layers for dimension in dimensions),
        any(dimension.conjecture for dimension in dimensions),
    )


def _smallest_count(grid: Grid) -> int:
    counts = grid.counts
    return int(counts[counts > 0].min()) if (counts > 0).any() else 0


def _leading(
    typical: TransitionReading,
    attainable: TransitionReading | None,
    grid: Grid,
    best_of: int,
    context: Context,
) -> TransitionReading:
    """Return the reading that leads: attainable when runs get stuck or were selected."""
    wish = context.settings.reading
    if attainable is None or wish == "typical":
        return typical
    if wish == "attainable" or context.coverage.pruned_inside:
        return attainable
    if best_of < 3:
        return typical
    share = _stuck_share(attainable, grid, context)
    return attainable if share >= context.settings.stuck_share else typical


def _stuck_share(reading: TransitionReading, grid: Grid, context: Context) -> float:
    """Return the share of runs at h >= h* that lie over half the drop above their cell's best."""
    if reading.h_star is None or reading.drop is None or reading.drop < context.limits.min_drop:
        return 0.0
    rows = [row for head, row in zip(grid.heads, grid.runs, strict=True) if head >= reading.h_star]
    behind = np.concatenate([cell - cell.min() for row in rows for cell in row if cell.size])
    return float(np.mean(behind > reading.drop / 2))


def _run_values(frame: pd.DataFrame) -> tuple[RunValue, ...]:
    done = frame.loc[frame["complete"]]
    columns = (done[name].tolist() for name in ("x", "by", "replicate", "value", "y"))
    return tuple(
        RunValue(number(x), None if np.isnan(by) else number(by), str(replicate), value, y)
        for x, by, replicate, value, y in zip(*columns, strict=True)
    )


def _noise_notes(leading: TransitionReading, stands_in: str) -> list[str]:
    """Say what rests on noise that is not measured, where the answer does not say it itself."""
    if not leading.noise_gap or leading.verdict in ("suggested", "inconclusive"):
        return []
    return [
        f"{leading.noise_gap}: the noise between seeds is not measured; p values and intervals go"
        f" by {stands_in}"
    ]


def _reading_notes(
    leading: TransitionReading, typical: TransitionReading, best_of: int, context: Context
) -> list[str]:
    """Say that the answer is not that of the typical run; where runs were stopped inside cells the
    coverage says it."""
    if leading.reading == "typical" or context.coverage.pruned_inside:
        return []
    asked = context.settings.reading == "attainable"
    why = "as asked for" if asked else "since some runs stay far behind their cell's best"
    is_placed = typical.verdict in (*CLAIMS, "plateau", "suggested")
    place = f" at {typical.h_star:g}" if is_placed and typical.h_star is not None else ""
    return [
        f"the answer is that of the expected best of {best_of} seeds, {why}; that of the median"
        f" seed is {typical.verdict.replace('_', ' ')}{place}"
    ]


def _missing(
    leading: TransitionReading, coverage: Coverage, needs_lengths: bool, grid: Grid
) -> tuple[MissingTrials, ...]:
    # With nothing but more cells of one seed an open verdict would only become a suggestion, and
    # one seed does not rule a collapse out either.
    repeated = trials_to_repeat(coverage) if leading.noise_gap else ()
    if leading.verdict in ("suggested", "none"):
        return repeated
    if leading.verdict == "plateau":
        return trials_below(coverage)
    if leading.verdict != "inconclusive":
        return ()
    num_heads = len(grid.heads)
    if num_heads < 3 and not coverage.refusal:
        return (*repeated, *trials_for_more_heads(coverage, 4 - num_heads))
    if needs_lengths and not coverage.refusal:
        return (*repeated, *trials_for_more_lengths(coverage))
    return repeated or trials_to_fill(coverage)
