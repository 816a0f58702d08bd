"""Whether a failed trial is tried again, and when the fault is the whole study's."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hsweep.design.trial_status import TrialStatus
from hsweep.record.summary import INTERRUPTED, first_line

if TYPE_CHECKING:
    from hsweep.record.journal import Journal, TrialRow

IN_DRIVER: Final = "in the process that runs the study"
"""The reason of an attempt that can end its driver."""

_MAX_LOST: Final = 5
"""How often in a row a trial may lose its place without a report before that counts against it."""

_REASON_LENGTH: Final = 8_000
_SAME_FAILURES: Final = 3
"""How many trials fail alike, where none has got further, until that is taken for the study's
fault."""


@dataclass(slots=True)
class RetryPolicy:
    """The failures of one run of a study that decide about further attempts."""

    _lost: Counter[str] = field(default_factory=Counter)
    _alike: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _failed: dict[str, tuple[str, int]] = field(default_factory=dict)
    _furthest: int = 0

    def has_reported(self, key: str, unit: int) -> None:
        """Note that a trial has reported: the study works up to there, so a failure before that
        unit is the trial's own."""
        self._lost.pop(key, None)
        if unit > self._furthest:
            self._furthest = unit
            self._alike.clear()

    def is_bad_luck(self, key: str) -> bool:
        """Note that a trial lost its worker, and return whether the attempt is forgiven."""
        self._lost[key] += 1
        return self._lost[key] <= _MAX_LOST

    def repeats(self, key: str, reason: str, unit: int) -> bool:
        """Note a trial's failure after a unit; return whether it is the same at the same place as
        in the attempt before, which another attempt would not change."""
        before = self._failed.get(key)
        self._failed[key] = now = first_line(reason), unit
        return now == before

    def reason_to_pause(self, key: str, reason: str, unit: int, node: str = "") -> str:
        """Note a trial's failure after a unit, and the node if there are others; return why the
        study should pause, empty if it should not.

        A missing module, or a rate that is undefined at some step, is no trial's fault, nor one
        node's, and going on would use up every trial's attempts.
        """
        if unit < self._furthest:
            return ""
        cause = first_line(reason) or "unknown"
        alike = self._alike.setdefault(cause, set())
        alike.add((key, node))
        keys, nodes = ({pair[i] for pair in alike} for i in (0, 1))
        if len(keys) < _SAME_FAILURES or ("" not in nodes and len(nodes) == 1):
            return ""
        where = f"after unit {unit}, and none got further" if unit else "before any has reported"
        return (
            f"{len(keys)} trials failed in the same way ({cause}) {where}; mend that, and let "
            "trials that have used up their attempts try again with --retry-failed"
        )


def ends_left(
    rows: Mapping[str, "TrialRow"], journal: "Journal", max_failures: int
) -> dict[str, dict[str, Any]]:
    """Return the status, reason and failures of each running trial whose driver has ended.

    A trial in the driver's own process may be what ended it: an attempt there that got no further
    counts as a failed one, and so does the one before it that did.
    """
    reports = journal.reports(list(rows)) if rows else ()
    last = {report.key: report.attempt for report in reports}
    ends = {}
    for key, row in rows.items():
        failures, since = row.failures, row.attempt - last.get(key, row.attempt)
        if row.reason == IN_DRIVER and last.get(key) != row.attempt:
            failures = max(failures, since) + 1
        ends[key] = {"status": TrialStatus.PLANNED, "reason": INTERRUPTED, "failures": failures}
        if failures > max(row.failures, max_failures):
            ends[key]["status"] = TrialStatus.FAILED
            ends[key]["reason"] = (
                f"{failures} attempts in the process that runs the study ended with that process, "
                f"without an error or a report after unit {row.unit}"
            )
    return ends


def shortened(reason: str) -> str:
    """Return a reason; a very long one is cut to its first line and its end."""
    if len(reason) <= _REASON_LENGTH:
        return reason
    first, _, rest = reason.partition("\n")
    first = first[: _REASON_LENGTH // 2]
    return f"{first}\n...{rest[len(first) - _REASON_LENGTH :]}"
