"""Ends a study's drivers again and again, and watches what that costs."""

import logging
import random
from collections.abc import Collection, Iterator

from chaos.audit import Audit, Endings, Reported, audit, audit_tracking, lost_work
from chaos.fault_table import Fault
from chaos.workplace import CHECKPOINT_SECONDS, REPORT_SECONDS, Process, Workplace

_LOG = logging.getLogger("chaos")
TRAINING_SECONDS = 2.0
"""The longest that a driver trains before its end."""
ENDING_SECONDS = 2.0
"""The longest that it lives after its last trial has ended."""


class KillLoop:
    """A study whose drivers do not live long.

    Args:
        workplace: of the study.
        study: its name.
        how: options of the runs.
        rng: draws the moments.
        fault: what is counted.
        start: seconds from a driver's start to its first report, about; corrected by what is
            measured.
    """

    def __init__(
        self,
        workplace: Workplace,
        study: str,
        how: tuple[object, ...],
        rng: random.Random,
        fault: Fault,
        *,
        start: float,
    ) -> None:
        self.workplace, self.study, self.how = workplace, study, how
        self.rng, self.fault, self._start = rng, fault, start

    def drivers(
        self, number: int, *, at_the_end: int = 0, in_their_start: float = 0.4
    ) -> Iterator[Process]:
        """Yield so many drivers, each at a moment of its own: a share of them in their start, the
        others while they train; then some more whose trials have all ended."""
        for left in range(number, -at_the_end, -1):
            if left <= 0:
                driver = self._at_its_end()
            elif self.rng.random() < in_their_start:
                driver = self._in_its_start()
            else:
                driver = self._in_training()
            self.fault.tries += 1
            _LOG.warning(
                "driver %d ends after %.2f s; reports, trials left: %s",
                self.fault.tries,
                driver.seconds(),
                self.workplace.standing(self.study),
            )
            yield driver

    def _begin(self) -> Process:
        return self.workplace.go_on(self.study, *self.how)

    def _in_its_start(self) -> Process:
        process = self._begin()
        if process.runs_until(self.rng.uniform(0.0, self._start)):
            return process
        assert process.wait() == 0, process.output
        return self._in_its_start()

    def _in_training(self) -> Process:
        reports, left = self.workplace.standing(self.study)
        if left == 0 < reports:
            return self._at_its_end()
        moment = self.rng.uniform(0.0, TRAINING_SECONDS)
        looks = sorted(moment * self.rng.random() for _ in range(3))
        process = self._begin()
        self.workplace.wait_for_report(self.study, process)
        begun = process.seconds()
        self._start = begun
        for look in looks:
            if process.runs_until(begun + look):
                self.workplace.look(self.study)
        if process.runs_until(begun + moment):
            return process
        assert process.wait() == 0, process.output
        return self._at_its_end()

    def _at_its_end(self) -> Process:
        process = self._begin()
        reports, left = self.workplace.standing(self.study)
        if left == 0 < reports:
            begun = 0.0
            moment = self.rng.uniform(0.0, self._start + ENDING_SECONDS)
        else:
            assert process.until(lambda: self.workplace.standing(self.study)[1] == 0), (
                process.output
            )
            begun = process.seconds()
            moment = self.rng.uniform(0.0, ENDING_SECONDS)
        if process.runs_until(begun + moment):
            return process
        assert process.wait() == 0, process.output
        return self._at_its_end()

    def kill(self, process: Process, most: float = CHECKPOINT_SECONDS + REPORT_SECONDS) -> None:
        """Kill a driver, look before and after, and hold what is lost against what may be."""
        self.workplace.look(self.study)
        process.kill()
        # The next driver begins at once, beside what is left of this one.
        self.weigh(most)

    def weigh(self, most: float) -> None:
        """Hold what running trials have lost against what they may have lost."""
        if self.workplace.look(self.study) is not None:
            lost = lost_work(self.workplace.study(self.study))
            self.fault.cost(lost.values())
            assert {key: seconds for key, seconds in lost.items() if seconds > most} == {}

    def end(self, calm: Endings, damaged: Collection[Reported] = ()) -> Audit:
        """Let the study end, and audit it; the log has lost the ``damaged`` reports."""
        self.workplace.end(self.study, *self.how)
        assert self.workplace.left_behind() == []
        found = audit(self.workplace.study(self.study), calm, self.workplace.seen, damaged)
        store = self.workplace.store(self.study)
        audit_tracking(found, self.workplace.study(self.study), store, damaged)
        return found
