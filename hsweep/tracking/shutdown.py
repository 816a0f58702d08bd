"""The shutdown of a run's tracking: it takes a bounded time, and says what is pending.

Nothing is lost by not waiting: what is not delivered stays in the study. So an interrupt here ends
the waiting and nothing else.
"""

from typing import TYPE_CHECKING, Final

from hsweep.command_line import command
from hsweep.redaction import HIDDEN

if TYPE_CHECKING:
    from rich.console import Console

    from hsweep.record.study import Study
    from hsweep.tracking.target import TrackingTarget
    from hsweep.tracking.tracker import Tracker, TrackingSummary

_SILENT_SECONDS: Final = 3.0
_FLUSH_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 60.0
_FAILING_SECONDS: Final = 5.0
"""For a store that did not answer when it was last asked."""
_INTERRUPTED_SECONDS: Final = 15.0
_REFUSALS_SHOWN: Final = 3


class Shutdown:
    """Waits for a tracker, not for long where ``is_interrupted``: the user wants to leave."""

    def __init__(self, tracker: "Tracker", console: "Console", *, is_interrupted: bool) -> None:
        self._tracker = tracker
        self._console = console
        self._is_interrupted = is_interrupted
        self._is_cut_short = False

    def flush(self) -> None:
        """Wait for what is recorded so far, if the store takes it."""
        longest = _FAILING_SECONDS if self._is_interrupted else _FLUSH_SECONDS
        try:
            summary = self._tracker.flush(wait_seconds=min(_SILENT_SECONDS, longest))
            if summary.pending and summary.error is None:
                self._console.print(
                    f"delivering {summary.pending} records to MLflow, for at most {longest:g} s "
                    "(Ctrl-C leaves them in the study)",
                    soft_wrap=True,
                )
                self._tracker.flush(wait_seconds=longest - _SILENT_SECONDS)
        except KeyboardInterrupt:
            self._is_cut_short = True

    def close(self) -> "TrackingSummary":
        """Deliver the rest, if the store takes it in time, and say how delivery stands."""
        longest = _INTERRUPTED_SECONDS if self._is_interrupted else _CLOSE_SECONDS
        if self._is_cut_short:
            longest = 0.0
        elif self._tracker.summary().error is not None:
            longest = _FAILING_SECONDS
        try:
            return self._tracker.close(wait_seconds=longest)
        except KeyboardInterrupt:
            return self._tracker.close(wait_seconds=0.0)


def sync_line(study: "Study", target: "TrackingTarget") -> str:
    """Return the command that delivers what a store has not got of a study."""
    shown = target.shown_uri
    is_other = HIDDEN in shown or shown != study.manifest.tracking_uri
    words = ["--tracking-uri", shown] if is_other else []
    return command("sync", study.name, *words, home=study.paths.home)


def tracking_lines(
    summary: "TrackingSummary", study: "Study", target: "TrackingTarget"
) -> list[str]:
    """Return what to say of what did not reach the store; nothing if all did."""
    lines: list[str] = []
    if summary.pending or summary.error or summary.unattached:
        files = f" and {len(summary.unattached)} files" if summary.unattached else ""
        why = f" ({summary.error})" if summary.error else ""
        lines.append(
            f"MLflow has not got {summary.pending} records{files} yet{why}; they are kept in the "
            f"study; deliver them by: {sync_line(study, target)}"
        )
    if summary.refused:
        shown = "; ".join(f"{each.run}: {each.why}" for each in summary.refused[:_REFUSALS_SHOWN])
        more = len(summary.refused) - _REFUSALS_SHOWN
        lines.append(
            f"MLflow refuses part of {len(summary.refused)} trials: {shown}"
            f"{f'; and {more} more' if more > 0 else ''}; it is kept in the study, and sent again "
            f"by: {sync_line(study, target)}"
        )
    return lines
