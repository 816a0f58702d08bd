"""Rules that decide about a trial at each of its reports."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hsweep.design.budget import Budget
from hsweep.design.early_stopping import EarlyStopping, axes_label, place_label
from hsweep.errors import UserError

if TYPE_CHECKING:
    from hsweep.design.question import Question
    from hsweep.design.sweep import Sweep


class StoppingRule(EarlyStopping):
    """Ends a trial by its reports and those of its rivals. A rule is a frozen dataclass; one of the
    user's own stands in a sweep file.

    Attributes:
        grace: budget units before which nothing is stopped.
        strata: axes whose values make a group of rivals; None for the places of the question, whose
            trials differ in its nuisance axes and seeds, or all trials where there is no question.
    """

    __slots__ = ()
    grace: int = 1
    strata: tuple[str, ...] | None = None

    @abstractmethod
    def reason_to_stop(self, values: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
        """Return why a trial ends here; empty where it goes on.

        Args:
            values: its reports so far, smaller being better whatever the goal.
            rivals: those of each rival that has come as far, up to there, in no order.
        """

    def milestones(self, budget: Budget) -> list[int]:
        """Return every report from ``grace`` on, before the end."""
        return [unit for unit in budget.report_units() if self.grace <= unit < budget.amount]

    def stratum(
        self, point: Mapping[str, Any], num_params: int | None, question: "Question | None"
    ) -> str:
        """Return the label of a point's rivals."""
        del num_params
        if self.strata is not None:
            return axes_label(point, self.strata)
        return "" if question is None else place_label(point, question)

    def check(self, sweep: "Sweep") -> None:
        """Refuse a ladder, and rivals that differ in their seed alone, with UserError."""
        if sweep.budget.ladder:
            raise UserError(
                f"{type(self).__name__} compares reports in training, and the ladder has "
                f"{sweep.budget}; give one budget, or Asha, whose rungs are the shorter ones"
            )
        question = sweep.question
        if question is None or self.strata is not None:
            return
        if not (question.nuisance or sweep.space.tuned_axes):
            raise UserError(
                f"{type(self).__name__} compares the trials of one {question.place}, and here "
                "these differ in their seed alone: it would stop unlucky seeds, and what is left "
                'would flatter the shape; name settings, as in nuisance=("lr",), or give strata='
            )
