"""How much of a device a trial gets, where its sweep leaves that open (``gpus="auto"``).

A trial gets a whole device, a half, a third, a quarter, a sixth or an eighth: few sizes, so that
processes can go on with the next trial of their size. It gets the smallest whose memory holds what
it needs, so that whatever lies on a device together is expected to fit, with head-room.

What it needs is predicted from its structure (``models.counts.train_memory_bytes``), with a margin,
until a trial of its shape has reported how much it held; then that counts. The prediction knows the
model, and neither the data that a task keeps on the device nor the workspaces of kernels. So what a
trial held beyond its prediction also raises the estimate of others of its kind: in full, since a
data set is as large for a smaller model, and in proportion for a larger one. Nothing lowers an
estimate but reports of that very shape.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from hsweep.design.trial import Assignment, Report, Resources, Setback, Trial

AT_ONCE: Final = (1, 2, 3, 4, 6, 8)
"""How many trials may share a device. More than eight processes mostly wait for one another."""

HEAD_ROOM: Final = 0.1
"""Share of a device's memory that is left to others and to fragmentation."""

PROCESS_BYTES: Final = 768 * 2**20
"""What a process holds on a device besides tensors: CUDA's context and its libraries."""

UNSEEN_MARGIN: Final = 1.3
"""Times the prediction, for a shape that has not reported yet."""

SEEN_MARGIN: Final = 1.1
"""Times the most that trials of the shape have held."""

_RAYS_UNITS: Final = 10_000
"""Ray counts parts of a device in so many and rounds: six sixths would be more than one."""

Shape = tuple[str, str, int, str, str]
Kind = tuple[str, str, str, str]


def share_of(at_once: int) -> float:
    """Return the share of a device of one of so many trials: at most 1 in all, as Ray counts."""
    return _RAYS_UNITS // at_once / _RAYS_UNITS


def may_take(lane: Resources, waiting: Iterable[Resources]) -> bool:
    """Return whether a process may go on with another trial.

    It may not while a trial of another size has been handed out and waits for a place: the room it
    waits for would never become free.
    """
    return all(each == lane for each in waiting)


@dataclass(slots=True)
class Packing:
    """The sizes of trials on devices of one kind.

    Args:
        device_bytes: memory of a device; of the smallest, if they differ.

    Raises:
        ValueError: a device without memory.
    """

    device_bytes: int
    _held: dict[Shape, int] = field(default_factory=dict)
    _beyond: dict[Kind, dict[int, int]] = field(default_factory=dict)
    _fits: dict[Shape, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.device_bytes <= 0:
            raise ValueError(f"a device has memory, not {self.device_bytes} bytes of it")

    @property
    def usable_bytes(self) -> int:
        """Memory of a device that trials may be expected to need together."""
        return int(self.device_bytes * (1 - HEAD_ROOM))

    def needed_bytes(self, trial: Trial, together: int = 1) -> int:
        """Return the estimate of what a process holds on its device.

        Args:
            trial: what it trains.
            together: how many like it, as one program.
        """
        return PROCESS_BYTES + together * self._needed_by(trial)

    def _needed_by(self, trial: Trial) -> int:
        held = self._held.get(_shape(trial))
        if held is not None:
            return math.ceil(SEEN_MARGIN * held)
        predicted = trial.train_memory_bytes
        # What others held beyond their predictions is a constant and a part of the prediction; each
        # bounds the sum from above, if it is taken in full and for a larger trial in proportion.
        beyond = min(
            (
                excess if predicted <= of else math.ceil(excess * predicted / of)
                for of, excess in self._beyond.get(_kind(trial), {}).items()
            ),
            default=0,
        )
        return max(math.ceil(UNSEEN_MARGIN * predicted), predicted + beyond)

    def most_together(self, trial: Trial) -> int:
        """Return how many trials like this one a device holds that are trained as one program."""
        room = self.usable_bytes - PROCESS_BYTES
        return max(1, room // max(1, self._needed_by(trial)))

    def at_once(self, trial: Trial, together: int = 1) -> int:
        """Return how many processes that train what is given share a device.

        One, also where even that is not expected to fit: the trial then takes smaller steps.

        Args:
            trial: what each trains.
            together: how many like it, as one program.
        """
        fitting = self.usable_bytes // self.needed_bytes(trial, together)
        most = min(fitting, self._fits.get(_shape(trial), max(AT_ONCE)))
        return max((number for number in AT_ONCE if number <= most), default=1)

    def resources(self, trial: Trial, together: int = 1) -> Resources:
        """Return what a trial would occupy if it were handed out now.

        Args:
            trial: what is handed out.
            together: how many like it, to be trained as one program.
        """
        if not trial.resources.is_auto:
            return trial.resources
        return replace(trial.resources, gpus=share_of(self.at_once(trial, together)))

    def learn(self, assignment: Assignment, said: Report | Setback) -> None:
        """Take note of what a trial held, or that memory did not suffice for it."""
        trial = assignment.trial
        if not trial.resources.is_auto:
            return
        if isinstance(said, Setback):
            if said.kind == "memory":
                self._did_not_fit(assignment)
                if said.needed_bytes is not None:
                    self.observe(trial, said.needed_bytes)
        elif said.micro_batch is not None:
            # What it held says nothing of a whole batch, but that this takes more.
            self._did_not_fit(assignment)
        elif said.peak_memory_bytes is not None:
            self.observe(trial, said.peak_memory_bytes)

    def observe(self, trial: Trial, peak_bytes: int) -> None:
        """Take note of the most that a trial has held, besides what every process does."""
        shape, predicted = _shape(trial), trial.train_memory_bytes
        held = self._held[shape] = max(peak_bytes, self._held.get(shape, 0))
        beyond = self._beyond.setdefault(_kind(trial), {})
        beyond[predicted] = max(held - predicted, beyond.get(predicted, 0))

    def _did_not_fit(self, assignment: Assignment) -> None:
        """Give the next trials of this shape more than this one had."""
        had = assignment.resources.devices
        smaller = [number for number in AT_ONCE if share_of(number) > had]
        shape = _shape(assignment.trial)
        self._fits[shape] = min(max(smaller, default=1), self._fits.get(shape, max(AT_ONCE)))


def _shape(trial: Trial) -> Shape:
    """What memory depends on."""
    recipe, parts = trial.recipe, trial.parts
    return (
        parts.get("model", trial.key),
        parts.get("task", ""),
        recipe.batch_size,
        recipe.optimizer,
        recipe.precision,
    )


def _kind(trial: Trial) -> Kind:
    """Trials of one kind are predicted alike, and likely wrong in the same way."""
    return (
        type(trial.model).__qualname__,
        type(trial.task).__qualname__,
        trial.recipe.optimizer,
        trial.recipe.precision,
    )
