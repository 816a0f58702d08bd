"""A trial of a training function: one report a unit, and an end in words whatever it does."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from own_functions import (
    Bad,
    Stubborn,
    Walk,
    deeds,
    halving,
    is_running,
    one_after_another,
    own_sweep,
    running,
    until,
)
from stepped_trial import to_the_end
from tiny_runs import assignment_of, coordinating, histories, planned

from hsweep import Asha, Point, Resources, Run, Sweep, UserError, epochs, grid, seconds
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Assignment, Event, OutOfMemory, Report, StorageFailure
from hsweep.record.journal import JournalReader
from hsweep.training import process_state
from hsweep.training.checkpoints import CheckpointStore
from hsweep.training.own.leftovers import MARK_VARIABLE
from hsweep.training.run import Channel
from hsweep.training.train import train

TESTS = Path(__file__).resolve().parents[1]
IMPORTED = (TESTS.parent, TESTS, TESTS / "hsweep")


def trial_of(train: Any, **changes: Any) -> Any:
    return planned(own_sweep(space=grid(lr=[0.1]), train=train, **changes))[0]


class UpTo(Channel):
    """Ends a trial at a unit."""

    is_stopped = False

    def __init__(self, unit: int) -> None:
        self.unit, self.reports = unit, list[Report]()

    def put(self, event: Event, /) -> bool:
        assert isinstance(event, Report), event
        self.reports.append(event)
        return event.unit < self.unit


def trained(assignment: Assignment, through: int = 6) -> list[Report]:
    """Train up to a unit, as a worker does, and end the trial there."""
    channel = UpTo(through)
    train(assignment, channel)
    return channel.reports


def content(reports: list[Report]) -> list[Any]:
    return [(report.unit, report.metrics, report.is_last) for report in reports]


def ended_by(train: Any, folder: Path, **more: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        trained(replace(assignment_of(trial_of(train), folder / "checkpoints"), **more))
    return caught.value


class TestResuming:
    @pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
    @pytest.mark.parametrize(
        "walk",
        [Walk(), Walk(keeps="file"), Walk(keeps="nothing"), Walk(resumes=False)],
        ids=["folder", "file", "without", "ignored"],
    )
    def test_a_trial_that_was_stopped_comes_to_the_same_reports(
        self, walk: Walk, checkpoint_seconds: float, tmp_path: Path
    ) -> None:
        trial = trial_of(walk)
        calm = content(trained(assignment_of(trial, tmp_path / "calm" / "checkpoints")))
        assert [unit for unit, *_ in calm] == [1, 2, 3, 4, 5, 6]
        recorded: dict[int, Report] = {}
        for attempt, stop in enumerate([2, 4, 6], start=1):
            assignment = assignment_of(
                trial,
                tmp_path / "study" / "checkpoints",
                attempt=attempt,
                recorded_through=max(recorded, default=0),
                checkpoint_seconds=checkpoint_seconds,
            )
            reports = trained(assignment, through=stop)
            # What is on record comes again where the function trains it again, and is the same.
            begins = (
                1
                if walk.keeps == "nothing" or not walk.resumes
                else assignment.recorded_through + 1
            )
            assert [report.unit for report in reports] == list(range(begins, stop + 1))
            recorded = {report.unit: report for report in reports} | recorded
        assert content([recorded[unit] for unit in sorted(recorded)]) == calm
        notes = [recorded[unit].note for unit in sorted(recorded) if recorded[unit].note]
        if walk.keeps == "nothing":
            assert notes[0].startswith(
                "no checkpoint is left, with unit 2 on record: it starts again"
            )
        elif not walk.resumes:
            assert notes[0] == "trained again from unit 1, with a checkpoint of unit 2"
        else:
            assert notes == []
        # Neither grows a checkpoint by what was restored, nor is that kept.
        assert [each.name for each in (tmp_path / "study" / "trials").iterdir()] == [trial.key]
        sizes = [each.stat().st_size for each in tmp_path.glob("*/checkpoints/*/*.pt")]
        assert max(sizes, default=0) < 1.5 * min(sizes, default=1)

    def test_a_checkpoint_that_the_record_had_no_time_for_reports_again(
        self, tmp_path: Path
    ) -> None:
        trial, checkpoints = trial_of(Walk()), tmp_path / "checkpoints"
        first = trained(assignment_of(trial, checkpoints, checkpoint_seconds=0.0), through=4)
        again = trained(assignment_of(trial, checkpoints, attempt=2, recorded_through=2))
        assert content(again)[:2] == content(first)[2:]
        assert [report.unit for report in again] == [3, 4, 5, 6]
        assert again[0].wall_seconds == first[2].wall_seconds
        assert again[2].wall_seconds > first[3].wall_seconds

    def test_a_checkpoint_is_copied_where_more_than_the_work_at_risk_would_be_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 0.0
        monkeypatch.setattr("hsweep.training.trial_run.now", lambda: now)
        # No write takes time of this clock.
        is_writing = property(lambda store: store.wait() is not None)
        monkeypatch.setattr(CheckpointStore, "is_writing", is_writing)

        def kept(seconds_a_unit: float, every: int) -> list[int]:
            def train(point: Point, run: Run) -> None:
                nonlocal now
                for unit in range(1, 41):
                    now += seconds_a_unit
                    run.report(unit, None if unit % every else run.folder, loss=1)
                    if (found := [int(each.name[:9]) for each in files.glob("*.pt")]) != units:
                        units.extend(each for each in found if each not in units)

            trial = trial_of(train, budget=epochs(40))
            root = tmp_path / f"{seconds_a_unit}-{every}" / "c"
            files = root / trial.key
            units: list[int] = []
            trained(assignment_of(trial, root, checkpoint_seconds=30.0), through=40)
            return sorted(units)

        # No more than 30 s are lost, and what is offered less often is taken each time.
        assert kept(9.0, 1) == list(range(3, 40, 3))
        assert kept(50.0, 1) == list(range(1, 40))
        assert kept(2.5, 10) == [10, 20, 30]

    def test_a_damaged_checkpoint_is_passed_over_and_told(self, tmp_path: Path) -> None:
        trial, checkpoints = trial_of(Walk()), tmp_path / "checkpoints"
        calm = trained(assignment_of(trial, checkpoints, checkpoint_seconds=0.0), through=4)
        newest = max((checkpoints / trial.key).glob("*.pt"))
        newest.write_bytes(newest.read_bytes()[:-1])
        again = trained(assignment_of(trial, checkpoints, attempt=2, recorded_through=4))
        assert content(again)[0] == content(calm)[3]
        assert [report.note for report in again] == [
            "", "the checkpoint of unit 4 is damaged: trained again from unit 3", "",
        ]  # fmt: skip

    def test_a_first_attempt_finds_nothing_of_a_study_before(self, tmp_path: Path) -> None:
        found: list[Any] = []

        def looks(point: Point, run: Run) -> None:
            found.append((sorted(run.folder.iterdir()), run.checkpoint))
            (run.folder / "left").touch()
            run.report(6, loss=1)

        trial = trial_of(looks)
        for attempt in (1, 1, 2):
            trained(assignment_of(trial, tmp_path / "checkpoints", attempt=attempt))
        assert [[file.name for file in files] for files, _ in found] == [[], [], ["left"]]
        assert {checkpoint for _, checkpoint in found} == {None}


class TestUnits:
    def test_a_function_may_report_more_often_than_asked_but_at_every_rung(
        self, tmp_path: Path
    ) -> None:
        def reporting(*units: int) -> Any:
            def train(point: Point, run: Run) -> None:
                for unit in units:
                    run.report(unit, loss=1)

            return train

        rungs = frozenset({4})
        for units in ([2, 4, 6], [1, 2, 3, 4, 5, 6], [4, 6]):
            trial = trial_of(reporting(*units), budget=epochs(6, report_every=2))
            assignment = replace(assignment_of(trial, tmp_path / str(units) / "c"), waits_at=rungs)
            assert [report.unit for report in trained(assignment)] == units
        error = ended_by(reporting(3, 6), tmp_path, waits_at=rungs)
        assert isinstance(error, UserError)
        assert str(error).startswith(
            "unit 6 is reported after unit 3, and early stopping decides at unit 4 between them; "
            "report each unit of the budget, or say how often it is reported, as in epochs(6, "
        )
        # A rung on record was decided: a function that goes on from its own files may pass it.
        trained(replace(assignment_of(trial, tmp_path / "c", recorded_through=5), waits_at=rungs))

    def test_any_whole_number_is_a_unit_and_any_single_number_a_metric(
        self, tmp_path: Path
    ) -> None:
        import numpy as np

        def train(point: Point, run: Run) -> None:
            run.report(np.int64(2), loss=np.float32(0.5), norm=None)  # type: ignore[arg-type]
            run.report(torch.tensor(6), loss=torch.tensor([2]))  # type: ignore[arg-type]

        reports = trained(assignment_of(trial_of(train), tmp_path / "c"))
        assert [(report.unit, report.metrics) for report in reports] == [
            (2, {"loss": 0.5, "norm": None}), (6, {"loss": 2.0}),
        ]  # fmt: skip
        assert all(type(report.unit) is int for report in reports)

    def test_a_budget_in_seconds_is_counted_by_the_functions_own_clock(
        self, tmp_path: Path
    ) -> None:
        def train(point: Point, run: Run) -> None:
            assert (run.budget, run.budget_unit) == (180, "seconds")
            spent = 0.0
            if run.checkpoint is not None:
                spent = float(run.checkpoint.read_text())
            due = 60 * (int(spent) // 60 + 1)
            while due <= run.budget:
                spent += 25.0
                if spent >= due:
                    file = run.folder / "spent"
                    file.write_text(str(spent))
                    run.report(due, file, loss=1 / spent)
                    due += 60

        trial = trial_of(train, budget=seconds(180))
        first = trained(assignment_of(trial, tmp_path / "c"), through=60)
        rest = trained(assignment_of(trial, tmp_path / "c", attempt=2, recorded_through=60), 180)
        assert [report.unit for report in first + rest] == [60, 120, 180]
        assert [report.metrics["loss"] for report in first + rest] == [1 / 75, 1 / 125, 1 / 200]


def test_what_a_run_says(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def train(point: Point, run: Run) -> None:
        seen.update(
            threads=torch.get_num_threads(), device=str(run.device), seeds=run.seeds,
            budget=(run.budget, run.budget_unit), processes=(run.rank, run.world_size),
            is_folder=run.folder.is_dir(), thread=threading.current_thread().name,
        )  # fmt: skip
        run.report(6, loss=1)

    sweep = own_sweep(train=train, replicates=2, resources=Resources(cpus=2))
    trials = planned(sweep)
    for trial in trials[:2]:
        trained(assignment_of(trial, tmp_path / "c"))
        assert seen == {
            "threads": 2, "device": "cpu", "seeds": trial.seeds.below(2**31),
            "budget": (6, "epochs"), "processes": (0, 1), "is_folder": True, "thread": "MainThread",
        }  # fmt: skip
    assert trials[0].seeds != trials[1].seeds
    torch.set_num_threads(1)


SAYS = {
    "does_not_report": "the training ended without a report, and its budget is 6 epochs: it "
    "reports at least once what counts, 'loss'$",
    "asks_for_a_seed": "AttributeError: 'TrialRun' object has no attribute 'seed' at .*own_func",
    "goes_back": "unit 2 cannot follow unit 2 at .*own_functions.py:",
    "goes_beyond": "up to the budget of 6 epochs, .*: unit 7 cannot follow unit 0",
    "begins_at_zero": "unit 0 cannot follow unit 0; report what was trained, so the first",
    "counts_in_halves": "a report's unit is a whole number of epochs, not 0.5",
    "counts_truth": "a report's unit is a whole number of epochs, not True",
    "catches_a_refusal": r"metric 'loss' of a report must be one number, not 'low'; give float",
    "forgets_the_metric": "needs the sweep's metric 'loss', which decides; this one has losss. "
    "Is it 'losss'[?] Then call it so here or in the sweep",
    "leaves_the_metric_out": "needs the sweep's metric 'loss', which decides; this one has None "
    "for it. Make no report where it is not measured",
    "reports_a_vector": r"must be one number, not tensor\(\[1., 1.\]\)",
    "reports_an_axis": "metric 'deed' of a report: the name is an axis; call it otherwise",
    "reports_a_column": "metric 'wall_seconds' of a report: the name has a meaning of its own in",
    "reports_an_odd_name": "a metric's name is printable text of at most 200 characters, not ",
    "raises": "KeyError: 'heads' at .*own_functions.py:",
    "exits": "raised SystemExit: no data without a report, .* at .*own_functions.py:",
    "interrupts": "the training function raised KeyboardInterrupt .* at .*own_functions.py:",
    "stops_by_itself": "the training function raised StopTrial after unit 1, and its budget is 6",
    "has_no_checkpoint": "checkpoint is a folder or a file that is there; .*none is not",
    "prints_to_a_closed_pipe": "BrokenPipeError: .*Broken pipe at .*own_functions.py:",
    "reports_from_a_fork": "report was called in a process that the training function has started",
    "leaves_processes_and_raises": "RuntimeError: with a family at .*own_functions.py:",
}


def test_each_bad_function_is_told_in_the_record_and_leaves_nothing_running(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    family = tmp_path / "family"
    family.mkdir()
    sweep = own_sweep(
        space=grid(deed=list(deeds())), train=Bad(str(family)), max_failures=0, budget=epochs(6)
    )
    folder, threads = os.getcwd(), set(threading.enumerate())  # noqa: PTH109
    with coordinating(sweep, tmp_path / "study") as coordinator:
        InlineRunner().run(coordinator)
        assert coordinator.stop_reason is None
    with JournalReader(tmp_path / "study" / "journal") as journal:
        rows = {row.point["deed"]: row for row in journal.trials()}
        notes = {entry.key: entry.payload.get("note") for entry in journal.reports()}
    assert {deed for deed, row in rows.items() if row.status == "failed"} == set(SAYS)
    for deed, says in SAYS.items():
        assert re.search(says, rows[deed].reason.splitlines()[0]), (deed, rows[deed].reason)
    finished = {deed: row.unit for deed, row in rows.items() if row.status == "finished"}
    assert finished == {
        "goes_on_after_the_end": 6, "leaves_processes": 6, "changes_the_process": 6,
        "tidies_up": 6, "returns_early": 2,
    }  # fmt: skip
    for deed, unit in (("is_not_a_number", 2), ("is_infinite", 1)):
        assert (rows[deed].status, rows[deed].unit) == ("diverged", unit)
        assert rows[deed].reason == f"loss was not finite at step {unit}"
    assert (rows["takes_all_memory"].status, rows["takes_all_memory"].attempt) == ("too_large", 2)
    assert "the training after unit 1 does not fit the device (MemoryError" in (
        rows["takes_all_memory"].reason
    )
    assert notes[rows["changes_the_process"].key] == (
        "the training function changed torch's number of threads, torch's default dtype, torch's "
        "deterministic algorithms, the working directory: put back after the trial"
    )
    assert os.getcwd() == folder  # noqa: PTH109
    assert set(threading.enumerate()) <= threads
    assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float32, 1)
    assert not torch.are_deterministic_algorithms_enabled()
    assert (family / "tidy").exists()
    assert len(list(family.glob("pid-*"))) == 8
    assert running(family) == set()
    assert MARK_VARIABLE not in os.environ
    assert "Exception" not in capfd.readouterr().err


def test_a_report_that_cannot_be_used_is_not_tried_again(tmp_path: Path) -> None:
    deeds = ["forgets_the_metric", "goes_back", "has_no_checkpoint", "reports_an_axis", "raises"]
    sweep = own_sweep(space=grid(deed=deeds), train=Bad(str(tmp_path)), max_failures=2)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        InlineRunner().run(coordinator)
    with JournalReader(tmp_path / "study" / "journal") as journal:
        rows = {row.point["deed"]: (row.status, row.attempt) for row in journal.trials()}
    assert rows == {deed: ("failed", 2 if deed == "raises" else 1) for deed in deeds}


def test_what_this_process_cannot_do_again_is_not_tried_again_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> None:
        raise RuntimeError("cannot set number of interop threads")

    def train(point: Point, run: Run) -> None:
        torch.set_num_interop_threads(torch.get_num_interop_threads() + point["more"])
        run.report(1, loss=0.5)

    monkeypatch.setattr(process_state, "_set_num_interop_threads", refuse)
    sweep = own_sweep(space=grid(more=[0, 1]), train=train, budget=epochs(1), max_failures=2)
    with coordinating(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        same, other = coordinator.journal.trials()
    assert (same.status, other.status, other.attempt) == ("finished", "failed", 1)
    assert "set isolate=True" in (other.reason or "")


@pytest.mark.parametrize(
    "act",
    [lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), lambda: asyncio.get_event_loop()],
    ids=["signal", "event loop"],
)
def test_what_only_a_main_thread_can_do_is_told_with_a_way_out(
    act: Callable[[], object], tmp_path: Path
) -> None:
    def train(point: Point, run: Run) -> None:
        act()

    with ThreadPoolExecutor(1) as thread:
        error = thread.submit(ended_by, train, tmp_path).result()
    assert re.search(r"in a thread of its worker; train by command\(...\)", str(error))
    assert re.search("main thread|no current event loop", str(error))


def test_an_error_after_which_the_device_is_lost_ends_an_inline_run(tmp_path: Path) -> None:
    """CUDA answers every call with the same error from then on."""
    tried = []

    def train(point: Point, run: Run) -> None:
        tried.append(point["lr"])
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    sweep = own_sweep(space=grid(lr=[0.1, 0.2, 0.3]), train=train)
    with coordinating(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        assert len(tried) == 1
        assert coordinator.is_in_trouble
        assert "a new one goes on" in (coordinator.stop_reason or "")
        assert [row.failures for row in coordinator.journal.trials()] == [1, 0, 0]


class TestStopping:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "traces"
        folder.mkdir()
        return folder

    def stopped(self, train: Any, folder: Path) -> list[str]:
        reports = trained(assignment_of(trial_of(train), folder / "checkpoints"), through=2)
        assert [report.unit for report in reports] == [1, 2]
        return sorted(each.name for each in folder.iterdir() if each.is_file())

    @pytest.mark.parametrize("manner", ["tidies", "catches_errors"])
    def test_what_catches_errors_lets_the_end_through(self, manner: Any, folder: Path) -> None:
        assert self.stopped(Stubborn(manner, str(folder)), folder) == ["ended"]

    def test_an_interrupt_does_not_wait_for_the_next_report(self, tmp_path: Path) -> None:
        def waits(point: Point, run: Run) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        channel = UpTo(6)
        channel.is_stopped = True
        try:
            with pytest.raises(KeyboardInterrupt):
                train(assignment_of(trial_of(waits), tmp_path / "c"), channel)
        finally:
            signal.signal(signal.SIGINT, before)

    def test_early_stopping_ends_the_worse_and_the_study_repeats(self, tmp_path: Path) -> None:
        found = []
        for name in ("one", "two"):
            with coordinating(halving(), tmp_path / name) as coordinator:
                InlineRunner().run(coordinator)
                found.append(
                    {
                        row.point["lr"]: (row.status, row.unit)
                        for row in coordinator.journal.trials()
                    }
                )
        assert histories(tmp_path / "one") == histories(tmp_path / "two")
        assert found[0] == found[1]
        assert {status for status, _ in found[0].values()} == {"finished", "stopped_early"}
        assert one_after_another(histories(tmp_path / "one"))

    def test_trials_that_wait_at_a_rung_go_on_from_their_checkpoints(self, tmp_path: Path) -> None:
        traces = tmp_path / "traces"
        traces.mkdir()
        asha = Asha(grace=2, reduction_factor=2, min_survivors=1)
        sweep = own_sweep(
            train=Walk(traces=str(traces)), early_stopping=asha, checkpoint_seconds=1e6
        )
        with coordinating(sweep, tmp_path / "study") as coordinator:
            InlineRunner().run(coordinator)
            statuses = [row.status for row in coordinator.journal.trials()]
        assert sorted(statuses) == ["finished", "stopped_early"]
        # Each unit was trained once by each that came to it.
        trained_units = {each.name: each.read_text() for each in traces.iterdir()}
        assert trained_units["trained-1"] == trained_units["trained-2"] == "xx"
        assert trained_units["trained-3"] == trained_units["trained-6"] == "x"


class TestStorage:
    def test_a_disk_that_is_full_pauses_the_study_and_costs_no_attempt(
        self, tmp_path: Path
    ) -> None:
        def train(point: Point, run: Run) -> None:
            run.report(1, loss=1)
            if not (tmp_path / "has-room").exists():
                raise OSError(28, "No space left on device", "state.pt")
            run.report(6, loss=1)

        def study(checkpoints: Path) -> tuple[Any, ...]:
            sweep = own_sweep(train=train, max_failures=0)
            parts = {"checkpoints": str(checkpoints)}
            with coordinating(sweep, tmp_path / "study", **parts) as coordinator:
                InlineRunner().run(coordinator)
                rows = coordinator.journal.trials()
            return coordinator.stop_reason, {(row.status, row.failures) for row in rows}

        reason, rows = study(tmp_path / "checkpoints")
        assert "No space left on device: 'state.pt'); free space there, then resume" in reason
        assert rows == {("planned", 0)}
        (tmp_path / "file").touch()
        reason, rows = study(tmp_path / "file" / "checkpoints")
        assert "Not a directory" in reason
        assert rows == {("planned", 0)}
        (tmp_path / "has-room").touch()
        assert study(tmp_path / "checkpoints") == (None, {("finished", 0)})

    def test_a_checkpoint_that_cannot_be_written_ends_a_trial_that_catches_the_error(
        self, tmp_path: Path
    ) -> None:
        def train(point: Point, run: Run) -> None:
            (tmp_path / "checkpoints" / trial.key).touch()
            for unit in range(1, 7):
                try:
                    run.report(unit, run.folder, loss=1)
                except Exception:
                    continue

        trial = trial_of(train)
        (tmp_path / "checkpoints").mkdir()
        assignment = assignment_of(trial, tmp_path / "checkpoints", checkpoint_seconds=0.0)
        *_, event = to_the_end(assignment)
        assert isinstance(event, StorageFailure)
        assert "cannot be written" in event.message


def test_out_of_memory_is_told_and_what_was_held_is_given_back(tmp_path: Path) -> None:
    def train(point: Point, run: Run) -> None:
        held = torch.ones(1000)
        raise torch.OutOfMemoryError(f"CUDA out of memory with {held.numel()}")

    [event] = to_the_end(assignment_of(trial_of(train), tmp_path / "c"))
    assert isinstance(event, OutOfMemory)
    assert event.message.startswith(
        "the training after unit 0 does not fit the device (OutOfMemoryError: CUDA out of memory "
        "with 1000 at "
    )


KILLED = """
import sys
from pathlib import Path
from own_functions import Walk
from test_own_function import assignment_of, trained, trial_of

