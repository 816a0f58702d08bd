"""How long a trial trains, counted by the tool itself (never by calls to a scheduler)."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from hsweep.errors import UserError, check_choice, shown

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

    Raises:
        UserError: an amount or interval below 1, more reports than anybody reads, or an unknown
            unit.
    """

    amount: int
    unit: BudgetUnit = "epochs"
    report_every: int = 1

    def __post_init__(self) -> None:
        check_choice("budget unit", self.unit, get_args(BudgetUnit))
        for name, value in (("amount", self.amount), ("report_every", self.report_every)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(
                    f"budget {name} must be a whole number of at least 1, not {shown(value)}"
                )
        if self.amount > _MOST_UNITS:
            raise UserError(f"budget amount must be at most {_MOST_UNITS:,}")
        if self.amount // self.report_every > _MOST_REPORTS:
            raise UserError(
                f"a trial of {self.amount:,} {self.unit} that reports every {self.report_every:,} "
                f"would report more than {_MOST_REPORTS:,} times; raise report_every to at least "
                f"{-(-self.amount // _MOST_REPORTS):,} (before the budget, where both are set)"
            )

    def report_units(self) -> list[int]:
        """Return the unit counts at which a trial reports, ascending, ending with ``amount``."""
        units = list(range(self.report_every, self.amount, self.report_every))
        return [*units, self.amount]


def epochs(amount: int, *, report_every: int = 1) -> Budget:
    """Return a budget of ``amount`` passes over the training set."""
    return Budget(amount, "epochs", report_every)


def steps(amount: int, *, report_every: int = 100) -> Budget:
    """Return a budget of ``amount`` optimizer updates."""
    return Budget(amount, "steps", min(report_every, max(amount, 1)))


def seconds(amount: int, *, report_every: int = 60) -> Budget:
    """Return a budget of ``amount`` seconds of training, evaluation left out.

    For comparisons at equal time, where a leaner model sees more data.
    """
    return Budget(amount, "seconds", min(report_every, max(amount, 1)))
