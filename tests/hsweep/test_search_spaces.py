"""A space means the same to Optuna as it does to hsweep."""

from pathlib import Path

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep

from hsweep import (
    Point,
    Recipe,
    Space,
    choice,
    grid,
    int_range,
    log_uniform,
    optuna_search,
    uniform,
    zipped,
)
from hsweep.coordination.search import OptunaProposer
from hsweep.planning.plan import Plan, Planner
from hsweep.record.journal import Journal

SPACES: dict[str, Space] = {
    "choice": choice(act=["gelu", "relu", None], bias=[True, False], width=[1, 4.5]),
    "range": int_range(heads=(1, 8), depth=(2, 9, 3)),
    "zipped": zipped(heads=[12, 16, 12], depth=[12, 7, 5]),
    "union": grid(heads=[1, 2]) * (zipped(depth=[1, 2], width=[3, 4]) + grid(depth=[5])),
    "nested unions": (grid(a=[1]) + grid(a=[2]) + grid(a=[3], b=[4])) * (grid(c=[1]) + grid(c=[2])),
    "where and derive": int_range(heads=(1, 6), width=(1, 6))
    .where(lambda p: p.width % p.heads == 0)
    .derive(head_dim=lambda p: p.width // p.heads),
}
CONTINUOUS = log_uniform(lr=(1e-4, 1e-1)) * uniform(drop=(0.0, 0.5)) * grid(heads=[1, 2])


def from_optuna(space: Space, seed: int, count: int) -> list[Point]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    distributions = space.to_optuna()
    drawn = [space.from_optuna(study.ask(distributions).params) for _ in range(count)]
    return [point for point in drawn if point is not None]


@pytest.mark.parametrize("name", SPACES)
def test_what_is_sampled_is_the_whole_space_and_nothing_else(name: str) -> None:
    space = SPACES[name]
    drawn = from_optuna(space, 0, 400)
    assert set(drawn) == set(space.points())


@settings(
    deadline=None,
    derandomize=True,
    max_examples=10,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_continuous_axes_stay_within_their_ends(seed: int) -> None:
    for point in from_optuna(CONTINUOUS, seed, 5):
        assert 1e-4 <= point.lr <= 1e-1
        assert 0.0 <= point.drop <= 0.5
        assert point.heads in (1, 2)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_a_resumed_search_takes_up_the_very_points_it_had_proposed(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3], betas=[(0.9, 0.99), (0.8, 0.9)]) * log_uniform(lr=(1e-3, 1)),
        recipe=lambda p: Recipe(lr=p.lr, betas=p.betas),
        search=optuna_search(4),
    )
    with Journal(tmp_path / "journal", create=True) as journal:
        first = OptunaProposer(sweep, Planner(Plan(sweep, "base", 0)), journal, seed=0)
        proposed = [trial for _ in range(3) for trial in first.propose()]
        resumed = OptunaProposer(sweep, Planner(Plan(sweep, "base", 0)), journal, seed=0)
        assert [trial.key for trial in resumed.known_trials] == [trial.key for trial in proposed]
        known = resumed.study.trials
        assert [resumed._sweep.space.from_optuna(trial.params) for trial in known] == [
            trial.point for trial in proposed
        ]
        assert len(resumed.propose()) == 1
        assert resumed.propose() == []


def test_numbers_that_rise_or_fall_are_a_range_to_optuna_and_other_values_categories() -> None:
    space = grid(up=[1, 2, 8], down=[0.1, 0.01], no=[2, 1, 3], flag=[False, True], one=[4])
    kinds = {name: type(each).__name__ for name, each in space.to_optuna().items()}
    assert {name for name, kind in kinds.items() if kind == "IntDistribution"} == {"up", "down"}
    assert kinds["no"] == kinds["flag"] == kinds["one"] == "CategoricalDistribution"
    for point in space.points():
        assert space.from_optuna(space.optuna_values(point)) == point
    assert space.optuna_values(Point({"up": 3, "down": 0.1, "no": 1, "flag": True, "one": 4})) == {}
