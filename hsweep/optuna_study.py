"""A study's trials as a study of Optuna, for its plots and for optuna-dashboard."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import optuna
from optuna import distributions
from optuna.trial import FrozenTrial, TrialState

from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from hsweep.record.manifest import Manifest
    from hsweep.record.tables import StudyTables

_STATES: Final = {
    TrialStatus.RUNNING: TrialState.RUNNING,
    TrialStatus.FINISHED: TrialState.COMPLETE,
    TrialStatus.STOPPED_EARLY: TrialState.PRUNED,
}
"""Optuna's states of trials that have begun; any other status is a failure."""
_FACTS: Final = ("seed", "budget", "num_params", "flops_per_example", "wall_seconds")
"""Columns of the table of trials that become user attributes."""
_CATEGORIES: Final = (bool, int, float, str)


def optuna_study(
    manifest: "Manifest",
    tables: "StudyTables",
    storage: "str | optuna.storages.BaseStorage | None" = None,
) -> optuna.Study:
    """Return the trials of a study, without those that were not needed, as a study of Optuna in
    ``storage`` or in memory; UserError if the storage has a study of that name."""
    try:
        study = optuna.create_study(
            storage=storage,
            study_name=manifest.name,
            direction="minimize" if manifest.goal == "min" else "maximize",
        )
    except optuna.exceptions.DuplicatedStudyError as error:
        raise UserError(
            f"the storage {storage} has a study called {manifest.name!r}; give another one, or "
            f"remove it by optuna.delete_study(study_name={manifest.name!r}, storage=...)"
        ) from error
    reports = dict(list(tables.reports.to_pandas().groupby("key")))
    costs = {row["key"]: row for row in tables.trials.to_pylist()}
    points = {row.key: _parameters(row.point) for row in tables.rows}
    ranges = _distributions(points.values())
    for row in tables.rows:
        parameters = points[row.key]
        facts = {name: costs[row.key][name] for name in _FACTS}
        facts = {name: value for name, value in facts.items() if value is not None}
        attributes = {"key": row.key, "status": str(row.status), **facts}
        if row.status is TrialStatus.NOT_NEEDED:
            continue
        if row.status is TrialStatus.PLANNED:
            study.enqueue_trial(parameters, user_attrs=attributes)
            continue
        state = _STATES.get(row.status, TrialState.FAIL)
        value = row.metrics.get(manifest.metric)
        if state is TrialState.COMPLETE and value is None:
            state = TrialState.FAIL
        trial = optuna.create_trial(
            state=state,
            value=value if state is TrialState.COMPLETE else None,
            params=parameters,
            distributions={axis: ranges[axis] for axis in parameters},
            user_attrs=attributes,
        )
        if row.key in reports:
            _add_reports(trial, reports[row.key], manifest.metric)
        study.add_trial(trial)
    return study


def _add_reports(trial: FrozenTrial, reports: "pd.DataFrame", metric: str) -> None:
    """Add a trial's reports with their times."""
    measured = reports.loc[reports[metric].notna()]
    trial.intermediate_values = dict(
        zip(measured["unit"].tolist(), measured[metric].tolist(), strict=True)
    )
    first, last = reports.iloc[0], reports.iloc[-1]
    trial.datetime_start = datetime.fromtimestamp(first["time"] - first["wall_seconds"])
    if trial.state.is_finished():
        trial.datetime_complete = datetime.fromtimestamp(last["time"])


def _parameters(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axis values of a point, without missing ones, as Optuna can hold them."""
    return {
        axis: value if isinstance(value, _CATEGORIES) else json.dumps(value)
        for axis, value in point.items()
        if value is not None
    }


def _distributions(points: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a range for each axis of numbers, a choice for any other, from values on record."""
    values: dict[str, dict[Any, None]] = {}
    for point in points:
        for axis, value in point.items():
            values.setdefault(axis, {})[value] = None
    return {axis: _distribution(list(axis_values)) for axis, axis_values in values.items()}


def _distribution(values: Sequence[Any]) -> distributions.BaseDistribution:
    from analysis.charts.axes import GridAxis

    kinds = {type(value) for value in values}
    if not kinds <= {int, float}:
        return distributions.CategoricalDistribution(values)
    low, high, is_log = min(values), max(values), GridAxis.of(values).is_log
    if kinds == {int}:
        return distributions.IntDistribution(low, high, log=is_log)
    return distributions.FloatDistribution(low, high, log=is_log)
