"""What becomes of trials, whatever their runners tell and in whatever order."""

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TinyTask, tiny_sweep
from tiny_runs import (
    coordinating,
    histories,
    outlook_of,
    planned,
    status_log,
    statuses,
    take_one,
    units_left,
    values,
)

from hsweep import Asha, Sweep, Transition, epochs, grid, lean
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import record_trials
from hsweep.coordination.speeds import Speeds
from hsweep.design.trial import (
    Assignment,
    OutOfMemory,
    Report,
    StorageFailure,
    Trial,
    TrialStatus,
)
from hsweep.record.journal import Journal, JournalReader, LogRow

SWEEP = tiny_sweep(budget=epochs(4), max_failures=2)
RACE = tiny_sweep(
    space=grid(width=[1, 2, 3, 4, 5, 6]),
    budget=epochs(9),
    early_stopping=Asha(grace=1, reduction_factor=3, min_survivors=1),
)
RACE_TRIALS = planned(RACE)
ON_ARRIVAL = replace(
    RACE,
    early_stopping=Asha(grace=1, reduction_factor=3, min_survivors=1, decide="on_arrival"),
)
RACES = [RACE, ON_ARRIVAL]


def said(
    assignment: Assignment, unit: int, value: float | None = 0.5, diverged_at: int | None = None
) -> Report:
    """A report as a worker would send it."""
    return Report(
        unit=unit,
        step=4 * unit,
        metrics={"nmse": value, "fit": None if value is None else 1 - value},
        wall_seconds=float(unit),
        is_last=unit == assignment.trial.budget.amount,
        diverged_at=diverged_at,
    )


def take(coordinator: Coordinator) -> Assignment:
    assignment = take_one(coordinator)
    assert assignment is not None
    return assignment


def train_through(coordinator: Coordinator, assignment: Assignment, value: float = 0.5) -> None:
    units = range(assignment.recorded_through + 1, assignment.trial.budget.amount + 1)
    assert [coordinator.report(assignment, said(assignment, unit, value)) for unit in units] == [
        unit < assignment.trial.budget.amount for unit in units
    ]


def rows(coordinator: Coordinator) -> dict[str, Any]:
    return {row.key: row for row in coordinator.journal.trials()}


@pytest.mark.parametrize(
    ("question", "value", "why"),
    [
        (Transition("width", None, scale="accuracy"), 87.5, "divide percentages by 100"),
        (Transition("width", None, scale="accuracy"), 1.0, ""),
        (Transition("width", None, scale="error"), -0.5, "an error cannot be below 0"),
        (Transition("width", None, scale="error"), 0.0, ""),
        (Transition("width", None, scale="loss"), -0.5, ""),
        (lean({"width": 2}, margin=1.0, scale="accuracy"), 87.5, ""),
        (None, 87.5, ""),
    ],
)
def test_a_value_that_the_question_cannot_take_is_told_at_its_first_report(
    tmp_path: Path, question: Any, value: float, why: str
) -> None:
    sweep = replace(SWEEP, question=question)
    with coordinating(sweep, tmp_path) as coordinator:
        first = take(coordinator)
        coordinator.report(first, said(first, 1, value))
        assert coordinator.is_in_trouble == bool(why)
        assert (why in coordinator.stop_reason) if why else coordinator.stop_reason is None
        assert f"nmse = {value:g}" in (coordinator.stop_reason or f"nmse = {value:g}")
        # What was reported is on record, and nothing else is handed out.
        assert rows(coordinator)[first.trial.key].unit == 1
        assert (take_one(coordinator) is None) == bool(why)


@dataclass
class Heard:
    """An observer that writes down what it is told."""

    events: list[tuple[Any, ...]] = field(default_factory=list)

    def started(self, trial: Trial, attempt: int) -> None:
        self.events.append(("started", trial.key, attempt))

    def reported(self, trial: Trial, report: Report) -> None:
        self.events.append(("reported", trial.key, report.unit))

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        self.events.append(("ended", trial.key, status))


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_every_trial_is_handed_out_once_and_finishes_once(tmp_path: Path, num_workers: int) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        workers: list[Assignment] = []
        handed_out: list[str] = []
        while not coordinator.is_exhausted:
            while len(workers) < num_workers and (new := take_one(coordinator)) is not None:
                workers.append(new)
                handed_out.append(new.trial.key)
            train_through(coordinator, workers.pop(0))
        assert take_one(coordinator) is None
        assert Counter(handed_out) == Counter({trial.key: 1 for trial in planned(SWEEP)})
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
    for key, history in histories(tmp_path).items():
        assert [unit for unit, _, _ in history] == [1, 2, 3, 4]
        assert status_log(tmp_path, key) == ["running", "finished"]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), num_workers=st.integers(1, 4), race=st.sampled_from(RACES))
