"""Trials share devices by the memory they need, as predicted and then as seen.

No device is there: memory figures are given, and devices and lanes are played by this process.
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
from tiny import TinyModel, tiny_model, tiny_sweep
from tiny_runs import assignment_of, coordinating, planned, statuses, take_one

from hsweep import Point, Resources, Sweep, UserError, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.packing import (
    AT_ONCE,
    HEAD_ROOM,
    PROCESS_BYTES,
    SEEN_MARGIN,
    UNSEEN_MARGIN,
    Packing,
    may_take,
    share_of,
)
from hsweep.design.sweep import resolve
from hsweep.design.trial import Assignment, Report, Setback, Trial, TrialStatus
from hsweep.record.journal import Journal

GIB = 2**30
DEVICE = 80 * GIB
AUTO = Resources(cpus=1, gpus="auto")
SWEEP = tiny_sweep(
    space=grid(width=list(range(1, 13))),
    replicates=2,
    budget=epochs(3),
    resources=AUTO,
    together="never",
)
TRIALS = planned(SWEEP)
CLAIM = settings(max_examples=100, deadline=None, derandomize=True)
STORM = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
AMOUNTS = st.integers(1, 200 * GIB)


def trial_of(predicted: int, width: int = 1, **changes: Any) -> Trial:
    trial = next(each for each in TRIALS if each.point["width"] == width)
    return replace(trial, train_memory_bytes=predicted, **changes)


def attempt(trial: Trial, packing: Packing) -> Assignment:
    given_out = assignment_of(trial, Path("/nowhere"))
    return replace(given_out, share=packing.resources(trial).devices)


def report(unit: int = 1, **changes: Any) -> Report:
    return Report(
        unit, unit, {"nmse": 0.5, "fit": 0.5}, float(unit), **{"is_last": unit == 3} | changes
    )


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
        assert replace(whole, share=0.25, is_alone=True).resources == Resources(cpus=1, gpus=1)

    def test_a_key_does_not_depend_on_it(self) -> None:
        fixed = planned(replace(SWEEP, resources=Resources()))
        assert [trial.key for trial in fixed] == [trial.key for trial in TRIALS]


class TestSizes:
    @CLAIM
    @given(st.lists(st.sampled_from(AT_ONCE), max_size=12))
    def test_what_ray_lets_on_a_device_is_never_more_than_one(self, together: list[int]) -> None:
        in_rays_units = sum(round(share_of(number) * 10_000) for number in together)
        if in_rays_units <= 10_000:
            assert sum(Fraction(1, number) for number in together) <= 1

    @pytest.mark.parametrize("number", AT_ONCE)
    def test_as_many_as_asked_for_fit(self, number: int) -> None:
        assert number * round(share_of(number) * 10_000) <= 10_000
        assert int(1 / share_of(number) + 1e-9) == number

    @CLAIM
    @given(AMOUNTS, AMOUNTS)
    def test_together_they_are_never_expected_to_need_more_than_head_room_allows(
        self, predicted: int, device: int
    ) -> None:
        packing, trial = Packing(device), trial_of(predicted)
        number = packing.at_once(trial)
        assert number in AT_ONCE
        if number > 1:
            assert number * packing.needed_bytes(trial) <= (1 - HEAD_ROOM) * device

    @CLAIM
    @given(AMOUNTS)
    def test_no_smaller_share_would_do(self, predicted: int) -> None:
        packing, trial = Packing(DEVICE), trial_of(predicted)
        more = [number for number in AT_ONCE if number > packing.at_once(trial)]
        assert all(number * packing.needed_bytes(trial) > packing.usable_bytes for number in more)

    @CLAIM
    @given(AMOUNTS, AMOUNTS)
    def test_a_larger_trial_never_gets_less(self, one: int, other: int) -> None:
        packing = Packing(DEVICE)
        small, large = (packing.resources(trial_of(size)) for size in sorted((one, other)))
        assert small.devices <= large.devices

    def test_a_trial_that_needs_the_device_gets_all_of_it(self) -> None:
        packing = Packing(DEVICE)
        assert packing.resources(trial_of(50 * GIB)) == Resources(cpus=1, gpus=1)
        assert packing.resources(trial_of(500 * GIB)) == Resources(cpus=1, gpus=1)

    def test_a_fixed_share_is_left_alone(self) -> None:
        fixed = Resources(cpus=1, gpus=0.5)
        assert Packing(DEVICE).resources(trial_of(GIB, resources=fixed)) == fixed

    def test_a_device_has_memory(self) -> None:
        with pytest.raises(ValueError, match="a device has memory"):
            Packing(0)


class TestCorrections:
    def test_what_a_shape_held_replaces_its_prediction(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(20 * GIB)
        assert packing.at_once(trial) == 2
        packing.learn(attempt(trial, packing), report(peak_memory_bytes=10 * GIB))
        assert packing.needed_bytes(trial) - PROCESS_BYTES == pytest.approx(SEEN_MARGIN * 10 * GIB)
        assert packing.at_once(trial) == 6
        packing.learn(attempt(trial, packing), report(2, peak_memory_bytes=30 * GIB))
        assert packing.at_once(trial) == 2
        packing.learn(attempt(trial, packing), report(3, peak_memory_bytes=5 * GIB))
        assert packing.at_once(trial) == 2, "the most that was held counts"

    def test_replicates_are_of_one_shape_and_other_batches_of_another(self) -> None:
        packing = Packing(DEVICE)
        first, second = (
            replace(each, train_memory_bytes=20 * GIB)
            for each in TRIALS
            if each.point["width"] == 3
        )
        packing.observe(first, 8 * GIB)
        assert packing.needed_bytes(second) == packing.needed_bytes(first)
        other = replace(first, recipe=replace(first.recipe, batch_size=7))
        assert packing.needed_bytes(other) > packing.needed_bytes(first)

    @CLAIM
    @given(AMOUNTS, AMOUNTS, AMOUNTS)
    def test_others_only_raise_an_estimate(self, predicted: int, of: int, held: int) -> None:
        packing, trial = Packing(DEVICE), trial_of(predicted, width=1)
        before = packing.needed_bytes(trial)
        packing.observe(trial_of(of, width=2), held)
        assert packing.needed_bytes(trial) >= before

    @CLAIM
    @given(
        st.integers(0, 20 * GIB),
        st.floats(1, 4),
        st.lists(AMOUNTS, min_size=1, max_size=4),
        AMOUNTS,
    )
    def test_a_constant_and_a_factor_that_predictions_lack_are_both_covered(
        self, constant: int, factor: float, seen: list[int], predicted: int
    ) -> None:
        packing = Packing(DEVICE)
        for width, each in enumerate(seen, start=2):
            packing.observe(trial_of(each, width=width), constant + int(factor * each))
        needs = constant + int(factor * predicted)
        assert packing.needed_bytes(trial_of(predicted)) >= needs

    def test_trials_of_another_kind_say_nothing(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(GIB)
        before = packing.needed_bytes(trial)
        other = replace(trial.recipe, precision="bfloat16")
        packing.observe(trial_of(GIB, width=2, recipe=other), 70 * GIB)
        assert packing.needed_bytes(trial) == before

    def test_nothing_but_a_report_or_a_want_of_memory_corrects(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(20 * GIB)
        before = packing.needed_bytes(trial)
        given_out = attempt(trial, packing)
        packing.learn(given_out, report())
        packing.learn(given_out, Setback("storage", "full"))
        assert (packing.needed_bytes(trial), packing.at_once(trial)) == (before, 2)

    def test_where_a_share_did_not_do_the_next_gets_a_larger_one(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(GIB)
        assert packing.at_once(trial) == 8
        parts = report(micro_batch=4, peak_memory_bytes=GIB)
        for expected in (6, 4, 3, 2, 1, 1):
            packing.learn(attempt(trial, packing), parts)
            assert packing.at_once(trial) == expected
        assert packing.at_once(trial_of(GIB, width=2)) == 8

    def test_one_attempt_in_parts_counts_once(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(GIB)
        given_out = attempt(trial, packing)
        for unit in (1, 2, 3):
            packing.learn(given_out, report(unit, micro_batch=4))
        assert packing.at_once(trial) == 6

    def test_a_setback_says_what_was_needed(self) -> None:
        packing, trial = Packing(DEVICE), trial_of(GIB)
        packing.learn(attempt(trial, packing), Setback("memory", "no", needed_bytes=40 * GIB))
        assert packing.at_once(trial) == 1


class TestTogether:
    """Trials that are trained as one program share a process, and what that holds."""

    @CLAIM
    @given(AMOUNTS, st.integers(1, 64))
    def test_a_program_gets_what_all_its_trials_need(self, predicted: int, together: int) -> None:
        packing, trial = Packing(DEVICE), trial_of(predicted)
        number = packing.at_once(trial, together)
        assert number <= packing.at_once(trial)
        if number > 1:
            assert number * packing.needed_bytes(trial, together) <= packing.usable_bytes

    @CLAIM
    @given(AMOUNTS)
    def test_no_more_are_trained_as_one_than_a_device_holds(self, predicted: int) -> None:
        packing, trial = Packing(DEVICE), trial_of(predicted)
        most = packing.most_together(trial)
        assert most == 1 or packing.needed_bytes(trial, most) <= packing.usable_bytes
        assert packing.needed_bytes(trial, most + 1) > packing.usable_bytes

    def test_small_ones_leave_room_for_others(self) -> None:
        packing = Packing(DEVICE)
        assert packing.resources(trial_of(GIB // 8), together=8).gpus == share_of(8)
        assert packing.resources(trial_of(GIB), together=8).gpus == share_of(6)
        assert packing.resources(trial_of(GIB), together=48).gpus == 1

    def test_what_is_handed_out_as_one_program_has_its_share(self, tmp_path: Path) -> None:
        trials, together = sized([8 * GIB]), SWEEP.with_setting("together", ["auto"])
        with coordinating(together, tmp_path, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            shares = [each.share for each in coordinator.take_bundle()]
        assert shares == [share_of(3), share_of(3)]


class TestNobodyIsOvertakenForEver:
    def test_a_lane_goes_on_while_only_its_like_wait(self) -> None:
        quarter, whole = Resources(gpus=0.25), Resources(gpus=1)
        assert may_take(quarter, [])
        assert may_take(quarter, [quarter, quarter])
        assert not may_take(quarter, [quarter, whole])
        assert not may_take(whole, [quarter])


@dataclass
class Lane:
    device: int
    assignment: Assignment
    unit: int = 0

    @property
    def share(self) -> int:
        return round(self.assignment.resources.devices * 10_000)


@dataclass
class Machine:
    """Devices and lanes as Ray and Tune keep them, and memory that is counted.

    Attributes:
        held: what a trial really holds, beside what its process does.
        out_of_memory: trials that did not fit, in the order in which that was found.
        overtaken: trials that were begun while one of another size waited for its place.
    """

    coordinator: Coordinator
    held: Callable[[Trial], int]
    rng: random.Random
    devices: int = 1
    lanes: list[Lane] = field(default_factory=list)
    pending: Assignment | None = None
    out_of_memory: list[Assignment] = field(default_factory=list)
    begun: list[Trial] = field(default_factory=list)
    overtaken: int = 0
    most_at_once: int = 0

    def run(self) -> None:
        while not self.coordinator.is_exhausted:
            while self.place():
                pass
            self.most_at_once = max(self.most_at_once, len(self.lanes))
            assert self.lanes, "something waits and nothing runs"
            self.hear(self.rng.choice(self.lanes))

    def place(self) -> bool:
        """Start a lane for the next trial if there is room for it."""
        self.pending = self.pending or take_one(self.coordinator)
        if self.pending is None:
            return False
        wanted = round(self.pending.resources.devices * 10_000)
        for device in range(self.devices):
            taken = sum(lane.share for lane in self.lanes if lane.device == device)
            if taken + wanted <= 10_000:
                self.begun.append(self.pending.trial)
                self.lanes.append(Lane(device, self.pending))
                self.pending = None
                return True
        return False

    def hear(self, lane: Lane) -> None:
        """Let a lane say something, and go on with what is next."""
        beside = [each for each in self.lanes if each.device == lane.device]
        needed = sum(PROCESS_BYTES // 2 + self.held(each.assignment.trial) for each in beside)
        held = self.held(lane.assignment.trial)
        said: Report | Setback
        if needed > DEVICE:
            self.out_of_memory.append(lane.assignment)
            said = Setback("memory", "does not fit", needed_bytes=held)
        else:
            lane.unit += 1
            said = report(lane.unit, peak_memory_bytes=held)
        if self.coordinator.report(lane.assignment, said):
            return
        waiting = [self.pending.resources] if self.pending is not None else []
        following = None
        if may_take(lane.assignment.resources, waiting):
            following = take_one(self.coordinator, lane.assignment.resources)
        if following is None:
            self.lanes.remove(lane)
        else:
            self.overtaken += self.pending is not None
            self.begun.append(following.trial)
            lane.assignment, lane.unit = following, 0


def sized(sizes: Sequence[int], sweep: Sweep = SWEEP) -> tuple[Trial, ...]:
    """The sweep's trials, those of the n-th width with the n-th memory."""
    trials = planned(sweep)
    return tuple(
        replace(trial, train_memory_bytes=sizes[trial.point["width"] - 1])
        for trial in trials
        if trial.point["width"] <= len(sizes)
    )


