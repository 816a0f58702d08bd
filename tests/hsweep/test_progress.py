"""What a running study shows, on a terminal and elsewhere."""

import io
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.console import Console, Group
from tiny import TinyTask, tiny_sweep
from tiny_runs import coordinating, outlook_of, planned, take_one

from hsweep import Asha, Recipe, Sweep, Transition, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.design.labels import point_label, varying_axes
from hsweep.design.trial import Assignment, Report, TrialStatus
from hsweep.running.progress import STATUS_STYLES, Progress, duration, number
from hsweep.terminal import PlainConsole

SWEEP = tiny_sweep(space=grid(width=[1, 2, 3], lr=[0.05]), budget=epochs(4), max_failures=1)


def console(*, terminal: bool) -> PlainConsole:
    return PlainConsole(
        file=io.StringIO(), force_terminal=terminal, width=160, record=True, color_system=None
    )


def run(sweep: Sweep, folder: Path, shown: Console) -> list[str]:
    """Run a sweep to its end and return the lines it showed."""
    with coordinating(sweep, folder) as coordinator:
        progress = Progress(shown, outlook_of(coordinator))
        coordinator.observer = progress
        with progress.showing():
            InlineRunner().run(coordinator)
        # A display that failed would have been taken off.
        assert coordinator.observer is progress
    return [line.rstrip() for line in shown.export_text().splitlines()]


def value_of(folder: Path, width: int) -> str:
    with coordinating(SWEEP, folder) as coordinator:
        rows = {row.point["width"]: row.metrics.get("nmse") for row in coordinator.journal.trials()}
    return number(rows[width])


def test_elsewhere_it_is_one_line_a_trial_that_names_only_what_varies(tmp_path: Path) -> None:
    shown = console(terminal=False)
    assert run(SWEEP, tmp_path, shown) == [
        f"[{done}/3] width={width} #0  finished  nmse {value_of(tmp_path, width)}"
        for done, width in ((1, 3), (2, 2), (3, 1))
    ]
    assert isinstance(shown.file, io.StringIO)
    assert "\x1b" not in shown.file.getvalue()


def test_failures_say_why_and_that_they_are_tried_again(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    bad = TinyTask(raises_at=6, raises=9, folder=str(tmp_path / "traces"))
    sweep = tiny_sweep(task=lambda point: bad if point.width == 3 else TinyTask(), max_failures=1)
    text = "\n".join(run(sweep, tmp_path, console(terminal=False)))
    assert "[0/3] width=3 #0  will be tried again" in text
    assert "(RuntimeError: raised on purpose before update 6 at " in text
    assert "/tests/tiny.py:" in text
    assert "width=3 #0  attempt 2 starts" in text
    assert "[3/3] width=3 #0  failed" in text


def test_early_stops_and_divergence_are_told(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5]),
        task=lambda point: TinyTask(diverges_at=3 if point.width == 4 else None),
        budget=epochs(9),
        early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1),
    )
    lines = run(sweep, tmp_path, console(terminal=False))
    (diverged,) = [line for line in lines if "width=4" in line]
    assert "diverged" in diverged
    assert "(the training loss was not finite at step 3)" in diverged
    assert any("stopped_early" in line or "stopped early" in line for line in lines)


def said(unit: int, value: float | None) -> Report:
    return Report(unit, 4 * unit, {"nmse": value, "fit": None}, float(unit), unit == 4)


def rendered(coordinator: Coordinator, progress: Progress) -> str:
    screen = console(terminal=False)
    screen.print(progress._render())
    return screen.export_text()


def test_the_live_table_shows_what_runs_what_is_best_and_what_is_left(tmp_path: Path) -> None:
    shown = console(terminal=True)
    with coordinating(SWEEP, tmp_path) as coordinator:
        progress = Progress(shown, outlook_of(coordinator))
        coordinator.observer = progress
        with progress.showing():
            first, second = take_one(coordinator), take_one(coordinator)
            assert first is not None
            assert second is not None
            coordinator.report(first, said(1, 0.25))
            coordinator.report(second, said(1, None))
            text = rendered(coordinator, progress)
    assert "0 finished  2 running" in text
    assert "1 waiting" in text
    assert "remaining about" in text
    running = [line.split() for line in text.splitlines() if "#0" in line]
    assert running == [
        ["width=2", "#0", "1/4", "epochs", "-"],
        ["width=3", "#0", "1/4", "epochs", "0.25"],
    ]
    assert "best so far" in text


class Screen(io.StringIO):
    """A terminal of so many columns: what is on it after each write, and what was at any time."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.rows = [""]
        self.most_summaries = 0
        self._row = self._column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[^\x1b]", text):
            self._take(part)
        summaries = [row for row in self.rows if " finished  " in row and " running" in row]
        self.most_summaries = max(self.most_summaries, len(summaries))
        return len(text)

    def _take(self, part: str) -> None:
        if part == "\n":
            self._row, self._column = self._row + 1, 0
        elif part == "\r":
            self._column = 0
        elif part == "\x1b[2K":
            self.rows[self._row] = ""
        elif part == "\x1b[1A":
            self._row = max(0, self._row - 1)
        elif not part.startswith("\x1b"):
            if self._column == self.columns:
                self._row, self._column = self._row + 1, 0
            self._grow()
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + part + row[self._column + 1 :]
            self._column += 1
        self._grow()

    def _grow(self) -> None:
        self.rows += [""] * (self._row + 1 - len(self.rows))


@dataclass(frozen=True)
class ChattyTask(TinyTask):
    """Its code prints, as a user's may."""

    def before_update(self, number: int) -> None:
        sys.stdout.write("chatter " * 8 + "\n")