def test_whatever_happens_in_whatever_order_every_trial_has_exactly_one_final_state(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_workers: int, race: Sweep
) -> None:
    """Trials report, fail, diverge, are lost and report late; drivers die and come back."""
    folder = tmp_path_factory.mktemp("storm")
    rng = random.Random(seed)
    lives = 4
    while True:
        with coordinating(race, folder, trials=RACE_TRIALS) as coordinator:
            workers: list[tuple[Assignment, int]] = []
            stale: list[tuple[Assignment, int]] = []
            killed = False
            while not coordinator.is_exhausted and not killed:
                while len(workers) < num_workers and (new := take_one(coordinator)) is not None:
                    workers.append((new, rng.randint(0, new.recorded_through)))
                assignment, unit = workers.pop(rng.randrange(len(workers)))
                if stale and rng.random() < 0.3:
                    late, late_unit = rng.choice(stale)
                    assert not coordinator.report(late, said(late, late_unit + 1, 0.0))
                    coordinator.failed(late, "too late")
                event = rng.random()
                if event < 0.1:
                    # Each in a way of its own: three alike would pause the study.
                    coordinator.failed(assignment, f"worker lost: {rng.random()}")
                    stale.append((assignment, unit))
                elif event < 0.13:
                    assert not coordinator.report(
                        assignment, said(assignment, unit + 1, None, diverged_at=3)
                    )
                elif coordinator.report(
                    assignment,
                    # The same trial says the same at the same unit, however often it is asked.
                    said(assignment, unit + 1, random.Random(assignment.trial.key).random()),
                ):
                    workers.append((assignment, unit + 1))
                killed = lives > 0 and rng.random() < 0.02
            lives -= 1
            if coordinator.is_exhausted:
                break
    found = statuses(folder)
    assert found.keys() == {trial.key for trial in RACE_TRIALS}
    assert all(status.is_final for status in found.values())
    for key, history in histories(folder).items():
        units = [unit for unit, _, _ in history]
        assert units == list(range(1, len(units) + 1))
        log = status_log(folder, key)
        assert [TrialStatus(status).is_final for status in log].count(True) == 1
        assert log[-1] == found[key]
        assert 9 in units or found[key] is not TrialStatus.FINISHED


