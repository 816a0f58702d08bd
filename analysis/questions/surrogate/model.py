"""The surrogate itself: shapes with their means in, predictions out."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from analysis.questions.surrogate.result import Prediction, SurrogateSettings, TriedShape
from analysis.questions.surrogate.space import ShapeSpace
from analysis.runs.configurations import describe
from analysis.runs.scale import metric_span
from analysis.runs.shape_runs import ShapeRuns, to_metric, to_quality
from analysis.statistics.bounds import clipped
from analysis.statistics.cost_model import CostModel
from analysis.statistics.gaussian_process import GaussianProcess, Mixture
from analysis.statistics.moderated import moderate
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue, Config
from hsweep.errors import UserError, unknown_name

_MOST_NUMBERS = 2e7
_WORST_COST_ERROR = 0.05
_EXACT = 1e-6
_UNKNOWN = Interval(math.nan, math.nan, math.nan)


class SurrogateModel:
    """A process fitted to the usable shapes of a table.

    Args:
        runs: the shapes.
        baseline: axis values of the shape that others are compared with; None takes the best mean.
        settings: levels, draws, margin, seed.

    Raises:
        UserError: a baseline that picks no shape or several.
    """

    def __init__(
        self,
        runs: ShapeRuns,
        baseline: Mapping[str, AxisValue] | None,
        settings: SurrogateSettings,
    ) -> None:
        self.runs, self.settings = runs, settings
        self.shapes, self.seed_sd = _learn(runs)
        self.reference = _reference(self.shapes, baseline, runs)
        varying = {*runs.axes, *runs.names, *runs.follows}
        self.fixed = {
            name: value for name, value in runs.shapes[0].config.items() if name not in varying
        }
        configs = [shape.config for shape in self.shapes]
        self.space = ShapeSpace(runs.axes, runs.names, configs)
        self.groups = [self.space.named(config) for config in configs]
        self._costs = {shape.label: shape.cost for shape in self.shapes}
        self._span = metric_span((shape.metric for shape in self.shapes), runs.goal, runs.scale)

    @cached_property
    def process(self) -> GaussianProcess:
        """The fitted process; the draws are fewer where many shapes make each one dear."""
        affordable = max(32, int(_MOST_NUMBERS / len(self.shapes) ** 2))
        return GaussianProcess(
            self.space.features([shape.config for shape in self.shapes]),
            np.array([shape.quality for shape in self.shapes]),
            np.array([shape.noise for shape in self.shapes]),
            self.groups,
            min(self.settings.draws, affordable),
            self.settings.rng_seed,
        )

    @cached_property
    def cost_models(self) -> dict[tuple[str, ...], CostModel]:
        """One model of the cost for each combination of names."""
        groups: dict[tuple[str, ...], list[TriedShape]] = {}
        for shape, named in zip(self.shapes, self.groups, strict=True):
            if shape.cost is not None:
                groups.setdefault(named, []).append(shape)
        return {
            named: CostModel(
                self._raw([shape.config for shape in group]),
                np.array([shape.cost for shape in group], dtype=np.float64),
            )
            for named, group in groups.items()
        }

    def _raw(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        return np.array([[float(c[axis]) for axis in self.runs.axes] for c in configs])

    def _varying(self, config: Mapping[str, AxisValue]) -> Config:
        return {name: config[name] for name in (*self.runs.axes, *self.runs.names)}

    def label(self, config: Mapping[str, AxisValue]) -> str:
        return describe(self._varying(config))

    def cost(self, config: Mapping[str, AxisValue]) -> float | None:
        """Return the cost of a shape: known, or estimated where that works within 5 %."""
        label = self.label(config)
        if label in self._costs:
            return self._costs[label]
        model = self.cost_models.get(self.space.named(config))
        if model is None or model.error > _WORST_COST_ERROR:
            return None
        cost = float(model.predict(self._raw([config]))[0])
        return float(round(cost)) if model.error < _EXACT else cost

    def predictions(self, configs: Sequence[Config]) -> tuple[Prediction, ...]:
        """Return what to expect of ``configs``, each with a value for every axis."""
        if not configs:
            return ()
        features = self.space.features(configs)
        groups = [self.space.named(config) for config in configs]
        mixture = self.process.predict(features, groups)
        seed = (self.seed_sd or 0.0) ** 2
        run = Mixture(mixture.weight, mixture.mean, mixture.variance + seed)
        at = self.shapes.index(self.reference)
        no_worse = self.process.differences(features, at).probability_above(-self.margin)
        found = []
        for config, group, p, mean, of_run in zip(
            *(configs, groups, no_worse, self.intervals(mixture), self.intervals(run)), strict=True
        ):
            label, why = self.label(config), self.space.beyond(config) or self._unlike(config)
            if group != self.groups[at]:
                p = math.nan  # another family or task: its level is not compared
            found.append(
                Prediction(
                    config=self._varying(config),
                    label=label,
                    mean=mean,
                    run=of_run,
                    extrapolates=bool(why),
                    why=why,
                    tried=label in self._costs,
                    cost=self.cost(config),
                    p_no_worse=1.0 if label == self.reference.label else float(p),
                )
            )
        return tuple(found)

    def intervals(self, mixture: Mixture) -> list[Interval]:
        """Return each mixture's centre and interval as metrics, cut at the ends of their range."""
        goal, scale = self.runs.goal, self.runs.scale
        tail = (1 - self.settings.confidence) / 2
        columns = (mixture.centre, mixture.quantile(tail), mixture.quantile(1 - tail))
        found = []
        for centre, low, high in zip(*columns, strict=True):
            ends = sorted(to_metric(float(end), goal, scale) for end in (low, high))
            found.append(
                clipped(Interval(to_metric(float(centre), goal, scale), *ends), self._span)
            )
        return found

    @property
    def margin(self) -> float:
        """The margin as a difference in quality at the reference."""
        metric, margin = self.reference.metric, self.settings.margin
        if not margin:
            return 0.0
        goal, scale = self.runs.goal, self.runs.scale
        worse = metric + margin if goal == "min" else metric - margin
        return to_quality(metric, goal, scale) - to_quality(worse, goal, scale)

    def _unlike(self, config: Mapping[str, AxisValue]) -> str:
        """Return how ``config`` departs from what never varied or moved with another axis."""
        follows = self.runs.follows
        for name, value in config.items():
            if name in self.fixed and self.fixed[name] != value:
                return f"{name} was {self.fixed[name]} throughout"
            if name in follows:
                leaders = [axis for axis in self.runs.axes if axis in follows[name].split(" and ")]
                alike = {
                    shape.config[name]
                    for shape in self.shapes
                    if all(shape.config[axis] == config[axis] for axis in leaders)
                }
                if alike != {value}:
                    return f"{name} moved with {follows[name]} in every shape tried"
        return ""

    def complete(self, shape: Mapping[str, AxisValue]) -> Config:
        """Return ``shape`` checked: a value for every axis and no unknown one.

        Raises:
            UserError: with the axes there are.
        """
        axes = self.runs.axes
        needed = (*axes, *self.runs.names)
        known = (*needed, *self.runs.follows, *self.fixed)
        for name, value in shape.items():
            if name not in known:
                raise unknown_name("axis in a shape to predict:", name, known)
            if name in axes and (isinstance(value, str | bool) or not math.isfinite(float(value))):
                raise UserError(f"{name} of a shape to predict must be a number, not {value!r}")
        missing = [name for name in needed if name not in shape]
        if missing:
            raise UserError(
                f"a shape to predict needs {', '.join(needed)}; {', '.join(missing)} is missing"
            )
        for axis in self.space.logged:
            if float(shape[axis]) <= 0:
                raise UserError(f"{axis} of a shape to predict must be above 0, not {shape[axis]}")
        return dict(shape)


