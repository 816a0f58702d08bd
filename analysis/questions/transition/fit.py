"""At which head count does the error collapse, and is that more than diminishing returns?

Location and existence are two procedures: the largest drop finds the place well and proves nothing;
a test against every convex decline decides whether there is anything to find.
"""

from dataclasses import replace

import numpy as np

from analysis.questions.transition.answer import answer
from analysis.questions.transition.cells import seed_noise
from analysis.questions.transition.coverage import audit, missing_runs
from analysis.questions.transition.result import (
    LIMITS,
    RunValue,
    TransitionResult,
    TransitionSettings,
)
from analysis.questions.transition.table import RunTable, build_grid
from analysis.values import number
from hsweep.errors import UserError


def fit(
    table: RunTable,
    *,
    layers: int = 1,
    settings: TransitionSettings = TransitionSettings(),
    note: str = "",
) -> TransitionResult:
    """Fit the transition of the metric along the table's ``x``, modulated by its ``by``.

    Args:
        layers: attention layers of the models, for the retrieval dimension.
        note: a further qualification of the answer.

    Raises:
        UserError: no layer.
    """
    if layers < 1:
        raise UserError(f"layers must be at least 1, not {layers!r}")
    limits = settings.limits(table.scale)
    settings = replace(settings, **{name: getattr(limits, name) for name in LIMITS})
    coverage = audit(table)
    grid = build_grid(table)
    noise = seed_noise(grid, limits, settings.assumed_sd)
    fields, needs, reading_note = answer(grid, noise, table, coverage, settings, layers)
    fields = {"h_set": tuple(coverage.xs), **fields}
    qualifications = (note, reading_note, *table.warnings, *coverage.qualifications)
    done = table.frame.loc[table.frame["complete"]]
    columns = (done[name].tolist() for name in ("x", "by", "replicate", "value", "y"))
    return TransitionResult(
        **fields,
        x=table.x,
        by=table.by,
        metric=table.metric,
        goal=table.goal,
        scale=table.scale,
        runs=tuple(
            RunValue(number(x), None if np.isnan(by) else number(by), str(replicate), value, y)
            for x, by, replicate, value, y in zip(*columns, strict=True)
        ),
        counts=coverage.counts,
        missing=missing_runs(coverage, needs),
        n1_assumed_sd=noise.stand_in if len(grid.heads) else None,
        settings=settings,
        qualifications=tuple(dict.fromkeys(filter(None, qualifications))),
        warnings=coverage.warnings,
        nuisance=table.nuisance,
    )