def test_reports_of_an_outdated_attempt_are_ignored(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        old = take(coordinator)
        assert coordinator.report(old, said(old, 1))
        coordinator.failed(old, "lost")
        assert not coordinator.report(old, said(old, 2))
        again = [take(coordinator) for _ in range(3)][-1]
        assert (again.trial.key, again.attempt) == (old.trial.key, 2)
        assert again.recorded_through == 1
        assert not coordinator.report(old, said(old, 3))
        coordinator.failed(old, "lost twice")
        assert coordinator.report(again, said(again, 2, 0.25))
        assert rows(coordinator)[old.trial.key].status is TrialStatus.RUNNING
    assert [(unit, metrics["nmse"]) for unit, _, metrics in histories(tmp_path)[old.trial.key]] == [
        (1, 0.5), (2, 0.25),
    ]  # fmt: skip


@pytest.mark.parametrize("max_failures", [0, 1, 2])
def test_a_trial_that_keeps_failing_is_failed_with_its_traceback_and_no_other_is_touched(
    tmp_path: Path, max_failures: int
) -> None:
    sweep = tiny_sweep(budget=epochs(4), max_failures=max_failures)
    observer = Heard()
    with coordinating(sweep, tmp_path, observer=observer) as coordinator:
        bad = planned(sweep)[1].key
        attempts = 0
        while (assignment := take_one(coordinator)) is not None:
            if assignment.trial.key == bad:
                attempts += 1
                coordinator.failed(assignment, f"OSError: number {attempts}\nTraceback")
            else:
                train_through(coordinator, assignment)
        assert attempts == max_failures + 1
        assert rows(coordinator)[bad].reason == f"OSError: number {attempts}\nTraceback"
        assert not coordinator.stop_requested
    found = statuses(tmp_path)
    assert found.pop(bad) is TrialStatus.FAILED
    assert set(found.values()) == {TrialStatus.FINISHED}
    assert status_log(tmp_path, bad) == ["running", "planned"] * max_failures + [
        "running", "failed",
    ]  # fmt: skip
    ends = [event[2] for event in observer.events if event[:2] == ("ended", bad)]
    assert ends == [TrialStatus.PLANNED] * max_failures + [TrialStatus.FAILED]


def test_a_very_long_traceback_keeps_its_first_line_and_its_end(tmp_path: Path) -> None:
    sweep = tiny_sweep(max_failures=0)
    with coordinating(sweep, tmp_path) as coordinator:
        error = "OSError\n" + "frame\n" * 100_000 + "OSError: the cause"
        coordinator.failed(take(coordinator), error)
        (reason,) = [row.reason for row in rows(coordinator).values() if row.reason]
        assert reason.startswith("OSError\n...")
        assert reason.endswith("OSError: the cause")
        assert len(reason) < 10_000


def test_a_trial_that_is_stopped_early_is_recorded_at_its_rung_and_never_finishes(
    tmp_path: Path,
) -> None:
    with coordinating(ON_ARRIVAL, tmp_path) as coordinator:
        running = [take(coordinator) for _ in range(3)]
        for value, assignment in zip((0.1, 0.2), running[:2], strict=True):
            coordinator.report(assignment, said(assignment, 1, value))
        loser = running[2]
        assert not coordinator.report(loser, said(loser, 1, 0.9))
        row = rows(coordinator)[loser.trial.key]
        assert (row.status, row.unit, row.metrics.get("nmse")) == (
            TrialStatus.STOPPED_EARLY,
            1,
            0.9,
        )
        assert "rung 1" in row.reason
        assert not coordinator.report(loser, said(loser, 9, 0.0))
        coordinator.failed(loser, "its worker was taken away")
        assert rows(coordinator)[loser.trial.key] == row


def test_a_diverged_trial_is_recorded_with_the_update_and_without_a_value(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        assignment = take(coordinator)
        assert coordinator.report(assignment, said(assignment, 1))
        assert not coordinator.report(assignment, said(assignment, 2, None, diverged_at=7))
        row = rows(coordinator)[assignment.trial.key]
        assert (row.status, row.unit, row.metrics.get("nmse")) == (TrialStatus.DIVERGED, 2, None)
        assert "step 7" in row.reason
        assert assignment.trial.key not in {take(coordinator).trial.key for _ in range(2)}
    assert histories(tmp_path)[assignment.trial.key][-1][2] == {"nmse": None, "fit": None}


def test_points_run_once_before_any_runs_twice_and_the_expensive_first(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 3, 2]), replicates=2)
    with coordinating(sweep, tmp_path) as coordinator:
        order = [take(coordinator).trial for _ in range(6)]
    assert [(trial.replicate, trial.point["width"]) for trial in order] == [
        (0, 3), (0, 2), (0, 1), (1, 3), (1, 2), (1, 1),
    ]  # fmt: skip


def test_what_a_shape_took_decides_when_its_next_seed_is_handed_out(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 3, 2, 4]), replicates=3, budget=epochs(1))
    seconds = {1: 5.0, 2: 7.0, 3: 1.0, 4: 2.0}  # not at all as their operations say
    measured = [2, 1, 4, 3]

    def trained(coordinator: Coordinator) -> tuple[int, int]:
        assignment = take(coordinator)
        trial = assignment.trial
        report = said(assignment, 1)
        report = replace(report, wall_seconds=seconds[trial.point["width"]])
        coordinator.report(assignment, report)
        return trial.replicate, trial.point["width"]

    with coordinating(sweep, tmp_path) as coordinator:
        assert {trained(coordinator) for _ in range(4)} == {(0, width) for width in seconds}
        assert [trained(coordinator) for _ in range(4)] == [(1, width) for width in measured]
    with coordinating(sweep, tmp_path) as coordinator:  # what was measured is on record
        assert [trained(coordinator) for _ in range(4)] == [(2, width) for width in measured]


def test_a_shape_that_was_not_measured_is_judged_by_its_operations_beside_those_that_were(
    tmp_path: Path,
) -> None:
    cheap, middle, dear = planned(tiny_sweep(space=grid(width=[1, 2, 3]), replicates=1))
    speeds = Speeds()
    assert speeds.expected(cheap) < speeds.expected(middle) < speeds.expected(dear)
    speeds.note(dear, seconds=60.0, units=2)
    assert speeds.expected(dear) == 30.0
    assert speeds.expected(middle) == pytest.approx(
        30.0 * middle.forward_flops / dear.forward_flops
    )
    speeds.note(dear, seconds=20.0, units=2)
    speeds.note(cheap, seconds=10.0, units=1)
    per_operation = (10.0 + 10.0) / (dear.forward_flops + cheap.forward_flops)
    assert speeds.expected(middle) == pytest.approx(per_operation * middle.forward_flops)
    unknown = replace(middle, counts=None)
    assert speeds.expected(replace(unknown, parts={"point": "another"})) == math.inf


