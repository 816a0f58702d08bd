"""How much of a device a trial gets, where its sweep leaves that open (``gpus="auto"``).

A trial gets a whole device, a half, a third, a quarter, a sixth or an eighth: few sizes, so that
processes can go on with the next trial of their size. It gets the smallest whose memory holds what
it is predicted to need (``models.counts.train_memory_bytes``), with head room. The prediction knows
the model, and neither the data that a task keeps on the device nor the workspaces of kernels, so it
can be wrong: where a share did not suffice, trials of that shape get the next larger one.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

from hsweep.design.trial import Assignment, Resources, Trial

AT_ONCE: Final = (1, 2, 3, 4, 6, 8)
"""How many trials may share a device. More than eight processes mostly wait for one another."""

HEAD_ROOM: Final = 0.1
"""Share of a device's memory that is left to others and to fragmentation."""

PROCESS_BYTES: Final = 768 * 2**20
"""What a process holds on a device besides tensors: CUDA's context and its libraries."""

MARGIN: Final = 1.3
"""Times the prediction."""

_RAYS_UNITS: Final = 10_000
"""Ray counts parts of a device in so many, rounded: six sixths would be more than one."""

Shape = tuple[str, str, int, str, str, bool]


def share_of(at_once: int) -> float:
    """Return the share of a device of one of so many trials: at most 1 in all, as Ray counts."""
    return _RAYS_UNITS // at_once / _RAYS_UNITS


@dataclass(slots=True)
class DeviceShares:
    """The shares that trials get of devices of one kind.

    Args:
        device_bytes: memory of a device, of the smallest if they differ; None while that is not
            known, and each trial gets a whole one.
    """

    device_bytes: int | None = None
    _at_most: dict[Shape, int] = field(default_factory=dict)

    def resources(self, trial: Trial, *, is_stack: bool = False) -> Resources:
        """Return what a trial occupies that is handed out now; a stack gets a whole device."""
        if not trial.resources.is_auto:
            return trial.resources
        return replace(trial.resources, gpus=share_of(1 if is_stack else self.at_once(trial)))

    def at_once(self, trial: Trial) -> int:
        """Return how many processes of such a trial share a device.

        One, also where even that is not expected to fit: the trial then takes smaller steps.
        """
        if self.device_bytes is None:
            return 1
        needed = PROCESS_BYTES + math.ceil(MARGIN * (trial.train_memory_bytes or 0))
        fitting = int(self.device_bytes * (1 - HEAD_ROOM)) // needed
        most = min(fitting, self._at_most.get(_shape(trial), max(AT_ONCE)))
        return max((number for number in AT_ONCE if number <= most), default=1)

    def ran_out(self, assignment: Assignment) -> bool:
        """Note that memory did not suffice, and return whether a larger share is left to try."""
        trial = assignment.trial
        if not trial.resources.is_auto:
            return False
        had = assignment.resources.devices
        fewer = max((number for number in AT_ONCE if share_of(number) > had), default=1)
        shape = _shape(trial)
        self._at_most[shape] = min(fewer, self._at_most.get(shape, max(AT_ONCE)))
        return had < 1


def _shape(trial: Trial) -> Shape:
    recipe, parts = trial.recipe, trial.parts
    return (
        parts.get("model", trial.key),
        parts.get("task", ""),
        recipe.at_once or recipe.batch_size,
        recipe.optimizer,
        recipe.precision,
        recipe.ema is not None,
    )
