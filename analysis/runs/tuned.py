"""Shapes, or cells, that were tried with several settings of a nuisance axis: one run a seed is
kept of each.

Which setting a seed's run is taken from is decided by the other seeds (`statistics.cross_fitting`),
so that a shape tried with more settings gains nothing by it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np

from analysis.runs.columns import Key, rows_by_values
from analysis.runs.rows import RunRows
from analysis.runs.statuses import AT_CHANCE, DROPPED, NOT_NEEDED
from analysis.statistics.cross_fitting import CrossFit, cross_fit
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, Config, describe
from hsweep.design.scales import Goal


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
        lacks: a setting that it was not tried with, unlike most, and that is the best of another
            shape; None where there is none.
    """

    values: Config
    tried: int
    unstarted: int
    set_aside: int
    at_edge: tuple[str, ...]
    is_single: bool
    lacks: Config | None = None

    @property
    def competed(self) -> bool:
        """Whether any setting competes; else the shape stands as it was recorded."""
        return self.unstarted + self.set_aside < self.tried


@dataclass(frozen=True, slots=True)
class Tuned:
    """A shape's best setting, and the choice by seed.

    Attributes:
        fit: None where there was no choice to make, or no second seed to make it.
    """

    setting: TunedSetting
    fit: CrossFit | None


def tuned_runs(
    rows: RunRows,
    *,
    config: Sequence[str],
    nuisance: Sequence[str],
    goal: Goal,
    value: str = "value",
    noun: str = "shape",
) -> tuple[RunRows, dict[Key, Tuned], list[str]]:
    """Return one run a shape and seed, each shape's setting by its axis values, and warnings.

    Settings compete if they lost no run to early stopping and have as many full-budget runs that
    learned something as any setting of their shape; the others are set aside and counted. Where a
    single one is left that was given more seeds than all others, these confirm it: the seeds that
    it shares with others had a part in choosing it, and are left out. A shape of which no setting
    competes is returned as it is.

    Args:
        rows: one a shape, setting and seed; they keep their index.
        config, nuisance: the columns that name shapes and settings.
        goal: whether smaller or larger is better in the runs' column ``value``.
    """
    positions: list[int] = []
    tuned: dict[Key, Tuned] = {}
    tried: dict[Key, set[Key]] = {}
    quality = (1.0 if goal == "max" else -1.0) * rows.runs[value].to_numpy(np.float64)
    size = len(config)
    for key, group in groupby(
        _settings(rows, [*config, *nuisance]), lambda setting: setting.values[:size]
    ):
        settings = list(group)
        competing = _competing(settings)
        chosen, fit, best = _choose(competing, settings, quality)
        positions += chosen
        at = (best or settings[0]).values[size:]
        unstarted = 0 if best is None else sum(not setting.started for setting in settings)
        tried[key] = {setting.values[size:] for setting in settings}
        axis_values = zip(*tried[key], strict=True)
        summary = TunedSetting(
            values=dict(zip(nuisance, at, strict=True)),
            tried=len(settings),
            unstarted=unstarted,
            set_aside=len(settings) - len(competing) - unstarted,
            at_edge=tuple(
                name
                for name, value, values in zip(nuisance, at, axis_values, strict=True)
                if _is_at_edge(value, set(values))
            ),
            is_single=len(competing) > 1 and fit is None,
        )
        tuned[key] = Tuned(summary, fit)
    number = Counter(chain.from_iterable(tried.values()))
    bests = dict.fromkeys(tuple(choice.setting.values.values()) for choice in tuned.values())
    usual = [values for values in bests if 2 * number[values] > len(tuned)]
    for key, choice in tuned.items():
        if lacking := [values for values in usual if values not in tried[key]]:
            lacks = dict(zip(nuisance, lacking[0], strict=True))
            tuned[key] = replace(choice, setting=replace(choice.setting, lacks=lacks))
    return rows.at(sorted(positions)), tuned, _warnings(tuned, nuisance, noun)


@dataclass(frozen=True, slots=True)
class _Setting:
    """The runs of one setting of a shape.

    Attributes:
        values: of all axes, those of the shape first.
        at: positions of its rows.
        full: position of each full-budget run, by its seed.
        started: seeds of the runs that were started.
        num_learned: full-budget runs that have learned something.
    """

    values: Key
    at: list[int]
    full: dict[str, int]
    started: frozenset[str]
    is_stopped: bool
    num_learned: int


