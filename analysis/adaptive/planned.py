"""The search of a planned study for a transition: which of its trials the next round has."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from analysis.adaptive.rounds import Played, Run, play
from analysis.adaptive.transition import SEARCH_SEED, Located, locate
from analysis.runs.scale import THRESHOLDS
from hsweep.design.question import Scale

_SMALLEST: Final = 1e-6
"""The error of a run without one, where the number of evaluation examples is not known."""


class Planned(Protocol):
    """A planned trial."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def point(self) -> Mapping[str, Any]:
        """Its axis values."""

    @property
    def replicate(self) -> int:
        """The number of its seed."""


class PlannedRun(NamedTuple):
    """A planned trial, as a record has it."""

    key: str
    point: Mapping[str, Any]
    replicate: int


class TransitionSearch:
    """Chooses the trials that locate the transition of a study.

    Args:
        trials: all that were planned.
        x, by: the searched and the modulating axis, or no modulating one.
        scale: of the metric.
        eval_size: evaluation examples behind it, None where that is not known.
        scouts: replicates of a cell that only choose its setting.

    Attributes:
        played: how far the design had come, when it was last asked.
    """

    why_not = "the search for the transition did not ask for it"

    def __init__(
        self,
        trials: Sequence[Planned],
        x: str,
        by: str | None,
        scale: Scale,
        eval_size: int | None = None,
        scouts: int = 0,
    ) -> None:
        self._scale, self._eval_size = scale, eval_size
        self.heads = sorted({trial.point[x] for trial in trials})
        self.lengths = [0] if by is None else sorted({trial.point[by] for trial in trials})
        self._scouts = scouts
        self._keys: defaultdict[Run, list[str]] = defaultdict(list)
        for trial in trials:
            head = self.heads.index(trial.point[x])
            length = 0 if by is None else self.lengths.index(trial.point[by])
            self._keys[Run(head, length, trial.replicate - scouts)].append(trial.key)
        # The plan has chosen it, among the lengths that it could plan.
        self._at = next(run.length for run in self._keys if run.seed >= SEARCH_SEED)
        self.played: Played[Located] = Played(())

    def next_round(self, values: Mapping[str, float | None]) -> frozenset[str]:
        """Return the trials of the next round; none at the end (see ``RoundDesign``)."""

        def ended(run: Run) -> bool:
            return all(key in values for key in self._keys[run])

        def value(run: Run) -> float | None:
            # Of settings that compete the winner alone has one.
            known = (values[key] for key in self._keys[run])
            finite = [self._y(value) for value in known if value is not None]
            return finite[0] if finite else None

        design = locate(self.heads, self.lengths, self._at, THRESHOLDS[self._scale])
        self.played = play(design, value, ended)
        asked = self.played.next
        return frozenset(() if asked is None else self._trials_of(asked.runs))

    def _trials_of(self, runs: Iterable[Run]) -> Iterable[str]:
        for run in runs:
            yield from self._keys[run]
            for scout in range(self._scouts):
                yield from self._keys[run._replace(seed=scout - self._scouts)]

    def _y(self, value: float) -> float:
        """Return a value on its scale. The floor of an error is fixed: one that followed the errors
        so far would change what earlier rounds have seen."""
        if self._scale == "loss":
            return value
        error = 1.0 - value if self._scale == "accuracy" else value
        floor = 0.5 / self._eval_size if self._eval_size else _SMALLEST
        return float(np.log10(max(error, floor)))
