"""A study's results beside the papers' printed ones, cell by cell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.findings.against_results import (
    AgainstResult,
    AgainstRow,
    AgainstSettings,
    CriticalHeads,
    PrintedValue,
)
from analysis.findings.losses import LOST_WORDS, Losses
from analysis.findings.results import AxisValue, TransitionResult
from analysis.papers.published_results import PublishedResult
from analysis.papers.published_setups import UNKNOWN_NUMBER, Setup, Tasks
from analysis.runs.columns import RunColumns
from analysis.runs.scale import FloatArray
from analysis.runs.table import Runs
from analysis.statistics.moderated import moderate
from analysis.statistics.printed_values import compare, on_scale, reading_sd
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError

CRITICAL: Final = "critical_heads"
_SCALES: Final[Mapping[str, tuple[Scale, Goal]]] = {
    "nmse": ("error", "min"),
    "squared_error": ("error", "min"),
    "train_squared_error": ("error", "min"),
    "validation_loss": ("loss", "min"),
}
"""All other published metrics are accuracies or the like: higher is better."""
_ESTABLISHED: Final = ("transition", "jump_only", "threshold")
_DATA: Final = ("data", "max_train")
_MOST_DIFFERENCES: Final = 2
"""Named in full where a study cannot be compared."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """The runs of one point of the study."""

    point: Mapping[str, Any]
    settings: Mapping[str, Any]
    rows: pd.DataFrame
    lost: int
    why_lost: str

    def values(self, metric: str) -> FloatArray:
        known: FloatArray = self.rows[metric].dropna().to_numpy(np.float64)
        return known


def fit(
    frame: pd.DataFrame,
    setup: Setup,
    *,
    axes: Sequence[str],
    tasks: Tasks = (),
    transition: TransitionResult | None = None,
    budget: str = "",
    replicate: str | None = "seed",
    settings: AgainstSettings | None = None,
) -> AgainstResult:
    """Lay a study's table of trials beside the results of a setup.

    Args:
        frame: one row a trial.
        setup: what was published, and how a study's axes name it.
        axes: columns that name a point; those the table does not have are left out.
        tasks: the study's tasks as recorded, for what is no axis.
        transition: the study's own answer, where it asks for one.
        budget: how long its trials train, in words.
        replicate: column of the seeds.
        settings: every choice.

    Raises:
        UserError: a bad table (see `analysis.runs.table.Runs.rows`).
    """
    chosen = settings or AgainstSettings()
    cells = _cells(frame, setup, [axis for axis in axes if axis in frame.columns], tasks, replicate)
    values = [result for result in setup.results if result.metric != CRITICAL]
    rows: list[AgainstRow] = []
    missing: list[PrintedValue] = []
    for result in values:
        fitting = [cell for cell in cells if not _differences(setup, result, cell, chosen)]
        found = [row for cell in fitting if (row := _row(setup, result, cell, cells, chosen, axes))]
        rows += found
        if not found:
            missing.append(_printed(result))
    reason = "" if rows else _why_not(setup, values, cells, chosen)
    unlike = [name for name in setup.fixed if _none_has(setup, name, cells, chosen)]
    critical = tuple(
        _critical(result, None if unlike else transition)
        for result in setup.results
        if result.metric == CRITICAL
    )
    return AgainstResult(
        setup=setup.name,
        title=setup.title,
        comparable=bool(rows),
        reason=reason,
        rows=tuple(rows),
        critical=critical,
        missing=tuple(missing),
        assumptions=_assumptions(setup, rows, budget, chosen),
        settings=chosen,
    )


def _cells(
    frame: pd.DataFrame, setup: Setup, axes: list[str], tasks: Tasks, replicate: str | None
) -> list[_Cell]:
    if frame.empty:
        raise UserError("the table is empty: it has no rows")
    if not axes:
        raise UserError("the table has none of the study's axes, so no run can be told apart")
    metrics = [
        name
        for name in dict.fromkeys(
            each
            for result in setup.results
            for each in (result.metric, setup.instead.get(result.metric, result.metric))
        )
        if name in frame.columns
    ]
    filled = frame.assign(
        **{name: frame[name].astype(object).where(frame[name].notna(), None) for name in axes}
    )
    keys = {
        name: filled[name].map(lambda value: "none" if value is None else value) for name in axes
    }
    filled = filled.assign(**keys, _any=0.0)
    columns = RunColumns(replicate=replicate if replicate in frame.columns else None)
    runs, _ = Runs(filled, "_any", columns).rows(axes, metrics)
    found = []
    for key, rows in runs.groupby(axes, sort=False):
        point = {
            name: None if isinstance(value, str) and value == "none" else _plain(value)
            for name, value in zip(axes, key, strict=True)
        }
        lost = int(rows["status"].isin(["stopped_early", *LOST_WORDS]).sum())
        why = Losses.of(rows["status"]).text
        done = rows.loc[rows["complete"]]
        found.append(_Cell(point, setup.settings(point, tasks), done, lost, why))
    return found


def _differences(
    setup: Setup, result: PublishedResult, cell: _Cell, settings: AgainstSettings
) -> list[str]:
    """Return the settings in which a cell is not what was published."""
    return [
        name
        for name, value in setup.wanted(result).items()
        if not (settings.same_data and name in _DATA) and not _same(cell.settings.get(name), value)
    ]


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, int | float) and isinstance(there, int | float):
        return float(here) == float(there)
    if isinstance(here, list | tuple) and isinstance(there, list | tuple):
        return list(here) == list(there)
    return bool(here == there)


def _row(
    setup: Setup,
    result: PublishedResult,
    cell: _Cell,
    cells: Sequence[_Cell],
    settings: AgainstSettings,
    axes: Sequence[str],
) -> AgainstRow | None:
    """Compare one cell, or return None where it has no full-budget run."""
    metric = result.metric
    if metric not in cell.rows and setup.instead.get(metric) in cell.rows:
        metric = setup.instead[metric]
    if metric not in cell.rows:
        return None
    scale, goal = _SCALES.get(metric, ("accuracy", "max"))
    values = cell.values(metric)
    if values.size == 0 or (scale == "error" and (values <= 0).any()):
        return None
    every = [on_scale(each.values(metric), scale) for each in cells if each.values(metric).size]
    at = [each is cell for each in cells if each.values(metric).size].index(True)
    moderated = moderate(every)
    sd, df = float(moderated.sd[at]), float(moderated.df[at])
    y = every[at]
    best_of = setup.best_of or max(1, int(y.size))
    compared = compare(
        y,
        sd if math.isfinite(sd) else None,
        df,
        low=float(on_scale(np.array([result.value]), scale)[0]),
        high=float(on_scale(np.array([result.upper or result.value]), scale)[0]),
        best_of=best_of,
        goal=goal,
        reading_sd=reading_sd(result, scale, settings),
        alpha=settings.alpha,
    )
    note = ""
    if result.reading == "approximate":
        near = abs(compared.difference) <= math.log10(settings.order)
        compared = replace(compared, se=None, in_se=None, p=None, standing="untested")
        note = (
            f"published as an order of magnitude, {'met' if near else 'not met'} within a factor "
            f"of {settings.order:g}"
        )
    elif compared.se is None:
        note = "no cell of the study has two runs, so its seed noise is unknown"
    if cell.lost:
        short = f"{cell.lost} runs of this cell did not reach their full budget"
        why = f"{short} ({cell.why_lost})" if cell.why_lost else short
        note = "; ".join(filter(None, (note, why)))
    decimal = 10.0 if scale == "error" else None
    return AgainstRow(
        printed=_printed(result),
        label=_label(cell, axes, cells),
        metric=metric,
        scale=scale,
        goal=goal,
        n=int(values.size),
        values=tuple(float(value) for value in values),
        lost=cell.lost,
        mean=float(decimal ** y.mean()) if decimal else float(y.mean()),
        seed_sd=sd if math.isfinite(sd) else None,
        df=df if math.isfinite(sd) else None,
        best_of=best_of,
        expected=decimal**compared.expected if decimal else compared.expected,
        difference=compared.difference,
        se=compared.se,
        in_se=compared.in_se,
        p=compared.p,
        factor=decimal**compared.difference if decimal else None,
        standing=compared.standing,
        note=note,
    )


def _none_has(setup: Setup, name: str, cells: Sequence[_Cell], settings: AgainstSettings) -> bool:
    """Return whether no cell has what the paper held fixed."""
    if settings.same_data and name in _DATA:
        return False
    return not any(_same(cell.settings.get(name), setup.fixed[name]) for cell in cells)


def _why_not(
    setup: Setup,
    results: Sequence[PublishedResult],
    cells: Sequence[_Cell],
    settings: AgainstSettings,
) -> str:
    """Say why no published value has a counterpart among the cells."""
    if any(not _differences(setup, result, cell, settings) for result in results for cell in cells):
        return "no run with a published setting has reached its full budget yet"
    parts: dict[str, str] = {}
    for name in dict.fromkeys(name for result in results for name in setup.wanted(result)):
        if settings.same_data and name in _DATA:
            continue
        there = _distinct(setup.wanted(result).get(name) for result in results)
        here = _distinct(cell.settings.get(name) for cell in cells)
        there = [value for value in there if value is not None] or there
        # Of several tasks some have no such setting.
        here = [value for value in here if value is not None] or here
        if not any(_same(one, other) for one in here for other in there):
            parts[name] = f"{name} is {_listed(here)} here and {_listed(there)} in the paper"
    held = [part for name, part in parts.items() if name in setup.fixed]
    if held or parts:
        return _shortened(held or list(parts.values()))
    result, cell = min(
        ((result, cell) for result in results for cell in cells),
        key=lambda pair: len(_differences(setup, pair[0], pair[1], settings)),
    )
    wanted = setup.wanted(result)
    return _shortened(
        [
            f"{name} is {_listed([cell.settings.get(name)])} here and {_listed([wanted[name]])} in "
            "the paper"
            for name in _differences(setup, result, cell, settings)
        ]
    )


def _shortened(parts: Sequence[str]) -> str:
    """Return the first differences in words, those of known values first, and how many more."""
    known_first = sorted(parts, key=lambda part: "not known" in part)
    shown, more = known_first[:_MOST_DIFFERENCES], len(parts) - _MOST_DIFFERENCES
    others = f"; {more} more settings differ" if more > 1 else "; another setting differs"
    return "; ".join(shown) + (others if more > 0 else "")


def _distinct(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(_same(value, other) for other in found):
            found.append(value)
    return found


def _listed(values: Sequence[Any]) -> str:
    words = ["not known" if value is None else str(value) for value in values]
    return ", ".join(words[:6]) + (", ..." if len(words) > 6 else "")


def _printed(result: PublishedResult) -> PrintedValue:
    settings: dict[str, AxisValue] = {}
    for name, value in result.settings.items():
        if value is not None:
            settings[name] = value if isinstance(value, int | float | str) else str(list(value))
    return PrintedValue(
        paper=result.paper,
        source=result.source,
        settings=settings,
        metric=result.metric,
        value=float(result.value),
        upper=None if result.upper is None else float(result.upper),
        reading=result.reading,
        note=result.note,
    )


def _critical(result: PublishedResult, transition: TransitionResult | None) -> CriticalHeads:
    established = transition is not None and transition.verdict in _ESTABLISHED
    h_set = tuple(float(h) for h in transition.h_set) if transition and established else ()
    return CriticalHeads(
        printed=_printed(result),
        verdict=transition.verdict if transition is not None else "",
        h_star=float(transition.h_star)
        if transition is not None and established and transition.h_star is not None
        else None,
        h_set=h_set,
        agrees=float(result.value) in h_set if established else None,
    )


def _label(cell: _Cell, axes: Sequence[str], cells: Sequence[_Cell]) -> str:
    """Return a cell by the axes that differ among the study's."""
    varying = [
        name for name in axes if len(_distinct(each.point.get(name) for each in cells)) > 1
    ] or list(cell.point)
    return ", ".join(
        f"{name}={'none' if cell.point.get(name) is None else cell.point[name]}" for name in varying
    )


def _assumptions(
    setup: Setup, rows: Sequence[AgainstRow], budget: str, settings: AgainstSettings
) -> tuple[str, ...]:
    if not rows:
        return ()
    spread = "the paper gives no spread, so its seeds are taken to scatter as the study's do"
    if setup.best_of == UNKNOWN_NUMBER:
        rule = (
            "printed values are the best of a number of seeds that is not given: taken to be as "
            "many as the study's"
        )
    elif setup.best_of == 1:
        rule = "printed values are taken for single runs"
    else:
        rule = f"printed values are the best of {setup.best_of} seeds"
    said = [rule, spread, *setup.notes]
    if any(row.printed.metric != row.metric for row in rows):
        pairs = dict.fromkeys(
            f"{row.metric} stands for the published {row.printed.metric}"
            for row in rows
            if row.printed.metric != row.metric
        )
        said += pairs
    if budget:
        said.append(f"the study's trials train for {budget}")
    if settings.same_data:
        said.append("the user vouches for the data")
    tested = sum(row.standing != "untested" for row in rows)
    if tested > 1:
        said.append(f"{tested} values are tested at {settings.alpha:g} each: some differ by chance")
    return tuple(said)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