class TestADevice:
    @STORM
    @given(
        sizes=st.lists(st.integers(GIB // 8, 70 * GIB), min_size=1, max_size=12),
        share=st.floats(0.2, UNSEEN_MARGIN),
        devices=st.integers(1, 3),
        seed=st.integers(0, 10**6),
    )
    def test_where_predictions_are_right_within_their_margin_nothing_runs_out(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        share: float,
        devices: int,
        seed: int,
    ) -> None:
        folder, trials = tmp_path_factory.mktemp("device"), sized(sizes)
        # Whole devices fit what they are given: that is for the existing handling of memory.
        trials = tuple(each for each in trials if 1.3 * each.train_memory_bytes < 0.9 * DEVICE)
        with coordinating(SWEEP, folder, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            machine = Machine(
                coordinator,
                lambda trial: int(share * trial.train_memory_bytes),
                random.Random(seed),
                devices,
            )
            machine.run()
        assert not machine.out_of_memory
        assert sorted(each.key for each in machine.begun) == sorted(each.key for each in trials)
        assert set(statuses(folder).values()) <= {TrialStatus.FINISHED}

    @STORM
    @given(
        sizes=st.lists(st.integers(GIB // 8, 30 * GIB), min_size=2, max_size=12),
        factors=st.lists(st.floats(0.3, 6), min_size=12, max_size=12),
        seed=st.integers(0, 10**6),
    )
    def test_once_every_shape_was_seen_nothing_runs_out_any_more(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        factors: list[float],
        seed: int,
    ) -> None:
        folder, trials = tmp_path_factory.mktemp("device"), sized(sizes)

        def held(trial: Trial) -> int:
            return int(factors[trial.point["width"] - 1] * trial.train_memory_bytes)

        trials = tuple(trial for trial in trials if held(trial) < 0.8 * DEVICE)
        first = frozenset(trial.key for trial in trials if trial.replicate == 0)
        for only in (first, None):
            with coordinating(SWEEP, folder, trials=trials, only=only) as coordinator:
                coordinator.pack(DEVICE)
                machine = Machine(coordinator, held, random.Random(seed))
                machine.run()
        assert not machine.out_of_memory, "the second run knows from the record what shapes hold"
        assert set(statuses(folder).values()) <= {TrialStatus.FINISHED}

    def test_small_trials_share_a_device_and_a_large_one_gets_it_in_its_turn(
        self, tmp_path: Path
    ) -> None:
        # The widest is handed out first: the large ones here are narrow, and so in the middle.
        sizes = [GIB] * 12
        sizes[4] = sizes[6] = 60 * GIB
        trials = sized(sizes)
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            machine = Machine(coordinator, lambda t: t.train_memory_bytes, random.Random(0))
            machine.run()
        assert machine.most_at_once == 8
        assert machine.overtaken == 0
        in_turn = sorted(trials, key=lambda t: (t.replicate, -t.counts.forward_flops, t.ordinal))
        assert [trial.key for trial in machine.begun] == [trial.key for trial in in_turn]

    def test_a_trial_that_did_not_fit_beside_others_gets_the_device_to_itself(
        self, tmp_path: Path
    ) -> None:
        trials = sized([GIB] * 12)
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            machine = Machine(coordinator, lambda trial: 30 * GIB, random.Random(1))
            machine.run()
        assert machine.out_of_memory
        # Seen once, all others of the kind are expected to hold as much; those that train then
        # have been given too little already.
        assert len(machine.out_of_memory) < len(trials) / 2
        assert set(statuses(tmp_path).values()) == {TrialStatus.FINISHED}

    def test_without_a_runner_that_knows_its_devices_each_trial_gets_a_whole_one(
        self, tmp_path: Path
    ) -> None:
        with coordinating(SWEEP, tmp_path) as coordinator:
            assignment = take_one(coordinator)
            assert assignment is not None
            assert assignment.resources == Resources(cpus=1, gpus=1)


class TestTheRecord:
    def test_what_a_trial_held_is_kept_and_nothing_is_where_nothing_was_measured(
        self, tmp_path: Path
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

    def test_a_resumed_study_knows_what_shapes_hold(self, tmp_path: Path) -> None:
        trials = sized([20 * GIB] * 12)
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            assignment = take_one(coordinator)
            assert assignment is not None
            assert assignment.resources.gpus == 0.5
            coordinator.report(assignment, report(1, peak_memory_bytes=2 * GIB))
        with coordinating(SWEEP, tmp_path, trials=trials) as coordinator:
            coordinator.pack(DEVICE)
            assert coordinator.resources_of(assignment.trial).gpus == share_of(8)
            again = take_one(coordinator)
            assert again is not None
            assert (again.trial.key, again.share) == (assignment.trial.key, share_of(8))


def test_what_is_no_tiny_model_has_a_kind_of_its_own() -> None:
    @dataclass(frozen=True)
    class OtherModel(TinyModel):
        pass

    packing = Packing(DEVICE)
    trial = trial_of(GIB)
    before = packing.needed_bytes(trial)
    packing.observe(trial_of(GIB, width=2, model=OtherModel(2)), 70 * GIB)
    assert packing.needed_bytes(trial) == before
    assert tiny_model(trial.point) == trial.model
