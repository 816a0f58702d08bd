"""The surrogate itself: shapes with their means in, predictions out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.questions.surrogate.result import Prediction, SurrogateSettings, TriedShape
from analysis.questions.surrogate.space import ShapeSpace
from analysis.runs.configurations import describe
from analysis.runs.scale import metric_span
from analysis.runs.shape_runs import to_metric, to_quality
from analysis.statistics.bounds import Span, clipped
from analysis.statistics.cost_model import CostModel
from analysis.statistics.gaussian_process import GaussianProcess, Mixture
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue, Config
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError, unknown_name

_MOST_NUMBERS = 2e7
_WORST_COST_ERROR = 0.05
_EXACT = 1e-6


@dataclass(frozen=True)
class SurrogateModel:
    """A process fitted to shapes; the fields are those of `SurrogateResult`.

    ``reference`` is the label of the shape that others are compared with.
    """

    shapes: tuple[TriedShape, ...]
    axes: tuple[str, ...]
    names: tuple[str, ...]
    fixed: Config
    follows: dict[str, str]
    reference: str
    seed_sd: float | None
    goal: Goal
    scale: Scale | None
    settings: SurrogateSettings

    @cached_property
    def space(self) -> ShapeSpace:
        return ShapeSpace.of(self.axes, self.names, [shape.config for shape in self.shapes])

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
    def groups(self) -> list[tuple[str, ...]]:
        return [self._named(shape.config) for shape in self.shapes]

    @cached_property
    def reference_shape(self) -> TriedShape:
        return next(shape for shape in self.shapes if shape.label == self.reference)

    @cached_property
    def cost_models(self) -> dict[tuple[str, ...], CostModel]:
        """One model of the cost for each combination of names."""
        groups: dict[tuple[str, ...], list[TriedShape]] = {}
        for shape in self.shapes:
            if shape.cost is not None:
                groups.setdefault(self._named(shape.config), []).append(shape)
        return {
            named: CostModel(
                self._raw([shape.config for shape in group]),
                np.array([shape.cost for shape in group], dtype=np.float64),
            )
            for named, group in groups.items()
        }

    def _named(self, config: Mapping[str, AxisValue]) -> tuple[str, ...]:
        return tuple(str(config[name]) for name in self.names)

    def _raw(self, configs: Sequence[Mapping[str, AxisValue]]) -> FloatArray:
        return np.array([[float(c[axis]) for axis in self.axes] for c in configs])

    def label(self, config: Mapping[str, AxisValue]) -> str:
        return describe({name: config[name] for name in (*self.axes, *self.names)})

    def cost(self, config: Mapping[str, AxisValue]) -> float | None:
        """Return the cost of a shape: known, or estimated where that works within 5 %."""
        for shape in self.shapes:
            if shape.label == self.label(config):
                return shape.cost
        model = self.cost_models.get(self._named(config))
        if model is None or model.error > _WORST_COST_ERROR:
            return None
        cost = float(model.predict(self._raw([config]))[0])
        return float(round(cost)) if model.error < _EXACT else cost

    def predictions(self, configs: Sequence[Config]) -> tuple[Prediction, ...]:
        if not configs:
            return ()
        features = self.space.features(configs)
        mixture = self.process.predict(features, [self._named(c) for c in configs])
        seed = (self.seed_sd or 0.0) ** 2
        run = Mixture(mixture.weight, mixture.mean, mixture.variance + seed)
        at = self.shapes.index(self.reference_shape)
        alike = [self._named(config) == self.groups[at] for config in configs]
        no_worse = self.process.differences(features, at).probability_above(-self.margin)
        means, runs = self.intervals(mixture), self.intervals(run)
        tried = {shape.label for shape in self.shapes}
        found = []
        for k, config in enumerate(configs):
            shown = {name: config[name] for name in (*self.axes, *self.names)}
            why = self.space.beyond(config) or self._unlike(config)
            found.append(
                Prediction(
                    config=shown,
                    label=self.label(config),
                    mean=means[k],
                    run=runs[k],
                    extrapolates=bool(why),
                    why=why,
                    tried=self.label(config) in tried,
                    cost=self.cost(config),
                    p_no_worse=self._p(float(no_worse[k]), config, alike[k]),
                )
            )
        return tuple(found)

    def _p(self, no_worse: float, config: Config, is_alike: bool) -> float:
        if not is_alike:
            return math.nan  # another family or task: its level is not compared
        return 1.0 if self.label(config) == self.reference else no_worse

    def intervals(self, mixture: Mixture) -> list[Interval]:
        """Return each mixture's centre and interval as metrics, cut at the ends of their range."""
        tail = (1 - self.settings.confidence) / 2
        columns = (mixture.centre, mixture.quantile(tail), mixture.quantile(1 - tail))
        found = []
        for centre, low, high in zip(*columns, strict=True):
            ends = sorted(to_metric(float(end), self.goal, self.scale) for end in (low, high))
            middle = to_metric(float(centre), self.goal, self.scale)
            found.append(clipped(Interval(middle, *ends), self.span))
        return found

    @cached_property
    def span(self) -> Span:
        return metric_span((shape.metric for shape in self.shapes), self.goal, self.scale)

    @property
    def margin(self) -> float:
        """The margin as a difference in quality at the reference."""
        metric, margin = self.reference_shape.metric, self.settings.margin
        if not margin:
            return 0.0
        worse = metric + margin if self.goal == "min" else metric - margin
        here = to_quality(metric, self.goal, self.scale)
        return here - to_quality(worse, self.goal, self.scale)

    def _unlike(self, config: Mapping[str, AxisValue]) -> str:
        """Return how ``config`` departs from what never varied or moved with another axis."""
        for name, value in config.items():
            if name in self.fixed and self.fixed[name] != value:
                return f"{name} was {self.fixed[name]} throughout"
            if name in self.follows:
                leaders = [axis for axis in self.axes if axis in self.follows[name].split(" and ")]
                alike = {
                    shape.config[name]
                    for shape in self.shapes
                    if all(shape.config[axis] == config[axis] for axis in leaders)
                }
                if alike != {value}:
                    return f"{name} moved with {self.follows[name]} in every shape tried"
        return ""

    def complete(self, shape: Mapping[str, AxisValue]) -> Config:
        """Return ``shape`` checked: a value for every axis and no unknown one.

        Raises:
            UserError: with the axes there are.
        """
        needed = (*self.axes, *self.names)
        known = (*needed, *self.follows, *self.fixed)
        for name, value in shape.items():
            if name not in known:
                raise unknown_name("axis in a shape to predict:", name, known)
            if name in self.axes and (
                isinstance(value, str | bool) or not math.isfinite(float(value))
            ):
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
