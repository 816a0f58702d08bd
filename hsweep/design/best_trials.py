"""The best trials of a study, whose weights are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BestTrials:
    """The best finished trial of each stratum, and the best baseline of each comparison.

    Of trials with equal values the first in the plan counts, whichever ended first.

    Args:
        goal: whether smaller or larger values are better.
        question: the study's, as plain content.
    """

    goal: str
    question: Mapping[str, Any] | None
    _best: dict[tuple[str, Any], tuple[float, int, str]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """The keys of the best trials."""
        return {key for _, _, key in self._best.values()}

    def add(
        self, key: str, ordinal: int, stratum: str, point: Mapping[str, Any], value: float | None
    ) -> set[str]:
        """Add a finished trial; return the trials, possibly this one, that are no longer the
        best."""
        if value is None:
            return {key}
        before = {key, *self.keys}
        rank = (value if self.goal == "min" else -value, ordinal, key)
        groups: list[tuple[str, Any]] = [("stratum", stratum)]
        question = self.question or {}
        baseline = dict(question.get("baseline") or ())
        if baseline and all(point.get(axis) == number for axis, number in baseline.items()):
            groups.append(("baseline", point.get(question["within"])))
        for group in groups:
            self._best[group] = min(rank, self._best.get(group, rank))
        return before - self.keys
