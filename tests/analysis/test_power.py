"""What a design can find is told before it is run, and agrees with what its analysis then does."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.questions.power.fit import (
    default_noise,
    noise_of,
    plan_lean,
    plan_transition,
    simulate,
)
from analysis.questions.power.result import (
    Collapse,
    Design,
    Noise,
    PowerResult,
    PowerSettings,
)
from analysis.questions.power.text import (
    lean_power_sentence,
    lean_power_table,
    power_sentence,
    power_table,
)
from analysis.questions.transition.result import TransitionSettings
from benchmarks.sweeps import published
from benchmarks.table_fits import fit_lean, fit_transition

QUICK = PowerSettings(sweeps=12, n_mc=99)
UNPOWERED = PowerSettings(sweeps=1, n_mc=99)
"""For what a plan says whatever its sweeps came out as."""
HEADS, LENGTHS = (1, 2, 3, 4, 5), (8, 32, 128)


def planned(**changes: object) -> PowerResult:
    options: dict[str, object] = {"settings": QUICK, "jumps": [0.4, 1.5]} | changes
    return plan_transition(HEADS, LENGTHS, 3, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def quiet() -> PowerResult:
    return planned()


@pytest.fixture(scope="module")
def noisy() -> PowerResult:
    quiet = default_noise("error")
    return planned(noise=replace(quiet, seed_sd=4 * quiet.seed_sd))


def mean_power(result: PowerResult, jump: float) -> float:
    return float(np.mean([row.power.estimate for row in result.table if row.jump == jump]))


def test_a_large_jump_is_found_and_noise_costs_power(
    quiet: PowerResult, noisy: PowerResult
) -> None:
    assert mean_power(quiet, 1.5) >= 0.95
    assert mean_power(quiet, 1.5) > mean_power(quiet, 0.4)
    assert mean_power(noisy, 1.5) < mean_power(quiet, 1.5) - 0.1


def test_the_own_design_stands_beside_others_smallest_first() -> None:
    plan = planned(settings=UNPOWERED)
    designs = list(dict.fromkeys(row.design for row in plan.table))
    assert [design for design in designs if design.is_own] == [
        Design(HEADS, LENGTHS, 3, is_own=True)
    ]
    trials = [design.trials for design in designs]
    assert trials == sorted(trials)
    assert {(len(d.lengths), d.seeds) for d in designs} == {(2, 2), (2, 5), (3, 3), (5, 3), (5, 5)}
    assert {(design.lengths[0], design.lengths[-1]) for design in designs} == {(8, 128)}


def test_the_recommended_design_is_the_smallest_with_enough_power(
    quiet: PowerResult, noisy: PowerResult
) -> None:
    for result in (quiet, noisy):
        for jump, index in result.recommended.items():
            good = [
                row.trials for row in result.table if row.jump == jump and row.power.estimate >= 0.8
            ]
            if not good:
                assert index == -1
            else:
                assert result.table[index].trials == min(good)
                assert result.table[index].power.estimate >= 0.8
    assert noisy.recommended[0.4] == -1
    assert "none of these designs reaches 80%" in power_sentence(noisy)
    assert "20 trials" in power_sentence(quiet)


def test_simulated_sweeps_hold_what_they_were_made_with() -> None:
    design = Design(HEADS, (8, 128), 4)
    truth = Collapse(decline=0.5, slope=0.4, h_star=3)
    y = simulate(design, 1.0, truth, Noise(1e-9, 1e-9, 1e-9, "none"), (0, 0))
    assert y.shape == (5, 2, 4)
    level = y.mean(axis=(1, 2))
    assert -np.diff(level) == pytest.approx([0.5, 1.5, 0, 0], abs=1e-6)
    slopes = (y[:, 1, 0] - y[:, 0, 0]) / np.log10(16)
    assert slopes == pytest.approx([0.4, 0.4, 0, 0, 0], abs=1e-6)


def runs_of(design: Design, y: np.ndarray) -> pd.DataFrame:
    heads, lengths, seeds = (index.ravel() for index in np.indices(y.shape))
    return pd.DataFrame(
        {
            "heads": np.array(design.heads)[heads],
            "seq_len": np.array(design.lengths)[lengths],
            "seed": seeds,
            "nmse": 10 ** y.ravel(),
        }
    )


def test_the_noise_of_a_study_is_what_it_was_made_with() -> None:
    truth = Collapse(0.5, 0.4, 3)
    design = Design((1, 2, 3, 4, 5, 6), (8, 16, 32, 64, 128), 6)
    found = []
    for sweep in range(6):
        y = simulate(design, 1.0, truth, Noise(0.2, 0.15, 0.0, ""), (1, sweep))
        settings = TransitionSettings(B=1, n_mc=1)
        runs = runs_of(design, y)
        found.append(noise_of(fit_transition(runs, metric="nmse", settings=settings)))
    assert np.mean([noise.seed_sd for noise in found]) == pytest.approx(0.2, rel=0.15)
    assert np.mean([noise.cell_sd for noise in found]) == pytest.approx(0.15, rel=0.35)
    assert "180 full-budget runs" in found[0].source


def test_single_runs_show_no_noise_so_it_is_assumed_and_said() -> None:
    design = Design(HEADS, LENGTHS, 1)
    y = simulate(design, 1.0, Collapse(0.5, 0.4, 3), Noise(0.1, 0, 0, ""), (0,))
    noise = noise_of(fit_transition(runs_of(design, y), metric="nmse"))
    assert noise.seed_sd == default_noise("error").seed_sd
    assert "assumed" in noise.source


def test_losses_are_planned_in_nats() -> None:
    plan = plan_transition(HEADS, LENGTHS, 3, scale="loss", settings=UNPOWERED)
    assert plan.unit == "nats"
    assert list(plan.recommended) == [0.04, 0.08, 0.15]
    assert plan.noise.seed_sd == pytest.approx(0.01)
    large = plan_transition(HEADS, LENGTHS, 3, scale="loss", settings=QUICK, jumps=[0.15])
    assert mean_power(large, 0.15) >= 0.9


def test_too_few_head_counts_are_said_and_more_are_planned_for() -> None:
    result = plan_transition((2, 4), LENGTHS, 3, settings=UNPOWERED, jumps=[1.5])
    assert result.table[0].design.heads == (2, 4, 6, 8, 10)
    assert "2 values of heads can never show a transition" in result.warnings[0]


def test_a_jump_cannot_be_planned_where_no_test_could_see_it() -> None:
    result = plan_transition(HEADS, (None,), 3, by=None, h_star=2, settings=UNPOWERED, jumps=[1.5])
    assert result.collapse.h_star == 3
    assert "the jump is put at heads = 3" in result.warnings[0]
    assert {row.design.lengths for row in result.table} == {(None,)}


def test_impossible_requests_are_named() -> None:
    for jump in (0.0, -1.0):
        with pytest.raises(ValueError, match="a jump must be above 0"):
            planned(jumps=[jump])
    with pytest.raises(ValueError, match="heads has one value"):
        plan_transition((4, 4), LENGTHS, 3)
    with pytest.raises(ValueError, match="sweeps must be at least 1"):
        PowerSettings(sweeps=0)
    with pytest.raises(ValueError, match="target must lie between 0 and 1"):
        PowerSettings(target=1.0)


def test_a_jump_asked_for_again_has_the_same_rows_and_is_plain_json(quiet: PowerResult) -> None:
    again = planned(jumps=[0.4])  # verdicts vary most where power is neither none nor all
    assert again.table == tuple(row for row in quiet.table if row.jump == 0.4)
    assert replace(again, table=quiet.table, recommended=quiet.recommended) == quiet
    json.dumps(quiet.to_json(), allow_nan=False)


def test_the_table_says_what_was_assumed() -> None:
    table = power_table(planned(settings=PowerSettings(sweeps=3, n_mc=99)))
    assert list(table.header) == [
        "design", "trials", "jump 0.4 decades", "jump 1.5 decades",
    ]  # fmt: skip
    assert sum("(this sweep)" in row[0] for row in table.rows) == 1
    for words in ("assumed: nothing has been run yet", "3 simulated sweeps", "99 draws"):
        assert words in table.note


# --- lean questions -------------------------------------------------------------------------------


def lean_runs(
    seeds: int, candidates: int, ratio: float, number: int, spread: float
) -> pd.DataFrame:
    """One shape (the dearest candidate) equals the baseline, the others are hopeless."""
    rng = np.random.default_rng([number, seeds, candidates])
    sd = 0.01 * np.exp(rng.uniform(-np.log(spread), np.log(spread), candidates + 1))
    sd[-2:] = 0.01
    true = np.full(candidates + 1, 0.8)
    true[:-2] -= 6 * ratio * 0.01
    rows = [
        (f"s{k:02d}", seed, true[k] + sd[k] * rng.standard_normal(), float(k + 1))
        for k in range(candidates + 1)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["shape", "seed", "top1", "num_params"])


@pytest.mark.parametrize("spread", [1.0, 2.0])
@pytest.mark.parametrize(("seeds", "ratio"), [(5, 2.0), (12, 1.0)])
def test_the_lean_power_is_what_simulated_studies_reach(
    seeds: int, ratio: float, spread: float
) -> None:
    found = [
        fit_lean(
            lean_runs(seeds, 8, ratio, number, spread),
            baseline={"shape": "s08"},
            margin=0.01 * ratio,
            config=["shape"],
            metric="top1",
        )
        .table[-1]
        .accepted
        for number in range(60)
    ]
    told = plan_lean(margin=0.01 * ratio, candidates=8, seeds=seeds)
    assert np.mean(found) == pytest.approx(told.power[ratio][seeds], abs=0.2)


def test_without_a_study_the_table_shows_several_margins() -> None:
    result = plan_lean(margin=0.02, candidates=8, seeds=5)
    assert result.sd is None
    assert list(result.power) == [0.5, 1.0, 1.5, 2.0, 3.0]
    for powers in result.power.values():
        assert list(powers.values()) == sorted(powers.values())
    assert result.enough[3.0] < result.enough[1.0]
    assert "depends on the seed standard deviation" in lean_power_sentence(result)
    assert "5 seeds (this sweep)" in lean_power_table(result).header
    json.dumps(result.to_json(), allow_nan=False)


def test_a_study_gives_its_seed_sd_and_its_number_of_candidates() -> None:
    study_result = fit_lean(
        lean_runs(4, 6, 2.0, 0, 1.0),
        baseline={"shape": "s06"},
        margin=0.02,
        config=["shape"],
        metric="top1",
    )
    result = plan_lean(margin=0.02, candidates=3, seeds=4, study_result=study_result)
    assert (result.sd, result.candidates) == (study_result.sd, 6)
    (ratio,) = result.power
    assert ratio == pytest.approx(0.02 / study_result.sd)
    enough = result.enough[ratio]
    assert f"{enough} seeds find an exactly equal shape among 6" in lean_power_sentence(result)


def test_a_lean_question_without_candidates_has_no_power() -> None:
    with pytest.raises(ValueError, match="no shape is cheaper"):
        plan_lean(margin=0.02, candidates=0, seeds=5)


def test_one_seed_has_no_power_and_that_is_said() -> None:
    found = plan_transition(HEADS, LENGTHS, 1, jumps=[1.5], settings=PowerSettings(sweeps=3))
    own = next(row for row in found.table if row.design.is_own)
    assert own.verdicts == {"open": 1.0}
    assert own.power.estimate == 0
    assert any("one run a cell measures no seed noise" in text for text in found.warnings)


def test_a_stated_seed_sd_is_the_noise_of_single_runs() -> None:
    frame = published("D4")
    stated = fit_transition(frame, metric="nmse", settings=TransitionSettings(assumed_sd=0.03))
    noise = noise_of(stated)
    assert (noise.seed_sd, noise.source) == (pytest.approx(0.03), "stated by the user")
    assert noise_of(fit_transition(frame, metric="nmse")).source.startswith("assumed")
