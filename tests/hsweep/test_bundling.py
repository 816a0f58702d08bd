"""Which trials are stacked, that is, handed out to be trained as one program."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import coordinating, planned

from hsweep import Asha, Point, Recipe, Resources, Sweep, UserError, epochs, grid, seconds
from hsweep.design.trial import OutOfMemory, Report, Trial


def recipe(point: Point) -> Recipe:
    return Recipe(lr=point.lr, weight_decay=point.decay, batch_size=point.batch)


MIXED = tiny_sweep(
    space=grid(width=[1, 2], lr=[0.1, 0.2], decay=[0.0, 0.1], batch=[4, 8], cores=[1, 2]),
    recipe=recipe,
    resources=lambda point: Resources(cpus=point.cores),
    budget=epochs(9),
    early_stopping=Asha(grace=1, strata=("lr",)),
    replicates=3,
    stacked="always",
)
TRIALS = planned(MIXED)


def common(trial: Trial) -> tuple[Any, ...]:
    """What trials of one stack must agree on."""
    return (
        *(trial.model, trial.task, trial.budget, trial.resources, trial.stratum),
        trial.recipe,
    )


def stacks_of(sweep: Sweep, folder: Path, places: int = 1, **parts: Any) -> list[list[Trial]]:
    """The stacks that are handed out, until no trial is left."""
    with coordinating(sweep, folder, **parts) as coordinator:
        found = []
        while stack := coordinator.next_assignments(num_workers=places):
            assert len({each.stack for each in stack}) == 1
            assert {each.always_stacked for each in stack} == {sweep.stacked == "always"}
            found.append([each.trial for each in stack])
    return found


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    trials=st.lists(st.sampled_from(TRIALS), unique_by=lambda trial: trial.key, max_size=40),
    places=st.integers(1, 12),
)
def test_every_trial_is_in_one_stack_with_none_but_its_like(
    tmp_path_factory: pytest.TempPathFactory, trials: list[Trial], places: int
) -> None:
    folder = tmp_path_factory.mktemp("stacks")
    divided = stacks_of(MIXED, folder, places, trials=tuple(trials))
    keys = [trial.key for stack in divided for trial in stack]
    assert sorted(keys) == sorted(trial.key for trial in trials)
    for stack in divided:
        assert len({common(trial) for trial in stack}) == 1
    # Nobody has nothing to do because others have everything.
    assert len(divided) >= min(places, len(trials))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    trials=st.lists(st.sampled_from(TRIALS), unique_by=lambda trial: trial.key, max_size=40),
    marked=st.sets(st.sampled_from([trial.key for trial in TRIALS])),
)
def test_a_trial_that_did_not_fit_beside_others_is_in_no_stack_and_beside_none(
    tmp_path_factory: pytest.TempPathFactory, trials: list[Trial], marked: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("stacks")
    marked &= {trial.key for trial in trials}
    with coordinating(MIXED, folder, trials=tuple(trials)) as coordinator:
        set_back: set[str] = set()
        while marked - set_back:
            for assignment in coordinator.next_assignments():
                if assignment.trial.key in marked:
                    coordinator.report(assignment, OutOfMemory("does not fit"))
                    set_back.add(assignment.trial.key)
    # What was at work is interrupted and handed out again, by a driver that has only the record.
    ended = []
    with coordinating(MIXED, folder, trials=tuple(trials)) as coordinator:
        while stack := coordinator.next_assignments():
            if marked & {each.trial.key for each in stack}:
                assert len(stack) == 1
                assert stack[0].is_exclusive
                assert coordinator.next_assignments() == [], "something is handed out beside it"
            for assignment in stack:
                ended.append(assignment.trial.key)
                last = Report(9, 9, {"nmse": 0.5, "fit": 0.5}, 1.0, is_last=True)
                coordinator.report(assignment, last)
    assert sorted(ended) == sorted(trial.key for trial in trials)


def test_a_trial_that_ends_with_the_clock_is_not_stacked(tmp_path: Path) -> None:
    sweep = tiny_sweep(budget=seconds(5), replicates=2, stacked="always")
    assert {len(stack) for stack in stacks_of(sweep, tmp_path)} == {1}


def handed_out(folder: Path, **changes: Any) -> list[int]:
    """How many trials each stack of a sweep of two shapes with three seeds has."""
    sweep = tiny_sweep(space=grid(width=[1, 2]), replicates=3, **changes)
    return [len(stack) for stack in stacks_of(sweep, folder)]


def test_trials_are_stacked_only_when_asked_for(tmp_path: Path) -> None:
    assert handed_out(tmp_path / "default") == [1] * 6
    assert handed_out(tmp_path / "gpu", resources=Resources(cpus=1, gpus=1)) == [1] * 6
    assert handed_out(tmp_path / "always", stacked="always") == [3, 3]


def test_by_themselves_only_trials_on_a_gpu_are_stacked(tmp_path: Path) -> None:
    assert handed_out(tmp_path / "cpu", stacked="auto") == [1] * 6
    gpu = Resources(cpus=1, gpus=1)
    assert handed_out(tmp_path / "gpu", stacked="auto", resources=gpu) == [3, 3]


def test_trials_that_get_a_process_each_are_not_stacked(tmp_path: Path) -> None:
    assert handed_out(tmp_path, stacked="always", isolate=True) == [1] * 6


def test_when_trials_are_stacked_is_one_of_three_words() -> None:
    assert tiny_sweep().stacked == "never"
    assert tiny_sweep().with_setting("stacked", ["always"]).stacked == "always"
    for values in (["sometimes"], [1], ["never", "always"]):
        with pytest.raises(UserError, match="stacked must be 'never', 'auto' or 'always'"):
            tiny_sweep().with_setting("stacked", values)
    with pytest.raises(UserError, match="not True"):
        tiny_sweep(stacked=True)
    with pytest.raises(UserError, match="meaning of its own"):
        tiny_sweep(space=grid(stacked=[1, 2]))