def test_interrupted_trials_come_first_when_a_study_goes_on(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        cheapest = [take(coordinator) for _ in range(3)][-1]
        coordinator.report(cheapest, said(cheapest, 1))
    assert cheapest.trial.point["width"] == 1
    with coordinating(SWEEP, tmp_path) as coordinator:
        first = take(coordinator)
        assert (first.trial.key, first.attempt) == (cheapest.trial.key, 2)
        assert first.recorded_through == 1


def test_a_trial_that_is_not_ready_is_passed_over_and_comes_first_once_it_is(
    tmp_path: Path,
) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        first = take(coordinator)
        coordinator.requeue(first)
        key = first.trial.key
        other = coordinator.next_assignment(is_ready=lambda each: each != key)
        assert other is not None
        assert other.trial.key != key
        again = take(coordinator)
        assert (again.trial.key, again.attempt) == (key, 2)
    assert status_log(tmp_path, key) == ["running", "planned", "running", "planned"]


def test_a_stop_request_ends_the_handing_out_and_the_first_reason_stays(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        running = take(coordinator)
        coordinator.request_stop("enough")
        coordinator.request_stop("more than enough")
        assert take_one(coordinator) is None
        assert coordinator.is_exhausted
        assert coordinator.stop_reason == "enough"
        # What the running trial still has to say is not lost.
        assert coordinator.report(running, said(running, 1))
        coordinator.settle()
        row = rows(coordinator)[running.trial.key]
        assert (row.status, row.reason, row.unit) == (TrialStatus.PLANNED, "interrupted", 1)
    assert set(statuses(tmp_path).values()) == {TrialStatus.PLANNED}


@pytest.mark.parametrize("moment", ["take", "report", "last report", "failed", "settle"])
def test_a_record_that_cannot_be_written_ends_the_run_with_a_reason_and_raises_nothing(
    tmp_path: Path, moment: str
) -> None:
    journal = Journal(tmp_path / "journal", create=True)
    record_trials(journal, planned(SWEEP))
    coordinator = Coordinator(
        journal=journal, sweep=SWEEP, trials=planned(SWEEP), checkpoints=str(tmp_path)
    )
    assignment = take(coordinator)
    journal.close()
    if moment == "take":
        assert take_one(coordinator) is None
    elif moment == "report":
        assert not coordinator.report(assignment, said(assignment, 1))
    elif moment == "last report":
        assert not coordinator.report(assignment, said(assignment, 4))
    elif moment == "failed":
        coordinator.failed(assignment, "lost")
    else:
        coordinator.settle()
    assert coordinator.stop_reason is not None
    assert "record cannot be written" in coordinator.stop_reason
    assert coordinator.is_in_trouble
    assert take_one(coordinator) is None
    assert coordinator.is_exhausted
    coordinator.settle()
    # On disk stands what was recorded before, and the study can go on from it.
    with coordinating(SWEEP, tmp_path) as later:
        for _ in range(3):
            train_through(later, take(later))
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}


def test_a_display_that_fails_does_not_cost_the_study(tmp_path: Path) -> None:
    class Broken(Heard):
        def reported(self, trial: Trial, report: Report) -> None:
            raise OSError("the terminal is gone")

    with coordinating(SWEEP, tmp_path, observer=Broken()) as coordinator:
        while (assignment := take_one(coordinator)) is not None:
            train_through(coordinator, assignment)
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}


def test_an_observer_hears_of_every_start_report_and_end(tmp_path: Path) -> None:
    observer = Heard()
    with coordinating(SWEEP, tmp_path, observer=observer) as coordinator:
        key = take(coordinator).trial.key
        assignment = Assignment(
            next(t for t in planned(SWEEP) if t.key == key), 1, 0, "unused", 30.0
        )
        train_through(coordinator, assignment)
    assert observer.events == [
        ("started", key, 1),
        *(("reported", key, unit) for unit in (1, 2, 3, 4)),
        ("ended", key, TrialStatus.FINISHED),
    ]


def race_values(sweep: Sweep) -> Mapping[str, float]:
    """What each trial of the race has at every unit: a rank of its own."""
    return {trial.key: 0.1 * number for number, trial in enumerate(planned(sweep), start=1)}


