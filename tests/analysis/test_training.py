"""Whether an answer would survive more training, from runs that were trained to several budgets.

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
from click.testing import CliRunner

from analysis.questions.lean.answer import with_training as with_lean_training
from analysis.questions.lean.kind import lean_finding
from analysis.questions.lean.result import LeanResult
from analysis.questions.transition.kind import transition_finding
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.training import with_training
from analysis.runs.ladder import furthest, ladder_of
from analysis.runs.table import Runs
from analysis.sensitivity import Sensitivity
from analysis.statistics.training import centre, futures, pulled_together
from benchmarks.bars import budget_rows
from benchmarks.calibration import calibrate
from benchmarks.ladders import BUDGETS, ladder_sweep
from benchmarks.outcomes import BudgetOutcome
from benchmarks.table_fits import fit_lean as fit_lean
from benchmarks.table_fits import fit_transition as fit
from hsweep.cli import main
from hsweep.design.missing import Missing

QUICK = TransitionSettings(B=200, n_mc=199)


def analyze(path: Path, *options: str) -> dict[str, Any]:
    words = ["analyze", "--table", str(path), "--kind", "transition", "--metric", "nmse", "--json"]
    quick = ["--setting", "B=200", "--setting", "n_mc=199"]
    shown = CliRunner().invoke(main, [*words, *quick, *options])
    assert shown.exit_code == 0, shown.output
    content: dict[str, Any] = json.loads(shown.stdout)
    return content


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    ladder_sweep("settled", 3).frame.to_csv(path, index=False)
    return path


def sensitivity_of(result: TransitionResult | LeanResult) -> Sensitivity:
    assert result.sensitivity is not None
    return result.sensitivity


def test_the_answer_is_that_of_the_largest_budget_and_each_budget_has_its_own(table: Path) -> None:
    frame = pd.read_csv(table)
    result = analyze(table, "--budget-column", "budget")
    alone = fit(frame[frame["budget"] == BUDGETS[-1]], metric="nmse", settings=QUICK)
    assert (result["verdict"], result["h_star"]) == (alone.verdict, alone.h_star)
    sensitivity = result["sensitivity"]
    assert [row["budget"] for row in sensitivity["answers"]] == list(BUDGETS)
    assert sensitivity["answers"][-1]["says"].startswith(f"collapse at heads = {alone.h_star}")
    assert sensitivity["verdict"] == "settled"
    assert sensitivity["same"] >= 0.98
    stays = "Settled: the answer stays with up to 100 times the training."
    assert stays in result["qualifications"]
    assert result["missing"] == []


def test_two_budgets_settle_less_and_say_what_is_assumed(table: Path, tmp_path: Path) -> None:
    two = pd.read_csv(table).query("budget > 38")
    two.to_csv(tmp_path / "two.csv", index=False)
    result = analyze(tmp_path / "two.csv", "--budget-column", "budget")
    assert result["sensitivity"]["is_assumed"]
    assert "two budgets do not tell how fast gains fade" in " ".join(result["qualifications"])


def test_an_answer_of_one_budget_says_so(table: Path, tmp_path: Path) -> None:
    one = pd.read_csv(table).query("budget == 150")
    one.to_csv(tmp_path / "one.csv", index=False)
    result = analyze(tmp_path / "one.csv", "--budget-column", "budget")
    text = "Whether more training would change the answer is not known: all runs have one budget."
    assert text in result["qualifications"]
    assert result["sensitivity"]["answers"] == []
    # Where nothing is answered, there is nothing to survive.
    one.query("seed == 0").to_csv(tmp_path / "single.csv", index=False)
    assert analyze(tmp_path / "single.csv")["sensitivity"] is None


def test_reports_on_the_way_are_no_budgets(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    reports = pd.concat(frame.assign(budget=frame["budget"] * 10 + k) for k in range(4))
    reports.to_csv(tmp_path / "reports.csv", index=False)
    result = analyze(tmp_path / "reports.csv", "--budget-column", "budget")
    assert "12 budgets, which are reports on its way" in " ".join(result["qualifications"])


def test_runs_that_early_stopping_ended_do_not_settle_an_answer(
    table: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(table)
    stopped = (frame["seed"] == 0) & (frame["budget"] == 150)
    last = frame.loc[~stopped & (frame["seed"] == 0), "budget"].max()
    ended = (frame["seed"] == 0) & (frame["budget"] == last)
    ends = frame.assign(end=np.where(ended, "pruned", "done"))
    ends[~stopped].to_csv(tmp_path / "stopped.csv", index=False)
    result = analyze(tmp_path / "stopped.csv", "--budget-column", "budget")
    assert result["sensitivity"]["verdict"] == "unknown"
    assert "stopped early" in result["sensitivity"]["reason"]


def moved(frame: pd.DataFrame, *, heads: int, fall: float) -> pd.DataFrame:
    """Return the runs with an error at ``heads`` that falls by ``fall`` decades per doubling."""
    steps = np.log2(BUDGETS[-1] / frame["budget"])
    here = frame["heads"] == heads
    return frame.assign(nmse=frame["nmse"] * np.where(here, 10 ** (fall * steps), 1.0))


def answer_frame(frame: pd.DataFrame, *, can_be_extended: bool = True) -> TransitionResult:
    """Answer the runs as a study's: at the largest budget that all cells have."""
    cells = frame.groupby(["heads", "seq_len"])["budget"].agg(set)
    budget = max(set.intersection(*cells))
    runs = Runs(frame, "nmse")
    ladder = ladder_of(runs, ["heads", "seq_len"], "budget", answered=budget)
    answer = partial(fit, settings=QUICK)
    alone = Runs(frame[frame["budget"] == budget], "nmse")
    extend = budget if can_be_extended else None
    ladder = replace(ladder, unit="epochs", to_extend=extend)
    return with_training(answer(alone), ladder, answer)


