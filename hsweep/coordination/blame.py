"""Whose fault it is when a trial does not get on: its own, its place's, or the whole study's."""

from dataclasses import dataclass, field
from typing import Final

from hsweep.record.endings import first_line

_MAX_LOST: Final = 5
"""How often in a row a trial may lose its place without a report before that counts against it."""

_SAME_FAILURES: Final = 3
"""How many trials fail alike, before any reports, until that is taken for the study's fault."""


@dataclass(slots=True)
class Blame:
    """What has gone wrong in one run of a study, as far as it bears on the next time."""

    _lost: dict[str, int] = field(default_factory=dict)
    _alike: dict[str, set[str]] | None = field(default_factory=dict)

    def has_reported(self, key: str) -> None:
        """Note a report: what this trial could do the others can, so from here on a failure is a
        trial's own."""
        self._lost.pop(key, None)
        self._alike = None

    def counts_as_lost(self, key: str) -> bool:
        """Note that a trial lost its place, and return whether that is no more than bad luck."""
        self._lost[key] = self._lost.get(key, 0) + 1
        return self._lost[key] <= _MAX_LOST

    def studys_own(self, key: str, reason: str) -> str:
        """Note a trial's failure; return why the study should pause, empty if it should not.

        A missing module or data set is no trial's fault, and going on would use up every trial's
        attempts.
        """
        if self._alike is None:
            return ""
        cause = first_line(reason) or "unknown"
        alike = self._alike.setdefault(cause, set())
        alike.add(key)
        if len(alike) < _SAME_FAILURES:
            return ""
        return (
            f"the first {len(alike)} trials failed in the same way ({cause}); mend that, and "
            "let trials that have used up their attempts try again with --retry-failed"
        )