def test_a_new_coordinator_on_the_same_journal_has_the_same_rungs(tmp_path: Path) -> None:
    """Three pass the first rung's start-up; after a restart a newcomer is ranked among them."""
    value = race_values(RACE)
    with coordinating(ON_ARRIVAL, tmp_path) as coordinator:
        early = [take(coordinator) for _ in range(3)]
        # The worst first: each one is the best when it arrives.
        for assignment in sorted(early, key=lambda a: -value[a.trial.key]):
            assert coordinator.report(assignment, said(assignment, 1, value[assignment.trial.key]))
    best = min(value[assignment.trial.key] for assignment in early)
    with coordinating(ON_ARRIVAL, tmp_path) as coordinator:
        for _ in early:
            take(coordinator)
        newcomer = take(coordinator)
        assert not coordinator.report(newcomer, said(newcomer, 1, best + 0.01))
        assert "of 4 at rung 1" in rows(coordinator)[newcomer.trial.key].reason


def test_trials_that_ended_before_a_restart_do_not_count_as_survivors(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3]),
        budget=epochs(9),
        early_stopping=Asha(grace=1, reduction_factor=3, min_survivors=2),
        max_failures=0,
    )
    with coordinating(sweep, tmp_path) as coordinator:
        first, second = take(coordinator), take(coordinator)
        coordinator.failed(first, "for good")
        assert coordinator.report(second, said(second, 1, 0.1))
    with coordinating(sweep, tmp_path) as coordinator:
        last = [take(coordinator), take(coordinator)][-1]
        # Far worse, but with it only two are left.
        assert coordinator.report(last, said(last, 1, 0.9))


def test_a_decision_of_the_record_is_not_taken_again(tmp_path: Path) -> None:
    """A trial resumed from an old checkpoint passes rungs it has passed before."""
    with coordinating(ON_ARRIVAL, tmp_path) as coordinator:
        veteran = take(coordinator)
        for unit in (1, 2, 3, 4):
            assert coordinator.report(veteran, said(veteran, unit, 0.8))
        others = [take(coordinator) for _ in range(3)]
        for assignment in others:
            coordinator.report(assignment, said(assignment, 1, 0.1))
    with coordinating(ON_ARRIVAL, tmp_path) as coordinator:
        again = next(
            a for a in iter(lambda: take_one(coordinator), None) if a.trial.key == veteran.trial.key
        )
        assert again.recorded_through == 4
        # At rung 1 it is now the last of four, but it was let through.
        assert [coordinator.report(again, said(again, unit, 0.8)) for unit in (1, 2, 3, 4)] == [
            True, True, True, True,
        ]  # fmt: skip
        assert rows(coordinator)[veteran.trial.key].status is TrialStatus.RUNNING
        assert coordinator.value(veteran.trial.key) == 0.8
    assert [unit for unit, _, _ in histories(tmp_path)[veteran.trial.key]] == [1, 2, 3, 4]


def test_a_resumed_trial_that_diverges_where_it_had_not_is_diverged(tmp_path: Path) -> None:
    """On a device that does not repeat itself, a unit on record may not come out again."""
    with coordinating(SWEEP, tmp_path) as coordinator:
        assignment = take(coordinator)
        for unit in (1, 2):
            coordinator.report(assignment, said(assignment, unit))
    with coordinating(SWEEP, tmp_path) as coordinator:
        again = take(coordinator)
        assert not coordinator.report(again, said(again, 2, None, diverged_at=6))
        assert rows(coordinator)[again.trial.key].status is TrialStatus.DIVERGED


def test_a_settled_study_goes_on_where_it_was(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        done, half = take(coordinator), take(coordinator)
        train_through(coordinator, done, 0.3)
        coordinator.report(half, said(half, 1, 0.7))
        before, left = coordinator.table, units_left(outlook_of(coordinator))
    with coordinating(SWEEP, tmp_path) as coordinator:
        after = coordinator.table
        assert (after.units_done, units_left(outlook_of(coordinator))) == (5, 7)
        assert (before.units_done, left) == (5, 7)
        assert after.best == before.best == {"": (0.3, done.trial.key)}
        assert coordinator.table.num_ended == 1
        assert coordinator.value(half.trial.key) == 0.7
        remaining = [take(coordinator) for _ in range(2)]
        assert take_one(coordinator) is None
        assert remaining[0].trial.key == half.trial.key
        for assignment in remaining:
            train_through(coordinator, assignment)
    assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}
    assert values(tmp_path)[done.trial.key] == 0.3


