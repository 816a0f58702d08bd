"""Whether a lean answer would survive more training, from runs of several budgets."""

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

from analysis.questions.lean.budgets import with_budgets
from analysis.questions.lean.fit import fit
from analysis.questions.lean.result import LeanResult
from analysis.runs.ladder import ladder_of
from analysis.runs.table import Runs
from analysis.statistics.training import gains
from hsweep.cli import main

BUDGETS = (38, 75, 150)


def shapes(left: dict[int, float], *, limit: float = 0.302, seed: int = 0) -> pd.DataFrame:
    """Return errors that fall as 1 / budget: ``left`` over the budget is what each shape has to go.

    Of two cheaper shapes, 2 heads end at ``limit`` and 1 head far above the baseline's 0.3.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for heads, end in ((4, 0.3), (2, limit), (1, 0.45)):
        for replicate in range(6):
            own = 0.004 * rng.standard_normal()
            for budget in BUDGETS:
                error = end + left.get(heads, 1.0) / budget + own + 0.002 * rng.standard_normal()
                rows.append((heads, heads * 1000, replicate, budget, error))
    return pd.DataFrame(rows, columns=["heads", "num_params", "seed", "budget", "error"])


def analyze(frame: pd.DataFrame, path: Path, margin: str = "0.02") -> dict[str, Any]:
    frame.to_csv(path / "runs.csv", index=False)
    asked = ["analyze", "--table", str(path / "runs.csv"), "--kind", "lean", "--metric", "error"]
    asked += ["--goal", "min", "--config", "heads", "--cost", "num_params", "--json"]
    asked += ["--baseline", "heads=4", "--margin", margin, "--budget-column", "budget"]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.output
    content: dict[str, Any] = json.loads(shown.stdout)
    return content


def test_a_gap_that_stays_settles_the_answer_and_is_shown_at_each_budget(tmp_path: Path) -> None:
    found = analyze(shapes({}), tmp_path)
    assert (found["verdict"], found["choice"]) == ("found", "heads=2")
    budgets = found["budgets"]
    assert budgets["verdict"] == "settled"
    assert "Settled: the same at budget = 75" in found["answer"]
    assert [each["budget"] for each in budgets["answers"]] == list(BUDGETS)
    gaps = {row["label"]: row["diff"] for row in budgets["answers"][-1]["gaps"]}
    assert gaps == {row["label"]: row["ci"] for row in found["table"]}


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
    left: dict[int, float], limit: float, verdict: str, tmp_path: Path
) -> None:
    budgets = analyze(shapes(left, limit=limit), tmp_path)["budgets"]
    assert budgets["verdict"] == verdict


def test_the_shapes_that_decide_are_trained_longer_and_settle_the_answer() -> None:
    frame = shapes({4: 2.5, 2: 1.0}, limit=0.316)

    def asked(frame: pd.DataFrame) -> LeanResult:
        answer = partial(
            fit, config=["heads"], costs=["num_params"], baseline={"heads": 4}, margin=0.02,
            goal="min",
        )  # fmt: skip
        ladder = ladder_of(Runs(frame, "error"), ["heads"], "budget", "epochs", answered=150)
        alone = Runs(frame.query("budget == 150"), "error")
        return with_budgets(answer(alone), replace(ladder, to_extend=150), answer)

    budgets = asked(frame).budgets
    assert budgets is not None
    assert [(each.label, each.budget) for each in budgets.missing] == [
        ("heads=4", 300), ("heads=2", 300)
    ]  # fmt: skip
    last = frame.query("budget == 150 and heads != 1").assign(budget=300)
    found = asked(pd.concat([frame, last]))
    assert found.budgets is not None
    assert (found.budgets.verdict, found.budgets.further) == ("settled", (300,))
    assert "the same at 300 epochs where it is decided" in found.budgets.reason
    # Where the gap has passed the margin there, every shape follows.
    worse = last.assign(error=last["error"] + np.where(last["heads"] == 2, 0.05, 0.0))
    then = asked(pd.concat([frame, worse])).budgets
    assert then is not None
    assert (then.verdict, then.reason) == ("moving", "at 300 epochs a gap would pass the margin")
    assert [(each.label, each.budget) for each in then.missing] == [("heads=1", 300)]


def test_a_shorter_budget_that_decides_nothing_does_not_contradict(tmp_path: Path) -> None:
    # Two seeds are too few to decide at the shorter budgets.
    little = dict.fromkeys((4, 2, 1), 0.3)
    frame = shapes(little, seed=1).query("budget == 150 or seed < 2")
    budgets = analyze(frame, tmp_path)["budgets"]
    verdicts = {each["budget"]: each["verdict"] for each in budgets["answers"]}
    assert (verdicts[75], verdicts[150]) == ("undecided", "found")
    assert budgets["verdict"] == "settled"
    assert "nothing speaks against it at budget = 75" in budgets["reason"]


def test_another_choice_at_a_shorter_budget_is_moving(tmp_path: Path) -> None:
    found = analyze(shapes({2: 8.0}, limit=0.26), tmp_path)
    assert found["verdict"] == "found"
    assert found["budgets"]["reason"] == "every cheaper shape was worse at budget = 75"


@pytest.mark.parametrize(
    ("deep", "is_settled"), [((5.65, 5.08, 4.59), False), ((5.65, 4.95, 4.6), True)]
)
def test_a_baseline_that_learns_more_slowly_may_yet_overtake(
    deep: tuple[float, ...], is_settled: bool, tmp_path: Path
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
    budgets = analyze(frame, tmp_path, margin="0.05")["budgets"]
    assert (budgets["verdict"] == "settled") == is_settled


def test_one_budget_says_so_and_a_result_survives_its_file(tmp_path: Path) -> None:
    found = analyze(shapes({}).query("budget == 150"), tmp_path)
    assert found["answer"].endswith("One budget only: longer training was not tried.")
    several = analyze(shapes({}), tmp_path)
    fields = {name: several[name] for name in LeanResult.__dataclass_fields__}
    result = LeanResult.from_json(fields)
    titles = [each.title for each in examples.finding(result).tables]
    assert titles[:2] == ["Candidates", "Gap to the baseline at each budget"]
    assert examples.finding(result).badge == ("leaner equivalent found, settled", "found")


@pytest.mark.parametrize(("power", "budgets"), [(0.5, BUDGETS), (1.2, BUDGETS), (0.7, BUDGETS[1:])])
def test_what_is_left_follows_from_the_power_that_the_budgets_show(
    power: float, budgets: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    left = np.array([0.02, 0.05, 0.01])
    relative = np.array(budgets) / budgets[-1]
    curves = [
        0.8 - each * relative**-power + 1e-3 * rng.standard_normal((8, len(budgets)))
        for each in left
    ]
    found = gains(curves, budgets, exponent=0.7, draws=400, rng=rng)
    assert found.last.shape == found.left.shape == (3, 400)
    low, high = np.quantile(found.left, [0.025, 0.975], axis=1)
    assert np.all((low < left) & (left < high))
    # One that stops earlier has as much more to gain; the others lend it the power.
    short = [*curves[:2], np.where(relative < 1, curves[2], np.nan)] if len(budgets) > 2 else curves
    ahead = gains(short, budgets, exponent=0.7, draws=400, rng=rng)
    own = left[2] * (2**power if len(budgets) > 2 else 1)
    assert np.isnan(ahead.at[2, :, -1]).all() == (len(budgets) > 2)
    first, end = np.quantile(ahead.left[2], [0.025, 0.975])
    assert first < own < end
    # Two budgets leave the power to what is believed beforehand.
    is_wide = high[1] - low[1] > left[1]
    assert is_wide == (len(budgets) == 2)
