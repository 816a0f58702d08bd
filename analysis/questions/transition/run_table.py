"""The canonical form of a table of runs over a searched and a modulating axis."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.runs.columns import Key
from analysis.runs.tuned import Tuned
from hsweep.design.question import Goal, Scale


@dataclass(frozen=True)
class RunTable:
    """The runs of a sweep over ``x`` and ``by`` in canonical form.

    Attributes:
        frame: one row a run, columns ``x`` (float), ``by`` (float, NaN without a modulating axis),
            ``replicate`` (str), ``value`` (float, NaN unless known), ``y`` (float, NaN unless
            complete), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool),
            ``reached`` and ``budget`` (float, NaN if unknown).
        scale: how ``value`` became ``y``.
        nuisance: axes whose settings compete within a cell; of each cell ``frame`` has the runs
            that stand for it.
        aside: the other runs of the cells, with the same columns; None without nuisance axes.
        without_floor: runs without any error, where nothing tells how small it is.
        tuned: what was chosen in each cell, by its ``x`` and ``by``.
    """

    frame: pd.DataFrame
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
    aside: pd.DataFrame | None = None
    without_floor: int = 0
    tuned: Mapping[Key, Tuned] = field(default_factory=dict)

    def tuned_at(self, x: float, by: float | None) -> Tuned | None:
        """Return what was chosen in a cell, whose ``by`` is None or NaN without such an axis."""
        return self.tuned.get((x,) if by is None or np.isnan(by) else (x, by))
