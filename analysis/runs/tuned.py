"""Shapes, or cells, that were tried with several settings of a nuisance axis: one run a seed is
kept of each.

Which setting a seed's run is taken from is decided by the other seeds (`statistics.cross_fitting`),
so that a shape tried with more settings gains nothing by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.runs.columns import in_order, plain
from analysis.runs.statuses import AT_CHANCE, DROPPED, NOT_NEEDED
from analysis.statistics.cross_fitting import CrossFit, cross_fit
from analysis.values import AxisValue, Config
from hsweep.design.question import Goal

Key = tuple[AxisValue, ...]


@dataclass(frozen=True, slots=True)
class TunedSetting:
    """The setting of the nuisance axes that a shape stands at.

    Attributes:
        values: the best setting, by the mean over all seeds.
        tried: settings that were tried.
        unstarted: of these, those that lost against others by seeds that are not counted.
        set_aside: further ones that do not compete, as they lack full-budget runs.
        at_edge: axes of numbers of which it is the smallest or largest value tried.
        is_single: no two seeds are common to the settings, so the best run stands for the shape.
    """

    values: Config
    tried: int
    unstarted: int
    set_aside: int
    at_edge: tuple[str, ...]
    is_single: bool

    @property
    def competed(self) -> bool:
        """Whether any setting competes; else the shape stands as it was recorded."""
        return self.unstarted + self.set_aside < self.tried


@dataclass(frozen=True, slots=True)
class Tuned:
    """A shape's settings, and what its seeds say of the best.

    Attributes:
        setting: the best one and how many were tried, for the reader.
        fit: the choice by seed; None where there was none to make, or no second seed to make it.
    """

    setting: TunedSetting
    fit: CrossFit | None


def tuned_runs(
    runs: pd.DataFrame,
    *,
    config: Sequence[str],
    nuisance: Sequence[str],
    goal: Goal,
    value: str = "value",
    what: str = "shape",
) -> tuple[pd.DataFrame, dict[Key, Tuned], list[str]]:
    """Return one run a shape and seed, each shape's settings by its axis values, and warnings.

    Settings compete if they lost no run to early stopping and have as many full-budget runs that
    learned something as any setting of their shape; the others are set aside and counted. Where a
    single one is left that was given more seeds than all others, these confirm it: the seeds that
    it shares with others had a part in choosing it, and are left out. A shape of which no setting
    competes is returned as it is.

    Args:
        runs: checked rows (`Runs.rows`), one a shape, setting and seed.
        config, nuisance: the columns that name shapes and settings.
        goal: whether smaller or larger is better in the column ``value``.
        what: what a shape is called in warnings.

    The rows that are returned keep their index.
    """
    sign = 1.0 if goal == "max" else -1.0
    kept: list[int] = []
    tuned: dict[Key, Tuned] = {}
    table = _Table(
        runs["complete"].tolist(),
        runs["status"].tolist(),
        runs["replicate"].astype(str).tolist(),
        runs[value].tolist(),
    )
    for key, rows in _by_values(runs, config):
        settings = [
            _Setting.of(values, at, table) for values, at in _by_values(runs, nuisance, rows)
        ]
        competing = _competing(settings)
        chosen, fit, best = _chosen(competing, settings, sign)
        kept += chosen if competing else rows
        tuned[key] = Tuned(_told(settings, competing, best, fit, nuisance), fit)
    return runs.iloc[sorted(kept)], tuned, _warnings(tuned, nuisance, what)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting of a shape: its values, and row and quality of each full-budget seed.

    ``started`` are the seeds of all its runs, ``learned`` how many have learned something.
    """

    values: Key
    is_stopped: bool
    rows: dict[str, int]
    value: dict[str, float]
    started: frozenset[str]
    learned: int

    @classmethod
    def of(cls, values: Key, at: list[int], table: "_Table") -> "_Setting":
        full = [row for row in at if table.complete[row]]
        return cls(
            values,
            any(table.status[row] in DROPPED for row in at),
            {table.replicate[row]: row for row in full},
            {table.replicate[row]: float(table.value[row]) for row in full},
            frozenset(table.replicate[row] for row in at if table.has_started(row)),
            sum(table.status[row] != AT_CHANCE for row in full),
        )


class _Table(NamedTuple):
    """The columns of a table of runs that tell how each ended."""

    complete: list[bool]
    status: list[str]
    replicate: list[str]
    value: list[float]

    def has_started(self, row: int) -> bool:
        return self.status[row] not in ("planned", NOT_NEEDED)


