"""What a study's trials are, in words: points, seeds, budgets, those that only chose a setting and
those that never began."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hsweep.design.labels import listed
from hsweep.design.trial import TrialStatus


class Recorded(Protocol):
    """A trial of the record."""

    @property
    def point(self) -> Mapping[str, Any]:
        """The axis values."""

    @property
    def replicate(self) -> int:
        """Which of its point's seeds it has."""

    @property
    def budget(self) -> int:
        """In units."""

    @property
    def status(self) -> str:
        """How it stands."""

    @property
    def attempt(self) -> int:
        """How often it was started."""


def never_began(trial: Recorded) -> bool:
    """Whether a trial was stopped before its start: what it competes as had lost by other seeds, or
    at a shorter budget."""
    return trial.status == TrialStatus.STOPPED_EARLY and not trial.attempt


def composition_lines(trials: Sequence[Recorded], unit: str, scouts: int) -> list[str]:
    """Return what so many trials are; nothing where each is one seed of a point, and counts.

    Args:
        trials: of one study.
        unit: of their budgets.
        scouts: how many seeds of a point, the first ones, only choose its setting.
    """
    budgets = sorted({trial.budget for trial in trials})
    if len(budgets) < 2 and not scouts:
        return []
    # Replicates may share their point.
    names: dict[int, str] = {}
    for trial in trials:
        if id(trial.point) not in names:
            names[id(trial.point)] = json.dumps(dict(trial.point), default=str, sort_keys=True)
    num_points, seeds = len(set(names.values())), len({trial.replicate for trial in trials})
    is_whole = len(trials) == num_points * seeds * len(budgets)
    up_to = "" if is_whole else "up to "
    parts = [
        f"{num_points} point{'s' * (num_points > 1)} with {up_to}{seeds} seed{'s' * (seeds > 1)}"
    ]
    if len(budgets) > 1:
        parts.append(f"at {up_to}{len(budgets)} budgets ({listed(budgets)} {unit})")
    lines = [f"{len(trials)} trials: {' '.join(parts)}"]
    if choosing := sum(trial.replicate < scouts for trial in trials):
        which = "seed 0" if scouts == 1 else f"seeds 0 to {scouts - 1}"
        lines.append(
            f"{choosing} of them are scouts: {which} of each point only chooses its setting, and "
            "counts in no answer"
        )
    if unstarted := sum(map(never_began, trials)):
        lines.append(
            f"{unstarted} of them never started: they had lost before, by the scouts of their "
            "setting or at a shorter budget"
        )
    return lines