folder = Path(sys.argv[1])
trained(assignment_of(trial_of(Walk(traces=str(folder))), folder / "c"))
"""


def test_what_a_function_has_started_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "wait-1").touch()
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, IMPORTED))},
    )
    until(lambda: killed.poll() is not None or bool(list(tmp_path.glob("waiting-*"))))
    assert len(running(tmp_path)) == 4
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    until(lambda: not running(tmp_path))


def test_helpers_of_libraries_serve_the_next_trial(tmp_path: Path) -> None:
    from multiprocessing import resource_tracker

    pids = []

    def train(point: Point, run: Run) -> None:
        resource_tracker.ensure_running()
        pids.append(resource_tracker._resource_tracker._pid)  # type: ignore[attr-defined]
        run.report(6, loss=1)

    for name in ("one", "two"):
        trained(assignment_of(trial_of(train), tmp_path / name))
    assert pids[0] == pids[1]
    assert is_running(pids[0])


def test_the_service_of_wandb_serves_the_next_trial(tmp_path: Path) -> None:
    services = []

    def train(point: Point, run: Run) -> None:
        services.append(subprocess.Popen(["wandb-core", "600"], executable=shutil.which("sleep")))
        run.report(6, loss=1)

    trained(assignment_of(trial_of(train), tmp_path / "one"))
    (service,) = services
    assert service.poll() is None
    service.kill()
    service.wait()


async def awaited(point: Point, run: Run) -> None:
    """Never runs when it is called."""


def iterated(point: Point, run: Run) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("train", [awaited, iterated, partial(awaited)])
def test_a_function_that_a_call_does_not_run_is_refused(train: Any) -> None:
    with pytest.raises(UserError, match="train is called and not awaited or iterated"):
        own_sweep(train=train)


KEPT = torch.nn.Linear(1, 1)
RENEWED = torch.nn.Linear(1, 1)
READ = torch.nn.Linear(1, 1)


def trains_what_is_kept(_point: Point, run: Run) -> None:
    global RENEWED
    RENEWED = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*KEPT.parameters(), *RENEWED.parameters()], lr=0.1)
    for epoch in range(1, run.budget + 1):
        loss = (KEPT(torch.ones(4, 1)) * RENEWED(torch.ones(4, 1)) - READ(torch.ones(4, 1))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.report(epoch, loss=loss.item())


def test_a_model_that_all_trials_of_a_process_train_on_is_named(tmp_path: Path) -> None:
    sweep = Sweep(
        name="kept",
        space=grid(lr=[0.1, 0.2]),
        train=partial(trains_what_is_kept),
        metric="loss",
        goal="min",
        budget=epochs(2),
    )
    with coordinating(sweep, tmp_path) as coordinator:
        InlineRunner().run(coordinator)
        notes = {entry.payload.get("note") for entry in coordinator.journal.reports()}
    (note,) = notes
    assert note.startswith("the training function trains KEPT, built once for all trials of a pro")
