"""Trials share devices by the memory they are predicted to need.

No device is there: memory figures are given, and devices and workers are played by this process.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import assignment_of, coordinating, planned, status_log, statuses, take_one

from hsweep import Point, Resources, Sweep, UserError, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.device_shares import AT_ONCE, HEAD_ROOM, DeviceShares, share_of
from hsweep.design.sweep import resolve
from hsweep.design.trial import Assignment, Event, OutOfMemory, Report, Trial, TrialStatus
from hsweep.record.journal import Journal

GIB = 2**30
DEVICE = 80 * GIB
AUTO = Resources(cpus=1, gpus="auto")
SWEEP = tiny_sweep(
    space=grid(width=list(range(1, 13))), replicates=2, budget=epochs(3), resources=AUTO
)
TRIALS = planned(SWEEP)
CLAIM = settings(max_examples=100, deadline=None, derandomize=True)
AMOUNTS = st.integers(1, 200 * GIB)


def trial_of(predicted: int, width: int = 1, **changes: Any) -> Trial:
    trial = next(each for each in TRIALS if each.point["width"] == width)
    return replace(trial, train_memory_bytes=predicted, **changes)


def attempt(trial: Trial, shares: DeviceShares) -> Assignment:
    given_out = assignment_of(trial, Path("/nowhere"))
    return replace(given_out, share=shares.resources(trial).devices)


def report(unit: int = 1, **changes: Any) -> Report:
    settled = {"wall_seconds": float(unit), "is_last": unit == 3}
    return Report(unit, unit, {"nmse": 0.5, "fit": 0.5}, **settled | changes)


class TestTheSwitch:
    def test_a_share_can_be_left_open(self) -> None:
        assert AUTO.is_auto
        assert AUTO.devices == 1
        assert not Resources(gpus=0.5).is_auto
        assert Resources(cpus=0, gpus="auto").num_threads == 1

    @pytest.mark.parametrize("gpus", ["all", "", "AUTO", "1"])
    def test_other_words_are_refused(self, gpus: Any) -> None:
        with pytest.raises(UserError, match="gpus is a number of devices or 'auto', not"):
            Resources(gpus=gpus)

    def test_it_can_be_set_on_the_command_line(self) -> None:
        point = Point({"width": 2})
        plain = tiny_sweep().with_setting("gpus", ["auto"])
        assert resolve(plain.resources, point) == AUTO
        by_point = tiny_sweep(resources=lambda p: Resources(cpus=p.width))
        assert resolve(by_point.with_setting("gpus", ["auto"]).resources, point) == Resources(
            cpus=2, gpus="auto"
        )

    @pytest.mark.parametrize("values", [["all"], ["auto", "auto"], ["auto", 1], []])
    def test_what_is_neither_a_number_nor_auto_is_refused(self, values: list[Any]) -> None:
        with pytest.raises(UserError, match="gpus takes one number or auto, not"):
            tiny_sweep().with_setting("gpus", values)
        with pytest.raises(UserError, match="cpus takes one number, not"):
            tiny_sweep().with_setting("cpus", ["auto"])

    def test_an_attempt_occupies_a_number_of_devices(self) -> None:
        whole = assignment_of(TRIALS[0], Path("/nowhere"))
        assert whole.resources == Resources(cpus=1, gpus=1)
        assert replace(whole, share=0.25).resources == Resources(cpus=1, gpus=0.25)
        assert replace(whole, share=0.25, is_exclusive=True).resources == Resources(cpus=1, gpus=1)

    def test_a_key_does_not_depend_on_it(self) -> None:
        fixed = planned(replace(SWEEP, resources=Resources()))
        assert [trial.key for trial in fixed] == [trial.key for trial in TRIALS]


class TestShares:
    @CLAIM
    @given(st.lists(st.sampled_from(AT_ONCE), max_size=12))
    def test_what_ray_lets_on_a_device_is_never_more_than_one(self, numbers: list[int]) -> None:
        in_rays_units = sum(round(share_of(number) * 10_000) for number in numbers)
        if in_rays_units <= 10_000:
            assert sum(Fraction(1, number) for number in numbers) <= 1

    @pytest.mark.parametrize("number", AT_ONCE)
    def test_as_many_as_asked_for_fit(self, number: int) -> None:
        assert number * round(share_of(number) * 10_000) <= 10_000
        assert int(1 / share_of(number) + 1e-9) == number

    @CLAIM
    @given(AMOUNTS, AMOUNTS)
    def test_all_that_share_a_device_are_predicted_to_fit_with_head_room(
        self, predicted: int, device: int
    ) -> None:
        number = DeviceShares(device).at_once(trial_of(predicted))
        assert number in AT_ONCE
        if number > 1:
            assert number * predicted <= (1 - HEAD_ROOM) * device

    @CLAIM
    @given(AMOUNTS, AMOUNTS)
    def test_a_larger_trial_never_gets_less(self, one: int, other: int) -> None:
        shares = DeviceShares(DEVICE)
        small, large = (shares.resources(trial_of(size)) for size in sorted((one, other)))
        assert small.devices <= large.devices

    def test_small_trials_share_and_one_that_needs_the_device_gets_all_of_it(self) -> None:
        shares = DeviceShares(DEVICE)
        found = [shares.resources(trial_of(size * GIB)).gpus for size in (1, 8, 20, 50, 500)]
        assert found == [share_of(8), share_of(6), 0.5, 1, 1]

    def test_a_share_that_is_given_stays(self) -> None:
        fixed = Resources(cpus=1, gpus=0.5)
        assert DeviceShares(DEVICE).resources(trial_of(GIB, resources=fixed)) == fixed

    def test_where_a_share_did_not_suffice_trials_of_that_shape_get_a_larger_one(self) -> None:
        shares, trial = DeviceShares(DEVICE), trial_of(GIB)
        assert shares.at_once(trial) == 8
        for expected in (6, 4, 3, 2, 1, 1):
            is_more_left = shares.at_once(trial) > 1
            assert shares.ran_out(attempt(trial, shares)) is is_more_left
            assert shares.at_once(trial) == expected
        assert shares.at_once(trial_of(GIB, width=2)) == 8

    def test_one_attempt_that_runs_out_again_and_again_counts_once(self) -> None:
        shares, trial = DeviceShares(DEVICE), trial_of(GIB)
        given_out = attempt(trial, shares)
        for _ in range(3):
            shares.ran_out(given_out)
        assert shares.at_once(trial) == 6


@dataclass
class Worker:
    device: int
    assignment: Assignment
    unit: int = 0

    @property
    def share(self) -> int:
        return round(self.assignment.resources.devices * 10_000)


@dataclass
class Machine:
    """Devices and workers as Ray and Tune keep them, and memory that is counted.

    Attributes:
        held: what a trial really holds.
        begun: trials in the order in which they were begun.
        overtaken: trials that were begun while one of another size waited for its place.
    """

    coordinator: Coordinator
    held: Callable[[Trial], int]
    rng: random.Random
    devices: int = 1
    workers: list[Worker] = field(default_factory=list)
    pending: Assignment | None = None
    begun: list[Trial] = field(default_factory=list)
    out_of_memory: int = 0
    overtaken: int = 0
    most_at_once: int = 0

    def run(self) -> None:
        while not self.coordinator.is_exhausted:
            while self.place():
                pass
            self.most_at_once = max(self.most_at_once, len(self.workers))
            assert self.workers, "something waits and nothing runs"
            self.hear(self.rng.choice(self.workers))

    def place(self) -> bool:
        """Start a worker for the next trial if there is room for it."""
        self.pending = self.pending or take_one(self.coordinator)
        if self.pending is None:
            return False
        wanted = round(self.pending.resources.devices * 10_000)
        for device in range(self.devices):
            taken = sum(each.share for each in self.workers if each.device == device)
            if taken + wanted <= 10_000:
                self.begun.append(self.pending.trial)
                self.workers.append(Worker(device, self.pending))
                self.pending = None
                return True
        return False

    def hear(self, worker: Worker) -> None:
        """Let a worker report, and go on with what is next."""
        beside = [each for each in self.workers if each.device == worker.device]
        event: Event
        if sum(self.held(each.assignment.trial) for each in beside) > DEVICE:
            self.out_of_memory += 1
            event = OutOfMemory("does not fit")
        else:
            worker.unit += 1
            # A trial takes as long as its operations say, so what is measured changes no order.
            flops = worker.assignment.trial.forward_flops or 0
            event = report(worker.unit, wall_seconds=float(worker.unit * flops))
        if self.coordinator.report(worker.assignment, event):
            return
        following = None
        size = worker.assignment.resources
        if self.pending is None or self.pending.resources == size:
            following = take_one(self.coordinator, size)
        if following is None:
            self.workers.remove(worker)
        else:
            self.overtaken += self.pending is not None and self.pending.resources != size
            self.begun.append(following.trial)
            worker.assignment, worker.unit = following, following.recorded_through


def sized(sizes: Sequence[int], sweep: Sweep = SWEEP) -> tuple[Trial, ...]:
    """The sweep's trials, those of the n-th width with the n-th memory."""
    return tuple(
        replace(trial, train_memory_bytes=sizes[trial.point["width"] - 1])
        for trial in planned(sweep)
        if trial.point["width"] <= len(sizes)
    )


