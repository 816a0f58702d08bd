"""The metrics of a script, unit by unit, while it runs.

A unit is complete as soon as it has every metric that is needed: the sweep's, and those that the
source names. What the script writes of it later is ignored, so that reports do not depend on when
the files are read. Values at counts between two units belong to the later one, which is complete
once its end or a later unit was written, or the script has ended. Units without what is needed (a
script may evaluate every fifth epoch) are passed over. The number of parameters may stand in a row
of its own, without a unit.

A row of unit 0 was measured before training, or the script counts from 0. That shows at its end,
and units are held back until then, unless the source or an earlier trial's script says it.
"""

import contextlib
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from hsweep.design.budget import Budget
from hsweep.design.sources import MetricSource
from hsweep.errors import RefusedReportError, UserError, shown
from hsweep.reporting import NUM_PARAMS
from hsweep.training.own.rows import Row, rows_of

_MAX_WAITING: Final = 10_000
"""The most units that are kept while they lack a metric: a script may log every step and evaluate
only once in many steps."""

_AMOUNT: Final = re.compile(r"([\d.]+)([KMBGT]?)", re.IGNORECASE)
_FACTORS: Final = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

Unit = tuple[int, dict[str, float]]
"""A unit of the budget and its metrics."""


class Reader:
    """Reads the metrics that a script writes into its trial's folder.

    Args:
        needed: metrics that a complete unit has, besides those that the source names.
        budget: of the script.
        after: the last unit read by an earlier reader; only later units are returned.
        offset: what an earlier trial's script was found to count from, as the source's ``offset``.

    Attributes:
        latest: the last unit that the script has begun.
        is_undecided: units are held back.
        decided: the offset that the script's rows have told; None where they told nothing.
    """

    def __init__(
        self,
        source: MetricSource,
        folder: Path,
        needed: Collection[str],
        budget: Budget,
        after: int = 0,
        offset: float | None = None,
    ) -> None:
        if source.offset is None and offset is not None:
            source = replace(source, offset=offset)
        self._counters = source.counters(budget.unit)
        self._source = source
        self._amount = budget.amount
        self.is_undecided, self.decided = False, offset
        self._names = dict(source.metrics)
        self._needed = frozenset({*needed, *self._names.values()} - {NUM_PARAMS})
        theirs = {ours: name for name, ours in source.metrics}
        tags = [theirs.get(name, name) for name in self._needed]
        self._rows = rows_of(source, folder, self._counters, tags)
        self._first = self._after = after
        self.latest = -1
        self._waiting: dict[int, dict[str, float]] = {}
        self._complete: set[int] = set()
        self._ended: set[int] = set()
        self._keys: dict[str, None] = {}
        once = next((name for name, ours in source.metrics if ours == NUM_PARAMS), NUM_PARAMS)
        self._once: dict[str, float] = {}
        self._of_once = (once,)

    @property
    def counting(self) -> tuple[float | None, int | None]:
        """What the rows have told of the offset, and how far they are while they do not."""
        return self.decided, self.latest if self.is_undecided else None

    def poll(self) -> list[Unit]:
        """Return the units that have become complete, in increasing order.

        Raises:
            UserError: what the script wrote cannot be read; says the file, the line and the value.
            OSError: a file cannot be read.
        """
        return [unit for row in self._rows(False) for unit in self._take(row)]

    def last_units(self, *, killed: bool = False) -> list[Unit]:
        """Return the last units of a script that has ended.

        Args:
            killed: it was ended, so its last line may be cut off, and it need not have reported.

        Raises:
            UserError: as ``poll``, or no unit was complete; the message names the metrics written.
        """
        units = [unit for row in self._rows(not killed) for unit in self._take(row)]
        if self.is_undecided and not killed:
            units += self._decide(self.latest == self._amount - 1)
        self.latest += 1
        units += self._deliver()
        if self._after == self._first == 0 and not killed:
            raise RefusedReportError(
                f"the script ended without a report: it needs {' or '.join(self._counters)} and "
                f"{', '.join(sorted(self._needed))}, and what was written in "
                f"{shown(self._source.files)} in the trial's folder is "
                f"{', '.join(self._keys) or 'nothing of the kind'}; say unit= for what counts the "
                'budget and metrics={"its name": "ours"} for what is called otherwise'
            )
        return units

    def _take(self, row: Row) -> list[Unit]:
        _, values = row
        self._keys.update(dict.fromkeys(values))
        counts = (self._number(row, key) for key in self._counters)
        count = next((count for count in counts if count is not None), None)
        self._once |= self._metrics(row, self._of_once)
        if count is None:
            return []
        unit, is_end = self._source.row_unit(count)
        if self._source.offset is None and self.latest < 0 == self._after:
            self.is_undecided = unit == 0 and self._source.per_unit == 1
        if unit <= self._after and not (self.is_undecided and unit == 0):
            return []
        metrics = self._waiting.setdefault(unit, {})
        metrics.update(self._metrics(row, values))
        if metrics.keys() >= self._needed:
            self._complete.add(unit)
        if is_end:
            self._ended.add(unit)
        self.latest = max(self.latest, unit)
        if len(self._waiting) > _MAX_WAITING:
            self._forget(next((u for u in self._waiting if u not in self._complete), unit))
        return (
            self._decide(False) if self.is_undecided and unit >= self._amount else self._deliver()
        )

    def _decide(self, from_0: bool) -> list[Unit]:
        """Note what the script counts from; return the units that were held back for that."""
        self.is_undecided, self.decided = False, float(from_0)
        self._source = replace(self._source, offset=self.decided)
        self.latest += from_0
        self._waiting = {unit + from_0: metrics for unit, metrics in self._waiting.items()}
        for units in (self._complete, self._ended):
            moved = {unit + from_0 for unit in units} - {0}
            units.clear()
            units.update(moved)
        self._waiting.pop(0, None)
        return self._deliver()

    def _deliver(self) -> list[Unit]:
        units: list[Unit] = []
        if self.is_undecided:
            return units
        for unit in sorted(self._complete):
            # After the last the script may test, and write that, too.
            if (unit in self._ended and unit != self._amount) or unit < self.latest:
                units.append((unit, {**self._once, **self._waiting[unit]}))
                self._after = unit
                for earlier in [other for other in self._waiting if other <= unit]:
                    self._forget(earlier)
        return units

    def _forget(self, unit: int) -> None:
        del self._waiting[unit]
        self._complete.discard(unit)
        self._ended.discard(unit)

    def _metrics(self, row: Row, keys: Iterable[str]) -> dict[str, float]:
        metrics = {}
        for key in keys:
            is_other = key not in self._names and key in self._names.values()
            if key not in self._counters and not is_other:
                name = self._names.get(key, key)
                value = self._number(row, key, is_needed=name in self._needed)
                if value is not None:
                    metrics[name] = value
        return metrics

    def _number(self, row: Row, key: str, *, is_needed: bool = True) -> float | None:
        """Return a value of a row: None for a hole, or for a text that is not needed."""
        place, values = row
        value = values.get(key)
        if key in self._of_once:
            value = _amount(value)
        if value is None:
            return None
        number = None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            with contextlib.suppress(ValueError, OverflowError):
                number = float(value)
        is_unit = key in self._counters
        if number is None and not is_needed:
            return None
        if number is None or (is_unit and not abs(number) < float("inf")):
            kind = "the unit of the budget" if is_unit else "a metric"
            raise UserError(f"{place}: {key} is {kind}, so a number, not {shown(value)}")
        return number


def _amount(value: object) -> object:
    """Return a number of parameters as scripts print it: 1,234,567 or 0.11M."""
    match = _AMOUNT.fullmatch(re.sub("[,_ ]", "", value)) if isinstance(value, str) else None
    return value if match is None else round(float(match[1]) * _FACTORS[match[2].upper()])
