"""A table of runs grouped by model shape, for the Pareto and the lean analysis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from analysis.runs.columns import plain
from analysis.runs.losses import LOST_WORDS, NONE_LOST, Losses, losses_named
from analysis.runs.statuses import DROPPED, FULL
from analysis.runs.table import Runs
from analysis.runs.tuned import Tuned, tuned_runs
from analysis.statistics.moderated import (
    Moderated,
    agree,
    moderate,
    moderate_variances,
    screen_crashes,
)
from analysis.statistics.values import FloatArray, Mask
from analysis.values import AxisValue, Config
from hsweep.design.question import Goal
from hsweep.errors import UserError, unknown_name

_ENDED: Final = frozenset({*FULL, *DROPPED, *LOST_WORDS})


@dataclass(frozen=True, slots=True)
class Configuration:
    """One model shape with its full-budget runs.

    Attributes:
        values: metric of every full-budget run that did not crash, in the table's order.
        costs: mean of each cost over the runs that have it.
        cost_values: each cost, run by run, as long as ``values``.
        crash_share: screened, at chance, failed, diverged and too large runs among all that ended.
        tuned: its settings of a nuisance axis; None without such an axis.
    """

    config: Config
    label: str
    values: FloatArray
    costs: dict[str, float]
    cost_values: dict[str, FloatArray]
    crash_share: float
    lost: Losses = NONE_LOST
    tuned: Tuned | None = None

    @property
    def inflation(self) -> float:
        """Variance of the mean over that of as many independent runs; above 1 where every run
        helped to choose the setting of the others."""
        return self.tuned.fit.inflation if self.tuned is not None and self.tuned.fit else 1.0


@dataclass(frozen=True, slots=True)
class Grouped:
    """A table of runs, shape by shape.

    Attributes:
        found: the shapes whose runs all had their full budget, cheapest first.
        stopped: each shape that lost a run to early stopping. Its other runs are those that did
            well, so their mean would flatter it; it was tried and is not compared.
        warnings: choices made on the way.
    """

    found: list[Configuration]
    stopped: list["StoppedShape"]
    warnings: list[str]


class StoppedShape(NamedTuple):
    """A shape that lost runs to early stopping: axis values, costs and how many runs it lost."""

    config: Config
    label: str
    costs: dict[str, float]
    runs: int


def seed_spread(
    found: Sequence[Configuration], sign: float, max_prior_df: float = math.inf
) -> Moderated:
    """Return the moderated seed sd of each shape, in the metric's unit.

    ``sign`` is 1 where higher is better, else -1; for ``max_prior_df`` see `moderate`.
    """
    fits = [item.tuned.fit if item.tuned is not None else None for item in found]
    if not any(fits):
        return moderate([sign * item.values for item in found], max_prior_df)
    df, variance = [], []
    for item, fit in zip(found, fits, strict=True):
        own = 0.0 if agree(item.values) else item.values.var(ddof=1)
        df.append(float(fit.df if fit else max(item.values.size - 1, 0)))
        variance.append(fit.variance if fit else own)
    return moderate_variances(np.array(variance), np.array(df), max_prior_df)


def group_configurations(
    table: Runs,
    *,
    config: Sequence[str],
    goal: Goal,
    costs: Sequence[str],
    crash_sd: float,
    nuisance: Sequence[str] = (),
) -> Grouped:
    """Return the configurations with full-budget runs and without any that was stopped early.

    With ``nuisance`` axes (a learning rate) each shape stands at its best setting of them, chosen
    for every seed by the others (`analysis.runs.tuned`).

    Raises:
        UserError: no axis or cost named, a bad table (`Runs.rows`), a missing cost,
            or no full-budget run at all.
    """
    if goal not in ("min", "max"):
        raise unknown_name("goal", goal, ("min", "max"))
    if not config:
        raise UserError("name at least one configuration column (heads, depth, ...)")
    if not costs:
        raise UserError("name at least one cost column (num_params, ...)")
    if both := sorted(set(config) & set(nuisance)):
        raise UserError(
            f"{both[0]!r} cannot both name a shape and be a nuisance axis, of which every shape"
            " stands at its best value"
        )
    metric = table.metric
    runs, warnings = table.rows([*config, *nuisance], list(costs))
    tuned: dict[tuple[AxisValue, ...], Tuned] = {}
    if nuisance:
        runs, tuned, notes = tuned_runs(runs, config=config, nuisance=nuisance, goal=goal)
        runs = runs.reset_index(drop=True)
        warnings += notes
    sign = 1.0 if goal == "max" else -1.0
    groups = _groups(runs, config, costs)
    stopped = [group for group in groups if group.is_stopped]
    whole = [group for group in groups if not group.is_stopped]
    usable = [group for group in whole if group.complete.any()]
    unusable = [group for group in whole if not group.complete.any()]
    if not usable and stopped:
        raise UserError(
            f"no configuration has all its runs at full budget with a {metric}: "
            f"{len(stopped)} of {len(groups)} lost runs to early stopping; runs that were to be"
            " shorter are a budget of their own: ask for it alone with --where COLUMN=VALUE"
        )
    if not usable:
        raise UserError(f"no run of the table reached its full budget with a {metric}")
    if stopped:
        warnings.append(
            f"{len(stopped)} configurations lost runs to early stopping and are not compared: the"
            " runs they kept are those that did well"
        )
    if unusable:
        lost = [(_label(group.config), Losses.of(group.status)) for group in unusable]
        named = losses_named(lost)
        warnings.append(
            f"{len(unusable)} configurations have no full-budget run{f': {named}' if named else ''}"
        )
    crashed = screen_crashes([sign * group.value[group.complete] for group in usable], crash_sd)
    found = [
        _configuration(group, bad, tuned.get(tuple(group.config.values())))
        for group, bad in zip(usable, crashed, strict=True)
    ]
    if named := losses_named([(item.label, item.lost) for item in found]):
        warnings.append(f"some means are those of the runs that were left: {named}")
    if screened := sum(int(bad.sum()) for bad in crashed):
        warnings.append(
            f"{screened} crashed runs (over {crash_sd:g} seed sd below their configuration's"
            " median) are left out of the means and shown as crash share"
        )
    sizes = {configuration.values.size for configuration in found}
    if len(sizes) > 1:
        warnings.append(f"configurations hold between {min(sizes)} and {max(sizes)} runs")
    found.sort(key=lambda item: (*(item.costs[name] for name in costs), item.label))
    dropped = [
        StoppedShape(
            group.config,
            _label(group.config),
            {name: _mean(prices) for name, prices in group.costs.items()},
            sum(word in DROPPED for word in group.status),
        )
        for group in stopped
    ]
    return Grouped(found, dropped, warnings)


def describe(config: Mapping[str, AxisValue]) -> str:
    """Return axis values in words: ``depth=8, heads=14``."""
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in config.items()
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """The runs of one shape, in the table's order."""

    config: Config
    value: FloatArray
    status: list[str]
    complete: Mask
    costs: dict[str, FloatArray]

    @property
    def is_stopped(self) -> bool:
        return not set(DROPPED).isdisjoint(self.status)


