"""Early stopping as a sweep asks for it: which trials compete, where, and who goes on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hsweep.design.budget import Budget
from hsweep.errors import UserError, check_choice, check_whole, make_plain, unknown_name

if TYPE_CHECKING:
    from hsweep.design.question import Question
    from hsweep.design.sweep import Sweep

_DEFAULT_MIN_SURVIVORS: Final = 3
_FINALISTS: Final = 2
PROTECTED: Final = "baseline"
"""The stratum of trials that are never stopped: the baseline that a study compares others with."""


@dataclass(frozen=True, slots=True)
class SizeBand:
    """Strata for a Pareto study: trials compete with models of about their own size.

    Attributes:
        factor: the upper end of a band over its lower end, in parameters.

    Raises:
        UserError: a factor not above 1.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        if not self.factor > 1:
            raise UserError(f"a size band's factor must be above 1, not {self.factor!r}")

    def label(self, num_params: int) -> str:
        """Return the label of a model's size band, named by its ends."""
        # The small constant keeps a count that is an exact power in the band it opens.
        band = math.floor(math.log(max(1, num_params)) / math.log(self.factor) + 1e-9)
        low, high = self.factor**band, self.factor ** (band + 1)
        return f"num_params={low:.3g}..{high:.3g}"


class EarlyStopping(ABC):
    """Ends trials before their budget. A kind of it is a frozen dataclass.

    Attributes:
        scouts: the first replicates of a point that only choose its setting; None for none.
        compete: whether each trial competes by its own value, or each point by its trials' mean.
        decide: whether trials wait for one another at a rung.
    """

    __slots__ = ()
    scouts: int | None = None
    compete: Literal["trials", "points"] = "trials"
    decide: Literal["together", "on_arrival"] = "on_arrival"

    @property
    def num_survivors(self) -> int:
        """Contenders of every stratum that are left to run to the full budget."""
        return 1

    @abstractmethod
    def milestones(self, budget: Budget) -> list[int]:
        """Return the units at which trials are compared."""

    @abstractmethod
    def stratum(
        self, point: Mapping[str, Any], num_params: int | None, question: "Question | None"
    ) -> str:
        """Return the label of the group in which the trials of a point compete, by its axis values
        and the parameters of its model."""

    @abstractmethod
    def check(self, sweep: "Sweep") -> None:
        """Refuse a sweep that it does not fit, with UserError."""


