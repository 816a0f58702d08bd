"""The search for the front: few runs, the grid's answer, few false claims, and the same rounds
however it runs."""

import random

import pytest

from analysis.questions.pareto.design import SEEDS, find_front
from analysis.rounds.design import play
from analysis.rounds.looks import Run
from benchmarks.fronts import FAMILIES, gridded, searched, study

SHAPES = 8
COSTS = [(float(cost),) for cost in range(SHAPES)]


def always(_run: Run) -> bool:
    return True


def test_where_shapes_differ_it_tells_what_the_grid_tells_with_half_of_its_runs() -> None:
    families = ("few", "mixed", "worse_unequal")
    pairs = [
        (searched(family, SHAPES, number), gridded(family, SHAPES, number))
        for family in families
        for number in range(10)
    ]
    rightly = [sum(found.decided for found in ways) for ways in zip(*pairs, strict=True)]
    assert rightly[0] >= 0.95 * rightly[1]
    assert sum(few.trials for few, _ in pairs) <= 0.55 * sum(full.trials for _, full in pairs)


def test_of_pairs_of_equal_shapes_hardly_any_is_told_on_the_front_falsely() -> None:
    studies = [searched("pairs", SHAPES, number) for number in range(50)]
    behind = sum(each.behind for each in studies)
    assert sum(each.falsely_on for each in studies) / behind <= 0.06


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_there_decides_the_next_round_alone(family: str) -> None:
    made, ended = study(family, SHAPES, 3), set[Run]()
    rng, rounds = random.Random(family), []
    while (now := play(find_front(COSTS), made.value, ended.__contains__)).next is not None:
        rounds.append(now.next)
        runs = [run for run in now.next.runs if run not in ended]
        ended |= set(rng.sample(runs, rng.randint(1, len(runs))))
    whole = play(find_front(COSTS), made.value, always)
    assert list(dict.fromkeys(rounds)) == list(whole.rounds)
    asked = [run for each in whole.rounds for run in each.runs]
    assert len(set(asked)) == len(asked)
    assert all(run.seed < SEEDS[-1] for run in asked)


def seeds_of(shape: int, costs: list[tuple[float, ...]], means: list[float]) -> int:
    """Return how many runs a search gives a shape of studies with these means and an sd of 0.1."""

    def value(run: Run) -> float:
        return means[run.shape] + 0.1 * random.Random(repr(run)).gauss(0, 1)

    rounds = play(find_front(costs), value, always).rounds
    return sum(run.shape == shape for each in rounds for run in each.runs)


def test_seeds_go_where_membership_is_undecided() -> None:
    # The third shape is as good as the second, and nothing tells whether it beats it.
    means = [0.0, 2.0, 2.05, 1.0]
    costs = [(1.0,), (2.0,), (3.0,), (4.0,)]
    assert seeds_of(0, costs, means) == SEEDS[0] == seeds_of(3, costs, means)
    assert seeds_of(2, costs, means) > SEEDS[0]
    assert seeds_of(1, costs, means) == seeds_of(2, costs, means)


def test_of_several_costs_only_a_shape_that_costs_no_more_of_each_is_a_rival() -> None:
    means = [1.0, 1.0]
    assert seeds_of(1, [(1.0, 1.0), (2.0, 2.0)], means) > SEEDS[0]
    assert seeds_of(1, [(1.0, 3.0), (2.0, 2.0)], means) == SEEDS[0]


def test_seeds_that_agree_and_runs_without_a_value_end_the_search() -> None:
    agreeing = play(find_front(COSTS), lambda _run: 0.5, always)
    assert [len(each.runs) for each in agreeing.rounds] == [SEEDS[0] * SHAPES]
    lost = play(find_front(COSTS), lambda _run: None, always)
    assert {run.shape for each in lost.rounds for run in each.runs} == set(range(SHAPES))