@pytest.mark.parametrize("in_driver", [True, False])
def test_trials_that_end_their_drivers_process_time_and_again_have_failed(
    tmp_path: Path, in_driver: bool
) -> None:
    trials = planned(SWEEP)
    with Journal(tmp_path / "journal", create=True) as journal:
        record_trials(journal, trials)
        deadly: dict[str, int] = {}
        for _ in range(3 * len(trials) + 1):
            killed = Coordinator(journal, SWEEP, trials, str(tmp_path))
            assignment = killed.next_assignment(in_driver=in_driver)
            if assignment is None:
                break
            deadly[assignment.trial.key] = deadly.get(assignment.trial.key, 0) + 1
            # As it went on from no checkpoint, it reports the same unit each time.
            assert killed.report(assignment, said(assignment, 1))
        rows = journal.rows.values()
        if in_driver:
            assert set(deadly.values()) == {SWEEP.max_failures + 1}
            assert {row.status for row in rows} == {TrialStatus.FAILED}
            assert all("ended with that process" in row.reason for row in rows)
        else:
            assert TrialStatus.FAILED not in {row.status for row in rows}


def test_a_trial_that_gets_further_each_time_has_not_failed(tmp_path: Path) -> None:
    sweep = replace(SWEEP, max_failures=0)
    with Journal(tmp_path / "journal", create=True) as journal:
        record_trials(journal, planned(sweep))
        for unit in (1, 2, 3, 4):
            killed = Coordinator(journal, sweep, planned(sweep), str(tmp_path))
            assignment = killed.next_assignment(in_driver=True)
            assert assignment is not None
            killed.report(assignment, said(assignment, unit))
        assert journal.rows[assignment.trial.key].status is TrialStatus.FINISHED


def test_a_coordinator_whose_predecessor_was_killed_takes_its_running_trials_up(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "journal", create=True) as journal:
        record_trials(journal, planned(SWEEP))
        killed = Coordinator(journal, SWEEP, planned(SWEEP), str(tmp_path))
        lost = take(killed)
        killed.report(lost, said(lost, 2))
    assert statuses(tmp_path)[lost.trial.key] is TrialStatus.RUNNING
    with coordinating(SWEEP, tmp_path) as coordinator:
        assert not coordinator.is_exhausted
        assert coordinator.table.running == {}
        assert status_log(tmp_path, lost.trial.key) == ["running", "planned"]
        again = take(coordinator)
        assert (again.trial.key, again.attempt, again.recorded_through) == (lost.trial.key, 2, 2)


def test_what_is_running_and_left_is_known_at_any_time(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        first, second = take(coordinator), take(coordinator)
        coordinator.report(first, said(first, 3))
        coordinator.report(second, said(second, 2, None, diverged_at=5))
        snapshot = coordinator.table
        assert {key: row.unit for key, row in snapshot.running.items()} == {first.trial.key: 3}
        # Of the diverged trial nothing is left to do.
        assert (snapshot.units_done, units_left(outlook_of(coordinator))) == (5, 5)
        assert snapshot.counts[TrialStatus.DIVERGED] == 1
        assert snapshot.counts[TrialStatus.PLANNED] == 1


@pytest.mark.parametrize("compete", ["trials", "points"])
def test_what_is_left_knows_how_many_the_rungs_will_stop(tmp_path: Path, compete: Any) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5, 6], dropout=[0.0, 0.2]),
        budget=epochs(9),
        early_stopping=Asha(
            grace=2, reduction_factor=2, min_survivors=1, strata=("dropout",), compete=compete
        ),
        replicates=2,
    )
    with coordinating(sweep, tmp_path) as coordinator:
        outlook = outlook_of(coordinator)
        expected = [units_left(outlook)]
        while assignment := take_one(coordinator):
            value = float(assignment.trial.ordinal)
            for unit in range(assignment.recorded_through + 1, 10):
                if not coordinator.report(assignment, said(assignment, unit, value)):
                    break
            expected.append(units_left(outlook) + coordinator.table.units_done)
    assert 0 < expected[0] < 24 * 9
    assert set(expected) == {expected[0]}


def test_a_maximised_metric_is_best_where_it_is_largest(tmp_path: Path) -> None:
    sweep = tiny_sweep(metric="fit", goal="max", task=TinyTask())
    with coordinating(sweep, tmp_path) as coordinator:
        for value in (0.9, 0.2):
            assignment = take(coordinator)
            coordinator.report(assignment, said(assignment, 1, value))
            best = assignment.trial.key
        assert coordinator.table.best == {"": (pytest.approx(0.8), best)}


