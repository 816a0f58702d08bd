"""What single axes do to the metric, as frozen values.

Every effect is a gain: positive is better whatever the goal, in decades of the error (scale
``error``), in points (``accuracy``), in nats (``loss``) or in the metric's own unit (no scale).
"""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.questions.settings import check_fields
from analysis.statistics.values import Interval
from analysis.values import Jsonable, Number
from hsweep.design.question import Goal, Scale

EffectVerdict = Literal["helps", "hurts", "unclear", "untested", "answered"]


@dataclass(frozen=True, slots=True)
class EffectsSettings(Jsonable):
    """Every choice the analysis of effects makes.

    Attributes:
        alpha: family-wise error rate of each family: axes, steps, interactions.
        confidence: level of the two-sided intervals.
    """

    alpha: float = 0.05
    confidence: float = 0.95

    def __post_init__(self) -> None:
        shares = ("alpha", "confidence")
        check_fields(self, "lie between 0 and 1", lambda value: 0 < value < 1, *shares)


@dataclass(frozen=True, slots=True)
class PairGain:
    """Two shapes that differ in one axis alone, the other axes' values ``held`` in words, and the
    mean gain over the number of ``seeds`` that both have."""

    held: str
    gain: float
    seeds: int


@dataclass(frozen=True, slots=True)
class StepEffect:
    """The gain of one step of an axis, averaged over its pairs.

    p values are two-sided and None where seeds cannot tell; Holm's family is every step of every
    axis.
    """

    low: Number
    high: Number
    effect: Interval
    p: float | None
    p_holm: float | None
    pairs: tuple[PairGain, ...]


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """What one axis does with all others held.

    Attributes:
        effect: mean gain per step of the grid over all its pairs; NaN without a pair.
        df, p, p_holm: of its two-sided t test, None where seeds cannot tell; Holm's family is the
            axes.
        verdict: helps or hurts (p_holm within alpha), unclear, untested, or answered: the study's
            own question tests the axis, so it is described by its means alone.
        pairs, improved: matched pairs used, and those with a gain above 0.
        lost: why the other pairs of tried shapes could not be used, with their number.
    """

    axis: str
    values: tuple[Number, ...]
    effect: Interval
    df: float | None
    p: float | None
    p_holm: float | None
    verdict: EffectVerdict
    pairs: int
    improved: int
    lost: dict[str, int]
    steps: tuple[StepEffect, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """The mean metric at one value of each of two axes, over the settings of all others that hold
    every combination of the two."""

    first: Number
    second: Number
    metric: Interval


@dataclass(frozen=True, slots=True)
class Interaction:
    """Whether the gain of a step in ``first`` depends on where ``second`` stands.

    Attributes:
        effect: how much more a step of one axis gains where the other stands one step higher,
            averaged over all 2 x 2 squares of neighbouring values.
        p, p_holm: two-sided, None where seeds cannot tell; Holm's family is the pairs of axes.
        verdict: helps (each makes the other worth more), hurts, unclear or untested.
        squares: how many there are.
        lost: why other squares of tried shapes could not be used, with their number.
        levels: mean metric of each combination, for a chart; empty if no setting has them all.
    """

    first: str
    second: str
    effect: Interval
    p: float | None
    p_holm: float | None
    verdict: EffectVerdict
    squares: int
    lost: dict[str, int]
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class EffectsResult(Jsonable):
    """What each axis does, and how two of them interact.

    Attributes:
        interactions: pairs of axes, but for those of the question's own; heads and depth first.
        matched: whether replicates of the same name were compared with each other.
        lost: why shapes cannot be compared, with their number.
        held: axes of names, held but not tested.
        follows: axes that move with others, and with which.
        nuisance: axes of whose settings every shape stands at its best.
        noise_gap: why the seeds tell nothing; empty where they do.
    """

    axes: tuple[AxisEffect, ...]
    interactions: tuple[Interaction, ...]
    test: str
    matched: bool
    replicates: int
    tried: int
    lost: dict[str, int]
    held: tuple[str, ...]
    follows: dict[str, str]
    metric: str
    goal: Goal
    scale: Scale | None
    settings: EffectsSettings
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
    noise_gap: str = ""

    def rows(self) -> pd.DataFrame:
        """Return one row an axis, which has no ends, and one for each of its steps."""
        rows = []
        for axis in self.axes:
            mean_row = axis.axis, None, None, *axis.effect, axis.p, axis.p_holm, axis.pairs
            steps = [
                (axis.axis, step.low, step.high, *step.effect, step.p, step.p_holm, len(step.pairs))
                for step in axis.steps
            ]
            rows += [mean_row, *steps]
        names = ("axis", "from", "to", "gain", "gain_low", "gain_high", "p", "p_holm", "pairs")
        return pd.DataFrame(rows, columns=list(names))