def with_missing_runs(
    frame: pd.DataFrame, missing: tuple[Missing, ...], fall: float
) -> pd.DataFrame:
    """Return the runs with the missing ones, whose error lies ``fall`` decades lower."""
    parts = [frame]
    for cell in missing:
        here = frame[np.logical_and.reduce([frame[axis] == v for axis, v in cell.at.items()])]
        last = here[here["budget"] == here["budget"].max()]
        assert len(last) == cell.seeds
        parts.append(last.assign(budget=cell.budget, nmse=last["nmse"] * 10**-fall))
    return pd.concat(parts, ignore_index=True)


def test_a_head_count_that_still_falls_keeps_the_answer_open_and_is_trained_longer() -> None:
    sweep = ladder_sweep("settled", 3)
    assert sweep.h_star is not None
    frame = moved(sweep.frame, heads=sweep.h_star - 1, fall=0.3)
    result = answer_frame(frame)
    assert (result.verdict, result.h_star) == ("collapse", sweep.h_star)
    assert sensitivity_of(result).verdict != "settled"
    assert {cell.budget for cell in result.missing} == {300}
    decisive = {cell.at["heads"] for cell in result.missing}
    assert {sweep.h_star - 1, sweep.h_star} <= decisive < set(frame["heads"])
    finding = transition_finding(result)
    assert finding.missing == result.missing
    titles = [section.title for section in finding.tables]
    assert titles[1:] == ["Answer at each budget", "Runs that would settle it"]
    assert "what would tell:" in " ".join(finding.sentences)
    fixed = answer_frame(frame, can_be_extended=False)
    assert (sensitivity_of(fixed).verdict, fixed.missing) == (sensitivity_of(result).verdict, ())
    # What decides is trained on, and no further gain comes.
    still = answer_frame(with_missing_runs(frame, result.missing, 0.0))
    assert (still.h_star, sensitivity_of(still).verdict) == (sweep.h_star, "settled")
    # What decides is trained on, and gives another answer there: all cells follow.
    longer = with_missing_runs(frame, result.missing, 0.0)
    here = (longer["budget"] == 300) & (longer["heads"] == sweep.h_star - 1)
    longer.loc[here, "nmse"] *= 10**-3.0
    longer_result = answer_frame(longer)
    assert sensitivity_of(longer_result).verdict == "moving"
    assert sensitivity_of(longer_result).reason.startswith("at 300 epochs the answer would ")
    whole = with_missing_runs(longer, longer_result.missing, 0.0)
    assert set(whole.groupby(["heads", "seq_len"])["budget"].max()) == {300}
    assert answer_frame(whole).h_star == sweep.h_star - 1


def test_an_answer_of_one_budget_is_given_a_shorter_one_in_all_cells() -> None:
    frame = ladder_sweep("settled", 3).frame.query("budget == 150")
    result = answer_frame(frame)
    assert {cell.budget for cell in result.missing} == {75}
    assert len(result.missing) == len(frame[["heads", "seq_len"]].drop_duplicates())
    cheaper = "two budgets show how the answer moves with training, and a shorter one costs less"
    trains = f"what would tell: {len(frame)} runs of 75 epochs"
    assert transition_finding(result).sentences[-1].endswith(f"({trains}; {cheaper}).")
    assert answer_frame(frame, can_be_extended=False).missing == ()


