"""A study's results beside the papers' printed ones, cell by cell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.questions.transition.result import TransitionResult
from analysis.runs.columns import NO_VALUE, RunColumns
from analysis.runs.losses import LOST_WORDS, Losses
from analysis.runs.statuses import AT_CHANCE, DROPPED
from analysis.runs.table import Runs
from analysis.statistics.moderated import moderate
from analysis.statistics.values import FloatArray
from hsweep.design.labels import counted, first_of
from hsweep.design.scales import Goal, Scale
from hsweep.errors import UserError
from results.printed.difference import printed_difference
from results.printed.numbers import PrintedValue, Setup, Tasks
from results.printed.result import (
    CriticalHeads,
    PublishedResult,
    PublishedRow,
    PublishedSettings,
)

CRITICAL: Final = "critical_heads"
_SCALES: Final[Mapping[str, tuple[Scale, Goal]]] = {
    "nmse": ("error", "min"),
    "squared_error": ("error", "min"),
    "train_squared_error": ("error", "min"),
    "validation_loss": ("loss", "min"),
}
"""All other published metrics are accuracies or the like: higher is better."""
_DATA: Final = ("data", "max_train")
_READING_ERROR: Final = 0.02
"""Relative error of a value read off a figure."""
_ORDER: Final = 3.0
"""An approximate value is met within this factor."""
_MAX_DIFFERENCES: Final = 2
"""Named in full where a study cannot be compared."""

Requirements = Mapping[str, Any]
"""What a point must have to be compared with a published value."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """The runs of one point of the study."""

    label: str
    settings: Mapping[str, Any]
    rows: pd.DataFrame
    lost: int
    loss_text: str

    def values(self, metric: str, scale: Scale) -> FloatArray:
        """Return the runs where differences are compared: decades of an error, else as they are."""
        numbers: FloatArray = self.rows[metric].dropna().to_numpy(np.float64)
        return np.log10(numbers) if scale == "error" else numbers

    def differs(self, requirements: Requirements) -> list[str]:
        """Return the settings in which the cell is not what was published."""
        return [name for name, value in requirements.items() if self.settings.get(name) != value]


def fit(
    frame: pd.DataFrame,
    setup: Setup,
    *,
    axes: Sequence[str],
    tasks: Tasks = (),
    transition: TransitionResult | None = None,
    budget: str = "",
    settings: PublishedSettings = PublishedSettings(),
) -> PublishedResult:
    """Lay a study's table of trials beside the results of a setup.

    Args:
        setup: what was published, and how a study's axes name it.
        axes: columns that name a point; those the table does not have are left out.
        transition: the study's own answer, where it asks for one.
        budget: how long its trials train, in words.

    Raises:
        UserError: a bad table (see `analysis.runs.table.Runs.rows`).
    """
    cells = _cells(frame, setup, [axis for axis in axes if axis in frame.columns], tasks)
    skipped = _DATA if settings.same_data else ()
    rows: list[PublishedRow] = []
    missing: list[PrintedValue] = []
    requirements: list[Requirements] = []
    for value in setup.values:
        if value.metric == CRITICAL:
            continue
        requirement = {k: v for k, v in setup.requirements(value).items() if k not in skipped}
        requirements.append(requirement)
        matching_cells = [cell for cell in cells if not cell.differs(requirement)]
        rows_of_value = [_row(setup, value, cell, cells, settings) for cell in matching_cells]
        matches = [row for row in rows_of_value if row is not None]
        rows += matches
        missing += [] if matches else [value]
    is_unlike = any(
        all(cell.settings.get(name) != value for cell in cells)
        for name, value in setup.fixed.items()
        if name not in skipped
    )
    return PublishedResult(
        setup=setup.name,
        title=setup.title,
        comparable=bool(rows),
        reason="" if rows else _why_not(setup, requirements, cells),
        rows=tuple(rows),
        critical=tuple(
            _critical(value, None if is_unlike else transition)
            for value in setup.values
            if value.metric == CRITICAL
        ),
        missing=tuple(missing),
        assumptions=_assumptions(setup, rows, budget, settings),
        settings=settings,
    )


def _cells(frame: pd.DataFrame, setup: Setup, axes: list[str], tasks: Tasks) -> list[_Cell]:
    if frame.empty:
        raise UserError("the table is empty: it has no rows")
    if not axes:
        raise UserError("the table has none of the study's axes, so no run can be told apart")
    published = {value.metric for value in setup.values}
    metrics = [name for name in (*published, *setup.instead.values()) if name in frame.columns]
    columns = RunColumns(replicate="seed" if "seed" in frame.columns else None)
    checked, _ = Runs(frame.assign(_any=0.0), "_any", columns).rows(axes, sorted(set(metrics)))
    runs = checked.runs.join(checked.numbers)
    varying = [name for name in axes if checked.keys[name].nunique() > 1] or axes
    cells = []
    for key, rows in runs.groupby([checked.keys[name] for name in axes], sort=False):
        values = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in zip(axes, key, strict=True)
        }
        point = {name: None if value == NO_VALUE else value for name, value in values.items()}
        lost = rows.loc[~rows["complete"], "status"].isin([*DROPPED, AT_CHANCE, *LOST_WORDS])
        cells.append(
            _Cell(
                ", ".join(f"{name}={values[name]}" for name in varying),
                setup.settings(point, tasks),
                rows.loc[rows["complete"]],
                int(lost.sum()),
                Losses.of(rows["status"]).text,
            )
        )
    return cells


def _row(
    setup: Setup,
    printed: PrintedValue,
    cell: _Cell,
    cells: Sequence[_Cell],
    settings: PublishedSettings,
) -> PublishedRow | None:
    """Compare one cell, or return None where it has no full-budget run."""
    metric = printed.metric
    if metric not in cell.rows:
        metric = setup.instead.get(metric, metric)
    if metric not in cell.rows:
        return None
    scale, goal = _SCALES.get(metric, ("accuracy", "max"))
    is_error = scale == "error"
    raw: FloatArray = cell.rows[metric].dropna().to_numpy(np.float64)
    if raw.size == 0 or (is_error and (raw <= 0).any()):
        return None

    def to_unit(value: float) -> float:
        return 10.0**value if is_error else value

    cells_with_metric = [other for other in cells if other.rows[metric].notna().any()]
    moderated = moderate([other.values(metric, scale) for other in cells_with_metric])
    at = next(at for at, other in enumerate(cells_with_metric) if other is cell)
    sd, df = float(moderated.sd[at]), float(moderated.df[at])
    is_known = math.isfinite(sd)
    y = cell.values(metric, scale)
    ends = (printed.value, printed.upper or printed.value)
    low, high = map(float, np.log10(ends)) if is_error else ends
    error = _READING_ERROR if printed.reading == "digitised" else 0.0
    best_of = setup.best_of or max(1, int(y.size))
    difference = printed_difference(
        y,
        sd if is_known else None,
        df,
        low=low,
        high=high,
        best_of=best_of,
        higher_is_better=goal == "max",
        reading_sd=math.log10(1 + error) if is_error else error * abs(printed.value),
        alpha=settings.alpha,
    )
    notes = []
    if printed.reading == "approximate":
        met = "met" if abs(difference.difference) <= math.log10(_ORDER) else "not met"
        difference = replace(difference, se=None, in_se=None, p=None, standing="untested")
        notes.append(f"published as an order of magnitude, {met} within a factor of {_ORDER:g}")
    elif difference.se is None:
        notes.append("no cell of the study has two runs, so its seed noise is unknown")
    if cell.lost:
        why = f" ({cell.loss_text})" if cell.loss_text else ""
        notes.append(f"{cell.lost} runs of this cell did not reach their full budget{why}")
    return PublishedRow(
        printed=printed,
        label=cell.label,
        metric=metric,
        scale=scale,
        goal=goal,
        n=int(raw.size),
        values=tuple(raw.tolist()),
        lost=cell.lost,
        mean=to_unit(float(y.mean())),
        seed_sd=sd if is_known else None,
        df=df if is_known else None,
        best_of=best_of,
        factor=10.0**difference.difference if is_error else None,
        note="; ".join(notes),
        **asdict(replace(difference, expected=to_unit(difference.expected))),
    )


def _why_not(setup: Setup, requirements: Sequence[Requirements], cells: Sequence[_Cell]) -> str:
    if any(not cell.differs(required) for required in requirements for cell in cells):
        return "no run with a published setting has reached its full budget yet"
    parts: dict[str, str] = {}
    for name in dict.fromkeys(name for required in requirements for name in required):
        printed = [required.get(name) for required in requirements]
        values = [cell.settings.get(name) for cell in cells]
        # Of several tasks some have no such setting.
        values, printed = ([v for v in side if v is not None] or side for side in (values, printed))
        if not any(value in printed for value in values):
            parts[name] = _difference_text(name, values, printed)
    texts = [part for name, part in parts.items() if name in setup.fixed] or list(parts.values())
    if not texts:
        pairs = ((required, cell) for required in requirements for cell in cells)
        closest, cell = min(pairs, key=lambda pair: len(pair[1].differs(pair[0])))
        texts = [
            _difference_text(name, [cell.settings.get(name)], [closest[name]])
            for name in cell.differs(closest)
        ]
    ordered = sorted(texts, key=lambda part: "not known" in part)
    more = len(texts) - _MAX_DIFFERENCES
    rest = [counted(more, "further difference")] if more > 0 else []
    return "; ".join([*ordered[:_MAX_DIFFERENCES], *rest])


def _difference_text(name: str, here: Sequence[Any], there: Sequence[Any]) -> str:
    def values_text(values: Sequence[Any]) -> str:
        words = ["not known" if value is None else str(value) for value in values]
        return first_of(list(dict.fromkeys(words)), 6)

    return f"{name} is {values_text(here)} here and {values_text(there)} in the paper"


def _critical(printed: PrintedValue, transition: TransitionResult | None) -> CriticalHeads:
    verdict = "" if transition is None else transition.verdict
    if transition is None or not transition.is_claimed:
        return CriticalHeads(printed, verdict, h_star=None, h_set=(), agrees=None)
    h_star, h_set = transition.h_star, tuple(float(h) for h in transition.h_set)
    agrees = printed.value in h_set
    return CriticalHeads(printed, verdict, None if h_star is None else float(h_star), h_set, agrees)


def _assumptions(
    setup: Setup, rows: Sequence[PublishedRow], budget: str, settings: PublishedSettings
) -> tuple[str, ...]:
    if not rows:
        return ()
    rule = f"printed values are the best of {setup.best_of} seeds"
    if setup.best_of is None:
        rule = (
            "printed values are the best of a number of seeds that is not given: taken to be as "
            "many as the study's"
        )
    elif setup.best_of == 1:
        rule = "printed values are taken for single runs"
    spread = "the paper gives no spread, so its seeds are taken to scatter as the study's do"
    assumptions = [rule, spread, *setup.notes]
    assumptions += dict.fromkeys(
        f"{row.metric} stands for the published {row.printed.metric}"
        for row in rows
        if row.printed.metric != row.metric
    )
    if budget:
        assumptions.append(f"the study's trials train for {budget}")
    if settings.same_data:
        assumptions.append("the user vouches for the data")
    num_tests = sum(row.standing != "untested" for row in rows)
    if num_tests > 1:
        assumptions.append(
            f"{num_tests} values are tested at {settings.alpha:g} each: some differ by chance"
        )
    return tuple(assumptions)