@pytest.mark.parametrize("columns", [80, 40])
def test_the_status_line_fits_the_terminal_and_leaves_no_copy_behind(
    tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsweep.running.progress._DRAW_SECONDS", 1e-4)
    screen = Screen(columns)
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4]),
        task=lambda point: ChattyTask(diverges_at=3 if point.width == 3 else None),
        budget=epochs(9, report_every=1),
        early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1),
    )
    with coordinating(sweep, tmp_path) as coordinator:
        progress = Progress(
            PlainConsole(file=screen, force_terminal=True, width=columns, height=30),
            outlook_of(coordinator),
        )
        coordinator.observer = progress
        with progress.showing():
            InlineRunner().run(coordinator)
            coordinator.request_stop("interrupted")
            # As long as it can get: the counts of a very large study.
            large = Counter(dict.fromkeys(TrialStatus, 123_456))
            paper = Console(file=io.StringIO(), width=columns, record=True)
            with patch.object(coordinator.table, "counts", large):
                paper.print(Group(progress._summary()))
        assert coordinator.observer is progress
    (line,) = paper.export_text().splitlines()
    assert line.startswith("123456 finished  123456 running  ")
    assert screen.most_summaries == 1
    left = [row for row in screen.rows if row.strip()]
    assert not [row for row in left if "elapsed" in row or "best so far" in row]
    assert sum("finished" in row or "stopped" in row or "diverged" in row for row in left) == 4
    assert any("chatter" in row for row in left)


def test_an_event_that_prints_and_the_table_never_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsweep.running.progress._DRAW_SECONDS", 1e-4)
    shown = console(terminal=True)
    with coordinating(SWEEP, tmp_path) as coordinator:
        progress = Progress(shown, outlook_of(coordinator))
        coordinator.observer = progress

        def show() -> None:
            with progress.showing():
                for number in range(50):
                    # The study is held while an event is taken, long enough for a drawing to begin.
                    with coordinator.lock:
                        for _ in range(20):
                            coordinator.say(f"line {number}")

        # Of its own: two that wait for each other would hold the test for ever.
        showing = threading.Thread(target=show, daemon=True)
        showing.start()
        showing.join(timeout=60)
        assert not showing.is_alive()
    assert "line 49" in shown.export_text()


SECONDS = {1: 0.14, 2: 0.15, 3: 0.19, 4: 0.25, 5: 0.42}
"""Of an epoch, by heads: recorded of a study of retrieval on two cores. Those that began at once
took twice as long, beside all that starts."""


@dataclass
class Replay:
    """Runs of a study on two workers by recorded times: nothing is trained, and no time passes.

    Attributes:
        told: the time at each report and what was left by then, in seconds.
    """

    coordinator: Coordinator
    now: float = 9.0
    told: list[tuple[float, float | None]] = field(default_factory=list)

    def run(self) -> None:
        coordinator, training = self.coordinator, dict[str, Ahead]()
        outlook = outlook_of(coordinator)
        while True:
            while len(training) < 2 and (given := take_one(coordinator)):
                outlook.started(given.trial, self.now)
                training[given.trial.key] = Ahead(given, self.now)
            if not training:
                return
            key = min(training, key=lambda each: training[each].due)
            ahead = training[key]
            self.now = ahead.due
            goes_on = coordinator.report(ahead.assignment, ahead.report())
            outlook.reported(ahead.assignment.trial, ahead.seconds, self.now)
            if goes_on:
                ahead.advance()
            else:
                del training[key]
            left = outlook.seconds_left(self.now)
            self.told.append((self.now, left))


class Ahead:
    """The next report of a trial in training."""

    def __init__(self, assignment: Assignment, now: float) -> None:
        self.assignment, self.due, self.seconds, self.unit = assignment, now, 0.0, 0
        self.each = SECONDS[assignment.trial.point["width"]] * (2 if now < 10 else 1)
        self.unit = assignment.shared
        self.advance()

    def advance(self) -> None:
        step = self.assignment.trial.budget.report_every
        self.unit += step
        self.seconds += step * self.each
        self.due += step * self.each

    def report(self) -> Report:
        trial = self.assignment.trial
        values = {"nmse": trial.point["lr"] + trial.replicate / 1000, "fit": None}
        is_last = self.unit == trial.budget.amount
        return Report(self.unit, self.unit, values, self.seconds, is_last)


