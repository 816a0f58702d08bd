"""Whether an answer would survive more training, in words."""

from typing import Final

from analysis.statistics.training import Settled
from analysis.text.numbers import Tone

_STARTS: Final[dict[Settled, str]] = {
    "settled": "Settled",
    "moving": "Still moving",
    "unknown": "Not known to be settled",
}


def settled_sentence(verdict: Settled, reason: str, *, is_single: bool) -> str:
    """Return a sentence that follows the answer's; ``is_single``: there is one budget."""
    return f" {'One budget only' if is_single else _STARTS[verdict]}: {reason}."


def settled_badge(badge: tuple[str, Tone], verdict: Settled | None) -> tuple[str, Tone]:
    """Return the answer's badge, with ``settled`` or ``still moving`` where that is known."""
    label, tone = badge
    if verdict == "settled":
        return f"{label}, settled", tone
    if verdict == "moving":
        return f"{label}, still moving", "partial" if tone == "found" else tone
    return badge