def _settings(rows: RunRows, columns: Sequence[str]) -> Iterator[_Setting]:
    """Yield the settings in the order of their values, shape by shape."""
    complete, status = rows.runs["complete"].tolist(), rows.runs["status"].tolist()
    seed = rows.runs["replicate"].astype(str).tolist()
    for values, positions in rows_by_values(rows.keys, columns):
        at = positions.tolist()
        full = {seed[row]: row for row in at if complete[row]}
        yield _Setting(
            values,
            at,
            full,
            frozenset(seed[row] for row in at if status[row] not in ("planned", NOT_NEEDED)),
            any(status[row] in DROPPED for row in at),
            sum(status[row] != AT_CHANCE for row in full.values()),
        )


def _competing(settings: Sequence[_Setting]) -> list[_Setting]:
    usable = [setting for setting in settings if setting.full and not setting.is_stopped]
    highest = max((setting.num_learned for setting in usable), default=0)
    if highest:
        return [setting for setting in usable if setting.num_learned == highest]
    # Nothing was learned at any setting: the values are what there is to say.
    full = max((len(setting.full) for setting in usable), default=0)
    return [setting for setting in usable if len(setting.full) == full]


def _choose(
    competing: Sequence[_Setting], settings: Sequence[_Setting], quality: FloatArray
) -> tuple[list[int], CrossFit | None, _Setting | None]:
    """Return the rows that stand for a shape, how they were chosen, and the best setting."""
    if not competing:
        return [row for setting in settings for row in setting.at], None, None
    first, *others = competing
    if not others:
        # Seeds that no other setting was given confirm it, unless these are too few.
        shared = frozenset[str]().union(
            *(other.started for other in settings if other is not first)
        )
        fresh = [row for seed, row in first.full.items() if seed not in shared]
        rows = fresh if len(fresh) >= 2 else list(first.full.values())
        return rows, None, first
    common = [seed for seed in first.full if all(seed in setting.full for setting in others)]
    if len(common) < 2:
        # Nothing but a single run to choose by: its value is shown, and supports no test.
        single = [(row, setting) for setting in competing for row in setting.full.values()]
        row, best = max(single, key=lambda run: quality[run[0]])
        return [row], None, best
    at = np.array([[setting.full[seed] for seed in common] for setting in competing])
    fit = cross_fit(quality[at])
    return at[fit.picked, range(len(common))].tolist(), fit, competing[fit.best]


def _is_at_edge(value: AxisValue, values: set[AxisValue]) -> bool:
    """Whether a value is the smallest or largest of several numbers."""
    numbers = [other for other in values if not isinstance(other, str)]
    return len(numbers) == len(values) > 1 and value in (min(numbers), max(numbers))


def _warnings(tuned: dict[Key, Tuned], nuisance: Sequence[str], noun: str) -> list[str]:
    names = ", ".join(nuisance)
    settings = [choice.setting for choice in tuned.values()]
    numbers = sorted({setting.tried for setting in settings})
    warnings = []
    num_scouted = sum(setting.unstarted > 0 for setting in settings)
    single = sum(setting.is_single for setting in settings)
    if len(numbers) > 1 and not num_scouted and not single:
        warnings.append(
            f"{noun}s were tried with {numbers[0]} to {numbers[-1]} settings of {names}; each"
            " seed's run is taken from the setting that the other seeds chose, which favours none"
        )
    for lacks, few in Counter(
        describe(setting.lacks) for setting in settings if setting.lacks
    ).items():
        warnings.append(
            f"{few} of {len(tuned)} {noun}s {'was' if few == 1 else 'were'} not tried at {lacks},"
            " which is best elsewhere"
        )
    if num_scouted:
        warnings.append(
            f"the {names} of {num_scouted} of {len(tuned)} {noun}s was chosen by seeds of their"
            " own, which are not counted"
        )
    if aside := sum(setting.set_aside for setting in settings):
        warnings.append(
            f"{aside} settings of {names} lack full-budget runs that others of their {noun} have"
            " (stopped early, diverged, at chance, failed or not run yet) and do not compete"
        )
    if single:
        warnings.append(
            f"{single} {noun}s have no two seeds that all their settings share: choosing {names}"
            " takes at least 2, the same for every setting, so the best run is shown, which"
            " flatters it and supports no test"
        )
    for name in nuisance:
        if edges := sum(name in setting.at_edge for setting in settings):
            warnings.append(
                f"the best {name} of {edges} of {len(tuned)} {noun}s is the smallest or largest"
                f" tried; a wider range of {name} may change the answer"
            )
    return warnings