@dataclass(frozen=True, slots=True)
class Asha(EarlyStopping):
    """Early stopping by successive halving within strata.

    Attributes:
        grace: budget units before the first rung; nothing is stopped earlier. With a ladder of
            budgets the rungs are the shorter budgets of at least ``grace``, and trials compete by
            their values at the ends of these budgets. None takes all shorter budgets; with
            ``scouts`` it takes those of at least half of the longest, since at a quarter the best
            learning rate was often not the one that is best at the end.
        reduction_factor: a rung keeps the best 1/reduction_factor of its stratum.
        strata: axes whose values make a stratum, or a ``SizeBand``; an empty tuple lets all
            trials compete, which is wrong for a transition study.
        min_survivors: contenders of every stratum that are left to run to the full budget, by
            default 3, which keeps the transition fit's answer at a third of the compute; with
            ``scouts`` 2, so that full-budget results choose between them.
        compete: ``trials``: each trial competes by its own value; ``points``: each point competes
            by the mean of its replicates.
        decide: ``together``: a rung is decided once, when all its contenders are there or gone;
            ``on_arrival``: each trial at once, by those that came before it (the stopping variant
            of ASHA), where the first to arrive always go on. A search that proposes its points
            while it runs cannot know who is still to come and decides on arrival.
        scouts: number of the first replicates of a point that only choose its setting: they compete
            among points that differ in the question's nuisance axes alone, which replace
            ``strata``. The other replicates train from the start, at the winning setting only, so
            no seed that counts in the answer has helped to choose. The scouts of a winner end at
            the rung that leaves no other point; if no rung leaves a single point, the full-budget
            results decide. None: all replicates compete.

    Raises:
        UserError: a value outside its range.
    """

    grace: int | None = None
    reduction_factor: int = 3
    strata: tuple[str, ...] | SizeBand = ()
    min_survivors: int | None = None
    compete: Literal["trials", "points"] = "trials"
    decide: Literal["together", "on_arrival"] = "together"
    scouts: int | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        least = {"grace": 1, "reduction_factor": 2, "min_survivors": 1, "scouts": 1}
        for name, bound in least.items():
            if (value := getattr(self, name)) is not None:
                check_whole(name, value, bound)
        strata: object = self.strata
        if isinstance(strata, str):
            raise UserError(f"strata are a tuple of axes; write ({strata!r},)")
        check_choice("compete", self.compete, ("trials", "points"))
        check_choice("decide", self.decide, ("together", "on_arrival"))
        if self.scouts is not None and (self.strata != () or self.decide != "together"):
            raise UserError(
                f"scouts={self.scouts} goes without strata and decide: points compete that differ "
                "in nuisance axes alone, and the other seeds wait until all scouts are in"
            )

    @property
    def num_survivors(self) -> int:
        """Contenders of every stratum that are left to run to the full budget."""
        if self.min_survivors is not None:
            return self.min_survivors
        return _DEFAULT_MIN_SURVIVORS if self.scouts is None else _FINALISTS

    def num_kept(self, contenders: int) -> int:
        """Return how many of a rung's contenders go on."""
        least = max(1, contenders // self.reduction_factor, self.num_survivors)
        return min(contenders, least)

    def milestones(self, budget: Budget) -> list[int]:
        """Return the units at which trials are compared: grace * reduction_factor**k, each moved
        up to the next report, below the full budget; of a ladder the shorter budgets."""
        if budget.ladder:
            half = 0 if self.scouts is None else budget.amount / 2
            first = half if self.grace is None else self.grace
            return [unit for unit in budget.ladder[:-1] if unit >= first]
        if self.grace is None:
            return []
        units = budget.report_units()
        rungs: list[int] = []
        target = self.grace
        while target < budget.amount:
            unit = next(unit for unit in units if unit >= target)
            if unit < budget.amount and unit not in rungs:
                rungs.append(unit)
            target *= self.reduction_factor
        return rungs

    def check(self, sweep: "Sweep") -> None:
        """Refuse a sweep without rungs or with two kinds of them, or scouts with nothing to choose,
        with UserError."""
        has_ladder = bool(sweep.budget.ladder)
        if not has_ladder and self.grace is None and self.scouts is None:
            raise UserError(
                "early stopping needs rungs: give Asha(grace=...), the budget units before the "
                "first, or a budget with a ladder, whose shorter budgets are the rungs"
            )
        if self.scouts is not None:
            self._check_scouts(sweep, self.scouts)
        if has_ladder and self.decide != "together":
            raise UserError(
                'the rungs of a ladder are decided together; leave decide="on_arrival" out'
            )

    def _check_scouts(self, sweep: "Sweep", scouts: int) -> None:
        question = sweep.question
        if not (question is not None and question.nuisance) and not sweep.space.tuned_axes:
            raise UserError(
                f"scouts={scouts} compete for settings of nuisance axes, and the question names "
                'none; name them, as in Transition(nuisance=("lr",))'
            )
        if not sweep.search.is_sequential and sweep.replicates <= scouts:
            raise UserError(
                f"scouts={scouts} of {sweep.replicates} replicates leave none that has not helped "
                f"to choose; set replicates={scouts + 3}"
            )
        if sweep.search.method == "optuna":
            raise UserError(
                "scouts choose among points that are known at the start, and an optuna search "
                "proposes them one by one; give a search that lists or draws its points"
            )

    def stratum(
        self, point: Mapping[str, Any], num_params: int | None, question: "Question | None" = None
    ) -> str:
        """Return the label of the group a trial competes in, by its axis values and the parameters
        of its model; ``scouts`` compete with those that differ in nuisance axes alone.

        Raises:
            UserError: a stratum axis that the space does not have, or a band of sizes where the
                number of parameters is not known.
        """
        if isinstance(self.strata, SizeBand):
            if num_params is None:
                raise UserError(
                    "SizeBand compares trials of about one size, and how many parameters your "
                    "training has is not known; let the sweep's describe= return it, or give "
                    "early_stopping axes as strata"
                )
            return self.strata.label(num_params)
        if self.scouts is not None:
            return place_label(point, question)
        return axes_label(point, self.strata)


def place_label(point: Mapping[str, Any], question: "Question | None") -> str:
    """Return the label of those that differ from a point in nuisance axes alone."""
    return _label(point if question is None else question.place_of(point))


def axes_label(point: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Return the label of those with the same values of these axes; UserError for an axis that the
    space does not have."""
    for axis in axes:
        if axis not in point:
            raise unknown_name("axis in early_stopping strata", axis, point)
    return _label({axis: point[axis] for axis in axes})


def _label(values: Mapping[str, Any]) -> str:
    return ",".join(f"{axis}={value}" for axis, value in values.items())
