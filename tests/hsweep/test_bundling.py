"""Which trials may go together, as a pure function of the plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import coordinating, planned

from hsweep import Asha, Point, Recipe, Resources, UserError, epochs, grid, seconds
from hsweep.coordination.bundling import bundles, kind_of
from hsweep.design.trial import Trial


def recipe(point: Point) -> Recipe:
    return Recipe(lr=point.lr, weight_decay=point.decay, batch_size=point.batch)


MIXED = planned(
    tiny_sweep(
        space=grid(width=[1, 2], lr=[0.1, 0.2], decay=[0.0, 0.1], batch=[4, 8], cores=[1, 2]),
        recipe=recipe,
        resources=lambda point: Resources(cpus=point.cores),
        budget=epochs(9),
        early_stopping=Asha(grace=1, strata=("lr",)),
        replicates=3,
    )
)


def common(trial: Trial) -> tuple[Any, ...]:
    """What trials of one bundle must agree on."""
    return (
        *(trial.model, trial.task, trial.budget, trial.resources, trial.stratum),
        *(trial.recipe.batch_size, trial.recipe.precision, trial.recipe.optimizer),
    )


@settings(max_examples=200, deadline=None)
@given(
    trials=st.lists(st.sampled_from(MIXED), unique_by=lambda trial: trial.key),
    places=st.integers(1, 40),
    most=st.integers(1, 20),
    data=st.data(),
)
def test_every_trial_is_in_one_bundle_with_its_like_alone(
    trials: list[Trial], places: int, most: int, data: st.DataObject
) -> None:
    alone = data.draw(st.sets(st.sampled_from([trial.key for trial in trials] or [""])))
    divided = bundles(trials, places=places, most=most, alone=alone)
    keys = [trial.key for bundle in divided for trial in bundle]
    assert sorted(keys) == sorted(trial.key for trial in trials)
    assert [bundle[0].key for bundle in divided] == [
        trial.key for trial in trials if trial.key in {bundle[0].key for bundle in divided}
    ]
    for bundle in divided:
        assert 1 <= len(bundle) <= most
        assert len({common(trial) for trial in bundle}) == 1
        assert len(bundle) == 1 or not {trial.key for trial in bundle} & alone
        assert [trials.index(trial) for trial in bundle] == sorted(map(trials.index, bundle))
    # Nobody has nothing to do because others have everything.
    assert len(divided) >= min(places, len(trials))


def test_replicates_and_points_apart_in_rates_alone_go_together() -> None:
    trials = planned(
        tiny_sweep(
            space=grid(width=[1, 2], lr=[0.1, 0.2], decay=[0.0, 0.1], batch=[8]),
            recipe=recipe,
            replicates=3,
        )
    )
    divided = bundles(trials)
    assert [len(bundle) for bundle in divided] == [12, 12]
    assert [{trial.point["width"] for trial in bundle} for bundle in divided] == [{1}, {2}]


def test_strata_with_rungs_of_their_own_stay_apart() -> None:
    trials = planned(
        tiny_sweep(
            space=grid(width=[1], lr=[0.1, 0.2], decay=[0.0], batch=[8]),
            recipe=recipe,
            budget=epochs(9),
            early_stopping=Asha(grace=1, strata=("lr",)),
            replicates=2,
        )
    )
    assert [len({t.stratum for t in bundle}) for bundle in bundles(trials)] == [1, 1]


def test_a_trial_that_ends_with_the_clock_goes_alone() -> None:
    trials = planned(tiny_sweep(budget=seconds(5), replicates=2))
    assert [len(bundle) for bundle in bundles(trials)] == [1] * len(trials)


def test_what_trials_have_in_common_is_the_same_without_the_parts_of_their_keys() -> None:
    for one in MIXED[:20]:
        for other in MIXED[:20]:
            bare = [replace(trial, parts={}) for trial in (one, other)]
            assert (kind_of(one) == kind_of(other)) == (kind_of(bare[0]) == kind_of(bare[1]))


def handed_out(folder: Path, **changes: Any) -> list[int]:
    """How many trials each bundle of a sweep of two shapes with three seeds has."""
    sweep = tiny_sweep(space=grid(width=[1, 2]), replicates=3, **changes)
    with coordinating(sweep, folder) as coordinator:
        sizes = []
        while bundle := coordinator.take_bundle():
            assert len({each.bundle for each in bundle}) == 1
            assert {each.is_settled for each in bundle} == {sweep.together == "always"}
            sizes.append(len(bundle))
    return sizes


def test_on_the_cpu_trials_go_together_only_when_asked_to(tmp_path: Path) -> None:
    assert handed_out(tmp_path / "auto") == [1] * 6
    assert handed_out(tmp_path / "never", together="never") == [1] * 6
    assert handed_out(tmp_path / "always", together="always") == [3, 3]


def test_trials_that_get_a_process_each_go_alone(tmp_path: Path) -> None:
    assert handed_out(tmp_path, together="always", isolate=True) == [1] * 6


def test_on_a_gpu_trials_go_together_unless_kept_apart(tmp_path: Path) -> None:
    gpu = Resources(cpus=1, gpus=1)
    assert handed_out(tmp_path / "auto", resources=gpu) == [3, 3]
    assert handed_out(tmp_path / "never", resources=gpu, together="never") == [1] * 6


def test_when_trials_go_together_is_one_of_three_words() -> None:
    assert tiny_sweep().with_setting("together", ["never"]).together == "never"
    for values in (["sometimes"], [1], ["never", "always"]):
        with pytest.raises(UserError, match="together must be one of 'auto', 'never', 'always'"):
            tiny_sweep().with_setting("together", values)
    with pytest.raises(UserError, match="not True"):
        tiny_sweep(together=True)
    with pytest.raises(UserError, match="meaning of its own"):
        tiny_sweep(space=grid(together=[1, 2]))
