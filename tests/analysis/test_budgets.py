"""Whether a transition would survive more training, from runs that were trained to several budgets.

The rates are measured on simulated sweeps whose answer after endless training is known
(`benchmarks.ladders`), a few a family at fixed seeds.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import report_examples as examples
from click.testing import CliRunner

from analysis.questions.transition.budgets import with_budgets
from analysis.questions.transition.fit import fit
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.runs.ladder import furthest, ladder_of
from analysis.runs.table import Runs
from analysis.statistics.training import ENDLESS, centre, pulled_together, still_to_come
from benchmarks.bars import budget_rows
from benchmarks.calibration import calibrate
from benchmarks.ladders import BUDGETS, ladder_sweep
from benchmarks.outcomes import BudgetFound
from hsweep.cli import main

QUICK = TransitionSettings(B=200, n_mc=199)


def analyze(path: Path, *options: str) -> dict[str, Any]:
    asked = ["analyze", "--table", str(path), "--kind", "transition", "--metric", "nmse", "--json"]
    quick = ["--setting", "B=200", "--setting", "n_mc=199"]
    shown = CliRunner().invoke(main, [*asked, *quick, *options])
    assert shown.exit_code == 0, shown.output
    content: dict[str, Any] = json.loads(shown.stdout)
    return content


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    ladder_sweep("settled", 3).frame.to_csv(path, index=False)
    return path


def test_the_answer_is_that_of_the_largest_budget_and_each_budget_has_its_own(table: Path) -> None:
    frame = pd.read_csv(table)
    found = analyze(table, "--budget-column", "budget")
    alone = [fit(frame[frame["budget"] == each], metric="nmse", settings=QUICK) for each in BUDGETS]
    assert (found["verdict"], found["h_star"]) == (alone[-1].verdict, alone[-1].h_star)
    rows = found["budgets"]["answers"]
    assert [row["budget"] for row in rows] == list(BUDGETS)
    for row, one in zip(rows, alone, strict=True):
        assert (row["verdict"], row["h_star"]) == (one.verdict, one.h_star)
        assert one.gamma_above is not None
        assert one.drop is not None
        assert row["gamma_above"] == pytest.approx(list(one.gamma_above))
        assert row["drop"][1] < one.drop < row["drop"][2]
    assert found["budgets"]["verdict"] == "settled"
    assert found["answer"].endswith("Settled: the same at budget = 75.")
    assert found["budgets"]["missing"] == []


def test_an_answer_of_one_budget_says_so(table: Path, tmp_path: Path) -> None:
    one = pd.read_csv(table).query("budget == 150")
    one.to_csv(tmp_path / "one.csv", index=False)
    found = analyze(tmp_path / "one.csv", "--budget-column", "budget")
    assert found["answer"].endswith("One budget only: longer training was not tried.")
    assert (found["budgets"]["verdict"], found["budgets"]["answers"]) == ("unknown", [])
    # Where nothing is answered, there is nothing to survive.
    one.query("seed == 0").to_csv(tmp_path / "single.csv", index=False)
    assert "longer training" not in analyze(tmp_path / "single.csv")["answer"]


def test_reports_on_the_way_are_no_budgets(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    reports = pd.concat(frame.assign(budget=frame["budget"] * 10 + k) for k in range(4))
    reports.to_csv(tmp_path / "reports.csv", index=False)
    found = analyze(tmp_path / "reports.csv", "--budget-column", "budget")
    assert found["budgets"]["verdict"] == "unknown"
    assert "12 budgets, which are reports on its way" in found["answer"]


def test_runs_that_early_stopping_ended_do_not_settle_an_answer(
    table: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(table)
    stopped = (frame["seed"] == 0) & (frame["budget"] == 150)
    frame[~stopped].to_csv(tmp_path / "stopped.csv", index=False)
    found = analyze(tmp_path / "stopped.csv", "--budget-column", "budget")
    assert found["budgets"]["verdict"] == "unknown"
    assert "stopped early" in found["budgets"]["reason"]


def answered(frame: pd.DataFrame) -> TransitionResult:
    runs = Runs(frame, "nmse", {"budget_column": "budget"})
    answer = partial(fit, settings=QUICK)
    return with_budgets(answer(runs), ladder_of(runs, ["heads", "seq_len"]), answer)


def moved(frame: pd.DataFrame, *, heads: int, fall: float) -> pd.DataFrame:
    """Return runs of which one head count falls by so much between the last two budgets."""
    here = (frame["heads"] == heads) & (frame["budget"] < BUDGETS[-1])
    return frame.assign(nmse=frame["nmse"] * np.where(here, 10**fall, 1.0))


def test_a_head_count_that_still_falls_keeps_the_answer_open_and_comes_first() -> None:
    sweep = ladder_sweep("settled", 3)
    assert sweep.h_star is not None
    before = sweep.h_star - 1
    result = answered(moved(sweep.frame, heads=before, fall=0.3))
    assert (result.verdict, result.h_star) == ("transition", sweep.h_star)
    assert result.budgets is not None
    assert result.budgets.verdict != "settled"
    assert {each.budget for each in result.budgets.missing} == {300}
    decisive = {each.x for each in result.budgets.missing}
    assert before in decisive <= {before - 1, before, sweep.h_star}
    lengths = sweep.frame["seq_len"].nunique()
    assert len(result.budgets.missing) == len(decisive) * lengths
    finding = examples.finding(result)
    assert {(each.budget, each.seeds) for each in finding.missing} == {(300, 4)}
    assert {each.at["heads"] for each in finding.missing} == decisive
    assert TransitionResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    titles = [section.title for section in finding.tables]
    assert titles[1:] == ["Answer at each budget", "Trials that would tell whether it is settled"]
    drawn = [chart.name for chart in finding.charts()]
    assert drawn[-2:] == ["budget_location", "budget_slopes"]


def asked(frame: pd.DataFrame, *, can_be_extended: bool = True) -> TransitionResult:
    """Answer runs as of a study: of the largest budget that all cells have."""
    cells = frame.groupby(["heads", "seq_len"])["budget"].agg(set)
    budget = max(set.intersection(*cells))
    runs = Runs(frame, "nmse")
    ladder = ladder_of(runs, ["heads", "seq_len"], "budget", "epochs", answered=budget)
    answer = partial(fit, settings=QUICK)
    alone = Runs(frame[frame["budget"] == budget], "nmse")
    ladder = replace(ladder, to_extend=budget if can_be_extended else None)
    return with_budgets(answer(alone), ladder, answer)


def given(frame: pd.DataFrame, result: TransitionResult, fall: float) -> pd.DataFrame:
    """Return runs with those that the answer lacks, which are so much better than before."""
    assert result.budgets is not None
    parts = [frame]
    for each in result.budgets.missing:
        here = frame.query("heads == @each.x and seq_len == @each.by")
        last = here[here["budget"] == here["budget"].max()]
        assert len(last) == each.trials
        parts.append(last.assign(budget=each.budget, nmse=last["nmse"] * 10**-fall))
    return pd.concat(parts, ignore_index=True)


def test_the_cells_that_decide_are_trained_longer_and_settle_the_answer() -> None:
    sweep = ladder_sweep("settled", 3)
    assert sweep.h_star is not None
    frame = moved(sweep.frame, heads=sweep.h_star - 1, fall=0.3)
    fixed = asked(frame, can_be_extended=False).budgets
    assert fixed is not None
    assert (fixed.verdict, fixed.missing) == ("unknown", ())
    still = given(frame, asked(frame), 0.0)
    cells = still.groupby(["heads", "seq_len"])["budget"].max()
    assert set(cells) == {150, 300}
    found = asked(still)
    assert found.h_star == sweep.h_star
    assert found.budgets is not None
    assert (found.budgets.verdict, found.budgets.further) == ("settled", (300,))
    assert found.budgets.reason == "the same at 300 epochs where it is decided"
    # A row of the table is a budget that all cells have.
    assert [each.budget for each in found.budgets.answers] == list(BUDGETS)
    assert found.budgets.missing == ()


def test_where_the_deciding_cells_change_the_answer_all_cells_follow() -> None:
    sweep = ladder_sweep("settled", 3)
    assert sweep.h_star is not None
    frame = moved(sweep.frame, heads=sweep.h_star - 1, fall=0.3)
    fallen = given(frame, asked(frame), 0.0)
    here = (fallen["budget"] == 300) & (fallen["heads"] == sweep.h_star - 1)
    fallen.loc[here, "nmse"] *= 10**-3.0
    found = asked(fallen)
    assert found.budgets is not None
    assert found.budgets.verdict == "moving"
    assert found.budgets.reason.startswith("at 300 epochs the")
    whole = given(fallen, found, 0.0)
    assert set(whole.groupby(["heads", "seq_len"])["budget"].max()) == {300}
    # The answer is that of the budget which all cells have now; each cell goes on by its own last
    # two budgets.
    then = asked(whole)
    assert then.h_star == sweep.h_star - 1
    assert then.budgets is not None
    assert [each.budget for each in then.budgets.answers] == [*BUDGETS, 300]
    assert then.budgets.reason == f"it was at heads = {sweep.h_star} at 150 epochs"
    assert {each.budget for each in then.budgets.missing} == {600}


def test_an_answer_of_one_budget_is_given_a_shorter_one_in_all_cells() -> None:
    frame = ladder_sweep("settled", 3).frame.query("budget == 150")
    runs = Runs(frame, "nmse")
    answer = partial(fit, settings=QUICK)
    ladder = ladder_of(runs, ["heads", "seq_len"], "budget", "epochs")
    result = with_budgets(answer(runs), replace(ladder, unit="epochs", to_extend=150), answer)
    assert result.budgets is not None
    assert result.h_star is not None
    missing = result.budgets.missing
    assert {each.budget for each in missing} == {75}
    assert len(missing) == len(frame[["heads", "seq_len"]].drop_duplicates())
    beside = {each.x for each in missing[: 2 * frame["seq_len"].nunique()]}
    assert beside == {result.h_star, result.h_star - 1}
    sentence = examples.sentence(result)
    told = "two budgets show how the answer moves with training, and a shorter one costs less"
    trains = f"hsweep run --only-missing trains {len(frame)} runs of 75 epochs"
    assert sentence.endswith(f"({trains}; {told}).")
    assert {each.why for each in missing} == {told}
    # Runs that cannot be asked for are not named.
    of_table = with_budgets(answer(runs), ladder, answer).budgets
    assert of_table is not None
    assert of_table.missing == ()


def test_seeds_that_no_two_budgets_share_settle_nothing() -> None:
    frame = ladder_sweep("settled", 3).frame
    frame.loc[(frame["budget"] == 150) & (frame["heads"] == 2), "seed"] += 100
    runs = Runs(frame[frame["budget"] == 150], "nmse")
    ladder = ladder_of(Runs(frame, "nmse"), ["heads", "seq_len"], "budget")
    found = with_budgets(fit(runs, settings=QUICK), ladder, partial(fit, settings=QUICK)).budgets
    assert found is not None
    assert (found.verdict, len(found.answers)) == ("unknown", 3)
    assert found.reason == "5 cells hold no seed that was trained to both of the last budgets"


def test_an_answer_that_another_budget_does_not_give_is_moving() -> None:
    sweep = ladder_sweep("settled", 3)
    assert sweep.h_star is not None
    # At the shorter budgets the head count of the collapse is as bad as the one before it.
    frame = moved(sweep.frame, heads=sweep.h_star, fall=3.0)
    finding = examples.finding(answered(frame))
    assert finding.badge == ("transition, still moving", "partial")
    assert f"at heads = {sweep.h_star + 1} at budget = 75." in finding.sentences[0]
    assert "Still moving: it was" in finding.sentences[0]


def test_what_is_left_of_a_power_law_is_found_and_without_a_floor_there_is_no_end() -> None:
    above = np.array([0.05, 0.2, 0.3])
    change = np.log10((1 + above) / (1 + 2 * above))
    left = still_to_come(change, 2.0, exponent=1.0, steep=0.8, is_log=True)
    assert left == pytest.approx(-np.log10(1 + above))
    falls = np.array([-0.15, -0.16, 0.1])
    known = still_to_come(falls, 2.0, exponent=1.0, steep=0.5, is_log=True)
    assert known[0] > -1
    assert known[1] == -ENDLESS
    assert known[2] == pytest.approx(0.1)
    slower = still_to_come(falls[:1], 2.0, exponent=0.6, steep=0.5, is_log=True)
    assert slower < known[0]
    nats = still_to_come(np.array([-0.3]), 4.0, exponent=0.5, steep=0.5, is_log=False)
    assert nats == pytest.approx(-0.3)


def test_noise_is_pulled_together_and_a_real_difference_is_not() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2000, 4)) * 0.1
    alike = pulled_together(noise + np.array([-0.03, 0.02, 0.01, -0.01]))
    assert np.ptp(np.median(alike, axis=0)) < 0.01
    apart = pulled_together(noise + np.array([0.0, 0.0, 0.0, -2.0]))
    assert np.median(apart, axis=0)[3] == pytest.approx(-2.0, abs=0.02)
    # One run of five that fell much further hardly moves the centre.
    assert 0 < centre(np.array([[0.0, 0.1, 0.2, 0.1, 9.0]]))[0] < 0.3


def test_a_ladder_is_runs_of_one_seed_at_several_budgets() -> None:
    rows = [(h, seed, b) for h in (1, 2) for seed in (0, 1) for b in (10, 20)]
    frame = pd.DataFrame(rows, columns=["heads", "seed", "budget"]).assign(nmse=0.1)
    ladder = ladder_of(Runs(frame, "nmse"), ["heads"], "budget", "epochs")
    assert [(rung.budget, len(rung.runs.frame)) for rung in ladder.rungs] == [(10, 4), (20, 4)]
    assert ladder.at(20) == "20 epochs"
    last = furthest(frame, ["heads", "seed"], "budget")
    assert set(last["budget"]) == {20}
    assert len(last) == 4
    # Cells of different budgets are one sweep.
    own = frame[frame["budget"] == frame["heads"] * 10]
    assert ladder_of(Runs(own, "nmse"), ["heads"], "budget").rungs == ()
    assert furthest(own, ["heads", "seed"], "budget").equals(own)


def test_settled_is_rarely_wrong_and_mostly_found() -> None:
    families = ["settled", "settled_growth", "moves", "growth_appears", "shrinks", "late"]
    measured = calibrate(
        [f"budgets_{name}" for name in families],
        sweeps=6, first_seed=500, varied=False, settings=replace(QUICK, B=100, n_mc=99),
    )  # fmt: skip
    wrong = [row.value for row in measured.rows if row.quantity.endswith("and wrong")]
    called = [row.value for row in measured.rows if row.quantity.endswith("called settled")]
    assert (len(wrong), max(wrong)) == (6, 0)
    assert sum(called) / len(called) >= 0.75


def test_budget_rows_count_settled_answers() -> None:
    cases = [("settled", True), ("settled", False), ("moving", False), ("unknown", True)]
    found = [BudgetFound("settled", True, verdict, right, 0.0) for verdict, right in cases]
    rows = budget_rows([*found, BudgetFound("settled", False, "unknown", True, 0.0)])
    assert [(row.value, row.holds) for row in rows] == [(0.2, False), (0.5, False)]


def test_a_bad_exponent_is_refused(table: Path) -> None:
    asked = ["analyze", "--table", str(table), "--kind", "transition", "--metric", "nmse"]
    refused = CliRunner().invoke(main, [*asked, "--setting", "budget_exponent=0"])
    assert refused.exit_code == 2
    assert "budget_exponent must be a number above 0" in refused.output
