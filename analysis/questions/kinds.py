"""Every kind of question, in the order in which the page shows what they find."""

from typing import Final

from analysis.questions.adapters import CONDITIONING, EFFECTS, PUBLISHED, SURROGATE
from analysis.questions.base import Kind
from analysis.questions.lean.kind import LEAN
from analysis.questions.pareto.kind import PARETO
from analysis.questions.transition.kind import TRANSITION

KINDS: Final[tuple[Kind, ...]] = (
    *(TRANSITION, PARETO, LEAN),
    *(CONDITIONING, EFFECTS, SURROGATE, PUBLISHED),
)
