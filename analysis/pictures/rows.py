"""What the pictures show, as rows: computed here once, drawn by the figures and plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pandas as pd

from analysis.pictures import palette
from analysis.questions.lean.result import LeanResult, LeanRow
from analysis.questions.pareto.result import FrontClass, ParetoResult
from analysis.questions.transition.result import CLAIMS, TransitionResult
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    NONE,
    cost_text,
    cost_title,
    number_text,
    p_text,
    percent_text,
    setting_text,
)
from analysis.values import Config, Number
from hsweep.design.question import Goal, Scale

MAX_FOREST_ROWS: Final = 40
MAX_RUN_POINTS: Final = 1500


@dataclass(frozen=True, slots=True)
class GridAxis:
    """Where the values of an ordered axis stand in a picture.

    A grid whose steps grow (1, 2, 4, 8) is spaced by log2, any other as it is.
    """

    values: tuple[Number, ...]
    is_log: bool

    @classmethod
    def of(cls, values: Iterable[Number]) -> "GridAxis":
        """Choose the spacing for these values."""
        grid = tuple(sorted(set(values)))
        steps = [after - before for before, after in pairwise(grid)]
        grows = len(steps) >= 2 and max(steps) >= 3 * min(steps)
        return cls(grid, grows and grid[0] > 0 and grid[-1] >= 8 * grid[0])

    def at(self, value: Number) -> float:
        """Return the position of ``value``."""
        return math.log2(value) if self.is_log else float(value)

    @property
    def positions(self) -> list[float]:
        """Positions of the grid values."""
        return [self.at(value) for value in self.values]

    @property
    def labels(self) -> list[str]:
        """Names of the grid values."""
        return [number_text(value) for value in self.values]

    @property
    def step(self) -> float:
        """Smallest distance between two neighbours; 1 where there are none."""
        positions = self.positions
        gaps = [after - before for before, after in pairwise(positions)]
        return min(gaps, default=1.0)


@dataclass(frozen=True, slots=True)
class LengthSeries:
    """The error against the searched axis at one value of the modulating axis.

    Attributes:
        by: that value; None where nothing modulates.
        runs: (x, error, replicate) of every full-budget run.
        cells: (x, error) of every cell, under the leading reading.
        lossy: (x, error, losses in words) of those cells that are read from the runs left.
    """

    by: Number | None
    runs: tuple[tuple[Number, float, str], ...]
    cells: tuple[tuple[Number, float], ...]
    lossy: tuple[tuple[Number, float, str], ...] = ()


def error_of(y: float, scale: Scale) -> float:
    """Return the error that stands for ``y``: undoes the logarithm, leaves nats as they are."""
    return y if scale == "loss" else 10.0**y


def length_series(result: TransitionResult) -> list[LengthSeries]:
    """Return one series a length, ascending, with at most about `MAX_RUN_POINTS` runs in all."""
    every = math.ceil(len(result.runs) / MAX_RUN_POINTS) or 1
    keys = {run.by for run in result.runs} | {cell.by for cell in result.cells}
    lost = {(cell.x, cell.by): cell.losses for cell in result.counts if cell.losses.total}
    return [
        LengthSeries(
            by=by,
            runs=tuple(
                (run.x, error_of(run.y, result.scale), run.replicate)
                for run in [run for run in result.runs if run.by == by][::every]
            ),
            cells=tuple(
                (cell.x, error_of(cell.z, result.scale))
                for cell in sorted(result.cells, key=lambda cell: cell.x)
                if cell.by == by and math.isfinite(cell.z)
            ),
            lossy=tuple(
                (cell.x, error_of(cell.z, result.scale), lost[cell.x, cell.by].text)
                for cell in sorted(result.cells, key=lambda cell: cell.x)
                if cell.by == by and math.isfinite(cell.z) and (cell.x, cell.by) in lost
            ),
        )
        for by in sorted(keys, key=lambda key: (key is not None, key or 0))
    ]


_PLACED: Final = (*CLAIMS, "plateau", "suggested")
"""Verdicts that place a drop."""


def bracket_span(result: TransitionResult, axis: GridAxis) -> tuple[float, float] | None:
    """Return the ends of the drop's bracket on the axis, None where the verdict places none."""
    if result.bracket is None or result.verdict not in _PLACED:
        return None
    low, high = result.bracket
    left = axis.at(low) if low > 0 or not axis.is_log else axis.positions[0] - axis.step
    return left, axis.at(high)


def drop_note(result: TransitionResult) -> str:
    """Return the p value beside the largest drop, in few words."""
    if not result.abrupt_testable:
        return "not testable"
    return f"{p_text(result.p_abrupt)}{' (no test)' if result.noise_gap else ''}"


def slope_shades(result: TransitionResult) -> dict[Number, palette.Shade]:
    """Return the shade of each slope's interval; grey throughout where noise is not measured."""
    limit = result.settings.delta_T
    return {
        x: palette.GREY if result.noise_gap else slope_shade(slope, limit)
        for x, slope in result.gamma.items()
    }


