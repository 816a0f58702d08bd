"""Every kind of question, in the order in which the page shows what they find."""

from typing import Final

from analysis.questions.base import Kind
from analysis.questions.conditioning.kind import CONDITIONING
from analysis.questions.effects.kind import EFFECTS
from analysis.questions.lean.kind import LEAN
from analysis.questions.pareto.kind import PARETO
from analysis.questions.published.kind import PUBLISHED
from analysis.questions.surrogate.kind import SURROGATE
from analysis.questions.transition.kind import TRANSITION

KINDS: Final[tuple[Kind, ...]] = (
    *(TRANSITION, PARETO, LEAN),
    *(CONDITIONING, EFFECTS, SURROGATE, PUBLISHED),
)
