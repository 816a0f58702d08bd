"""Where the transition is, whether there is one, and when that cannot be said.

The rates are measured on simulated sweeps with known truth (`benchmarks.sweeps`), a few tens a
family at fixed seeds; the limits leave room for that sample size.
"""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from analysis.questions.transition.fit import common_dimension, fit
from analysis.questions.transition.result import (
    RetrievalDimension,
    TransitionReading,
    TransitionResult,
    TransitionSettings,
)
from benchmarks.sweeps import LENGTHS, Design, Shape, published, simulate, transition_sweep

QUICK = TransitionSettings(B=200, n_mc=199)
POSITIVE = ("transition", "jump_only", "threshold")


def sweeps(family: str, number: int) -> list[tuple[int | None, dict[int, float], TransitionResult]]:
    found = []
    for seed in range(number):
        sweep = transition_sweep(family, seed)
        found.append(
            (sweep.h_star, sweep.slopes, fit(sweep.frame, settings=QUICK, **sweep.options))
        )
    return found


@pytest.mark.parametrize(
    ("name", "layers", "verdict", "h_star", "dimension"),
    [
        ("D4", 1, "transition", 4, (4, 4)),
        ("E32", 1, "transition", 4, (4, 4)),
        ("D3", 1, "transition", 3, (3, 3)),
        ("two_layers", 2, "threshold", 2, (3, 4)),
    ],
)
def test_printed_single_values_are_tested_only_with_a_stated_seed_sd(
    name, layers, verdict, h_star, dimension
):
    stated = TransitionSettings(assumed_sd=0.1)
    result = fit(published(name), metric="nmse", layers=layers, settings=stated)
    assert (result.verdict, result.h_star, result.h_set) == (verdict, h_star, (h_star,))
    assert result.d_eff == RetrievalDimension(*dimension, layers, layers > 1)
    assert (result.stated_sd, result.noise_gap) == (0.1, "")
    alone = fit(published(name), metric="nmse", layers=layers)
    assert (alone.verdict, alone.h_star, alone.d_eff) == ("suggested", h_star, None)
    assert (alone.n1_assumed_sd, alone.stated_sd) == (0.1, None)
    assert (alone.h_set, alone.p_h) == ((1, 2, 3, 4, 5), {})
    assert "going by an assumed seed sd of 0.1 decades" in alone.reason
    wanted = {(cell.x, cell.by): cell.trials for cell in alone.missing}
    assert wanted == {(h, t): 2 for h in range(1, 6) for t in LENGTHS}


@pytest.mark.parametrize("family", ["sharp", "coarse", "second", "loss", "marco", "null_above"])
def test_one_seed_a_cell_claims_nothing(family):
    for seed in range(6):
        sweep = transition_sweep(family, seed)
        one = sweep.frame.query("seed == 0")
        result = fit(one, settings=QUICK, **sweep.options)
        assert result.verdict in ("suggested", "none")
        assert (result.d_eff, result.none_kind, result.p_h) == (None, None, {})
        assert result.h_set == tuple(sorted(sweep.slopes))
        noted = any("is not measured" in text for text in result.qualifications)
        assert noted == (result.verdict == "none")


@pytest.mark.parametrize(
    ("repeated", "gap"),
    [
        ("seq_len == 8", "5 of 25 cells hold two runs"),
        ("heads <= 3", "no cell at 4 holds two runs"),
        ("heads <= 2 or heads == 5", "no cell at 3 or 4 holds two runs"),
        ("seq_len <= 32", ""),
    ],
)
def test_partly_repeated_cells_count_where_the_drop_is(repeated, gap):
    frame = transition_sweep("paper_D4", 1).frame.query(
        f"seed == 0 or (seed == 1 and ({repeated}))"
    )
    result = fit(frame, metric="nmse", settings=QUICK)
    assert result.noise_gap == gap
    assert result.verdict == ("suggested" if gap else "transition")
    assert result.n1_assumed_sd is None
    stated = fit(frame, metric="nmse", settings=dataclasses.replace(QUICK, assumed_sd=0.1))
    assert (stated.stated_sd is None) == ("5 of 25" not in gap)


def second_value(seed, *, heads=(1, 2, 3, 4, 5, 6), growth=0.9, fall=0.0):
    """A drop of 2.4 decades to the second head count, whose plateau still grows with T."""
    level = np.array([-1.0] + [-3.4 - fall * k for k in range(len(heads) - 1)])
    slope = np.array([0.3] + [growth] * (len(heads) - 1))
    rng = np.random.default_rng(seed)
    return simulate(Shape(heads, level, slope, heads[1]), Design((8, 16), 3), rng).frame


