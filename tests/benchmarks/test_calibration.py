"""The calibration suite: its sweeps have the truth they claim, its bars can be missed."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from analysis.questions.transition.result import TransitionSettings
from benchmarks.__main__ import main
from benchmarks.bars import Bar, Row, front_rows, lean_rows, transition_rows
from benchmarks.calibration import EVERY_FAMILY, calibrate
from benchmarks.ladders import BUDGETS, lean_ladder
from benchmarks.outcomes import FrontOutcome, LeanOutcome, TransitionOutcome
from benchmarks.shapes import MARGIN
from benchmarks.sweeps import ASHA, FAMILIES, NULLS, SCATTERED, transition_sweep

QUICK = TransitionSettings(B=100, n_mc=99)


@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sweep_is_the_same_for_the_same_number_and_holds_its_truth(
    family: str, varied: bool
) -> None:
    sweep = transition_sweep(family, 5, varied=varied)
    again = transition_sweep(family, 5, varied=varied)
    other = transition_sweep(family, 6, varied=varied)
    assert sweep.frame.equals(again.frame)
    assert not sweep.frame.equals(other.frame)
    heads = sorted(sweep.slopes)
    assert set(sweep.frame["heads"]) == set(heads)
    is_null = family in (*NULLS, *SCATTERED, "one_bad", "loss_null") or "_null_" in family
    assert (sweep.h_star is None) == is_null
    assert sweep.h_star is None or sweep.h_star in heads[1:]
    metric = sweep.options["metric"]
    assert sweep.frame[metric].notna().all()


def test_varied_designs_differ_in_heads_lengths_and_seeds() -> None:
    designs = [transition_sweep("sharp", seed, varied=True).frame for seed in range(40)]
    for column, fewest, most in (("heads", 5, 9), ("seq_len", 2, 6), ("seed", 2, 6)):
        counts = {frame[column].nunique() for frame in designs}
        assert (min(counts), max(counts)) == (fewest, most)


def test_seeds_are_left_out_as_a_family_says() -> None:
    for seed in range(5):
        single = transition_sweep("single_sharp", seed).frame
        assert set(single["seed"]) == {0}
        assert not single.duplicated(["heads", "seq_len"]).any()
        seeds = transition_sweep("partly_sharp", seed).frame.groupby(["heads", "seq_len"]).size()
        assert sorted(set(seeds)) == [1, 2]
        assert (seeds == 2).sum() == (len(seeds) + 1) // 2


@pytest.mark.parametrize("family", ASHA)
def test_pruning_leaves_what_it_says(family: str) -> None:
    frame = transition_sweep(family, 0).frame
    complete = frame["status"].eq("COMPLETE").groupby([frame["heads"], frame["seq_len"]]).sum()
    assert (complete == 3).all() == ("cell" in family)
    if "global" in family:
        assert (complete > 0).mean() < 0.5


def test_a_sample_of_every_kind_reaches_its_bars() -> None:
    calibration = calibrate(
        [
            *("paper_D4", "sharp", "second", "null_power", "null_fade", "asha_global", "asha_cell"),
            *("single_sharp", "single_null_above", "partly_null_power"),
        ],
        sweeps=4, first_seed=500, varied=False, settings=QUICK,
    )  # fmt: skip
    missed = [row for row in calibration.rows if not row.holds and "slope" not in row.quantity]
    assert missed == []
    assert calibration.verdicts()["asha_global"] == {"open": 4}


def test_fronts_and_equivalents_are_measured() -> None:
    calibration = calibrate(
        ["pareto_homo", "lean_null", "lean_equal", "lean_tuned_equal", "lean_untrained"],
        sweeps=3, first_seed=0, varied=False, settings=QUICK,
    )  # fmt: skip
    assert {row.quantity.split(":")[0] for row in calibration.rows} == {
        "Pareto, homo", "lean, null", "lean, equal", "lean, tuned_equal", "lean, untrained",
    }  # fmt: skip


def outcome(family: str, verdict: str, **changes: object) -> TransitionOutcome:
    facts = {
        "suggested": False, "ends_at_second": False, "outside": False, "steps_off": 0,
        "covered": True, "set_size": 1, "slopes_inside": 95, "slopes": 100, "seconds": 0.1,
    }  # fmt: skip
    return TransitionOutcome(family=family, verdict=verdict, **(facts | changes))


def rows_of(rows: list[Row]) -> dict[str, Row]:
    return {row.quantity: row for row in rows}


def test_rates_are_shares_of_the_sweeps_they_name() -> None:
    cases = [
        *(outcome("sharp", "collapse") for _ in range(9)),
        outcome("sharp", "none", steps_off=1, covered=False, set_size=3),
        *(outcome("null_exp", "none", steps_off=None) for _ in range(9)),
        outcome("null_exp", "collapse", steps_off=None),
        *(outcome("null_fade", "none", steps_off=None) for _ in range(10)),
        *(outcome("plateau", "open", ends_at_second=True) for _ in range(3)),
        outcome("plateau", "none"),
        *(outcome("single_sharp", "open", suggested=True, slopes_inside=0) for _ in range(3)),
        outcome("single_null_power", "collapse", steps_off=None),
    ]
    rows = rows_of(transition_rows(cases))
    expected = {
        "h* exact, sharp-type families": 0.9,
        "h* exact where a verdict is given, sharp-type, stuck, noisy, second": 1.0,
        "95 % set holds h*, worst family": 0.9,
        "size of the set, sharp-type": 1.2,
        "claimed on nulls, pooled": 0.05,
        "claimed, worst null but null_above": 0.1,
        "detected: paper and sharp": 0.9,
        "one seed a cell: anything declared": 0.25,
        "one seed a cell, a true collapse: suggested at the exact h*": 1.0,
        "plateau from the second value on: said to be one": 0.75,
        "95 % slope interval holds the slope, pooled": 0.95,
    }
    assert {name: rows[name].value for name in expected} == pytest.approx(expected)
    assert rows["claimed, worst null but null_above"].where == "null_exp"
    assert not rows["h* exact, sharp-type families"].holds


def test_front_rows_score_the_probabilities() -> None:
    sure = FrontOutcome("homo", (0.99, 0.01, 0.5, 0.5), (True, False, True, False))
    rows = rows_of(front_rows([sure]))
    assert rows["Pareto, homo: Brier score"].value == pytest.approx((2 * 0.01**2 + 2 * 0.25) / 4)
    assert rows["Pareto, homo: AUC"].value == pytest.approx(3.5 / 4)
    wrong = FrontOutcome("homo", (0.01, 0.99), (True, False))
    missed = rows_of(front_rows([wrong]))
    assert missed["Pareto, homo: front called off"].value == 1
    assert missed["Pareto, homo: dominated called on"].value == 1


def lean(family: str, verdict: str, **changes: object) -> LeanOutcome:
    facts = {"wrong": False, "is_chosen": verdict == "found", "choice_right": verdict == "found",
             "wrongly_excluded": False}  # fmt: skip
    return LeanOutcome(family=family, verdict=verdict, **(facts | changes))


def test_lean_rows_count_errors_findings_and_choices() -> None:
    cases = [
        lean("equal", "found"), lean("equal", "found", wrong=True, choice_right=False),
        lean("equal", "undecided", wrongly_excluded=True), lean("null", "undecided"),
        lean("few_equal", "excluded"), lean("untrained", "found"), lean("untrained", "untrained"),
    ]  # fmt: skip
    rows = rows_of(lean_rows(cases))
    assert rows["lean, equal: a worse shape accepted"].value == pytest.approx(1 / 3)
    assert rows["lean, equal: an equal shape found"].value == pytest.approx(2 / 3)
    assert rows["lean, equal: choice truly no worse"].value == 0.5
    assert rows["lean, equal: a shape within the margin excluded"].value == pytest.approx(1 / 3)
    assert rows["lean, few_equal: called excluded"].value == 1
    assert rows["lean, untrained: anything claimed"].value == 0.5
    assert rows["lean, null: a worse shape accepted"].holds


@pytest.mark.parametrize(
    ("bar", "inside", "outside", "words"),
    [
        (Bar(0.9), 0.9, 0.89, "at least 90.0 %"),
        (Bar(high=0.1), 0.1, 0.11, "at most 10.0 %"),
        (Bar(0.93, 0.97), 0.95, 0.98, "93.0 % to 97.0 %"),
    ],
)
def test_a_bar_is_a_range(bar: Bar, inside: float, outside: float, words: str) -> None:
    row = Row("share", inside, bar, 10)
    assert (row.holds, bar.holds(outside), bar.text(row.write)) == (True, False, words)


def test_the_command_prints_bars_and_can_fail() -> None:
    words = ["calibration", "--sweeps", "2", "--draws", "50", "--families", "paper_D3,null_exp"]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0, shown.output
    assert "| paper_D3 | 2 | 2 collapse |" in shown.output
    assert (
        "| h* exact, paper D = 4, E = 32, D = 3 | 100.0 % | at least 98.0 % | 2 |" in shown.output
    )
    plain = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert plain["verdicts"]["paper_D3"] == {"collapse": 2}
    strict = CliRunner().invoke(main, [*words, "--strict"])
    assert strict.exit_code == (0 if all(row["holds"] for row in plain["rows"]) else 1)
    unknown = CliRunner().invoke(main, ["calibration", "--families", "paper_D9"])
    assert unknown.exit_code == 2
    assert "unknown family 'paper_D9'" in unknown.output


def test_two_processes_measure_what_one_does() -> None:
    options = {"sweeps": 2, "first_seed": 3, "varied": True, "settings": QUICK}
    families = ["sharp", "pareto_ties", "lean_equal"]
    alone, shared = (
        [
            row
            for row in calibrate(families, processes=number, **options).rows
            if "seconds" not in row.quantity
        ]
        for number in (1, 2)
    )
    assert alone == shared


def test_every_family_has_a_name_of_its_own() -> None:
    assert len(set(EVERY_FAMILY)) == len(EVERY_FAMILY)
    assert np.all([name == name.strip() for name in EVERY_FAMILY])


def test_lean_ladders_have_the_limit_that_they_claim_and_groups_are_counted_each() -> None:
    opening = lean_ladder("opens", 3)
    limit = opening.limit[""]
    assert limit["s4"] - limit["s3"] > MARGIN
    last = opening.frame[opening.frame["budget"] == BUDGETS[-1]].groupby("shape")["top1"].mean()
    assert abs(last["s4"] - last["s3"]) < MARGIN
    calibration = calibrate(
        ["budgets_lean_groups"],
        sweeps=2, first_seed=0, varied=False, settings=QUICK,
    )  # fmt: skip
    assert set(calibration.verdicts()) == {f"budgets_lean_groups_{name}" for name in "abc"}
    names = {row.quantity for row in calibration.rows}
    assert "budgets, lean_groups_c: called settled, and wrong" in names