def test_seeds_that_no_two_budgets_share_settle_nothing() -> None:
    frame = ladder_sweep("settled", 3).frame
    frame.loc[(frame["budget"] == 150) & (frame["heads"] == 2), "seed"] += 100
    sensitivity = sensitivity_of(answer_frame(frame))
    assert (sensitivity.verdict, len(sensitivity.answers)) == ("unknown", 3)
    assert "fewer than two seeds" in sensitivity.reason


def test_what_grows_together_does_not_move() -> None:
    """A drop that grows while the values behind it fall alike is settled, however far they fall."""
    rng = np.random.default_rng(0)
    rows = []
    for heads in range(1, 7):
        for length in (8, 64):
            for seed in range(3):
                seed_noise = 0.08 * rng.standard_normal()
                for step, budget in enumerate(BUDGETS):
                    fall = 0.4 if heads >= 4 else 0.02
                    level = -1.0 - 0.2 * heads - 2.4 * (heads >= 4) - fall * step
                    y = level + seed_noise + 0.03 * rng.standard_normal()
                    rows.append((heads, length, seed, budget, 10**y))
    frame = pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "budget", "nmse"])
    result = answer_frame(frame)
    assert (result.verdict, result.h_star, sensitivity_of(result).verdict) == (
        "collapse",
        4,
        "settled",
    )


def test_settled_is_rarely_wrong_and_mostly_found() -> None:
    families = ["settled", "settled_growth", "moves", "growth_appears", "shrinks", "late"]
    calibration = calibrate(
        [f"budgets_{name}" for name in families],
        sweeps=6, first_seed=500, varied=False, settings=replace(QUICK, B=100, n_mc=99),
    )  # fmt: skip
    wrong = [row.value for row in calibration.rows if row.quantity.endswith("and wrong")]
    called = [row.value for row in calibration.rows if row.quantity.endswith("called settled")]
    assert (len(wrong), max(wrong)) == (6, 0)
    assert sum(called) / len(called) >= 0.75


def test_budget_rows_count_settled_answers() -> None:
    cases = [("settled", True), ("settled", False), ("moving", False), ("unknown", True)]
    outcomes = [BudgetOutcome("settled", True, verdict, right) for verdict, right in cases]
    rows = budget_rows([*outcomes, BudgetOutcome("settled", False, "unknown", True)])
    assert [(row.value, row.holds) for row in rows] == [(0.2, False), (0.5, False)]


@pytest.mark.parametrize(("power", "budgets"), [(0.5, BUDGETS), (1.2, BUDGETS), (0.7, BUDGETS[1:])])
@pytest.mark.parametrize("is_log", [False, True])
def test_what_is_left_follows_from_the_power_that_the_budgets_show(
    power: float, budgets: tuple[int, ...], is_log: bool
) -> None:
    rng = np.random.default_rng(0)
    left = np.array([0.2, 0.5, 0.1])
    relative = np.array(budgets) / budgets[-1]
    curves = []
    for rest in left:
        y = 0.8 - rest * relative**-power
        if is_log:
            y = np.log10(1 + rest / (1 - rest) * relative**-power)
        curves.append(y + 2e-3 * rng.standard_normal((8, len(budgets))))
    draws = futures(
        curves, budgets, answer_index=len(budgets) - 1, is_log=is_log, groups=[0, 1, 2],
        courses=[0, 1, 2], draws=400, rng=rng,
    )  # fmt: skip
    ahead = 100.0**-power
    truth = np.log10(1 - left * (1 - ahead)) if is_log else left * (1 - ahead)
    low, high = np.quantile(draws.end(), [0.02, 0.98], axis=1)
    assert np.all((low < truth) & (truth < high))
    assert np.abs(draws.at(budgets[-1])).max() == pytest.approx(0)
    # Two budgets leave the power to what is believed beforehand.
    if not is_log:
        assert (high[1] - low[1] > left[1]) == (len(budgets) == 2)


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
    ladder = ladder_of(Runs(frame, "nmse"), ["heads"], "budget")
    assert [(rung.budget, len(rung.runs.frame)) for rung in ladder.rungs] == [(10, 4), (20, 4)]
    assert ladder.column == "budget"
    last = furthest(frame, ["heads", "seed"])
    assert set(last["budget"]) == {20}
    assert len(last) == 4
    # Cells of different budgets are one sweep.
    own = frame[frame["budget"] == frame["heads"] * 10]
    assert ladder_of(Runs(own, "nmse"), ["heads"], "budget").rungs == ()
    assert furthest(own, ["heads", "seed"]).equals(own)


