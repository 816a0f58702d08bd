"""Measured speed: fitted where it was measured, unknown elsewhere, never in the way."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from tiny import tiny_sweep

from hsweep import Recipe, Resources, epochs, grid
from hsweep.design.trial import Trial
from hsweep.paths import Home
from hsweep.planning.calibration import Calibration
from hsweep.planning.plan import make_plan
from hsweep.record.provenance import hardware
from hsweep.running.forecast import forecast

Invoke = Callable[..., Result]

MACHINE = {"cpu": "slow", "cores": 2}


def trials() -> list[Trial]:
    sweep = tiny_sweep(space=grid(width=[1, 10, 100, 1000]), budget=epochs(7))
    return list(make_plan(sweep, preset="quick", study_seed=0).trials)


def seconds_a_unit(trial: Trial) -> float:
    return 0.5 + 2e-4 * trial.counts.train_flops


def whole(some: list[Trial]) -> list[tuple[Trial, float]]:
    return [(trial, trial.units_to_train) for trial in some]


def measured(some: list[Trial]) -> list[tuple[Trial, float, int]]:
    return [(trial, 3 * seconds_a_unit(trial), 3) for trial in some]


def test_a_step_cost_and_a_cost_a_flop_are_recovered(tmp_path: Path) -> None:
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    small, *rest, large = trials()
    calibration.add(measured([small, *rest]))
    assert calibration.estimate(whole([large])) == pytest.approx(7 * seconds_a_unit(large))


def test_an_estimate_is_the_sum_over_trials_and_survives_the_process(tmp_path: Path) -> None:
    Calibration(tmp_path / "c.json", MACHINE).add(measured(trials()))
    estimate = Calibration(tmp_path / "c.json", dict(reversed(MACHINE.items()))).estimate(
        whole(trials())
    )
    assert estimate == pytest.approx(sum(7 * seconds_a_unit(trial) for trial in trials()))


def test_a_larger_trial_is_never_expected_to_take_less(tmp_path: Path) -> None:
    small, large = trials()[0], trials()[-1]
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    calibration.add([(small, 10.0, 1), (large, 1.0, 1)])
    estimates = [calibration.estimate(whole([trial])) for trial in (small, large)]
    assert 0 < estimates[0] <= estimates[1]  # type: ignore[operator]


def test_nothing_measured_is_nothing_known(tmp_path: Path) -> None:
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    assert calibration.estimate(whole(trials())) is None
    assert calibration.estimate(whole([])) == 0


def test_speeds_of_another_machine_or_kind_of_training_do_not_count(tmp_path: Path) -> None:
    some = trials()
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    calibration.add(measured(some))
    assert Calibration(tmp_path / "c.json", {"cpu": "fast"}).estimate(whole(some)) is None
    for other in (
        replace(some[0], recipe=Recipe(batch_size=9)),
        replace(some[0], recipe=replace(some[0].recipe, precision="bfloat16")),
        replace(some[0], resources=Resources(cpus=2)),
    ):
        assert calibration.estimate(whole([other])) is None
        assert calibration.estimate(whole([some[0], other])) is None
    same_speed = replace(some[0], recipe=replace(some[0].recipe, lr=1.0), replicate=3)
    assert calibration.estimate(whole([same_speed])) is not None


def test_what_was_not_trained_is_no_measurement(tmp_path: Path) -> None:
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    calibration.add([(trials()[0], 0.0, 3), (trials()[0], 3.0, 0)])
    assert calibration.estimate(whole(trials()[:1])) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"x": 1}', "\x00"])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    assert Calibration(path, MACHINE).estimate(whole(trials())) is None
    Calibration(path, MACHINE).add(measured(trials()))
    assert Calibration(path, MACHINE).estimate(whole(trials())) is not None


def test_old_measurements_make_room(tmp_path: Path) -> None:
    calibration = Calibration(tmp_path / "c.json", MACHINE)
    trial = trials()[0]
    calibration.add([(trial, 100.0, 1)] * 50)
    calibration.add([(trial, 2.0, 1)] * 200)
    assert calibration.estimate(whole([trial])) == pytest.approx(14.0)


@pytest.mark.parametrize("room", [1, 3, 100])
def test_time_is_shared_among_as_many_as_train_at_once(tmp_path: Path, room: int) -> None:
    home, plan = Home(tmp_path), make_plan(tiny_sweep(), preset="quick", study_seed=0)
    Calibration(home.calibration, hardware()).add(measured(list(plan.trials)))
    expected = forecast(plan, home, lambda _: room)
    assert expected.seconds is not None
    assert expected.wall_seconds == expected.seconds / min(room, len(plan.trials))
    assert (" at once)" in expected.line) == (room > 1)


def test_the_inline_runner_trains_one_at_once(home: Home, hsweep: Invoke, sweep_file: Path) -> None:
    first = hsweep("run", sweep_file, "--runner", "inline", "--study", "first")
    again = hsweep("run", sweep_file, "--runner", "inline", "--no-reuse", "--study", "again")
    assert (first.exit_code, again.exit_code) == (0, 0)
    line = next(line for line in again.output.splitlines() if line.startswith("study again: "))
    assert ", about " in line
    assert "at once" not in line