def test_a_drop_to_the_second_value_and_no_further_is_a_plateau():
    for seed in range(5):
        result = fit(second_value(seed), metric="nmse", settings=QUICK)
        assert (result.verdict, result.h_star, result.none_kind) == ("plateau", 2, None)
        assert result.d_eff == RetrievalDimension(1, 2, 1, False)
        assert result.later_fall < 0.5
        assert result.missing == ()  # nothing below one head
        declining = fit(second_value(seed, fall=0.4), metric="nmse", settings=QUICK)
        assert declining.verdict != "plateau"


@pytest.mark.parametrize(("heads", "wanted"), [((2, 4, 6, 8), {1, 3}), ((1, 4, 6, 8), {2})])
def test_a_plateau_with_room_below_asks_for_values_there(heads, wanted):
    result = fit(second_value(0, heads=heads), metric="nmse", settings=QUICK)
    assert result.verdict == "plateau"
    assert {cell.x for cell in result.missing} == wanted
    assert {cell.trials for cell in result.missing} == {3}


def test_growth_on_a_plateau_does_not_place_a_collapse_above_it():
    gradual = np.array([-1.0, -2.0, -2.9, -2.95, -2.95, -2.95])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        shape = Shape((1, 2, 3, 4, 5, 6), gradual, np.full(6, 0.8), 3)
        result = fit(simulate(shape, Design(seeds=3), rng).frame, metric="nmse", settings=QUICK)
        assert (result.verdict, result.none_kind, result.d_eff) == ("none", None, None)


def test_error_falling_with_length_at_the_transition_is_no_growth():
    result = fit(published("D4"), metric="nmse")
    assert result.gamma[4].estimate == pytest.approx(-0.886, abs=0.01)
    assert result.flat_from.point == 4


@pytest.mark.parametrize(
    "family",
    [
        "paper_D4", "paper_E32", "paper_D3", "paper_two_layers", "sharp", "sharp_small", "coarse",
        "few_cells", "missing", "heavy", "post_trend", "hurts", "stuck", "second", "loss",
        "asha_cell",
    ],
)  # fmt: skip
def test_the_head_count_is_found_and_inside_a_small_set(family):
    found = sweeps(family, 16)
    exact = [result.h_star == truth for truth, _, result in found]
    covered = [truth in result.h_set for truth, _, result in found]
    positive = [result.verdict in POSITIVE for _, _, result in found]
    assert np.mean(exact) >= 0.93
    assert np.mean(covered) >= 0.93
    assert np.mean([len(result.h_set) for _, _, result in found]) <= 1.4
    assert np.mean(positive) >= 0.75


@pytest.mark.parametrize("family", ["marco", "cifar"])
def test_gradual_accuracy_is_placed_within_one_step(family):
    for truth, slopes, result in sweeps(family, 12):
        heads = sorted(slopes)
        assert abs(heads.index(result.h_star) - heads.index(truth)) <= 1
        assert truth in result.h_set


def test_noise_costs_detection_before_it_costs_honesty():
    found = sweeps("noisy", 24)
    assert np.mean([truth in result.h_set for truth, _, result in found]) >= 0.95
    assert np.mean([result.verdict in POSITIVE for _, _, result in found]) >= 0.45


@pytest.mark.parametrize(
    "family",
    [
        "null_flat", "null_power", "null_exp", "null_exp_floor", "null_fade", "loss_null",
        "asha_null_cell",
    ],
)  # fmt: skip
def test_diminishing_returns_are_not_called_a_transition(family):
    verdicts = [result.verdict for _, _, result in sweeps(family, 24)]
    assert sum(verdict in ("transition", "jump_only") for verdict in verdicts) <= 1


def test_a_decline_that_goes_on_is_rarely_called_a_transition():
    found = [result for _, _, result in sweeps("null_above", 40)]
    assert np.mean([result.verdict == "transition" for result in found]) <= 0.15
    above = [result for result in found if result.none_kind == "above_range"]
    assert above
    assert all(
        result.d_eff is not None and result.d_eff.lo == 7 and result.d_eff.hi is None
        for result in above
    )


