"""Progress of a running study: a live table on a terminal, elsewhere a line for each event."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hsweep.design.labels import strata_apart
from hsweep.design.trial import Report, Trial, TrialStatus
from hsweep.record.summary import first_line
from hsweep.terminal import table_of, visible

if TYPE_CHECKING:
    from hsweep.running.pace import Outlook

_MAX_STRATA: Final = 12
ENDING: Final = "ending cleanly: trials write their checkpoints (Ctrl-C: stop at once)"
STATUS_STYLES: Final = {
    TrialStatus.FINISHED: "green",
    TrialStatus.RUNNING: "cyan",
    TrialStatus.STOPPED_EARLY: "yellow",
    TrialStatus.DIVERGED: "magenta",
    TrialStatus.TOO_LARGE: "red",
    TrialStatus.FAILED: "red",
    TrialStatus.PLANNED: "default",
    TrialStatus.NOT_NEEDED: "bright_black",
}
"""In the order of the status line."""

_ALWAYS_SHOWN: Final = (TrialStatus.FINISHED, TrialStatus.RUNNING)
"""Statuses that the status line counts first, and shows even where no trial has them."""
_GAP: Final = "  "
_NOTE_SECONDS: Final = 5.0
_LINE_SECONDS: Final = 0.3
_DRAW_SECONDS: Final = 0.5
_ROUTINE: Final = (TrialStatus.FINISHED, TrialStatus.STOPPED_EARLY)
"""Ends of trials of which a notebook shows the last alone."""


def duration(seconds: float) -> str:
    """Return a time as people write it: 8.2 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def about(seconds: float) -> str:
    """Return a rough time in words: 20 s, 4 min, 2 h 10 min."""
    if seconds < 60:
        return f"{max(1, round(seconds, -1 if seconds > 10 else 0)):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