def test_a_trial_that_comes_early_to_a_rung_waits_and_goes_on_under_a_new_attempt(
    tmp_path: Path,
) -> None:
    with coordinating(RACE, tmp_path) as coordinator:
        running = [take(coordinator) for _ in range(6)]
        for number, assignment in enumerate(running[:5]):
            assert not coordinator.report(assignment, said(assignment, 1, 0.1 * number))
        early = rows(coordinator)[running[0].trial.key]
        assert early.status is TrialStatus.PLANNED
        assert early.reason == "waits at rung 1 of stratum [all] for the others"
        assert take_one(coordinator) is None
        assert not coordinator.is_exhausted
        assert not coordinator.report(running[5], said(running[5], 1, 0.9))
        going_on = [take(coordinator), take(coordinator)]
        assert {each.trial.key for each in going_on} == {each.trial.key for each in running[:2]}
        assert all((each.attempt, each.recorded_through) == (2, 1) for each in going_on)
    assert Counter(statuses(tmp_path).values())[TrialStatus.STOPPED_EARLY] == 4


def test_a_trial_that_does_not_fit_is_tried_alone_and_then_too_large(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        big, other = take(coordinator), take(coordinator)
        assert not big.is_exclusive
        assert coordinator.report(big, said(big, 1))
        no_room = OutOfMemory("10 GiB of 8 GiB needed")
        assert not coordinator.report(big, no_room)
        row = rows(coordinator)[big.trial.key]
        assert (row.status, row.failures) == (TrialStatus.PLANNED, 0)
        assert row.reason.startswith("10 GiB of 8 GiB needed; it will be trained with nothing")
    with coordinating(SWEEP, tmp_path) as coordinator:
        for _ in range(2):
            train_through(coordinator, take(coordinator))
        alone = take(coordinator)
        assert (alone.trial.key, alone.is_exclusive, alone.recorded_through) == (
            big.trial.key,
            True,
            1,
        )
        assert take_one(coordinator) is None
        assert not coordinator.report(alone, no_room)
        assert coordinator.is_exhausted
    found = statuses(tmp_path)
    assert found.pop(big.trial.key) is TrialStatus.TOO_LARGE
    assert set(found.values()) == {TrialStatus.FINISHED}
    assert other.trial.key in found
    assert status_log(tmp_path, big.trial.key) == [
        "running", "planned", "running", "too_large",
    ]  # fmt: skip


def test_a_trial_that_needs_everything_for_itself_waits_until_nothing_runs(tmp_path: Path) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        big, other = take(coordinator), take(coordinator)
        coordinator.report(big, OutOfMemory("does not fit"))
        last = take(coordinator)
        assert take_one(coordinator) is None
        train_through(coordinator, other)
        assert take_one(coordinator) is None
        train_through(coordinator, last)
        alone = take(coordinator)
        assert alone.is_exclusive
        train_through(coordinator, alone)


def test_storage_that_cannot_be_written_pauses_the_study_and_is_nobodys_failure(
    tmp_path: Path,
) -> None:
    with coordinating(tiny_sweep(max_failures=0), tmp_path) as coordinator:
        assignment = take(coordinator)
        coordinator.report(assignment, said(assignment, 1))
        full = "checkpoints cannot be written to /data: no space left"
        assert not coordinator.report(assignment, StorageFailure(full))
        assert (coordinator.stop_reason, coordinator.is_in_trouble) == (full, True)
        row = rows(coordinator)[assignment.trial.key]
        assert (row.status, row.unit, row.failures) == (TrialStatus.PLANNED, 1, 0)


def test_failures_count_over_all_runs_of_a_study(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1]), max_failures=2)
    for _ in range(2):
        with coordinating(sweep, tmp_path) as coordinator:
            coordinator.failed(take(coordinator), "out of luck")
            # An interruption is none.
            take(coordinator)
    with coordinating(sweep, tmp_path) as coordinator:
        coordinator.failed(take(coordinator), "out of luck")
        assert coordinator.is_exhausted
    assert set(statuses(tmp_path).values()) == {TrialStatus.FAILED}