@pytest.mark.parametrize("family", ["asha_global", "asha_null_global"])
def test_pruning_across_the_sweep_is_refused_and_the_missing_cells_listed(family):
    for _, _, result in sweeps(family, 10):
        assert result.verdict == "inconclusive"
        assert result.h_star is None
        assert result.h_set == (1, 2, 3, 4, 5, 6)
        assert "cells have a full-budget run" in result.reason
        lacking = {(cell.x, cell.by) for cell in result.counts if cell.complete == 0}
        assert {(trial.x, trial.by) for trial in result.missing} == lacking


def test_pruning_inside_cells_is_counted_and_reads_the_best_run():
    _, _, result = sweeps("asha_cell", 1)[0]
    assert result.reading == "attainable"
    assert any("stopped early inside cells" in text for text in result.qualifications)
    assert all((cell.started, cell.complete, cell.pruned) == (9, 3, 6) for cell in result.counts)
    best = {(cell.x, cell.by): cell.z for cell in result.attainable.cells}
    for cell, z in best.items():
        assert z == min(run.y for run in result.runs if (run.x, run.by) == cell)


def test_stuck_runs_hand_the_lead_to_the_attainable_reading():
    found = sweeps("stuck", 16)
    assert np.mean([result.reading == "attainable" for _, _, result in found]) >= 0.9
    for _, _, result in found:
        said = any(
            "the expected best of 5 seeds, since some runs" in t for t in result.qualifications
        )
        assert said == (result.reading == "attainable")


def test_slope_intervals_hold_the_true_slope_as_often_as_they_say():
    inside = [
        interval.low <= slopes[int(head)] <= interval.high
        for family in ("sharp", "null_exp", "hurts", "heavy")
        for _, slopes, result in sweeps(family, 16)
        for head, interval in result.typical.gamma.items()
    ]
    assert 0.92 <= np.mean(inside) <= 0.985


def test_growth_that_persists_makes_it_a_jump_only():
    frame = transition_sweep("sharp", 3).frame
    grown = frame.assign(nmse=frame["nmse"] * (frame["seq_len"] / 8) ** 0.8)
    assert fit(grown, metric="nmse", settings=QUICK).verdict == "jump_only"


def test_one_length_makes_no_claim_about_growth():
    frame = transition_sweep("paper_D3", 2).frame.query("seq_len == 8")
    alone = fit(frame, metric="nmse", by=None, settings=QUICK)
    assert alone.verdict == "transition"
    assert "growth" not in alone.reason
    assert (alone.gamma, alone.gamma_above) == ({}, None)
    assert {run.by for run in alone.runs} == {None}
    asked = fit(frame, metric="nmse", settings=QUICK)
    assert asked.verdict == "inconclusive"
    assert {trial.by for trial in asked.missing} == {32, 128}


def test_too_few_head_counts_are_inconclusive_and_ask_for_more():
    frame = transition_sweep("sharp", 0).frame
    two = fit(frame.query("heads <= 2"), metric="nmse", settings=QUICK)
    assert (two.verdict, {trial.x for trial in two.missing}) == ("inconclusive", {3, 4})
    one = fit(frame.query("heads == 1"), metric="nmse", settings=QUICK)
    assert (one.verdict, one.h_star, one.h_set) == ("inconclusive", None, (1,))


def test_abruptness_needs_two_head_counts_below():
    result = sweeps("second", 1)[0][2]
    assert (result.verdict, result.abrupt_testable, result.p_abrupt) == ("threshold", False, None)


def test_cells_still_planned_withhold_the_verdict():
    frame = transition_sweep("sharp", 1).frame
    frame["status"] = np.where(frame["seq_len"] == 8, "planned", "finished")
    result = fit(frame, metric="nmse", settings=QUICK)
    assert result.verdict == "inconclusive"
    assert {(trial.x, trial.by) for trial in result.missing} == {(h, 8) for h in range(1, 7)}


@pytest.mark.parametrize(("others", "is_selected"), [("planned", False), ("stopped_early", True)])
def test_cells_emptied_by_early_stopping_are_told_from_those_that_wait(others, is_selected):
    frame = transition_sweep("sharp", 1).frame
    ends = np.where(frame["seed"] == 0, "stopped_early", others)
    frame["status"] = np.where(frame["heads"] <= 2, ends, "finished")
    result = fit(frame, metric="nmse", settings=QUICK)
    assert result.verdict == "inconclusive"
    assert ("not a fair sample" in result.reason) == is_selected


