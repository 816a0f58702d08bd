"""The median rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from hsweep.design.stopping_rule import StoppingRule
from hsweep.errors import UserError, check_whole, make_plain


@dataclass(frozen=True, slots=True)
class Median(StoppingRule):
    """Ends a trial whose best report so far is worse than the median of its rivals' running means.

    Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2; here
    every rival counts that has come as far, whether it has ended or not. Decided as reports arrive,
    so which trials are stopped depends on how many train at once; ``Asha`` does not.

    Attributes:
        grace: budget units before which nothing is stopped.
        strata: axes whose values make a group of rivals; None for the places of the question, or
            all trials where there is no question.
        min_rivals: rivals that must have come as far.

    Raises:
        UserError: a value outside its range.
    """

    grace: int = 1
    strata: tuple[str, ...] | None = None
    min_rivals: int = 3

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole("grace", self.grace, 1)
        check_whole("min_rivals", self.min_rivals, 1)
        strata: object = self.strata
        if isinstance(strata, str):
            raise UserError(f"strata are a tuple of axes; write ({strata!r},)")

    def reason_to_stop(self, values: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
        """Return that the best value is above the median of the rivals' means; empty where it is
        not, or where there are too few."""
        if len(rivals) < self.min_rivals:
            return ""
        middle = median(fmean(rival) for rival in rivals)
        if min(values) <= middle:
            return ""
        return f"its best report is worse than the median of {len(rivals)} rivals so far"