def _learn(runs: ShapeRuns) -> tuple[tuple[TriedShape, ...], float | None]:
    """Return the shapes with the noise of their means, and the seed sd of a run."""
    sd = moderate([np.array(list(shape.quality.values())) for shape in runs.usable]).sd
    known = sd[np.isfinite(sd)]
    seed_sd = float(np.sqrt(np.mean(known**2))) if known.size else None
    sd = np.where(np.isfinite(sd), sd, seed_sd or 0.0)
    return tuple(
        TriedShape(
            config=shape.config,
            label=shape.label,
            quality=shape.mean,
            noise=float(own**2 / len(shape.quality)),
            n=len(shape.quality),
            metric=to_metric(shape.mean, runs.goal, runs.scale),
            cost=shape.cost,
            left_out=_UNKNOWN,
        )
        for shape, own in zip(runs.usable, sd, strict=True)
    ), seed_sd


def _reference(
    tried: Sequence[TriedShape], baseline: Mapping[str, AxisValue] | None, runs: ShapeRuns
) -> TriedShape:
    if baseline is None:
        return max(tried, key=lambda shape: shape.quality)
    columns = runs.shapes[0].config
    foreign = [name for name in baseline if name not in columns]
    if foreign:
        raise UserError(
            f"the baseline names {', '.join(foreign)}; the axes are {', '.join(columns)}"
        )
    picked = [
        shape
        for shape in tried
        if all(shape.config[name] == value for name, value in baseline.items())
    ]
    if len(picked) != 1:
        raise UserError(
            f"the baseline {describe(dict(baseline))} picks {len(picked)} shapes with full-budget"
            f" runs, need exactly 1; there are: {'; '.join(shape.label for shape in tried[:8])}"
        )
    return picked[0]
