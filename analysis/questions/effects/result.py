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
from hsweep.design.scales import Goal, Scale

EffectVerdict = Literal["helps", "hurts", "unclear", "untested"]


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
class Effect:
    """The gain of one step up an axis with all others held, or how much more a step of one axis
    gains where another stands one step higher.

    Attributes:
        axes: one, or two whose effects are held against each other.
        values: those of a single axis that were compared; a step's two.
        gain: mean over all pairs of neighbours, or over all 2 x 2 squares of them; NaN without one.
        df, p, p_holm: of its two-sided t test, None where seeds cannot tell; Holm's family is the
            axes, their steps, or the pairs of axes.
        verdict: helps or hurts (p_holm within alpha), unclear, or untested.
        units, improved: pairs or squares used, and those with a gain above 0.
        lost: why others of tried shapes could not be used, with their number.
    """

    axes: tuple[str, ...]
    values: tuple[Number, ...]
    gain: Interval
    df: float | None
    p: float | None
    p_holm: float | None
    verdict: EffectVerdict
    units: int
    improved: int
    lost: dict[str, int]


@dataclass(frozen=True, slots=True)
class EffectsResult(Jsonable):
    """What each axis does, and how two of them interact.

    Attributes:
        axes: each averaged over its steps.
        steps: those of all axes, in order.
        interactions: pairs of axes, heads and depth first.
        matched: whether replicates of the same name were compared with each other.
        lost: why shapes cannot be compared, with their number.
        held: axes that are held but not tested.
        follows: axes that move with others, and with which.
        nuisance: axes of whose settings every shape stands at its best.
        noise_gap: why the seeds tell nothing; empty where they do.
    """

    axes: tuple[Effect, ...]
    steps: tuple[Effect, ...]
    interactions: tuple[Effect, ...]
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

    def by_axis(self) -> list[tuple[Effect, bool]]:
        """Return each axis and behind it its steps, of which True stands beside."""
        return [
            (effect, effect is not axis)
            for axis in self.axes
            for effect in (axis, *(step for step in self.steps if step.axes == axis.axes))
        ]

    def rows(self) -> pd.DataFrame:
        """Return one row an axis, which has no ends, and one for each of its steps."""
        rows = [
            (
                *(*effect.axes, *(effect.values if is_step else (None, None))),
                *(*effect.gain, effect.p, effect.p_holm, effect.units),
            )
            for effect, is_step in self.by_axis()
        ]
        names = ("axis", "from", "to", "gain", "gain_low", "gain_high", "p", "p_holm", "pairs")
        return pd.DataFrame(rows, columns=list(names))
