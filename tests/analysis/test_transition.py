"""Where the collapse is, whether there is one, and when that cannot be said.

The rates are measured on simulated sweeps with known truth (`benchmarks.sweeps`), a few tens a
family at fixed seeds; the limits leave room for that sample size.
"""

import dataclasses
import functools
import json

import numpy as np
import pandas as pd
import pytest

from analysis.questions.transition.cells import read_cells, seed_noise
from analysis.questions.transition.result import (
    RetrievalDimension,
    TransitionResult,
    TransitionSettings,
)
from analysis.questions.transition.table import build_grid, canonical
from analysis.questions.transition.text import transition_sentences
from analysis.runs.scale import THRESHOLDS
from analysis.runs.table import Runs
from benchmarks.sweeps import LENGTHS, Design, Shape, published, simulate, transition_sweep
from benchmarks.table_fits import fit_transition as fit

QUICK = TransitionSettings(B=200, n_mc=199)


@functools.cache
def answered(family: str, seed: int) -> tuple[int | None, dict[int, float], TransitionResult]:
    sweep = transition_sweep(family, seed)
    return sweep.h_star, sweep.slopes, fit(sweep.frame, settings=QUICK, **sweep.options)


def sweeps(family: str, number: int) -> list[tuple[int | None, dict[int, float], TransitionResult]]:
    return [answered(family, seed) for seed in range(number)]


