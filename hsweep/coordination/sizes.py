"""What a trial occupies when it is handed out, and how many are handed out as one program."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hsweep.coordination.packing import Packing
from hsweep.design.sweep import Together
from hsweep.design.trial import Assignment, Report, Resources, Setback, Trial
from hsweep.training.stacked.candidates import MOST_STACKED


@dataclass(slots=True)
class Sizes:
    """Answers for one run of a study.

    Args:
        together: when trials of one shape are trained as one program.
        packing: sizes trials whose share of a device is open; None gives each a whole one.
    """

    together: Together
    packing: Packing | None = None

    def pack(self, device_bytes: int, held: Iterable[tuple[Trial, int]]) -> None:
        """Share devices out among trials by the memory they need.

        Args:
            device_bytes: memory of the smallest device.
            held: what trials have held so far, in bytes.
        """
        self.packing = Packing(device_bytes)
        for trial, peak in held:
            self.packing.observe(trial, peak)

    def learn(self, assignment: Assignment, said: Report | Setback) -> None:
        """Take note of what a trial held, or that memory did not suffice for it."""
        if self.packing is not None:
            self.packing.learn(assignment, said)

    def of(self, trial: Trial, together: int = 1) -> Resources:
        """Return what a trial would occupy if it were handed out now.

        Args:
            trial: what is handed out.
            together: how many like it, to be trained as one program.
        """
        if not trial.resources.is_auto:
            return trial.resources
        if self.packing is None:
            return replace(trial.resources, gpus=trial.resources.devices)
        return self.packing.resources(trial, together)

    def most_together(self, trial: Trial) -> int:
        """Return how many trials like this one may be handed out as one program, itself included.

        On the CPU none is, unless that was asked for: there a trial's result is promised to the
        bit, and batched kernels round differently.
        """
        has_device = trial.resources.devices > 0
        if self.together == "never" or (self.together == "auto" and not has_device):
            return 1
        if self.packing is not None and trial.resources.is_auto:
            return min(MOST_STACKED, self.packing.most_together(trial))
        return MOST_STACKED