class Progress:
    """Shows a study while it runs; an observer of its coordinator.

    Args:
        note_time_left: called every few seconds with the estimated seconds until the run ends.
        note_round: called when a search begins a round.

    Attributes:
        is_live: a table is on the terminal, which nothing else may write over.
    """

    def __init__(
        self,
        console: Console,
        outlook: "Outlook",
        note_time_left: Callable[[float], None] = lambda _seconds: None,
        note_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._console = console
        self._outlook = outlook
        self._coordinator = coordinator = outlook.coordinator
        self._metric = coordinator.sweep.metric
        self._started = time.monotonic()
        self.is_live = False
        self._seen: set[str] = set()
        self._round = ""
        self._tried_again: set[str] = set()
        self._micro_batches: dict[str, int | None] = {}
        self._noted: set[str] = set()
        self._note_time_left, self._note_round = note_time_left, note_round
        self._last_note = time.monotonic()
        self._cell: Any = None  # the line of a notebook
        self._last_line, self._last_end = -math.inf, ""

    @contextmanager
    def showing(self) -> Iterator[None]:
        if self._console.is_jupyter:
            from IPython.display import display

            # One output that is renewed: widgets need a library of their own.
            self._cell = display({"text/plain": ""}, raw=True, display_id=True)
            try:
                yield
            finally:
                self._renew(at_once=True)
                self._cell = None
            return
        if not self._console.is_terminal:
            yield
            return
        self.is_live = True
        try:
            with self._table():
                yield
        finally:
            self.is_live = False

    @contextmanager
    def _table(self) -> Iterator[None]:
        """Show the table below all that is printed; at the end, when the outcome says the same,
        it disappears.

        An event holds the study while it prints, and the table is drawn from the study: whoever
        draws takes the study first and the terminal after it, or the two would wait for each
        other.
        """
        live = Live(
            console=self._console, get_renderable=self._render, auto_refresh=False, transient=True
        )
        is_over = threading.Event()

        def draw() -> None:
            while not is_over.wait(_DRAW_SECONDS):
                with self._coordinator.lock, self._console:
                    live.refresh()

        drawing = threading.Thread(target=draw, name="hsweep-table", daemon=True)
        live.start()
        drawing.start()
        try:
            yield
        finally:
            is_over.set()
            drawing.join()
            with self._coordinator.lock, self._console:
                live.stop()

    def started(self, trial: Trial, attempt: int) -> None:
        """Say that a trial is tried again, or goes on where an earlier run of the study left it.

        A first start shows in the table, and one that waited at a rung just goes on.
        """
        self._outlook.started(trial, time.monotonic())
        rounds = self._coordinator.rounds
        if rounds is not None and rounds.design.line != self._round:
            self._round = rounds.design.line
            self._console.print(Text(self._round, style="bold"), soft_wrap=True)
            self._note_round()
        is_news = trial.key in self._tried_again or trial.key not in self._seen
        self._seen.add(trial.key)
        if attempt > 1 and is_news and not self.is_live:
            self._line(trial, f"attempt {attempt} starts")

    def reported(self, trial: Trial, report: Report) -> None:
        """Print the note of a report; the table shows how far each trial is."""
        self._outlook.reported(trial, report.wall_seconds, time.monotonic())
        if (now := time.monotonic()) - self._last_note > _NOTE_SECONDS:
            self._last_note = now
            if (seconds := self._outlook.seconds_left(now)) is not None:
                self._note_time_left(seconds)
        self._renew()
        if report.micro_batch != self._micro_batches.get(trial.key):
            self._micro_batches[trial.key] = report.micro_batch
            if report.micro_batch is not None:
                self._line(trial, f"computes {report.micro_batch} examples at once: memory")
        # The same note of many trials is shown once, and counted at the end.
        if report.note and report.note not in self._noted:
            self._noted.add(report.note)
            self._line(trial, report.note)

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        if status is TrialStatus.NOT_NEEDED:
            return
        value = self._coordinator.value(trial.key)
        is_planned = status is TrialStatus.PLANNED
        (self._tried_again.add if is_planned else self._tried_again.discard)(trial.key)
        word = "will be tried again" if is_planned else str(status).replace("_", " ")
        why = first_line(reason)
        self._line(
            trial,
            f"{word}{f'  {self._metric} {number(value)}' if value is not None else ''}"
            f"{f'  ({why})' if why else ''}",
            STATUS_STYLES[status],
            is_routine=status in _ROUTINE,
        )

    def said(self, line: str) -> None:
        self._console.print(Text(line, style="yellow"), soft_wrap=True)

    def _line(
        self, trial: Trial, message: str, style: str = "default", *, is_routine: bool = False
    ) -> None:
        num_ended, total = self._coordinator.table.num_ended, self._outlook.num_runs
        text = Text(f"[{num_ended:>{len(str(total))}}/{total}] {self._coordinator.label(trial)}  ")
        text.append(message, style=style)
        if self._cell is not None and is_routine:
            self._last_end = text.plain
            self._renew()
        else:
            self._console.print(text, soft_wrap=True)

    def _renew(self, *, at_once: bool = False) -> None:
        """Write the line of a notebook again, if a part of a second has passed."""
        now = time.monotonic()
        if self._cell is None or (now - self._last_line < _LINE_SECONDS and not at_once):
            return
        self._last_line = now
        with self._coordinator.lock:
            line = _GAP.join(filter(None, [self._summary().plain, self._last_end]))
        self._cell.update({"text/plain": visible(line)}, raw=True)

    def _render(self) -> Group:
        table = self._coordinator.table
        parts: list[Any] = [self._summary()]
        if self._coordinator.stop_requested:
            parts.insert(0, Text(ENDING))
        if table.running:
            parts.append(self._running_table())
        if table.best:
            parts.append(self._best_table())
        return Group(*parts)

    def _summary(self) -> Text:
        """Return the study's counts and times in one line. The terminal cuts a long line, so the
        counts that are always shown and the time left come first."""
        counts = {status: self._coordinator.table.counts[status] for status in TrialStatus}
        num_begun = self._coordinator.table.num_ended + counts[TrialStatus.RUNNING]
        counts[TrialStatus.PLANNED] = max(0, self._outlook.num_runs - num_begun)
        del counts[TrialStatus.NOT_NEEDED]
        words = {status: status.replace("_", " ") for status in counts}
        words[TrialStatus.PLANNED] = "waiting"
        parts = [
            Text(f"{counts[status]} {words[status]}", style)
            for status, style in STATUS_STYLES.items()
            if status in _ALWAYS_SHOWN or counts.get(status)
        ]
        now = time.monotonic()
        if (seconds := self._outlook.seconds_left(now)) is not None:
            parts.insert(len(_ALWAYS_SHOWN), Text(f"remaining about {duration(seconds)}"))
        parts.append(Text(f"elapsed {duration(now - self._started)}"))
        line = Text(_GAP).join(parts)
        line.no_wrap, line.overflow = True, "ellipsis"
        return line

    def _running_table(self) -> Table:
        trials, running = self._coordinator.table.trials, self._coordinator.table.running
        table = table_of("running", ">done", f">{self._metric}", no_wrap=True)
        for row in sorted(running.values(), key=lambda row: row.ordinal):
            trial = trials[row.key]
            table.add_row(
                self._coordinator.label(trial),
                f"{row.unit}/{trial.budget.amount} {trial.budget.unit}",
                number(self._coordinator.value(row.key)),
            )
        return table

    def _best_table(self) -> Table:
        best = self._coordinator.table.best
        table = table_of("best so far", f">{self._metric}", no_wrap=True)
        in_order = dict.fromkeys(trial.stratum for trial in self._coordinator.planned_trials())
        labels = strata_apart(in_order)
        strata = [stratum for stratum in in_order if stratum in best]
        for stratum in strata[:_MAX_STRATA]:
            table.add_row(labels[stratum], number(best[stratum][0]))
        if len(strata) > _MAX_STRATA:
            table.add_row(f"and {len(strata) - _MAX_STRATA} more", "")
        return table
