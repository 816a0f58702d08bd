"""The race of shapes: few runs, the grid's answer, few false claims, and the same rounds however it
runs."""

import random

import pytest

from analysis.questions.lean.design import BASELINE_SEEDS, SEEDS, race
from analysis.rounds.design import play
from analysis.rounds.looks import Run
from benchmarks.lean import FAMILIES, Simulated, gridded, raced, simulated

SHAPES = 15
COMPARISON = (SHAPES, *range(SHAPES))


def always(_run: Run) -> bool:
    return True


def outcomes(study: Simulated) -> list[str]:
    answer = play(race([COMPARISON], 1.0), study.value, always).answer
    assert answer is not None
    return [each.outcome for each in answer[0]]


def test_it_finds_what_the_grid_finds_with_half_of_its_runs() -> None:
    families = ("few", "equal_unequal", "mixed")
    pairs = [
        (raced(family, SHAPES, number), gridded(family, SHAPES, number))
        for family in families
        for number in range(10)
    ]
    assert sum(race.found for race, _ in pairs) >= sum(grid.found for _, grid in pairs) - 1
    assert sum(race.trials for race, _ in pairs) <= 0.4 * sum(grid.trials for _, grid in pairs)


def test_it_establishes_hardly_ever_what_is_worse_by_the_margin() -> None:
    studies = [raced(family, 7, n) for family in ("margin", "margin_unequal") for n in range(150)]
    assert sum(study.is_false for study in studies) / len(studies) <= 0.06


def test_it_excludes_where_all_are_worse() -> None:
    studies = [raced("worse", 7, number) for number in range(30)]
    assert sum(study.verdict == "excluded" for study in studies) >= 27
    assert not any(study.usable for study in studies)


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_there_decides_the_next_round_alone(family: str) -> None:
    study, ended = simulated(family, SHAPES, 3), set[Run]()
    rng, rounds = random.Random(family), []
    while (now := play(race([COMPARISON], 1.0), study.value, ended.__contains__)).next is not None:
        rounds.append(now.next)
        runs = [run for run in now.next.runs if run not in ended]
        # Some of a round's runs, in any order: the round stays as it is until it is whole.
        ended |= set(rng.sample(runs, rng.randint(1, len(runs))))
    whole = play(race([COMPARISON], 1.0), study.value, always)
    assert list(dict.fromkeys(rounds)) == list(whole.rounds)
    assert now.answer == whole.answer
    asked = [run for each in whole.rounds for run in each.runs]
    assert len(set(asked)) == len(asked)
    assert all(run.seed < (BASELINE_SEEDS if run.shape == SHAPES else SEEDS)[-1] for run in asked)


def test_runs_without_a_value_are_replaced_twice_and_then_the_shape_is_out() -> None:
    study = simulated("equal", SHAPES, 1)

    def lost(run: Run) -> float | None:
        is_lost = run.shape == 0 or (run.shape == 1 and run.seed == 0)
        return None if is_lost else study.value(run)

    played = play(race([COMPARISON], 1.0), lost, always)
    assert played.answer is not None
    standings = played.answer[0]
    assert standings[0].outcome == "failed"
    assert sum(run.shape == 0 for each in played.rounds for run in each.runs) == 3
    assert standings[1].outcome == "established"


def test_dearer_shapes_leave_once_a_cheaper_one_is_established() -> None:
    found = outcomes(simulated("equal", SHAPES, 1))
    first = found.index("established")
    assert set(found[first + 1 :]) <= {"not raced", "established"}


def test_the_dearer_half_begins_where_the_cheaper_one_does_not_suffice() -> None:
    half = {*range((SHAPES + 1) // 2), SHAPES}
    for family, tried in (("equal", half), ("worse", {*range(SHAPES + 1)})):
        played = play(race([COMPARISON], 1.0), simulated(family, SHAPES, 1).value, always)
        assert {run.shape for run in played.rounds[0].runs} == half
        assert {run.shape for each in played.rounds for run in each.runs} == tried


def test_comparisons_are_raced_side_by_side_each_at_its_part_of_alpha() -> None:
    left, right = (simulated("equal", SHAPES, number) for number in (1, 2))
    both = [COMPARISON, (31, *range(16, 31))]

    def value(run: Run) -> float:
        study, first = (left, 0) if run.shape <= SHAPES else (right, SHAPES + 1)
        return study.value(Run(run.shape - first, run.seed))

    played = play(race(both, 1.0), value, always)
    assert played.answer is not None
    assert len(played.answer) == 2
    assert {run.shape > SHAPES for run in played.rounds[0].runs} == {True, False}


def test_seeds_that_agree_exactly_decide_nothing() -> None:
    played = play(race([COMPARISON], 1.0), lambda _run: 0.5, always)
    assert played.answer is not None
    assert {each.outcome for each in played.answer[0]} == {"undecided"}
