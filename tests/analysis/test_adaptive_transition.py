"""The search for a transition: few runs, the grid's answer, and the same rounds however it runs."""

import random
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.questions.transition.design import SEARCH_SEED, Located, Run, locate
from analysis.questions.transition.limits import SEARCH_SEEDS, WINDOW_SEEDS
from analysis.questions.transition.question import Transition
from analysis.questions.transition.search import search as transition_search
from analysis.rounds.design import Played, play
from analysis.runs.scale import THRESHOLDS
from benchmarks.adaptive import FAMILIES, JUMPS, NULLS, Simulated, searched, simulated


def played(
    study: Simulated, value: Callable[[Run], float | None], ended: Callable[[Run], bool]
) -> Played[Run, Located]:
    return play(study.search(), value, ended)


def always(_run: Run) -> bool:
    return True


@pytest.mark.parametrize("heads", [5, 16, 64])
def test_it_finds_jumps_with_few_runs_and_nothing_on_declines(heads: int) -> None:
    jumps = [searched(family, heads, number) for family in JUMPS for number in range(5)]
    nulls = [searched(family, heads, number) for family in NULLS for number in range(5)]
    found = [outcome for outcome in jumps if outcome.verdict == "collapse"]
    assert len(found) >= 0.85 * len(jumps)
    assert sum(outcome.exact for outcome in found) >= 0.92 * len(found)
    assert sum(outcome.trials for outcome in jumps) / len(jumps) <= {5: 45, 16: 80, 64: 95}[heads]
    assert sum(outcome.verdict == "collapse" for outcome in nulls) <= 2
    assert sum(outcome.trials for outcome in nulls) / len(nulls) <= {5: 45, 16: 80, 64: 80}[heads]


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_there_decides_the_next_round_alone(family: str) -> None:
    study, ended = simulated(family, 16, 3), set[Run]()
    rng, rounds = random.Random(family), []
    while (now := played(study, study.value, ended.__contains__)).next is not None:
        rounds.append(now.next)
        runs = [run for run in now.next.runs if run not in ended]
        # Some of a round's runs, in any order: the round stays as it is until it is whole.
        ended |= set(rng.sample(runs, rng.randint(1, len(runs))))
        again = played(study, study.value, ended.__contains__)
        assert again.next in (now.next, None) or set(now.next.runs) <= ended
    whole = played(study, study.value, always)
    assert list(dict.fromkeys(rounds)) == list(whole.rounds)
    assert now.answer == whole.answer


@pytest.mark.parametrize("family", FAMILIES)
def test_the_runs_of_the_search_are_no_part_of_its_tests(family: str) -> None:
    study = simulated(family, 64, 1)
    for asked in played(study, study.value, always).rounds:
        assert {run.seed >= SEARCH_SEED for run in asked.runs} == {asked.phase == "search"}


def test_no_run_is_asked_for_twice() -> None:
    for family in FAMILIES:
        study = simulated(family, 16, 2)
        runs = [run for asked in played(study, study.value, always).rounds for run in asked.runs]
        assert len(set(runs)) == len(runs)


def test_a_run_without_a_value_is_made_up_for_by_the_next_seeds() -> None:
    study = simulated("sharp", 16, 0)

    def value(run: Run) -> float | None:
        return None if run.seed in (0, SEARCH_SEED) else study.value(run)

    answer = played(study, value, always).answer
    assert answer is not None
    assert (answer.verdict, answer.star) == ("collapse", study.truth)


def test_where_a_cell_never_has_a_value_the_answer_is_open_and_says_so() -> None:
    study = simulated("sharp", 16, 0)
    assert study.truth is not None

    def value(run: Run) -> float | None:
        return None if run.head == study.truth and run.seed < SEARCH_SEED else study.value(run)

    found = played(study, value, always)
    assert found.answer is not None
    assert found.answer.verdict == "open"
    assert "end without a value" in found.answer.reason
    runs = [run for asked in found.rounds for run in asked.runs]
    assert max(run.seed for run in runs if run.seed < SEARCH_SEED) < SEARCH_SEED


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_runs_without_a_value_never_keep_it_from_its_end(family: str, share: float) -> None:
    study = simulated(family, 16, 5)

    def value(run: Run) -> float | None:
        return None if random.Random(repr(run)).random() < share else study.value(run)

    assert played(study, value, always).answer is not None


def test_without_a_modulating_axis_abruptness_alone_decides() -> None:
    study = simulated("plain", 16, 4)
    design = locate(study.shape.heads, [64], 0, THRESHOLDS["error"])
    answer = play(design, study.value, always).answer
    assert answer is not None
    assert (answer.verdict, answer.star, answer.shown_by) == ("collapse", study.truth, "abruptness")
    assert answer.growth is None


def test_searches_side_by_side_open_the_same_rounds_wherever_they_are_cut_off() -> None:
    """One that needs fewer runs of a round does not go ahead where the others are behind."""
    axes = product(range(1, 9), (8, 64), (1, 2), range(WINDOW_SEEDS + SEARCH_SEEDS))
    rows: list[Any] = [
        SimpleNamespace(
            key=f"{heads} {seq_len} {depth} {seed}", replicate=seed, budget=1, counts={},
            point={"heads": heads, "seq_len": seq_len, "depth": depth},
        )
        for heads, seq_len, depth, seed in axes
    ]  # fmt: skip
    question = Transition("heads", "seq_len", "error", within="depth")

    def value(key: str) -> float:
        heads, seq_len, depth, _seed = map(int, key.split())
        noise = random.Random(key).gauss(0, 0.1)
        return float(10 ** (noise - 2 * (heads >= 8 // depth) + 0.3 * np.log10(seq_len)))

    def batches(values: dict[str, float | None]) -> list[set[str]]:
        search, opened = transition_search(rows, question, 1, 0), []
        while keys := search.next_round(values):
            opened.append({*keys} - values.keys())
            values = {**values, **{key: value(key) for key in keys}}
        return opened

    whole = batches({})
    assert len(whole) > 3
    rng = random.Random(0)
    for cut in range(1, len(whole)):
        known = set[str]().union(*whole[: cut - 1])
        some = set(rng.sample(sorted(whole[cut - 1]), len(whole[cut - 1]) // 2))
        left = batches({key: value(key) for key in known | some})
        assert left == [whole[cut - 1] - some, *whole[cut:]]