@pytest.mark.parametrize("scouts", [1, None])
def test_the_time_left_is_right_from_a_quarter_of_a_study_on(
    tmp_path: Path, scouts: int | None
) -> None:
    sweep = tiny_sweep(
        space=grid(width=list(SECONDS), lr=[0.001, 0.003, 0.01]),
        recipe=lambda point: Recipe(lr=point.lr, batch_size=8, schedule="wsd"),
        budget=epochs(80, ladder=[40], report_every=4),
        replicates=3,
        question=Transition(x="width", by=None, nuisance=("lr",)),
        early_stopping=None if scouts is None else Asha(scouts=scouts, reduction_factor=2),
    )
    with coordinating(sweep, tmp_path) as coordinator:
        replay = Replay(coordinator)
        replay.run()
    end = replay.now
    for part in (0.25, 0.5, 0.75, 0.9):
        now, left = next(each for each in replay.told if each[0] >= part * end)
        assert left == pytest.approx(end - now, rel=0.2), f"at {part:.0%}"
    assert replay.told[-1][1] == 0


def test_what_is_in_training_counts_where_reports_are_far_apart(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 2, 3, 4]), budget=epochs(1))
    with coordinating(sweep, tmp_path) as coordinator:
        outlook = outlook_of(coordinator)
        first, second = take_one(coordinator), take_one(coordinator)
        assert first is not None
        assert second is not None
        for each in (first, second):
            outlook.started(each.trial, 0.0)
        assert outlook.seconds_left(50.0) is None
        coordinator.report(first, Report(1, 4, {"nmse": 0.5, "fit": None}, 100.0, is_last=True))
        outlook.reported(first.trial, 100.0, 100.0)
        # One is as good as done, and two are left for two workers.
        left = outlook.seconds_left(100.0)
        assert left == pytest.approx(100, rel=0.05)


def test_many_strata_are_cut_and_ordered_as_people_count(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=grid(width=list(range(1, 16))),
        budget=epochs(4),
        early_stopping=Asha(grace=1, strata=("width",)),
    )
    with coordinating(sweep, tmp_path) as coordinator:
        progress = Progress(console(terminal=True), outlook_of(coordinator))
        with progress.showing():
            while (assignment := take_one(coordinator)) is not None:
                coordinator.report(assignment, said(4, 0.5))
            text = rendered(coordinator, progress)
    named = [line.split()[0] for line in text.splitlines() if line.startswith("width=")]
    assert named == [f"width={width}" for width in range(1, 13)]
    assert "and 3 more" in text


def test_nothing_is_rendered_of_an_empty_study(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path, trials=[]) as coordinator:
        progress = Progress(console(terminal=True), outlook_of(coordinator))
        with progress.showing():
            assert "0 finished" in rendered(coordinator, progress)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (8.23, "8.2 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_times_are_written_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_have_four_digits_and_what_is_missing_a_dash() -> None:
    assert (number(0.123456), number(12345.6), number(None)) == ("0.1235", "1.235e+04", "-")


def test_every_axis_is_named_if_none_varies() -> None:
    trials = list(planned(tiny_sweep(space=grid(width=[2], lr=[0.1]), replicates=2)))
    assert varying_axes(trial.point for trial in trials) == ("width", "lr")
    assert varying_axes(trial.point for trial in planned(SWEEP)) == ("width",)
    assert point_label({"width": 2, "lr": 0.1}) == "width=2 lr=0.1"
    assert point_label({"width": 2}, ("lr", "width")) == "width=2"


def test_every_status_has_a_style() -> None:
    assert set(STATUS_STYLES) == set(TrialStatus)


def test_parts_of_a_batch_and_remarks_are_told_once(tmp_path: Path) -> None:
    shown = console(terminal=False)
    with coordinating(SWEEP, tmp_path) as coordinator:
        progress = Progress(shown, outlook_of(coordinator))
        with progress.showing():
            trial = planned(SWEEP)[0]
            parts = Report(1, 4, {"nmse": 0.5}, 1.0, is_last=False, micro_batch=2)
            progress.reported(trial, parts)
            noted = replace(parts, unit=2, note="the checkpoint was damaged")
            progress.reported(trial, noted)
            progress.reported(planned(SWEEP)[1], replace(noted, micro_batch=None))
    assert [line.rstrip() for line in shown.export_text().splitlines()] == [
        "[0/3] width=1 #0  computes 2 examples at once: memory",
        "[0/3] width=1 #0  the checkpoint was damaged",
    ]


def test_a_trial_that_only_waited_at_a_rung_goes_on_without_a_word(tmp_path: Path) -> None:
    shown = console(terminal=False)
    with coordinating(SWEEP, tmp_path) as coordinator:
        progress = Progress(shown, outlook_of(coordinator))
        with progress.showing():
            paused, interrupted, failed = planned(SWEEP)
            progress.started(paused, 1)
            progress.started(paused, 2)
            progress.started(interrupted, 2)
            progress.started(failed, 1)
            progress.ended(failed, TrialStatus.PLANNED, "the worker died")
            progress.started(failed, 2)
    lines = [line.rstrip() for line in shown.export_text().splitlines()]
    assert lines == [
        "[0/3] width=2 #0  attempt 2 starts",
        "[0/3] width=3 #0  will be tried again  (the worker died)",
        "[0/3] width=3 #0  attempt 2 starts",
    ]