def test_a_lost_node_does_not_count_against_a_trial_unless_it_is_lost_again_and_again(
    tmp_path: Path,
) -> None:
    sweep = tiny_sweep(space=grid(width=[1]), max_failures=0, budget=epochs(30))
    with coordinating(sweep, tmp_path) as coordinator:
        for unit in range(1, 8):
            assignment = take(coordinator)
            assert coordinator.report(assignment, said(assignment, unit))
            coordinator.failed(assignment, "its node died", is_own_fault=False)
        for _ in range(5):
            assert set(statuses(tmp_path).values()) == {TrialStatus.PLANNED}
            coordinator.failed(take(coordinator), "its node died", is_own_fault=False)
        assert coordinator.is_exhausted
    assert set(statuses(tmp_path).values()) == {TrialStatus.FAILED}


def test_what_is_known_from_elsewhere_is_not_handed_out(tmp_path: Path) -> None:
    trials = planned(SWEEP)
    known = trials[1].key

    payload = {"step": 4, "metrics": {"nmse": 0.25}, "wall_seconds": 1.0}
    entry = LogRow(1, 7.0, known, 1, "report", 4, payload)
    with Journal(tmp_path / "journal", create=True) as journal:
        record_trials(journal, trials)
        journal.append(
            journal.adoption_entries(
                known, [entry], status=TrialStatus.FINISHED, reused_from="other"
            )
        )
        coordinator = Coordinator(journal, SWEEP, trials, str(tmp_path))
        assert coordinator.value(known) == 0.25
        handed_out = [take(coordinator).trial.key for _ in range(2)]
        assert take_one(coordinator) is None
        assert known not in handed_out
    assert statuses(tmp_path)[known] is TrialStatus.FINISHED


def test_trials_that_all_fail_alike_pause_the_study_before_their_attempts_are_used_up(
    tmp_path: Path,
) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        while (assignment := take_one(coordinator)) is not None:
            coordinator.failed(assignment, "ModuleNotFoundError: no module 'mine'\nTraceback")
        assert coordinator.stop_reason is not None
        assert "3 trials failed in the same way (ModuleNotFoundError: no" in (
            coordinator.stop_reason
        )
        assert coordinator.is_in_trouble
    assert set(statuses(tmp_path).values()) == {TrialStatus.PLANNED}


@pytest.mark.parametrize("reports", [True, False])
def test_failures_of_their_own_do_not_pause_a_study(tmp_path: Path, reports: bool) -> None:
    sweep = tiny_sweep(max_failures=0)
    with coordinating(sweep, tmp_path) as coordinator:
        for number in range(3):
            assignment = take(coordinator)
            for unit in range(1, 3 - (number > 0) if reports else 1):
                coordinator.report(assignment, said(assignment, unit))
            coordinator.failed(assignment, "OSError" if reports else f"OSError: {number}")
        assert not coordinator.stop_requested
    assert set(statuses(tmp_path).values()) == {TrialStatus.FAILED}


def test_three_trials_that_fail_alike_where_none_got_further_pause_the_study(
    tmp_path: Path,
) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        for _ in range(3):
            assert not coordinator.stop_requested
            assignment = take(coordinator)
            coordinator.report(assignment, said(assignment, 1))
            coordinator.failed(assignment, "ZeroDivisionError: division by zero")
        assert coordinator.stop_reason is not None
        assert "(ZeroDivisionError: division by zero) after unit 1" in coordinator.stop_reason


@pytest.mark.parametrize("moves", [True, False])
def test_what_fails_twice_in_the_same_way_at_the_same_place_is_not_tried_a_third_time(
    tmp_path: Path, moves: bool
) -> None:
    sweep = tiny_sweep(max_failures=4, space=grid(width=[1]), budget=epochs(9))
    with coordinating(sweep, tmp_path) as coordinator:
        attempts = 0
        while (assignment := take_one(coordinator)) is not None:
            attempts += 1
            if moves:
                coordinator.report(assignment, said(assignment, attempts))
            coordinator.failed(assignment, "OSError: no space\nTraceback")
        assert attempts == (5 if moves else 2)
        [row] = coordinator.journal.trials()
    assert row.status is TrialStatus.FAILED


def test_what_a_trial_held_is_kept_and_nothing_is_where_nothing_was_measured(
    tmp_path: Path,
) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        assignment = take(coordinator)
        coordinator.report(assignment, replace(said(assignment, 1), peak_memory_bytes=5 * 2**30))
        coordinator.report(assignment, said(assignment, 2))
    with JournalReader(tmp_path / "journal") as journal:
        first, second = (entry.payload for entry in journal.reports())
    assert first["peak_memory_bytes"] == 5 * 2**30
    assert first.keys() - second.keys() == {"peak_memory_bytes"}
