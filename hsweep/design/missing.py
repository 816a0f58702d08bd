"""Runs that an answer lacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ASKED: Final = "asked for"
"""Why a run is missing that the user asked for."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Runs that an answer lacks in one cell or of one shape.

    Attributes:
        at: the axis values of the cell or shape.
        seeds: how many runs.
        why: what the answer lacks.
        budget: an amount other than the sweep's budget, to which ``seeds`` finished seeds are
            trained; None for runs with the sweep's budget.
        trials: how many trials ``hsweep run --only-missing`` trains for it, of every budget and
            setting, as the study worked out when it last ended; None where it has not.
    """

    at: Mapping[str, Any]
    seeds: int
    why: str
    budget: int | None = None
    trials: int | None = None

    @property
    def name(self) -> str:
        """What these runs are called on record."""
        return f"{self.label} seeds={self.seeds} budget={self.budget}"

    @property
    def label(self) -> str:
        """The cell or shape in words."""
        return " ".join(
            f"{axis}={f'{value:g}' if isinstance(value, float) else value}"
            for axis, value in self.at.items()
        )
