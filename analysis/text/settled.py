"""Whether an answer would survive more training, in words."""

from typing import Final

from analysis.statistics.settled import Settled
from analysis.text.numbers import Tone

_STARTS: Final[dict[Settled, str]] = {
    "settled": "Settled",
    "moving": "Still moving",
    "unknown": "Not known to be settled",
}


def settled_sentence(verdict: Settled, reason: str, *, is_single: bool, runs: str = "") -> str:
    """Return a sentence that follows the answer's.

    Args:
        is_single: there is one budget.
        runs: of a study, those that would tell, in words; empty for none.
    """
    start = "One budget only" if is_single else _STARTS[verdict]
    settled_by = " (hsweep run --only-missing trains " + runs + ")" if runs else ""
    return f" {start}: {reason}{settled_by}."


def runs_text(trials: int, budget: str) -> str:
    """Return runs in words; ``budget`` is another one to which seeds are trained, empty for further
    seeds."""
    plural = "" if trials == 1 else "s"
    return f"{trials} run{plural} of {budget}" if budget else f"{trials} further run{plural}"


def settled_badge(badge: tuple[str, Tone], verdict: Settled | None) -> tuple[str, Tone]:
    """Return the answer's badge, with ``settled`` or ``still moving`` where that is known."""
    label, tone = badge
    if verdict == "settled":
        return f"{label}, settled", tone
    if verdict == "moving":
        return f"{label}, still moving", "partial" if tone == "found" else tone
    return badge
