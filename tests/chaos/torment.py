"""Kills a study's driver again and again, and watches what that costs."""

import random
from collections.abc import Callable

from chaos.audit import Audit, Endings, audit, audit_tracking, lost_work
from chaos.ledger import Fault
from chaos.scene import CHECKPOINT_SECONDS, REPORT_SECONDS, Process, Scene

SECONDS_OF_TRAINING = 5.0
"""What a driver that is to be killed has at most for training, beside its start."""


class Torment:
    """A study whose drivers are killed.

    Args:
        scene: of the study.
        study: its name.
        how: options of the runs.
        rng: draws the moments.
        fault: what is counted.
        start: seconds from a driver's start to its first report, about.
        between: done after each kill, before the next driver.
    """

    def __init__(
        self,
        scene: Scene,
        study: str,
        how: tuple[object, ...],
        rng: random.Random,
        fault: Fault,
        *,
        start: float,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self.scene, self.study, self.how = scene, study, how
        self.rng, self.fault, self.start = rng, fault, start
        self.between = between

    def kill_drivers(self, number: int) -> None:
        """Kill so many, each at a moment of its own: in its start, in training, at its end."""
        while self.fault.tries < number:
            process = self.scene.go_on(self.study, *self.how)
            moment = self.rng.uniform(0.0, self.start + SECONDS_OF_TRAINING)
            if process.runs_until(moment * self.rng.random()):
                self.scene.look(self.study)
            if process.runs_until(moment):
                self._kill(process)
            else:
                assert process.wait() == 0, process.output

    def kill_conclusions(self, number: int, seconds: float) -> None:
        """Kill so many whose trials have all ended: in writing tables and reports, in delivery."""
        for _ in range(number):
            process = self.scene.go_on(self.study, *self.how)
            assert process.until(lambda: self.scene.has_ended(self.study))
            if not process.runs_until(self.rng.uniform(0.0, seconds)):
                assert process.wait() == 0, process.output
                continue
            self._kill(process)

    def _kill(self, process: Process) -> None:
        self.scene.look(self.study)
        process.kill()
        self.fault.tries += 1
        assert process.is_gone(), "processes were left behind by a driver that was killed"
        if self.scene.look(self.study) is not None:
            lost = lost_work(self.scene.study(self.study)).values()
            self.fault.cost(lost)
            assert all(seconds <= CHECKPOINT_SECONDS + REPORT_SECONDS for seconds in lost)
        self.between()

    def end(self, calm: Endings) -> Audit:
        """Let the study end, and audit it."""
        self.scene.end(self.study, *self.how)
        found = audit(self.scene.study(self.study), calm, self.scene.seen)
        audit_tracking(found, self.scene.study(self.study), self.scene.store(self.study))
        return found
