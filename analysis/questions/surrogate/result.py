"""What a surrogate learned from the shapes tried, and what it expects of others."""

from dataclasses import dataclass
from typing import Literal

from analysis.statistics.values import Interval
from analysis.values import Config, Jsonable, Number
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError

SkillVerdict = Literal["predicts", "none"]


@dataclass(frozen=True, slots=True)
class SurrogateSettings(Jsonable):
    """Every choice the surrogate makes.

    Attributes:
        confidence: level of every interval.
        alpha: level of the test that the shape tells anything.
        draws: hyperparameter draws; fewer are taken beyond some hundred shapes.
        permutations: shuffles of the shapes' means behind that test.
        rng_seed: seed of draws and shuffles.
        margin: how much worse than the reference still counts as no worse, in the metric's unit.
        suggestions: untried shapes listed at most.
        crash_sd: runs this many pooled robust sd below their shape's median are left out.
    """

    confidence: float = 0.95
    alpha: float = 0.05
    draws: int = 1024
    permutations: int = 199
    rng_seed: int = 0
    margin: float = 0.0
    suggestions: int = 8
    crash_sd: float = 6.0

    def __post_init__(self) -> None:
        for name in ("alpha", "confidence"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise UserError(f"{name} must lie between 0 and 1, not {value!r}")
        for name, least in (("draws", 32), ("permutations", 19), ("suggestions", 0)):
            value = getattr(self, name)
            if value < least:
                raise UserError(f"{name} must be at least {least}, not {value!r}")
        if not self.margin >= 0:
            raise UserError(f"margin must not be negative, not {self.margin!r}")


@dataclass(frozen=True, slots=True)
class TriedShape:
    """A shape the surrogate learned from.

    Attributes:
        quality: mean quality (see `analysis.runs.shape_runs`) over its runs.
        noise: variance of that mean over seeds.
        left_out: what the other shapes say of this mean, with the interval it should lie in.
    """

    config: Config
    label: str
    quality: float
    noise: float
    n: int
    metric: float
    cost: float | None
    left_out: Interval


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of one shape.

    Attributes:
        mean: metric averaged over many seeds, with its interval.
        run: metric of a single run with a fresh seed, with its interval.
        extrapolates, why: whether the shape lies beyond those tried, and in what way.
        tried: whether the surrogate learned from this very shape.
        cost: its cost, known or estimated from the others'; None if it cannot be.
        p_no_worse: probability that its mean is no worse than the reference's by the margin; NaN
            where the names differ.
    """

    config: Config
    label: str
    mean: Interval
    run: Interval
    extrapolates: bool
    why: str
    tried: bool
    cost: float | None
    p_no_worse: float


@dataclass(frozen=True, slots=True)
class SurfacePoint:
    """One cell of the heat map over two axes."""

    first: Number
    second: Number
    mean: Interval
    extrapolates: bool
    tried: bool


@dataclass(frozen=True, slots=True)
class SurrogateResult(Jsonable):
    """A surrogate of the metric as a function of shape, with its own skill.

    Attributes:
        verdict: predicts, or none: the shape tells nothing that can be shown.
        reason: how well it predicts, in words with its numbers.
        explained: share of the variance between shapes (of the same names) that
            leave-one-shape-out predictions explain beyond predicting the mean of the others; at
            most 1, negative if worse.
        error: root mean squared error of those predictions, on the scale of quality.
        error_of_mean: the same when the mean of the other shapes is predicted.
        p: share of shuffles of the shapes' means that are predicted as well.
        coverage: share of shapes whose left-out mean lies in its interval.
        seed_sd: seed standard deviation of a run; None if no shape has two.
        axes, logged, names: ordered axes, those of them on a log2 scale, axes of names.
        fixed: columns of the shape that never varied, with their value.
        follows: axes that moved with others, and with which.
        excluded: shapes that were tried but could not be learned from.
        suggestions: untried smaller shapes expected to be no worse, cheapest first, of several of
            one cost the best.
        candidates: untried smaller shapes looked at.
        cost_error: largest relative error of the cost estimate when a shape is left out.
        surface_axes: the two axes of ``surface``; the others are held at the reference's values.
        nuisance: axes of whose settings every shape stands at its best.
    """

    verdict: SkillVerdict
    reason: str
    explained: float
    error: float
    error_of_mean: float
    p: float
    coverage: float
    seed_sd: float | None
    shapes: tuple[TriedShape, ...]
    axes: tuple[str, ...]
    logged: tuple[str, ...]
    names: tuple[str, ...]
    fixed: Config
    follows: dict[str, str]
    excluded: tuple[Config, ...]
    reference: str
    suggestions: tuple[Prediction, ...]
    candidates: int
    cost_error: float | None
    predictions: tuple[Prediction, ...]
    surface_axes: tuple[str, ...]
    surface: tuple[SurfacePoint, ...]
    metric: str
    goal: Goal
    scale: Scale | None
    cost: str | None
    settings: SurrogateSettings
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