def _by_values(
    runs: pd.DataFrame, columns: Sequence[str], at: Sequence[int] | None = None
) -> list[tuple[Key, list[int]]]:
    """Return the rows at each combination of values, in the values' order."""
    rows = list(range(len(runs))) if at is None else list(at)
    values = [runs[name].iloc[rows].tolist() for name in columns]
    keys = dict(
        zip(rows, (tuple(map(plain, key)) for key in zip(*values, strict=True)), strict=True)
    )
    order = {key: rank for rank, key in enumerate(sorted(set(keys.values()), key=_in_order))}
    rows.sort(key=lambda row: order[keys[row]])
    return [(key, list(group)) for key, group in groupby(rows, key=keys.__getitem__)]


def _in_order(key: Key) -> list[tuple[bool, float, str]]:
    return [in_order(value) for value in key]


def _competing(settings: Sequence[_Setting]) -> list[_Setting]:
    usable = [each for each in settings if each.rows and not each.is_stopped]
    most = max((each.learned for each in usable), default=0)
    if most:
        return [each for each in usable if each.learned == most]
    # Nothing was learned at any setting: the values are what there is to say.
    full = max((len(each.rows) for each in usable), default=0)
    return [each for each in usable if len(each.rows) == full]


def _chosen(
    competing: Sequence[_Setting], settings: Sequence[_Setting], sign: float
) -> tuple[list[int], CrossFit | None, _Setting | None]:
    """Return the rows that stand for a shape, how they were chosen, and the best setting."""
    if len(competing) < 2:
        best = competing[0] if competing else None
        return _confirmed(best, settings) if best else [], None, best
    common = [
        name for name in competing[0].rows if all(name in other.rows for other in competing[1:])
    ]
    if len(common) < 2:
        # Nothing but a single run to choose by: its value is shown, and supports no test.
        best = max(competing, key=lambda each: max(sign * value for value in each.value.values()))
        name = max(best.value, key=lambda name: sign * best.value[name])
        return [best.rows[name]], None, best
    quality = sign * np.array([[each.value[name] for name in common] for each in competing])
    fit = cross_fit(quality)
    rows = [competing[k].rows[name] for k, name in zip(fit.picked, common, strict=True)]
    return rows, fit, competing[fit.best]


def _confirmed(best: _Setting, settings: Sequence[_Setting]) -> list[int]:
    """Return the runs with seeds that no other setting was given, all runs if these are too few."""
    others = frozenset[str]().union(*(each.started for each in settings if each is not best))
    own = [row for name, row in best.rows.items() if name not in others]
    return own if len(own) >= 2 else list(best.rows.values())


def _told(
    settings: Sequence[_Setting],
    competing: Sequence[_Setting],
    best: _Setting | None,
    fit: CrossFit | None,
    nuisance: Sequence[str],
) -> TunedSetting:
    unstarted = sum(not each.started for each in settings) if best is not None else 0
    best = best or settings[0]
    at_edge = []
    for place, name in enumerate(nuisance):
        tried = {each.values[place] for each in settings}
        numbers = [value for value in tried if not isinstance(value, str)]
        if len(numbers) == len(tried) > 1 and best.values[place] in (min(numbers), max(numbers)):
            at_edge.append(name)
    return TunedSetting(
        values=dict(zip(nuisance, best.values, strict=True)),
        tried=len(settings),
        unstarted=unstarted,
        set_aside=len(settings) - len(competing) - unstarted,
        at_edge=tuple(at_edge),
        is_single=len(competing) > 1 and fit is None,
    )


def _warnings(tuned: dict[Key, Tuned], nuisance: Sequence[str], what: str) -> list[str]:
    named = ", ".join(nuisance)
    numbers = sorted({each.setting.tried for each in tuned.values()})
    found = []
    if len(numbers) > 1 and not any(each.setting.unstarted for each in tuned.values()):
        found.append(
            f"{what}s were tried with {numbers[0]} to {numbers[-1]} settings of {named}; each"
            " seed's run is taken from the setting that the other seeds chose, which favours none"
        )
    if scouted := sum(each.setting.unstarted > 0 for each in tuned.values()):
        found.append(
            f"the {named} of {scouted} of {len(tuned)} {what}s was chosen by seeds of their own,"
            " which are not counted"
        )
    if aside := sum(each.setting.set_aside for each in tuned.values()):
        found.append(
            f"{aside} settings of {named} lack full-budget runs that others of their {what} have"
            " (stopped early, diverged, at chance, failed or not run yet) and do not compete"
        )
    if single := sum(each.setting.is_single for each in tuned.values()):
        found.append(
            f"{single} {what}s have no two seeds that all their settings share: choosing {named}"
            " takes at least 2, the same for every setting, so the best run is shown, which"
            " flatters it and supports no test"
        )
    for name in nuisance:
        if edges := sum(name in each.setting.at_edge for each in tuned.values()):
            found.append(
                f"the best {name} of {edges} of {len(tuned)} {what}s is the smallest or largest"
                f" tried; a wider range of {name} may change the answer"
            )
    return found