def slope_shade(slope: Interval, tolerated: float | None) -> palette.Shade:
    """Return blue for growth that does not matter, vermillion for growth, grey if it is open."""
    limit = math.inf if tolerated is None else tolerated
    if slope.high <= limit:
        return palette.BLUE
    return palette.VERMILLION if slope.low > limit else palette.GREY


@dataclass(frozen=True, slots=True)
class Comparison:
    """One lean comparison of a study.

    Attributes:
        result: what it found.
        within: the axis that parts the study's comparisons; None where there is only one.
        value: this comparison's value of that axis, in words.
    """

    result: LeanResult
    within: str | None = None
    value: str = ""

    @property
    def heading(self) -> str:
        """Which comparison this is; empty where there is only one."""
        return "" if self.within is None else f"{self.within} = {self.value}"


def query_text(values: Mapping[str, object]) -> str:
    """Return the text that finds the trials with these values in the table of trials."""
    parts = []
    for name, value in values.items():
        # As many digits as the table holds.
        text = f"{value:.7g}" if isinstance(value, float) else value_text(value)
        text = "none" if text == "nan" else text.replace('"', "")
        quoted = not text or any(letter.isspace() for letter in text)
        parts.append(f'{name}="{text}"' if quoted else f"{name}={text}")
    return " ".join(parts)


