"""What may not matter to where an error collapses, and what must follow: in a grid, in a search."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.questions.transition.design import Located, Run, locate
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.text import numbers_table, transition_sentences
from analysis.rounds.design import play
from analysis.runs.scale import THRESHOLDS
from benchmarks.adaptive import FAMILIES, simulated
from benchmarks.table_fits import fit_transition

HEADS, LENGTHS = (1, 2, 3, 4, 6, 8), (8, 32, 128)
few = settings(max_examples=6, deadline=None)
numbers = st.integers(0, 10_000)
Level = Callable[[int], float]


def jump(heads: int) -> float:
    return -0.5 - 2.0 * (heads >= 4)


def two_jumps(heads: int) -> float:
    return -0.5 - 1.2 * (heads >= 3) - 1.8 * (heads >= 6)


def power_law(heads: int) -> float:
    return -0.5 - 0.5 * np.log10(heads)


def rise(heads: int) -> float:
    return -2.0 + 0.3 * np.log10(heads)


LEVELS = st.sampled_from([jump, two_jumps, power_law, rise])


def table(number: int, level: Level, seeds: int = 3, rates: tuple[float, ...] = ()) -> pd.DataFrame:
    """Errors at six head counts and three lengths; the first of several rates is the best."""
    rng = np.random.default_rng(number)
    rows = [
        {
            **{"heads": heads, "seq_len": length, "seed": seed},
            **({"lr": rate} if rates else {}),
            "nmse": 10 ** (level(heads) + 0.6 * (rate in rates[1:]) + 0.05 * rng.standard_normal()),
        }
        for heads in HEADS
        for length in LENGTHS
        for seed in range(seeds)
        for rate in (rates or (None,))
    ]
    return pd.DataFrame(rows)


def answer(frame: pd.DataFrame, **roles: Any) -> TransitionResult:
    settings = TransitionSettings(B=50, n_mc=99)
    return fit_transition(frame, **{"metric": "nmse", "settings": settings, **roles})


def told(found: TransitionResult, unit: float = 1.0) -> list[Any]:
    """Return what is said of a sweep, its values of heads in another unit."""
    places = [found.h_star, found.h_peak, *found.h_set, *(s.x_to for s in found.further_drops)]
    sizes = [found.drop, found.p, found.scatter, found.survives]
    return [
        *(found.verdict, found.shown_by, found.growth),
        *[None if place is None else place / unit for place in places],
        *[None if size is None else round(size, 6) for size in sizes],
    ]


@few
@given(number=numbers, level=LEVELS, power=st.integers(-6, 6))
def test_the_unit_of_the_error(number: int, level: Level, power: int) -> None:
    frame = table(number, level)
    scaled = frame.assign(nmse=frame["nmse"] * 10.0**power)
    assert told(answer(scaled)) == told(answer(frame))


@few
@given(number=numbers, level=LEVELS, unit=st.sampled_from([2, 10, 64]))
def test_the_unit_of_the_searched_axis(number: int, level: Level, unit: int) -> None:
    frame = table(number, level)
    scaled = answer(frame.assign(heads=frame["heads"] * unit))
    assert told(scaled, unit) == told(answer(frame))


@few
@given(number=numbers, level=LEVELS)
def test_the_order_and_the_names(number: int, level: Level) -> None:
    frame = table(number, level)
    names = {"heads": "lr", "seq_len": "steps", "nmse": "accuracy_of", "seed": "budget"}
    shuffled = frame.sample(frac=1, random_state=number)[["nmse", "seed", "seq_len", "heads"]]
    shuffled["seed"] = shuffled["seed"].map({0: "b", 1: "a", 2: "10"})
    roles = {"x": "lr", "by": "steps", "metric": "accuracy_of", "replicate": "budget"}
    there = answer(shuffled.rename(columns=names), scale="error", goal="min", **roles)
    assert told(there) == told(answer(frame))


@few
@given(number=numbers, lost=st.sampled_from([(h, t) for h in HEADS[1:5] for t in LENGTHS]))
def test_a_lost_cell_makes_no_none_of_a_collapse(number: int, lost: tuple[int, int]) -> None:
    frame = table(number, jump)
    gone = frame["heads"].eq(lost[0]) & frame["seq_len"].eq(lost[1])
    assert answer(frame[~gone]).verdict in ("collapse", "open")
    failed = frame.assign(status=np.where(gone, "failed", "finished"))
    assert answer(failed).verdict in ("collapse", "open")


@pytest.mark.parametrize("heads", HEADS)
def test_a_head_count_whose_runs_all_fail_leaves_the_answer_open_and_is_named(heads: int) -> None:
    frame = table(0, jump)
    frame["status"] = np.where(frame["heads"].eq(heads), "failed", "finished")
    found = answer(frame)
    assert found.verdict == "open"
    assert f"none at {heads}" in found.reason


def test_absent_cells_hide_no_fall() -> None:
    """At the longer lengths the error falls by three decades where nothing was trained."""
    frame = table(0, lambda heads: 0.0)
    is_long = frame["seq_len"] > 8
    frame["nmse"] *= 10.0 ** (-3.0 * (is_long & frame["heads"].eq(8)))
    found = answer(frame[~is_long | frame["heads"].isin([1, 8])])
    assert found.verdict == "open"
    assert found.reason == (
        "the error falls between heads = 1 and 8 at seq_len = 32 and 128, where no cell was trained"
    )
    assert {(runs.at["heads"], runs.at["seq_len"]) for runs in found.missing} == {
        (heads, length) for heads in HEADS[1:-1] for length in (32, 128)
    }


@few
@given(number=numbers)
def test_two_jumps_are_found_and_both_are_named(number: int) -> None:
    found = answer(table(number, two_jumps))
    assert (found.verdict, found.h_star) == ("collapse", 6)
    assert any(
        "falls by 1." in text and "between 2 and 3" in text for text in transition_sentences(found)
    )


@few
@given(number=numbers, level=LEVELS)
def test_a_rate_that_cells_lack_makes_no_collapse(number: int, level: Level) -> None:
    frame = table(number, level, rates=(1e-3, 1e-4))
    lacks = frame["heads"].eq(3) & frame["lr"].eq(1e-3)
    found = answer(frame[~lacks], nuisance=["lr"])
    assert (found.verdict, found.suggested) == ("open", False)
    assert {runs.at["lr"] for runs in found.missing} == {1e-3}
    assert "3 of 18 cells were not tried at lr=0.001, which is best elsewhere" in " ".join(
        found.qualifications
    )


@few
@given(number=numbers, seeds=st.integers(1, 3))
def test_an_error_that_only_rises_needs_no_further_runs(number: int, seeds: int) -> None:
    frame = table(number, lambda heads: 0.5 * heads, seeds)
    found = answer(frame)
    assert (found.verdict, found.missing) == ("none", ())


def test_one_value_below_is_one_verdict_and_a_none_shows_no_place() -> None:
    early = answer(table(0, lambda heads: -1.5 * (heads >= 2)))
    going_on = answer(table(0, lambda heads: -1.5 * (heads >= 2) - 0.4 * (heads >= 4)))
    assert {early.verdict, going_on.verdict} == {"open"}
    shown = {row[0] for row in numbers_table(answer(table(0, power_law))).rows}
    assert not {"95% set", "over-dispersion of the cells"} & shown
    assert not any(name.startswith("excess") for name in shown)


def test_a_claim_says_up_to_which_scatter_it_stands() -> None:
    found = answer(table(0, jump))
    assert found.survives is not None
    assert found.survives >= 0.2
    assert "up to a scatter of" in transition_sentences(found)[0]


# A search


def searched(
    family: str, number: int, value: Callable[[Run, float | None], float | None]
) -> tuple[Any, Located]:
    """Return the rounds and the answer of a search whose values are changed."""
    study = simulated(family, 16, number)
    played = play(study.search(), lambda run: value(run, study.value(run)), lambda _run: True)
    assert played.answer is not None
    return played.rounds, played.answer


@settings(max_examples=8, deadline=None)
@given(family=st.sampled_from(FAMILIES), number=numbers, power=st.integers(-6, 6))
def test_the_unit_of_the_error_of_a_search(family: str, number: int, power: int) -> None:
    rounds, found = searched(family, number, lambda _run, y: y)
    scaled_rounds, scaled = searched(
        family, number, lambda _run, y: None if y is None else y + power
    )
    assert [each.runs for each in scaled_rounds] == [each.runs for each in rounds]
    assert (scaled.verdict, scaled.star, scaled.places) == (found.verdict, found.star, found.places)


@given(st.integers(0, 40))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_a_search_that_finds_one_of_two_jumps_says_where_the_other_may_lie(number: int) -> None:
    study = simulated("two", 16, number)
    answer = play(study.search(), study.value, lambda _run: True).answer
    assert answer is not None
    assert answer.hidden is not None
    size, low, high = answer.hidden
    falls = np.argsort(np.diff(study.shape.level))[:2] + 1
    (other,) = (fall for fall in falls if fall != answer.star)
    assert low < other <= high
    assert size > 0.5


@settings(max_examples=8, deadline=None)
@given(family=st.sampled_from(["sharp", "null_power", "plain"]), number=numbers)
def test_a_search_names_a_head_count_whose_runs_all_fail(family: str, number: int) -> None:
    study = simulated(family, 16, number)
    middle = 7 if study.truth is None else study.truth
    _, found = searched(family, number, lambda run, y: None if run.head == middle else y)
    assert found.verdict != "none" or found.hidden is None or found.hidden[0] < 0.5
    if family != "null_power":
        assert found.verdict == "open"
        assert f"{study.shape.heads[middle]:g}" in found.reason


@few
@given(number=numbers)
def test_a_search_never_trains_more_than_a_grid_of_three_seeds(number: int) -> None:
    study = replace(simulated("noisy", 5, number, 2))
    design = locate(study.shape.heads, study.design.lengths, 0, THRESHOLDS["error"])
    rounds = play(design, study.value, lambda _run: True).rounds
    assert sum(len(each.runs) for each in rounds) <= 3 * 5 * 2


def test_what_scatters_is_claimed_only_where_the_claim_excludes_it() -> None:
    """Few head counts tell little of how far single ones scatter: a claim says what it survives."""
    for number in range(12):
        study = simulated("null_power+scatter30", 5, number)
        found = play(study.search(), study.value, lambda _run: True).answer
        assert found is not None
        assert found.survives is None or found.survives < 0.3