def levels(
    values: list[float],
    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    slope: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Runs whose error has these levels, and grows by ``slope`` in log10 T."""
    shape = Shape(heads, np.array(values), np.full(len(values), slope), None)
    design = Design((8, 32), 3, wobble=0.0)
    return simulate(shape, design, np.random.default_rng(seed)).frame


@pytest.mark.parametrize(
    ("name", "layers", "shown_by", "h_star", "dimension"),
    [
        ("D4", 1, "abruptness", 4, (4, 4)),
        ("E32", 1, "abruptness", 4, (4, 4)),
        ("D3", 1, "abruptness", 3, (3, 3)),
        ("two_layers", 2, "growth", 2, (3, 4)),
    ],
)
def test_printed_single_values_are_tested_only_with_a_stated_seed_sd(
    name, layers, shown_by, h_star, dimension
):
    stated = TransitionSettings(assumed_sd=0.1)
    result = fit(published(name), metric="nmse", layers=layers, settings=stated)
    assert (result.verdict, result.h_star, result.h_set) == ("collapse", h_star, (h_star,))
    assert result.shown_by == shown_by
    assert result.d_eff == RetrievalDimension(*dimension, layers, layers > 1)
    assert (result.stated_sd, result.noise_gap) == (0.1, "")
    assert transition_sentences(result)[0].startswith("With a stated seed sd of 0.1 decades: the")
    alone = fit(published(name), metric="nmse", layers=layers)
    assert (alone.verdict, alone.suggested, alone.h_star) == ("open", True, h_star)
    assert (alone.n1_assumed_sd, alone.stated_sd, alone.d_eff) == (0.1, None, None)
    assert (alone.h_set, alone.p_h) == ((1, 2, 3, 4, 5), {})
    seeds = {(cell.at["heads"], cell.at["seq_len"]): cell.seeds for cell in alone.missing}
    assert seeds == {(h, t): 2 for h in range(1, 6) for t in LENGTHS}


@pytest.mark.parametrize("family", ["sharp", "coarse", "second", "loss", "marco", "null_above"])
def test_one_seed_a_cell_claims_nothing(family):
    for seed in range(4):
        sweep = transition_sweep(family, seed)
        result = fit(sweep.frame.query("seed == 0"), settings=QUICK, **sweep.options)
        assert (result.verdict, result.d_eff, result.p_h) == ("open", None, {})
        assert result.h_set == tuple(sorted(sweep.slopes))
        assert "is not measured" in result.reason


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
    assert result.verdict == ("open" if gap else "collapse")
    assert result.suggested == bool(gap)
    stated = fit(frame, metric="nmse", settings=dataclasses.replace(QUICK, assumed_sd=0.1))
    assert (stated.stated_sd is None) == ("5 of 25" not in gap)


@pytest.mark.parametrize(
    ("heads", "missing_heads"),
    [((1, 2, 3, 4), set()), ((2, 4, 6, 8), {1, 3}), ((1, 4, 6, 8), {2})],
)
def test_a_drop_to_the_second_value_and_no_further_is_open_and_asks_for_values_below(
    heads, missing_heads
):
    result = fit(levels([-1, -3.4, -3.4, -3.4], heads, 0.9), metric="nmse", settings=QUICK)
    assert (result.verdict, result.h_star, result.d_eff) == ("open", heads[1], None)
    assert "with one value of heads below it a collapse cannot be told from" in result.reason
    assert {cell.at["heads"] for cell in result.missing} == missing_heads
    assert {cell.seeds for cell in result.missing} <= {3}
    going_on = fit(levels([-1, -3.4, -3.8, -4.2], heads, 0.9), metric="nmse", settings=QUICK)
    assert "with one value" not in going_on.reason or going_on.verdict == "none"


@pytest.mark.parametrize(
    "values",
    [
        [-1.0, -2.0, -2.9, -2.95, -2.95, -2.95],
        [-0.5, -1.0, -1.2, -2.2, -2.5, -3.0],
    ],
)
def test_after_a_large_drop_nothing_is_said_to_lie_above(values):
    for seed in range(3):
        result = fit(levels(values, slope=0.8, seed=seed), metric="nmse", settings=QUICK)
        assert "may lie above" not in " ".join(transition_sentences(result))


def test_growth_at_the_largest_value_says_that_a_collapse_may_lie_above():
    frame = levels([-1.0, -1.2, -1.4, -1.6, -1.8, -2.0], slope=0.8)
    result = fit(frame, metric="nmse", settings=QUICK)
    assert result.verdict == "none"
    assert "so a collapse may lie above" in result.reason
    assert result.d_eff is None
    flat = fit(levels([-1.0] * 6, slope=-0.3), metric="nmse", settings=QUICK)
    assert "the smallest tried may be enough, or none may be" in flat.reason


@pytest.mark.parametrize("bad", [2, 3])
def test_no_collapse_where_a_smaller_value_is_as_good(bad):
    values = [-3.0] * 6
    values[bad] = -1.0
    for seed in range(5):
        result = fit(levels(values, seed=seed), metric="nmse", settings=QUICK)
        assert result.verdict == "none"
        assert result.h_star == bad + 2
        assert "as good" in result.reason


def test_a_rise_after_the_collapse_is_said():
    frame = levels([-1.0, -1.2, -4.0, -4.0, -3.9, -2.6])
    result = fit(frame, metric="nmse", settings=QUICK)
    assert (result.verdict, result.h_star) == ("collapse", 3)
    assert result.later_rise[0] == 6
    sentences = transition_sentences(result)
    assert sentences[-1].startswith("At heads = 6 the error is larger again, by 1.")
    sharp = fit(levels([-1.0, -1.2, -4.0, -4.0, -4.0, -4.0]), metric="nmse", settings=QUICK)
    assert (sharp.verdict, sharp.later_rise) == ("collapse", None)


def test_an_accuracy_of_one_needs_the_number_of_examples():
    frame = levels([-1.0, -1.1, -1.2, -4.0, -4.0, -4.0])
    accuracy = frame.assign(accuracy=np.where(frame["heads"] >= 4, 1.0, 1 - frame["nmse"]))
    question = {"metric": "accuracy", "goal": "max", "scale": "accuracy", "settings": QUICK}
    result = fit(accuracy, **question)
    assert result.verdict == "open"
    assert result.reason.endswith("give eval_size")
    known = fit(accuracy, eval_size=10_000, **question)
    assert (known.verdict, known.h_star) == ("collapse", 4)


@pytest.mark.parametrize(
    "family",
    [
        "paper_D4", "paper_E32", "paper_D3", "paper_two_layers", "sharp", "sharp_small", "coarse",
        "few_cells", "missing", "heavy", "post_trend", "hurts", "stuck", "second", "loss",
        "asha_cell",
    ],
)  # fmt: skip
def test_the_head_count_is_found_and_inside_a_small_set(family):
    fitted_sweeps = sweeps(family, 8)
    assert np.mean([result.h_star == truth for truth, _, result in fitted_sweeps]) >= 0.9
    assert np.mean([truth in result.h_set for truth, _, result in fitted_sweeps]) >= 0.9
    assert np.mean([len(result.h_set) for _, _, result in fitted_sweeps]) <= 1.5
    assert np.mean([result.is_claimed for _, _, result in fitted_sweeps]) >= 0.75
    for truth, _, result in fitted_sweeps:
        if result.is_claimed:
            assert result.d_eff.lo <= truth <= result.d_eff.hi


@pytest.mark.parametrize("family", ["marco", "cifar"])
def test_gradual_accuracy_is_placed_within_one_step(family):
    for truth, slopes, result in sweeps(family, 8):
        heads = sorted(slopes)
        assert abs(heads.index(result.h_star) - heads.index(truth)) <= 1
        assert truth in result.h_set


def test_noise_costs_detection_before_it_costs_honesty():
    fitted_sweeps = sweeps("noisy", 16)
    assert np.mean([truth in result.h_set for truth, _, result in fitted_sweeps]) >= 0.9
    assert np.mean([result.is_claimed for _, _, result in fitted_sweeps]) >= 0.45


@pytest.mark.parametrize(
    ("family", "most"),
    [
        *((name, 1) for name in ("null_flat", "null_power", "null_exp", "null_exp_floor")),
        *((name, 1) for name in ("null_fade", "loss_null", "asha_null_cell", "one_bad")),
        *((name, 2) for name in ("scatter_flat", "scatter_power", "null_above")),
    ],
)
def test_diminishing_returns_and_scatter_are_not_called_a_collapse(family, most):
    assert sum(result.is_claimed for _, _, result in sweeps(family, 12)) <= most


def test_a_drop_of_half_a_decade_on_a_power_law_is_found():
    assert np.mean([result.is_claimed for _, _, result in sweeps("power_drop", 20)]) >= 0.6


@pytest.mark.parametrize("family", ["asha_global", "asha_null_global"])
def test_pruning_across_the_sweep_is_refused_and_the_missing_cells_listed(family):
    for _, _, result in sweeps(family, 5):
        assert (result.verdict, result.h_star) == ("open", None)
        assert result.h_set == (1, 2, 3, 4, 5, 6)
        assert "cells have a full-budget run" in result.reason
        lacking = {(cell.x, cell.by) for cell in result.counts if cell.complete == 0}
        assert {(cell.at["heads"], cell.at["seq_len"]) for cell in result.missing} == lacking


def test_pruning_inside_cells_is_counted_and_reads_the_best_run():
    _, _, result = sweeps("asha_cell", 1)[0]
    assert result.reading == "attainable"
    assert any("stopped early inside cells" in text for text in result.qualifications)
    assert all(cell.ended == {"finished": 3, "stopped_early": 6} for cell in result.counts)
    for cell in result.cells:
        assert cell.z == min(run.y for run in result.runs if (run.x, run.by) == (cell.x, cell.by))


def test_stuck_runs_hand_the_lead_to_the_attainable_reading():
    fitted_sweeps = sweeps("stuck", 8)
    assert np.mean([result.reading == "attainable" for _, _, result in fitted_sweeps]) >= 0.9
    for _, _, result in fitted_sweeps:
        has_note = any(
            "the expected best of 5 seeds, since some runs" in t for t in result.qualifications
        )
        assert has_note == (result.reading == "attainable")


def test_slope_intervals_hold_the_true_slope_as_often_as_they_say():
    inside = [
        interval.low <= slopes[int(head)] <= interval.high
        for family in ("sharp", "null_exp", "hurts", "heavy")
        for _, slopes, result in sweeps(family, 8)
        for head, interval in result.gamma.items()
    ]
    assert 0.92 <= np.mean(inside) <= 0.985


def test_growth_beside_a_collapse_has_a_word_of_its_own():
    frame = transition_sweep("sharp", 3).frame
    gone = fit(frame, metric="nmse", settings=QUICK)
    grown = frame.assign(nmse=frame["nmse"] * (frame["seq_len"] / 8) ** 0.8)
    stays = fit(grown, metric="nmse", settings=QUICK)
    assert (gone.verdict, gone.growth) == ("collapse", "gone")
    assert (stays.verdict, stays.growth, stays.h_star) == ("collapse", "stays", gone.h_star)
    one = frame.query("seq_len == 8")
    alone = fit(one, metric="nmse", by=None, settings=QUICK)
    assert (alone.verdict, alone.growth, alone.gamma) == ("collapse", None, {})
    assert {run.by for run in alone.runs} == {None}
    result = fit(one, metric="nmse", settings=QUICK)
    assert (result.verdict, result.growth) == ("collapse", "open")
    assert "cannot be judged by one value" in " ".join(transition_sentences(result))


def test_error_falling_with_length_at_the_transition_is_no_growth():
    result = fit(published("D4"), metric="nmse", settings=TransitionSettings(assumed_sd=0.1))
    assert result.gamma[4].estimate == pytest.approx(-0.886, abs=0.01)
    assert result.growth == "gone"


def test_too_few_head_counts_are_open_and_ask_for_more():
    frame = transition_sweep("sharp", 0).frame
    two = fit(frame.query("heads <= 2"), metric="nmse", settings=QUICK)
    assert (two.verdict, {cell.at["heads"] for cell in two.missing}) == ("open", {3, 4})
    one = fit(frame.query("heads == 1"), metric="nmse", settings=QUICK)
    assert (one.verdict, one.h_star, one.h_set) == ("open", None, (1,))


@pytest.mark.parametrize(("others", "is_selected"), [("planned", False), ("stopped_early", True)])
def test_cells_emptied_by_early_stopping_are_told_from_those_that_wait(others, is_selected):
    frame = transition_sweep("sharp", 1).frame
    ends = np.where(frame["seed"] == 0, "stopped_early", others)
    frame["status"] = np.where(frame["heads"] <= 2, ends, "finished")
    result = fit(frame, metric="nmse", settings=QUICK)
    assert result.verdict == "open"
    assert ("not a fair sample" in result.reason) == is_selected
    assert {cell.at["heads"] for cell in result.missing} == {1, 2}


def test_a_sweep_without_any_result_is_open():
    frame = transition_sweep("sharp", 1).frame.assign(status="failed")
    result = fit(frame, metric="nmse", settings=QUICK)
    assert (result.verdict, result.h_star, result.runs) == ("open", None, ())


def test_same_input_same_answer_to_the_bit():
    sweep = transition_sweep("stuck", 5)
    first = fit(sweep.frame, settings=QUICK, **sweep.options).to_json()
    shuffled = sweep.frame.sample(frac=1, random_state=1)
    assert fit(shuffled, settings=QUICK, **sweep.options).to_json() == first


@pytest.mark.parametrize("family", ["sharp", "few_cells", "asha_global", "marco", "second"])
def test_results_are_plain_json(family):
    sweep = transition_sweep(family, 2)
    result = fit(sweep.frame, settings=QUICK, **sweep.options)
    assert json.loads(json.dumps(result.to_json(), allow_nan=False)) == result.to_json()


def test_every_threshold_is_recorded_and_obeyed():
    sweep = transition_sweep("sharp", 4)
    result = fit(sweep.frame, settings=QUICK, **sweep.options)
    assert (result.settings.min_drop, result.settings.max_growth) == (0.5, 0.1)
    strict = fit(sweep.frame, settings=dataclasses.replace(QUICK, min_drop=4.0), **sweep.options)
    assert (strict.verdict, strict.settings.min_drop) == ("none", 4.0)


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


def test_bad_arguments_are_named():
    frame = transition_sweep("sharp", 0).frame
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
    runs = Runs(frame, "nmse")
    grid = build_grid(canonical(runs, x="heads", by="seq_len", goal="min", scale="error"))
    cells = read_cells(grid, seed_noise(grid, THRESHOLDS["error"], None), grid.fewest)
    expected = np.sort(grid.runs[1][0]) @ np.array([6, 3, 1, 0, 0]) / 10  # C(5 - r, 2) / C(5, 3)
    value = cells.z[1, 0]
    assert value == pytest.approx(expected)