class TestADevice:
    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        sizes=st.lists(st.integers(GIB // 8, 70 * GIB), min_size=1, max_size=12),
        share=st.floats(0.2, 1.1),
        devices=st.integers(1, 3),
        seed=st.integers(0, 10**6),
    )
    def test_where_predictions_are_about_right_nothing_runs_out_and_all_are_trained(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        share: float,
        devices: int,
        seed: int,
    ) -> None:
        folder, trials = tmp_path_factory.mktemp("device"), sized(sizes)

        def held(trial: Trial) -> int:
            return int(share * trial.train_memory_bytes)

        with coordinating(SWEEP, folder, trials=trials) as coordinator:
            coordinator.share_devices(DEVICE)
            machine = Machine(coordinator, held, random.Random(seed), devices)
            machine.run()
        assert machine.out_of_memory == 0
        assert sorted(each.key for each in machine.begun) == sorted(each.key for each in trials)
        assert set(statuses(folder).values()) <= {TrialStatus.FINISHED}

    def test_small_trials_share_a_device_and_a_large_one_gets_it_in_its_turn(
        self, tmp_path: Path
    ) -> None:
        # The widest is handed out first: the large ones here are narrow, and so in the middle.
        sizes = [GIB] * 12
        sizes[4] = sizes[6] = 60 * GIB
        trials = sized(sizes)
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.share_devices(DEVICE)
            machine = Machine(coordinator, lambda t: t.train_memory_bytes, random.Random(0))
            machine.run()
        assert machine.most_at_once == 8
        assert machine.overtaken == 0
        in_turn = sorted(trials, key=lambda t: (t.replicate, -t.counts.forward_flops, t.ordinal))
        assert [trial.key for trial in machine.begun] == [trial.key for trial in in_turn]

    def test_where_predictions_are_far_too_low_all_finish_with_the_room_they_need(
        self, tmp_path: Path
    ) -> None:
        trials = sized([GIB] * 12)
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.share_devices(DEVICE)
            machine = Machine(coordinator, lambda trial: 30 * GIB, random.Random(1))
            machine.run()
        assert machine.out_of_memory
        assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}

    def test_a_trial_for_which_no_share_suffices_is_too_large(self, tmp_path: Path) -> None:
        trials = sized([GIB])[:1]
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.share_devices(DEVICE)
            occupied = []
            while assignment := take_one(coordinator):
                occupied.append((assignment.resources.devices, assignment.is_exclusive))
                coordinator.report(assignment, OutOfMemory("does not fit"))
            (row,) = coordinator.journal.trials()
        shares = [(share_of(number), False) for number in (8, 6, 4, 3, 2, 1)]
        assert occupied == [*shares, (1.0, True)]
        assert (row.status, row.failures) == (TrialStatus.TOO_LARGE, 0)
        assert status_log(tmp_path, row.key) == [
            *["running", "planned"] * 6,
            "running",
            "too_large",
        ]

    def test_without_a_runner_that_knows_its_devices_each_trial_gets_a_whole_one(
        self, tmp_path: Path
    ) -> None:
        with coordinating(SWEEP, tmp_path) as coordinator:
            assignment = take_one(coordinator)
            assert assignment is not None
            assert assignment.resources == Resources(cpus=1, gpus=1)

    def test_a_stack_gets_a_whole_device(self, tmp_path: Path) -> None:
        trials, stacked = sized([GIB]), SWEEP.with_setting("stacked", ["auto"])
        with coordinating(stacked, tmp_path, trials=trials) as coordinator:
            coordinator.share_devices(DEVICE)
            assert [each.resources.gpus for each in coordinator.next_assignments()] == [1, 1]


def test_what_a_trial_held_is_kept_and_nothing_is_where_nothing_was_measured(
    tmp_path: Path,
) -> None:
    with coordinating(SWEEP, tmp_path) as coordinator:
        assignment = take_one(coordinator)
        assert assignment is not None
        coordinator.report(assignment, report(1, peak_memory_bytes=5 * GIB))
        coordinator.report(assignment, report(2))
    with Journal(tmp_path / "journal.db", read_only=True) as journal:
        first, second = (entry.payload for entry in journal.reports())
    assert first["peak_memory_bytes"] == 5 * GIB
    assert first.keys() - second.keys() == {"peak_memory_bytes"}
