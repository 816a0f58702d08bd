"""Which cheaper shapes are no worse than the baseline by the margin."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import report_examples as examples
from scipy import stats

from analysis.questions.lean.fit import FIRST_REPORT
from analysis.questions.lean.result import LeanResult, LeanSettings
from analysis.questions.lean.text import lean_sentences, lean_table
from analysis.runs.scale import metric_span
from analysis.runs.tuned import TunedSetting
from analysis.statistics.bounds import ANYWHERE, clipped
from analysis.statistics.cross_fitting import cross_fit
from analysis.statistics.moderated import moderate
from analysis.statistics.noninferiority import confirming_seeds, power, seeds_for
from analysis.statistics.values import Interval
from analysis.text.numbers import share_text
from benchmarks.shapes import SHAPE_OPTIONS, lean_sweep
from benchmarks.table_fits import fit_lean as fit
from benchmarks.table_fits import fit_pareto
from hsweep.errors import UserError

MARGIN = 0.015


def run(frame: pd.DataFrame, **changes: object) -> LeanResult:
    baseline = {"shape": frame["shape"].max()}
    return fit(frame, **({"baseline": baseline, "margin": MARGIN} | SHAPE_OPTIONS | changes))


def rates(family: str, number: int) -> tuple[float, float]:
    """Share of sweeps with a wrong acceptance, and with a choice."""
    wrong, has_choice = [], []
    for seed in range(number):
        frame = lean_sweep(family, seed)
        true = frame.groupby("shape")["true"].first()
        limit = true.iloc[-1] - MARGIN + 1e-9
        result = run(frame)
        wrong.append(
            any(row.accepted and true[row.config["shape"]] <= limit for row in result.table)
        )
        has_choice.append(result.choice is not None)
    return float(np.mean(wrong)), float(np.mean(has_choice))


@pytest.mark.parametrize("family", ["null", "null_hetero", "null_heavy"])
def test_shapes_exactly_at_the_margin_are_rarely_accepted(family):
    assert rates(family, 60)[0] <= 0.1


@pytest.mark.parametrize("family", ["equal", "equal_hetero", "equal_heavy"])
def test_truly_equal_shapes_are_found_and_worse_ones_are_not(family):
    wrong, chosen = rates(family, 40)
    assert wrong <= 0.03
    assert chosen >= 0.5


def test_the_choice_is_the_cheapest_accepted_and_reports_its_saving():
    result = run(lean_sweep("equal", 0), margin=0.03)
    accepted = [row for row in result.table if row.accepted]
    assert result.verdict == "found"
    assert result.choice == accepted[0].label
    assert result.chosen == accepted[0]
    assert accepted[0].saving["num_params"] == pytest.approx(
        1 - accepted[0].costs["num_params"] / 9
    )
    assert "fresh seeds" in lean_table(result).note
    assert [row.costs["num_params"] for row in result.table] == list(range(1, 9))


def test_dearer_shapes_are_not_candidates():
    frame = lean_sweep("equal", 0)
    result = run(frame, baseline={"shape": "s04"})
    assert [row.config["shape"] for row in result.table] == ["s00", "s01", "s02", "s03"]
    cheapest = run(frame, baseline={"shape": "s00"})
    assert (cheapest.verdict, cheapest.table) == ("no_candidates", ())


def test_one_candidate_more_costs_every_candidate():
    frame = lean_sweep("null", 3, candidates=4)
    for row in run(frame).table:
        assert row.p_holm >= row.p_raw
    ranked = sorted(run(frame).table, key=lambda row: row.p_raw)
    assert ranked[0].p_holm == pytest.approx(min(1, 4 * ranked[0].p_raw))
    assert [row.p_holm for row in ranked] == sorted(row.p_holm for row in ranked)


def test_two_shapes_alone_are_compared_by_welch():
    a, b = [0.79, 0.80, 0.795, 0.81], [0.80, 0.81, 0.79, 0.80]
    frame = pd.DataFrame(
        {
            "shape": ["a"] * 4 + ["b"] * 4,
            "seed": [0, 1, 2, 3] * 2,
            "top1": a + b,
            "num_params": [1.0] * 4 + [2.0] * 4,
        }
    )
    (row,) = run(frame).table
    shifted = np.array(a) + MARGIN
    expected = stats.ttest_ind(shifted, b, equal_var=False, alternative="greater")
    assert row.p_raw == pytest.approx(expected.pvalue)
    assert row.df == pytest.approx(expected.df)


def test_a_metric_to_minimise_mirrors_one_to_maximise():
    frame = lean_sweep("equal_hetero", 1)
    up = run(frame)
    down = run(frame.assign(loss=1 - frame["top1"]), metric="loss", goal="min")
    for one, other in zip(up.table, down.table, strict=True):
        assert one.diff == pytest.approx(other.diff)
        assert one.p_holm == pytest.approx(other.p_holm)
        assert one.ci.low == pytest.approx(other.ci.low)
    assert up.choice == down.choice


def test_single_runs_support_no_claim():
    result = run(lean_sweep("equal", 0, seeds=1))
    assert (result.verdict, result.choice, result.sd) == ("unsupported", None, None)
    assert not any(row.accepted for row in result.table)
    assert all(row.p_raw is None for row in result.table)
    assert "a single run" in result.reason


def test_a_candidate_with_a_single_run_is_left_out_of_the_family():
    frame = lean_sweep("equal", 0)
    frame = frame[(frame["shape"] != "s07") | (frame["seed"] == 0)]
    result = run(frame)
    rows = {row.config["shape"]: row for row in result.table}
    assert rows["s07"].p_holm is None
    assert not rows["s07"].accepted
    assert min(r.p_holm for r in result.table if r.p_holm is not None) == pytest.approx(
        7 * min(r.p_raw for r in result.table if r.p_raw is not None)
    )
    assert any("single run" in warning for warning in result.warnings)


def test_power_matches_the_published_planning_table():
    """Two seed sd of margin and three seeds, or one and twelve."""
    assert power(2.0, 3, 1, 0.05) == pytest.approx(0.57, abs=0.08)
    assert power(1.0, 12, 1, 0.05) == pytest.approx(0.76, abs=0.05)
    chances = [power(1.0, n, 8, 0.05) for n in range(2, 20)]
    assert chances == sorted(chances)


def test_the_wider_the_margin_the_fewer_seeds_it_takes():
    asked = [confirming_seeds(ratio, 0.05) for ratio in (0.5, 1.0, 2.0, 5.0, 10.6, 30.0, 1000.0)]
    assert (asked, asked[-1]) == (sorted(asked, reverse=True), 3)
    assert seeds_for(30.0, 3, 0.05, 0.8, most=50) == 2


def test_moderated_variances_lie_between_own_and_prior():
    rng = np.random.default_rng(0)
    groups = [sd * rng.standard_normal(4) for sd in np.exp(rng.normal(0, 1, 200))]
    spread = moderate(groups)
    group_sd = np.array([group.std(ddof=1) for group in groups])
    low, high = np.minimum(group_sd, spread.prior_sd), np.maximum(group_sd, spread.prior_sd)
    assert np.all((spread.sd >= low - 1e-12) & (spread.sd <= high + 1e-12))
    assert 0 < spread.prior_df < 10
    same = moderate([rng.standard_normal(4) for _ in range(200)])
    assert same.prior_df > 20
    assert same.prior_sd == pytest.approx(1.0, abs=0.1)
    assert np.all(same.df <= 600)


def test_identical_runs_are_no_certainty():
    frame = lean_sweep("equal", 0).assign(top1=0.8)
    assert run(frame).verdict == "unsupported"


@pytest.mark.parametrize("seeds", [1, 5])
def test_a_result_is_plain_json(seeds):
    result = run(lean_sweep("equal_hetero", 2, seeds=seeds))
    assert json.loads(json.dumps(result.to_json(), allow_nan=False)) == result.to_json()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": 0}, "margin must be a positive number"),
        ({"margin": -1.0}, "margin must be a positive number"),
        ({"margin": float("nan")}, "margin must be a positive number"),
        ({"baseline": {"shape": "s99"}}, "picks 0 shapes .* there are: s00"),
        ({"baseline": {"heads": 3}}, "the baseline names heads; the axes are shape"),
        ({"baseline": {}}, "names no axis"),
        ({"costs": ["flops"]}, "no column 'flops'"),
    ],
)
def test_bad_questions_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        run(lean_sweep("null", 0), **changes)


def test_a_shape_that_lost_a_run_to_early_stopping_is_not_compared_but_counts_as_tried():
    frame = lean_sweep("equal", 0).assign(status="finished")
    smallest = frame["shape"].min()
    worst = frame.loc[frame["shape"] == smallest, SHAPE_OPTIONS["metric"]].idxmin()
    frame.loc[worst, "status"] = "stopped_early"
    result, whole = run(frame), run(frame[frame["shape"] != smallest])
    assert smallest not in {row.config["shape"] for row in result.table}
    assert any("early stopping" in warning for warning in result.warnings)
    at = {row.label: row for row in whole.table}
    compared = [row for row in result.table if 0 < (at[row.label].p_holm or 0) < 0.5]
    assert compared
    assert all(row.p_raw == at[row.label].p_raw for row in result.table)
    assert all((row.p_holm or 0) > (at[row.label].p_holm or 0) for row in compared)


def test_a_baseline_that_lost_a_run_to_early_stopping_is_refused_for_what_it_is():
    frame = lean_sweep("equal", 0).assign(status="finished")
    frame.loc[frame.index[frame["shape"] == "s08"][0], "status"] = "stopped_early"
    with pytest.raises(UserError, match="shape=s08 lost runs to early stopping"):
        run(frame)


# --- excluded, undecided, untrained ---------------------------------------------------------------


def shapes(
    means: dict[str, float], sd: float, seeds: int, metric: str = "top1", **columns: object
) -> pd.DataFrame:
    """Runs of shapes named by their means, cheapest first, the last one the baseline; their seeds
    lie evenly, with this sd."""
    z = np.linspace(-1, 1, seeds) if seeds > 1 else np.zeros(1)
    z = z / (z.std(ddof=1) if seeds > 1 else 1.0)
    rows = [
        {
            "shape": name,
            "seed": seed,
            metric: mean + sd * z[(seed + cost) % seeds],
            "num_params": cost + 1.0,
        }
        for cost, (name, mean) in enumerate(means.items())
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows).assign(**columns)


def run_shapes(frame: pd.DataFrame, **changes: object) -> LeanResult:
    return run(frame, **({"baseline": {"shape": "base"}, "margin": 0.02} | changes))


def test_a_shape_is_excluded_only_where_it_is_shown_to_be_worse_by_more_than_the_margin():
    result = run_shapes(shapes({"far": 0.7, "near": 0.88, "base": 0.9}, 0.01, 3))
    far, near = result.table
    assert (far.outcome, near.outcome) == ("excluded", "undecided")
    assert far.p_worse <= 0.05 < near.p_worse
    assert result.verdict == "undecided"
    alone = run_shapes(shapes({"far": 0.7, "farther": 0.6, "base": 0.9}, 0.01, 3))
    assert alone.verdict == "excluded"
    assert alone.missing == ()


def test_better_means_without_power_are_undecided_and_say_what_would_settle_them():
    better = {f"s{k}": 0.905 for k in range(8)}
    result = run_shapes(shapes({**better, "base": 0.9}, 0.02, 3))
    assert result.verdict == "undecided"
    (needed,) = {row.seeds_needed for row in result.table}
    assert 20 < needed <= 50
    lacking = {runs.at["shape"]: runs.seeds for runs in result.missing}
    assert lacking == dict.fromkeys([*better, "base"], needed - 3)
    enough = run_shapes(shapes({**dict.fromkeys(better, 0.9), "base": 0.9}, 0.02, needed))
    assert enough.verdict == "found"


def test_more_than_fifty_seeds_are_not_asked_for():
    result = run_shapes(shapes({"s": 0.9, "base": 0.9}, 0.2, 3))
    assert (result.verdict, result.table[0].seeds_needed, result.missing) == ("undecided", None, ())


def test_shapes_that_were_stopped_early_are_not_excluded():
    frame = shapes({"stopped": 0.6, "far": 0.7, "base": 0.9}, 0.01, 3, status="finished")
    frame.loc[frame.index[1], "status"] = "stopped_early"
    result = run_shapes(frame)
    assert (result.verdict, result.stopped) == ("undecided", ("stopped",))
    assert [(runs.at["shape"], runs.seeds) for runs in result.missing] == [("stopped", 1)]


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (0.09, "the baseline is no better than a constant predictor"),
        (0.1001, "is not shown to be better than a constant predictor: its 5 seeds scatter"),
        (0.115, "by more than the margin"),
    ],
)
def test_a_baseline_at_chance_answers_nothing(level, words):
    frame = shapes({"small": level, "mid": level, "base": level}, 0.003, 5)
    assert run_shapes(frame).verdict == "found"
    result = run_shapes(frame, settings=LeanSettings(chance=0.1))
    assert (result.verdict, result.choice) == ("untrained", None)
    assert not any(row.accepted for row in result.table)
    assert words in result.reason
    assert "chance 0.1" in result.reason
    assert examples.sentence(result).startswith("No answer: the baseline")


def test_errors_are_held_against_chance_from_below():
    frame = shapes({"small": 1.0, "base": 1.0}, 0.003, 5)
    known = {"goal": "min", "settings": LeanSettings(chance=1.0)}
    assert run_shapes(frame, **known).verdict == "untrained"
    assert run_shapes(frame.assign(top1=frame["top1"] - 0.5), **known).verdict == "found"


def test_without_a_known_chance_a_baseline_that_never_improved_is_doubted():
    frame = shapes({"small": 0.5, "base": 0.5}, 0.003, 5).assign(**{FIRST_REPORT: 0.5})
    doubted = run_shapes(frame)
    assert doubted.verdict == "found"
    assert "It is not known whether the baseline has learned anything" in examples.sentence(doubted)
    assert run_shapes(frame.assign(**{FIRST_REPORT: 0.3})).doubt == ""
    better = shapes({"small": 0.4, "base": 0.5}, 0.003, 5, **{FIRST_REPORT: 0.5})
    assert run_shapes(better).doubt == ""
    assert run_shapes(frame, settings=LeanSettings(chance=0.2)).doubt == ""


# --- nuisance axes --------------------------------------------------------------------------------


def tuned(levels: dict[str, dict[float, float]], sd: float, seeds: int) -> pd.DataFrame:
    """Runs of shapes with a mean for each learning rate, cheapest first."""
    rng = np.random.default_rng(1)
    rows = [
        (name, rate, seed, mean + sd * rng.standard_normal(), cost + 1.0)
        for cost, (name, means) in enumerate(levels.items())
        for rate, mean in means.items()
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["shape", "lr", "seed", "top1", "num_params"])


def test_each_shape_stands_at_its_best_setting_of_a_nuisance_axis():
    levels = {"lean": {0.1: 0.5, 0.01: 0.9, 0.001: 0.6}, "base": {0.1: 0.9, 0.01: 0.7}}
    result = run_shapes(tuned(levels, 0.003, 4), nuisance=["lr"])
    (row,) = result.table
    assert result.verdict == "found"
    assert row.setting == TunedSetting({"lr": 0.01}, 3, 0, 0, (), False)
    assert result.baseline_setting == TunedSetting({"lr": 0.1}, 2, 0, 0, ("lr",), False)
    assert row.mean == pytest.approx(0.9, abs=0.01)
    assert any("2 to 3 settings of lr" in warning for warning in result.warnings)
    assert "(lr = 0.1 for the baseline)" in examples.sentence(result)
    assert "lr=0.01 (of 3)" in lean_table(result).rows[0]


def test_a_seed_has_no_part_in_the_choice_of_its_own_setting():
    quality = np.array([[0.0, 0.0, 9.0], [1.0, 1.0, 1.0]])
    fit = cross_fit(quality)
    # Seed 2 alone makes the first setting look better, and it chooses for the others only.
    assert fit.picked == (0, 0, 1)


def test_more_settings_do_not_flatter_an_equal_shape():
    """At the margin exactly: eight settings against one, false acceptances within the rate."""
    wrong, gains = 0, []
    rng = np.random.default_rng(0)
    for _ in range(120):
        rows = [
            (name, rate, seed, mean + 0.01 * rng.standard_normal(), cost)
            for name, mean, cost, rates in (("lean", 0.88, 1.0, 8), ("base", 0.9, 2.0, 1))
            for rate in range(rates)
            for seed in range(3)
        ]
        frame = pd.DataFrame(rows, columns=["shape", "lr", "seed", "top1", "num_params"])
        result = run_shapes(frame, nuisance=["lr"])
        wrong += result.choice is not None
        gains.append(result.table[0].diff)
    assert np.mean(gains) == pytest.approx(-0.02, abs=0.0025)
    assert wrong / 120 <= 0.09


def test_settings_that_lost_runs_do_not_compete():
    frame = tuned({"lean": {0.1: 0.95, 0.01: 0.9}, "base": {0.1: 0.9}}, 0.003, 3)
    frame = frame.assign(status="finished")
    frame.loc[0, ["status", "top1"]] = ["diverged", None]
    (row,) = run_shapes(frame, nuisance=["lr"]).table
    assert (row.setting.values, row.setting.tried, row.setting.set_aside) == ({"lr": 0.01}, 2, 1)


def test_one_seed_a_setting_supports_no_choice():
    frame = tuned({"lean": {0.1: 0.9, 0.01: 0.8}, "base": {0.1: 0.9, 0.01: 0.8}}, 0.003, 1)
    result = run_shapes(frame, nuisance=["lr"])
    assert result.verdict == "unsupported"
    assert any("takes at least 2" in warning for warning in result.warnings)
    assert {runs.at["shape"]: runs.seeds for runs in result.missing} == {"base": 2, "lean": 2}


def test_a_nuisance_axis_names_no_shape():
    frame = tuned({"lean": {0.1: 0.9}, "base": {0.1: 0.9}}, 0.003, 2)
    with pytest.raises(UserError, match="'lr' cannot both name a shape and be a nuisance axis"):
        run_shapes(frame, nuisance=["lr"], config=["shape", "lr"])


# --- ranges ---------------------------------------------------------------------------------------


def test_no_interval_leaves_the_metrics_range():
    frame = shapes({"small": 0.5, "base": 0.55}, 0.3, 2)
    (row,) = run_shapes(frame).table
    assert (row.ci.low, row.ci.high) == (-1.0, 1.0)
    for shape in fit_pareto(frame, **SHAPE_OPTIONS).table:
        assert (shape.ci.low, shape.ci.high) == (0.0, 1.0)
    errors = fit_pareto(frame.assign(top1=frame["top1"] * 5), goal="min", **SHAPE_OPTIONS)
    assert all(shape.ci.low == 0 and shape.ci.high > 1 for shape in errors.table)


@pytest.mark.parametrize(
    ("values", "goal", "bounds"),
    [
        ([0.2, 1.0], "max", (0.0, 1.0)),
        ([0.2, 1.5], "max", ANYWHERE),
        ([-0.2, 0.5], "max", ANYWHERE),
        ([0.2, 0.5], "min", (0.0, math.inf)),
        ([-0.2, 0.5], "min", ANYWHERE),
    ],
)
def test_the_values_tell_the_range(values, goal, bounds):
    assert metric_span(np.array(values), goal, None) == bounds
    unknown = clipped(Interval(0.5, math.nan, math.nan), bounds)
    assert math.isnan(unknown.low)
    assert math.isnan(unknown.high)


@pytest.mark.parametrize(
    ("levels", "margin", "options", "said"),
    [
        ((0.5, 0.7), 3, {}, "range of top1, 1, .* 3 points are 0.03"),
        ((0.5, 0.7), 0.95, {"settings": LeanSettings(chance=0.1)}, "range of top1, 0.9, "),
        ((2.4, 1.1), 3, {"goal": "min"}, "range of top1 in this table, 2.4"),
        ((2.4, 1.1), 5, {"goal": "min", "settings": LeanSettings(chance=4.6)}, "top1, 4.6"),
    ],
)
def test_a_margin_as_wide_as_the_metric_is_refused(levels, margin, options, said):
    frame = shapes({"mid": levels[0], "base": levels[1]}, 0.001, 4)
    with pytest.raises(UserError, match=said):
        run_shapes(frame, margin=margin, **options)


def test_losses_that_are_all_small_have_a_margin_up_to_a_constant_predictors_loss():
    frame = shapes({"mid": 0.002, "base": 0.001}, 0.0001, 4)
    known = {"goal": "min", "settings": LeanSettings(chance=2.3)}
    assert run_shapes(frame, margin=0.01, **known).verdict == "found"


def test_a_study_whose_losses_are_all_within_the_margin_is_answered_with_a_doubt():
    frame = shapes({"mid": 0.002, "base": 0.001}, 0.0001, 4)
    small = run_shapes(frame.assign(**{FIRST_REPORT: 0.008}), margin=0.01, goal="min")
    assert small.verdict == "found"
    assert "no smaller than any top1 seen, at most 0.008" in small.doubt
    learned = run_shapes(frame.assign(**{FIRST_REPORT: 2.3}), margin=0.01, goal="min")
    assert learned.doubt == ""


@pytest.mark.parametrize("goal", ["max", "min"])
def test_a_metric_in_percent_or_below_0_has_no_range(goal):
    percent = shapes({"mid": 70.2, "base": 71.0}, 0.1, 4)
    assert run_shapes(percent, margin=1.5, goal=goal).decides
    below = shapes({"mid": -3.0, "base": -3.1}, 0.1, 4)
    assert run_shapes(below, margin=4, goal=goal).decides


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "text"), [(0.00131, "0.2%"), (0.0001, "0.1%"), (0.05, "5%"), (0.021, "3%")]
)
def test_what_stands_after_at_most_is_rounded_up(share: float, text: str) -> None:
    assert share_text(share) == text


def test_a_shape_with_one_run_says_how_many_seeds_by_the_noise_of_the_others() -> None:
    frame = shapes({"lone": 0.9, "far": 0.6, "base": 0.9}, 0.004, 5)
    frame = frame[(frame["shape"] != "lone") | (frame["seed"] == 0)]
    result = run_shapes(frame)
    row = result.table[0]
    assert (row.n, row.p_raw, row.outcome) == (1, None, "undecided")
    assert row.seeds_needed is not None
    assert row.seeds_needed <= 5
    assert "widen the margin" not in examples.sentence(result)
    assert [(runs.at["shape"], runs.seeds) for runs in result.missing] == [
        ("lone", row.seeds_needed - 1)
    ]


def test_the_seeds_of_the_baseline_count_as_well() -> None:
    frame = shapes({"near": 0.88, "base": 0.9}, 0.01, 9)
    frame = frame[(frame["shape"] != "base") | (frame["seed"] % 3 == 0)]
    result = run_shapes(frame)
    assert result.verdict == "undecided"
    assert "With 9 seeds" not in examples.sentence(result)
    assert "there are 3 to 9." in examples.sentence(result)
    assert "more than 50" not in examples.sentence(result)
    assert power(2.0, 10, 1, 0.025, kept=0.4) < power(2.0, 10, 1, 0.025) - 0.05


def test_what_is_left_out_stands_in_the_second_sentence() -> None:
    frame = shapes({"lean": 0.9, "base": 0.9}, 0.003, 8)
    frame.loc[frame.index[2], "top1"] = 0.2
    first, second, *_ = lean_sentences(run_shapes(frame))
    assert "lean does as well as base" in first
    left_out = "Left out of the means, which hold for the rest alone: "
    assert second == f"{left_out}1 of 8 far from the others at lean."


def test_the_choice_of_a_setting_does_not_both_favour_none_and_flatter() -> None:
    frame = tuned({"lean": {0.1: 0.9, 0.01: 0.8}, "base": {0.1: 0.9}}, 0.003, 3)
    frame = frame[(frame["shape"] != "lean") | (frame["seed"] == 0)]
    said = " ".join(run_shapes(frame, nuisance=["lr"]).warnings)
    assert "flatters it" in said
    assert "favours none" not in said
