"""Which of a trial's reports counts for it: its last, or its best (``Sweep.final``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hsweep.design.budget import Budget
from hsweep.record.summary import BY_ITSELF

Metrics = Mapping[str, float | None]


@dataclass(slots=True)
class FinalReport:
    """The report of a trial that counts so far, and its unit."""

    metric: str
    goal: str
    final: str
    unit: int = 0
    metrics: Metrics = field(default_factory=dict)

    def add(self, unit: int, metrics: Metrics) -> None:
        """Enter the next report; of equal ones the first is the best."""
        new, best = metrics.get(self.metric), self.value
        is_better = new is not None and (
            best is None or (new < best if self.goal == "min" else new > best)
        )
        if self.final == "last" or is_better or not self.metrics:
            self.unit, self.metrics = unit, metrics

    @property
    def value(self) -> float | None:
        return self.metrics.get(self.metric)

    def at_end(self, unit: int, budget: Budget) -> tuple[str, Metrics | None]:
        """Return the reason that the record gives for the end of a trial at a unit, and the metrics
        that count in place of the last report's; empty and None where both are as usual."""
        early = f"{BY_ITSELF}{unit} of {budget}" if unit < budget.amount else ""
        if self.unit == unit:
            return early, None
        best = f"its best report counts, that of {self.unit}"
        return "; ".join(filter(None, [early, best])), self.metrics