def test_a_sweep_without_any_result_is_inconclusive():
    frame = transition_sweep("sharp", 1).frame.assign(status="failed")
    result = fit(frame, metric="nmse", settings=QUICK)
    assert (result.verdict, result.h_star, result.runs) == ("inconclusive", None, ())


def test_same_input_same_answer_to_the_bit():
    sweep = transition_sweep("stuck", 5)
    first = fit(sweep.frame, settings=QUICK, **sweep.options).to_json()
    shuffled = sweep.frame.sample(frac=1, random_state=1)
    assert fit(shuffled, settings=QUICK, **sweep.options).to_json() == first
    other = dataclasses.replace(QUICK, rng_seed=1)
    assert fit(sweep.frame, settings=other, **sweep.options).to_json()["p_h"] is not None


@pytest.mark.parametrize("family", ["sharp", "few_cells", "asha_global", "marco", "second"])
def test_results_survive_json(family):
    sweep = transition_sweep(family, 2)
    result = fit(sweep.frame, settings=QUICK, **sweep.options)
    text = json.dumps(result.to_json(), allow_nan=False)
    assert TransitionResult.from_json(json.loads(text)) == result


def test_the_lead_repeats_one_of_the_two_readings():
    result = sweeps("stuck", 1)[0][2]
    lead = result.attainable if result.reading == "attainable" else result.typical
    for field in dataclasses.fields(TransitionReading):
        assert getattr(result, field.name) == getattr(lead, field.name)


def test_every_threshold_is_recorded_and_obeyed():
    sweep = transition_sweep("sharp", 4)
    result = fit(sweep.frame, settings=QUICK, **sweep.options)
    assert result.settings.min_drop == 0.5
    assert result.settings.max_growth == 0.1
    strict = fit(sweep.frame, settings=dataclasses.replace(QUICK, min_drop=4.0), **sweep.options)
    assert strict.verdict == "none"
    assert strict.settings.min_drop == 4.0


def test_a_coarse_grid_gives_a_bracket():
    for truth, _, result in sweeps("coarse", 4):
        assert result.bracket == ({4: 2, 8: 4}[truth], truth)


def test_scaling_the_error_changes_nothing():
    sweep = transition_sweep("sharp", 6)
    scaled = sweep.frame.assign(nmse=sweep.frame["nmse"] * 1000.0)
    one = fit(sweep.frame, settings=QUICK, metric="nmse")
    other = fit(scaled, settings=QUICK, metric="nmse")
    assert (one.verdict, one.h_star, one.h_set) == (other.verdict, other.h_star, other.h_set)
    assert one.drop == pytest.approx(other.drop)


def test_dimensions_of_several_sweeps_intersect_or_disagree():
    four, wide, above = (
        RetrievalDimension(4, 4, 1, False),
        RetrievalDimension(3, 4, 2, True),
        RetrievalDimension(6, None, 1, False),
    )
    assert common_dimension([four, wide]) == RetrievalDimension(4, 4, 2, True)
    assert common_dimension([four, above]) is None
    assert common_dimension([above]) == above
    with pytest.raises(ValueError, match="at least one"):
        common_dimension([])


def test_bad_arguments_are_named():
    frame = transition_sweep("sharp", 0).frame
    with pytest.raises(ValueError, match="metric must name"):
        fit(frame)
    with pytest.raises(ValueError, match="layers must be at least 1"):
        fit(frame, metric="nmse", layers=0)
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1"):
        TransitionSettings(alpha=1.5)
    with pytest.raises(ValueError, match="n_mc must be at least 1"):
        TransitionSettings(n_mc=0)


def test_the_smaller_seed_count_decides_the_best_of():
    rng = np.random.default_rng(0)
    rows = [
        (h, t, seed, 10 ** (-h + 0.1 * rng.standard_normal()))
        for h in (1, 2, 3)
        for t in LENGTHS
        for seed in range(3 if h == 1 else 5)
    ]
    frame = pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse"])
    result = fit(frame, metric="nmse", settings=QUICK)
    cell = np.sort([run.y for run in result.runs if (run.x, run.by) == (2, 8)])
    expected = cell @ np.array([6, 3, 1, 0, 0]) / 10  # C(5 - r, 2) / C(5, 3)
    found = next(cell.z for cell in result.attainable.cells if (cell.x, cell.by) == (2, 8))
    assert found == pytest.approx(expected)
