"""The length of a trial's training, counted by this tool itself and never by calls to a
scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, get_args

from hsweep.design.labels import unit_word
from hsweep.errors import UserError, check_choice, check_whole, make_plain, shown

_MOST_UNITS: Final = 10**12
_MOST_REPORTS: Final = 1_000_000
BudgetUnit = Literal["epochs", "steps", "seconds"]


@dataclass(frozen=True, slots=True)
class Budget:
    """A trial's full length.

    Attributes:
        amount: how many units a trial trains when nothing stops it.
        unit: ``epochs`` (passes over the training set), ``steps`` (optimizer updates) or
            ``seconds`` (time spent on updates and on waiting for their data, not on evaluation;
            such a trial does not repeat to the bit, since a faster machine takes more steps).
        report_every: units between two reports; evaluation, early stopping and checkpoints happen
            at reports only. The last report always falls on ``amount``.
        ladder: ascending amounts, with one trial for each: a longer trial goes on from the unit at
            which the learning rate of the shorter one begins to depend on its length
            (``Recipe.shared``). The last amount is ``amount``, which is added if it is left out;
            empty for one budget.

    Raises:
        UserError: an amount or interval below 1, more reports than anybody reads, an unknown unit,
            or a ladder that does not ascend to ``amount`` or counts seconds.
    """

    amount: int
    unit: BudgetUnit = "epochs"
    report_every: int = 1
    ladder: Sequence[int] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        check_choice("budget unit", self.unit, get_args(BudgetUnit))
        for name, value in (("amount", self.amount), ("report_every", self.report_every)):
            check_whole(f"budget {name}", value, 1)
        if self.amount > _MOST_UNITS:
            raise UserError(f"budget amount must be at most {_MOST_UNITS:,}")
        if self.amount // self.report_every > _MOST_REPORTS:
            raise UserError(
                f"a trial of {self.amount:,} {self.unit} that reports every {self.report_every:,} "
                f"would report more than {_MOST_REPORTS:,} times; raise report_every to at least "
                f"{-(-self.amount // _MOST_REPORTS):,} (before the budget, where both are set)"
            )
        object.__setattr__(self, "ladder", self._whole_ladder())

    def _whole_ladder(self) -> tuple[int, ...]:
        rungs = tuple(self.ladder) if isinstance(self.ladder, Sequence) else (None,)
        rungs = rungs if rungs[-1:] == (self.amount,) else (*rungs, self.amount)
        are_whole = all(type(rung) is int for rung in rungs)
        if not are_whole or rungs[0] < 1 or any(low >= high for low, high in pairwise(rungs)):
            raise UserError(
                f"a ladder ascends from at least 1 to the budget's {self.amount} {self.unit}, in "
                f"whole numbers; got {shown(self.ladder)}"
            )
        if len(rungs) == 1:
            return ()
        if self.unit == "seconds":
            raise UserError(
                "a ladder counts epochs or steps: how many updates a second holds depends on the "
                "machine, so budgets in seconds have no beginning in common"
            )
        return rungs

    @property
    def rungs(self) -> "tuple[Budget, ...]":
        """The budgets that trials have, shortest first."""
        if not self.ladder:
            return (self,)
        return tuple(map(self.of, self.ladder))

    def of(self, amount: int) -> "Budget":
        """Return the budget of a trial that trains ``amount`` units."""
        return replace(self, amount=amount, ladder=())

    def __str__(self) -> str:
        *shorter, last = map(str, self.ladder or (self.amount,))
        if shorter:
            return f"{', '.join(shorter)} and {last} {self.unit}"
        return f"{last} {unit_word(self.unit, self.amount)}"

    def report_units(self) -> list[int]:
        """Return the unit counts at which a trial reports, ascending, ending with ``amount``."""
        units = list(range(self.report_every, self.amount, self.report_every))
        return [*units, self.amount]


def epochs(amount: int, *, report_every: int = 1, ladder: Sequence[int] = ()) -> Budget:
    """Return a budget of ``amount`` passes over the training set, or a ladder up to it."""
    return Budget(amount, "epochs", report_every, ladder)


def steps(amount: int, *, report_every: int = 100, ladder: Sequence[int] = ()) -> Budget:
    """Return a budget of ``amount`` optimizer updates, or a ladder up to it."""
    budget = Budget(amount, "steps", min(report_every, max(amount, 1)), ladder)
    return replace(budget, report_every=min(budget.report_every, budget.rungs[0].amount))


def seconds(amount: int, *, report_every: int = 60) -> Budget:
    """Return a budget of ``amount`` seconds of training, evaluation left out.

    Such a budget compares models at equal time: a leaner model sees more data.
    """
    return Budget(amount, "seconds", min(report_every, max(amount, 1)))