def run_links(runs: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return name and address of every run whose page is known."""
    return tuple(
        (f"seed {run['seed']}" if "seed" in run else run_id(run["mlflow_url"]), run["mlflow_url"])
        for run in runs
        if _is_text(run.get("mlflow_url"))
    )


def run_id(address: str) -> str:
    """Return the beginning of the run's id in the address of its page."""
    return address.rstrip("/").rsplit("/", 1)[-1][:8]


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One shape in the picture of metric against cost.

    Attributes:
        label: the shape in words.
        cost: its cost; the picture's horizontal axis.
        ci: mean metric with its interval.
        p_front: probability of lying on the front.
        class_: on, off or undecided.
        role: whether it is the baseline or the chosen equivalent.
        details: further lines that describe it.
        query: text that finds its trials in the table of trials.
        links: names and addresses of its runs' pages.
        has_losses: some of its runs gave no number.
    """

    label: str
    cost: float
    ci: Interval
    p_front: float
    class_: FrontClass
    role: str
    details: tuple[str, ...]
    query: str
    links: tuple[tuple[str, str], ...] = ()
    has_losses: bool = False

    @property
    def opacity(self) -> float:
        """How solid to draw it: fainter the less likely it is on the front; half if unknown."""
        return 0.5 if math.isnan(self.p_front) else 0.25 + 0.75 * self.p_front


def front_points(
    pareto: ParetoResult, cost: str, comparisons: Sequence[Comparison], trials: pd.DataFrame
) -> list[FrontPoint]:
    """Return every shape with a known ``cost``, cheapest first."""
    axes = list(dict.fromkeys(name for row in pareto.table for name in row.config))
    runs = runs_by_values(trials, axes)
    points = []
    for row in pareto.table:
        value = row.costs.get(cost, math.nan)
        if not math.isfinite(value):
            continue
        # Runs without a number are named with those that are left.
        is_crashed = row.crash_share > 0 and not row.lost.total
        details = [f"{percent_text(row.crash_share)} of runs crashed"] if is_crashed else []
        details += [f"{cost_title(name)}: {cost_text(name, row.costs[name])}" for name in row.costs]
        details += [f"best setting: {setting_text(row.setting)}"] if row.setting else []
        seeds = runs.get(config_key(row.config), [])
        details.append(f"{row.n} full-budget run{'' if row.n == 1 else 's'}{row.lost.behind}")
        if listed := ", ".join(str(run["seed"]) for run in seeds if "seed" in run):
            details.append(f"seeds: {_shorten(listed)}")
        links = run_links(seeds)
        if links:
            names = ", ".join(run_id(address) for _, address in links)
            details.append(f"MLflow: {_shorten(names)}")
        points.append(
            FrontPoint(
                label=row.label,
                cost=value,
                ci=row.ci,
                p_front=row.p_front,
                class_=row.class_,
                role=_role(row.config, comparisons),
                has_losses=row.lost.total > 0,
                details=tuple(details),
                query=query_text(row.config),
                links=links,
            )
        )
    return sorted(points, key=lambda point: point.cost)


def mean_front(points: Sequence[FrontPoint], goal: Goal) -> list[tuple[float, float]]:
    """Return the corners of the front of the means, as (cost, metric), cheapest first."""
    corners: list[tuple[float, float]] = []
    best = math.inf
    sign = 1.0 if goal == "min" else -1.0
    for point in sorted(points, key=lambda point: (point.cost, sign * point.ci.estimate)):
        if sign * point.ci.estimate < best:
            best = sign * point.ci.estimate
            corners.append((point.cost, point.ci.estimate))
    return corners


def side_by_side(points: Sequence[FrontPoint]) -> list[float]:
    """Return where each point is drawn: at its cost, those of equal cost beside one another.

    The whole group takes at most 5 % of the picture, so that it still reads as one cost.
    """
    costs = [point.cost for point in points]
    if not costs or min(costs) <= 0:
        return costs
    span = math.log10(max(costs) / min(costs)) or 1.0
    ties: dict[float, list[int]] = {}
    for index, cost in enumerate(costs):
        ties.setdefault(float(f"{cost:.9g}"), []).append(index)
    places = list(costs)
    for members in ties.values():
        step = min(0.02, 0.05 / len(members)) * span
        for rank, index in enumerate(members):
            places[index] = costs[index] * 10 ** (step * (rank - (len(members) - 1) / 2))
    return places


def config_key(config: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return a shape as something that can be looked up; 4 and 4.0 are the same."""
    return tuple(sorted((name, value_text(value)) for name, value in config.items()))


def varying_axes(configs: Sequence[Config]) -> list[str]:
    """Return the axes on which these shapes differ, in their own order."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [
        name for name in names if len({value_text(config.get(name, "")) for config in configs}) > 1
    ]


def short_label(config: Config, axes: Sequence[str]) -> str:
    """Return a shape by the values of ``axes`` alone: ``8 · 4 · 64``."""
    return " · ".join(value_text(config[name]) if name in config else NONE for name in axes)


@dataclass(frozen=True, slots=True)
class ForestBlock:
    """The candidates of one comparison in the forest plot.

    Attributes:
        heading: which comparison it is; empty where there is only one.
        result: the comparison.
        rows: its drawn candidates, cheapest first.
        axes: what tells them and the baseline apart.
        labels: each row by the values of ``axes``.
    """

    heading: str
    result: LeanResult
    rows: tuple[LeanRow, ...]
    axes: tuple[str, ...]
    labels: tuple[str, ...]


def forest_blocks(comparisons: Sequence[Comparison]) -> list[ForestBlock]:
    """Return the blocks of the forest plot, leaving out comparisons without a candidate."""
    found = []
    share = max(3, MAX_FOREST_ROWS // max(1, len(comparisons)))
    for comparison in comparisons:
        result = comparison.result
        rows = forest_rows(result, share)
        if rows:
            axes = varying_axes([*(row.config for row in rows), result.baseline])
            axes = axes or list(rows[0].config)
            labels = unique_names([short_label(row.config, axes) for row in rows])
            heading = comparison.heading and f"{comparison.heading} ({' · '.join(axes)})"
            found.append(ForestBlock(heading, result, tuple(rows), tuple(axes), tuple(labels)))
    return found


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, those that occur twice with a number behind them."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]


def forest_rows(lean: LeanResult, most: int = MAX_FOREST_ROWS) -> list[LeanRow]:
    """Return the candidates of the forest plot, cheapest first.

    Beyond ``most`` candidates the accepted ones and then those with the highest lower bound are
    kept.
    """
    cost = lean.costs[0]
    rows = [row for row in lean.table if math.isfinite(row.diff)]
    if len(rows) > most:
        rows = sorted(rows, key=lambda row: (not row.accepted, -_finite(row.ci.low)))
        rows = rows[:most]
    return sorted(rows, key=lambda row: (row.costs.get(cost, math.inf), row.label))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def runs_by_values(
    trials: pd.DataFrame, names: Sequence[str]
) -> dict[tuple[tuple[str, str], ...], list[dict[str, Any]]]:
    """Return seed and page of the finished trials, by their values of ``names`` (`config_key`)."""
    if trials.empty or not names or not set(names) <= set(trials.columns):
        return {}
    finished = trials[trials["status"] == "finished"] if "status" in trials.columns else trials
    told = [name for name in ("seed", "mlflow_url") if name in trials.columns]
    values = {name: finished[name].tolist() for name in dict.fromkeys([*names, *told])}
    found: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    texts = [_value_texts(values[name]) for name in sorted(set(names))]
    for at, key in enumerate(zip(*texts, strict=True)):
        named = tuple(zip(sorted(set(names)), key, strict=True))
        found.setdefault(named, []).append({name: values[name][at] for name in told})
    return found


def _value_texts(values: Sequence[object]) -> list[str]:
    """Return values in words; one that stands there often is looked at once."""
    known: dict[object, str] = {}
    texts = []
    for value in values:
        alike = (type(value), value)
        if alike not in known:
            known[alike] = value_text(value)
        texts.append(known[alike])
    return texts


def _role(config: Config, comparisons: Sequence[Comparison]) -> str:
    for comparison in comparisons:
        lean, within = comparison.result, comparison.within
        if within is not None and str(config.get(within)) != comparison.value:
            continue
        if _matches(lean.baseline, config):
            return "baseline"
        if lean.choice_config is not None and _matches(lean.choice_config, config):
            return "chosen"
    return ""


def _matches(wanted: Config, config: Config) -> bool:
    return bool(wanted) and set(config_key(wanted)) <= set(config_key(config))


def value_text(value: object) -> str:
    """Return an axis value in words; a missing one is ``none``, and 4 and 4.0 are the same."""
    if value is None or value != value:  # NaN: an axis without a value
        return "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = math.isfinite(value) and float(value) == int(value)
        return str(int(value)) if whole else f"{value:g}"
    return str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