def _groups(runs: pd.DataFrame, config: Sequence[str], costs: Sequence[str]) -> list[_Group]:
    number = runs.groupby(list(config), sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    firsts = order[starts]
    axes = {name: runs[name].iloc[firsts].tolist() for name in config}
    value = runs["value"].to_numpy(np.float64)[order]
    complete = runs["complete"].to_numpy(bool)[order]
    status = runs["status"].to_numpy(object)[order].tolist()
    prices = {name: runs[name].to_numpy(np.float64)[order] for name in costs}
    return [
        _Group(
            {name: plain(values[at]) for name, values in axes.items()},
            value[start:end],
            status[start:end],
            complete[start:end],
            {name: price[start:end] for name, price in prices.items()},
        )
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
    ]


def _configuration(group: _Group, bad: Mask, tuned: Tuned | None) -> Configuration:
    label = _label(group.config)
    done = np.flatnonzero(group.complete)
    for name, prices in group.costs.items():
        if np.isnan(prices[done]).any():
            raise UserError(f"cost {name!r} is missing for a full-budget run of {label}")
    lost = Losses.of(group.status, int(bad.sum()))
    ended = sum(word in _ENDED for word in group.status)
    good = done[~bad]
    cost_values = {name: prices[good] for name, prices in group.costs.items()}
    return Configuration(
        group.config,
        label,
        group.value[good],
        {name: float(values.mean()) for name, values in cost_values.items()},
        cost_values,
        float(lost.total / ended),
        lost,
        tuned,
    )


def _mean(values: FloatArray) -> float:
    """Return the mean of the values that are known; NaN where none is."""
    known = int(np.count_nonzero(~np.isnan(values)))
    return float(np.nansum(values)) / known if known else math.nan


def _label(axis_values: Config) -> str:
    """Return the name of a shape that has one, a word or the entry of a column called config, else
    its axis values in words."""
    if len(axis_values) == 1:
        ((column, value),) = axis_values.items()
        if column == "config" or isinstance(value, str):
            return str(value)
    return describe(axis_values)
