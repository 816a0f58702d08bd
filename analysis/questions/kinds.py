"""Every kind of question, in the order in which the page shows what they find."""

from typing import Final

from analysis.questions.base import Kind

KINDS: Final[tuple[Kind, ...]] = ()