def shapes(left: dict[int, float], *, limit: float = 0.302, seed: int = 0) -> pd.DataFrame:
    """Return errors that fall as 1 / budget: ``left`` over the budget is what each shape has to go.

    Of two cheaper shapes, 2 heads end at ``limit`` and 1 head far above the baseline's 0.3.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for heads, end in ((4, 0.3), (2, limit), (1, 0.45)):
        for replicate in range(6):
            seed_noise = 0.004 * rng.standard_normal()
            for budget in BUDGETS:
                error = (
                    end + left.get(heads, 1.0) / budget + seed_noise + 0.002 * rng.standard_normal()
                )
                rows.append((heads, heads * 1000, replicate, budget, error))
    return pd.DataFrame(rows, columns=["heads", "num_params", "seed", "budget", "error"])


def lean(frame: pd.DataFrame, margin: float = 0.02) -> LeanResult:
    answer = partial(
        fit_lean, config=["heads"], costs=["num_params"], baseline={"heads": 4}, margin=margin,
        goal="min",
    )  # fmt: skip
    ladder = ladder_of(Runs(frame, "error"), ["heads"], "budget", answered=150)
    alone = Runs(frame.query("budget == 150"), "error")
    ladder = replace(ladder, unit="epochs", to_extend=150)
    return with_lean_training(answer(alone), ladder, answer)


def test_a_gap_that_stays_settles_a_lean_answer() -> None:
    result = lean(shapes({}))
    assert (result.verdict, result.choice, sensitivity_of(result).verdict) == (
        "found",
        "heads=2",
        "settled",
    )
    assert [row.budget for row in sensitivity_of(result).answers] == list(BUDGETS)
    assert lean_finding(result).badge == ("leaner equivalent found, settled", "found")
    titles = [section.title for section in lean_finding(result).tables]
    assert titles[:2] == ["Candidates", "Answer at each budget"]
    one = lean(shapes({}).query("budget == 150"))
    assert sensitivity_of(one).is_single
    assert {cell.budget for cell in one.missing} == {75}


@pytest.mark.parametrize(
    ("left", "limit", "verdict"),
    [
        # The lean shape is at its end, and the baseline still falls: the gap opens.
        ({4: 2.5, 2: 1.0}, 0.316, "unknown"),
        # Within the margin at the last budget, far beyond it at the next.
        ({4: 6.0, 2: -3.0}, 0.370, "moving"),
    ],
)
def test_a_gap_that_opens_is_not_settled(
    left: dict[int, float], limit: float, verdict: str
) -> None:
    assert sensitivity_of(lean(shapes(left, limit=limit))).verdict == verdict


def test_the_shapes_that_decide_are_trained_longer_and_settle_the_answer() -> None:
    frame = shapes({4: 2.5, 2: 1.0}, limit=0.316)
    missing = lean(frame).missing
    assert [(shape.at, shape.budget) for shape in missing] == [
        ({"heads": 4}, 300), ({"heads": 2}, 300)
    ]  # fmt: skip
    last = frame.query("budget == 150 and heads != 1").assign(budget=300)
    result = lean(pd.concat([frame, last]))
    assert sensitivity_of(result).verdict == "settled"
    # Where the gap has passed the margin there, every shape follows.
    worse = last.assign(error=last["error"] + np.where(last["heads"] == 2, 0.05, 0.0))
    then = lean(pd.concat([frame, worse]))
    assert sensitivity_of(then).verdict == "moving"
    assert [(shape.at, shape.budget) for shape in then.missing] == [({"heads": 1}, 300)]


@pytest.mark.parametrize(
    ("deep", "is_settled"), [((5.65, 5.08, 4.59), False), ((5.65, 4.95, 4.6), True)]
)
def test_a_baseline_that_learns_more_slowly_may_yet_overtake(
    deep: tuple[float, ...], is_settled: bool
) -> None:
    # The lean one halves what it still gains at every budget, as the deep one of the second case.
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        (heads, heads * 1000, seed, budget, value + 0.02 * rng.standard_normal())
        for heads, values in ((4, deep), (2, (5.3, 4.6, 4.25)))
        for budget, value in zip(BUDGETS, values, strict=True)
        for seed in range(4)
    )
    frame.columns = ["heads", "num_params", "seed", "budget", "error"]
    assert (sensitivity_of(lean(frame, 0.05)).verdict == "settled") == is_settled
