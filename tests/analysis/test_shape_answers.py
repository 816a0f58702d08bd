"""Effects in the report, in figures, on the command line and of a study."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from report_examples import finding, report_input
from simulated_shapes import additive, analysed, grid
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

import hsweep
from analysis.answer import Answer
from analysis.ask import answer_study, ask_study
from analysis.charts.matplotlib_print import save_figures
from analysis.questions.effects import fit as effects
from analysis.questions.effects.charts import effect_charts, effect_rows
from analysis.questions.effects.kind import EFFECTS
from analysis.questions.effects.result import EffectsResult
from analysis.report.build import build_report, report_charts
from analysis.report.build import report_input as study_report
from analysis.result_files import write_answer
from hsweep.cli import main
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

OPTIONS: dict[str, Any] = {"config": ["heads", "depth"], "metric": "score"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return grid(additive, 1, sd=0.05)


@pytest.fixture(scope="module")
def told(frame: pd.DataFrame) -> EffectsResult:
    return analysed(effects.fit, frame, **OPTIONS)


def test_the_chart_shows_every_axis_and_step(told: EffectsResult) -> None:
    (gains,) = effect_charts(told)
    assert gains.name == "effects"
    assert sum(len(series.points) for series in gains.series) == 2 + 4


def test_the_report_and_the_figures_have_them(told: EffectsResult, tmp_path: Path) -> None:
    shown = report_input(effects=told)
    page = build_report(shown)
    for text in (
        "Effects of single axes",
        "Axes together",
        "One step up in heads (2, 4, 8)",
    ):
        assert text in page
    written = {path.stem for path in save_figures(report_charts(shown), tmp_path, ["svg"])}
    assert "effects" in written


def analyse(path: Path, *more: str) -> Any:
    asked = ["--table", str(path), "--metric", "score", "--goal", "max", *more]
    arguments = ["analyze", *asked, "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_any_table_can_be_asked(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    content = analyse(path, "--kind", "effects", "--setting", "alpha=0.01")
    assert (content["kind"], content["settings"]["alpha"]) == ("effects", 0.01)
    assert [axis["verdict"] for axis in content["axes"]] == ["helps", "hurts"]
    asked = ["--table", str(path), "--metric", "score", "--goal", "max", "--kind", "effects"]
    plain = CliRunner().invoke(main, ["analyze", *asked])
    assert "One step up in heads" in plain.stdout


def test_a_file_has_a_row_for_every_axis_and_step(told: EffectsResult, tmp_path: Path) -> None:
    write_answer(Answer((finding(told),)), tmp_path / "r.parquet")
    rows = pd.read_parquet(tmp_path / "r.parquet")
    assert rows["axis"].tolist() == ["heads"] * 3 + ["depth"] * 3
    assert rows["from"].isna().tolist() == [True, False, False] * 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--kind", "effects", "--margin", "0.1"], "--margin belongs to --kind lean"),
        (["--kind", "effects", "--config", "width"], "width"),
        (["--kind", "effects", "--setting", "draws=3"], "unknown setting 'draws'"),
    ],
)
def test_mistakes_are_one_message(
    frame: pd.DataFrame, tmp_path: Path, more: list[str], message: str
) -> None:
    path = tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    asked = ["--table", str(path), "--metric", "score", "--goal", "max", *more]
    result = CliRunner().invoke(main, ["analyze", *asked])
    assert result.exit_code == 2
    assert message in result.stderr


def asked(study: StudyFolder) -> Answer:
    return ask_study(study, EFFECTS, {"settings": ()})


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    sweep = tiny_sweep(
        space=hsweep.grid(heads=[1, 2, 4], width=[4, 8], lr=[0.05, 0.1]),
        recipe=lambda point: hsweep.Recipe(lr=point.lr, batch_size=8),
        replicates=2,
        question=hsweep.Transition(x="heads", by="width"),
    )
    found = new_study(Home(tmp_path), sweep=sweep)
    with recording(found, sweep) as (journal, trials):
        for at, trial in enumerate(trials):
            point = trial.point
            error = 0.01 * point["width"] / point["heads"] ** 2 / point["lr"]
            finish(journal, trial, error * (1 + at / 100))
    return found


def test_a_study_says_what_axes_do_that_its_question_does_not_ask_about(
    study: StudyFolder,
) -> None:
    answer = answer_study(study)
    told = answer.result(EffectsResult)
    assert told is not None
    (rate,) = told.axes
    assert (rate.axes, rate.verdict, rate.p_holm) == (("lr",), "helps", rate.p)
    assert (told.held, told.interactions, told.scale) == (("heads", "width"), (), "error")
    assert any("heads is what the question asks about" in text for text in told.warnings)
    assert {effect.axes for effect, _ in effect_rows(told)} == {("lr",)}
    content = answer.to_json()
    assert content["kind"] == "transition"
    assert content["effects"]["axes"][0]["axes"] == ["lr"]
    with study.reading() as tables:
        page = build_report(study_report(study, answer, {}, tables))
    assert "Effects of single axes" in page


def test_effects_that_the_answer_has_told_are_left_out(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=hsweep.grid(heads=[1, 2, 4], width=[4, 8]),
        replicates=2,
        question=hsweep.Transition(x="heads", by="width"),
    )
    found = new_study(Home(tmp_path), sweep=sweep)
    with recording(found, sweep) as (journal, trials):
        for at, trial in enumerate(trials):
            finish(journal, trial, 0.1 * trial.point["width"] / (1 + at % 7))
    answer = answer_study(found)
    assert answer.result(EffectsResult) is None
    with pytest.raises(UserError, match="besides heads, width, as the question asks"):
        asked(found)


def test_settings_that_a_question_names_are_no_shapes(tmp_path: Path) -> None:
    sweep = tiny_sweep(
        space=hsweep.grid(heads=[1, 2, 4], width=[4, 8], lr=[0.01, 0.1]),
        recipe=lambda point: hsweep.Recipe(lr=point.lr, batch_size=8),
        replicates=2,
        question=hsweep.lean({"heads": 4, "width": 8}, margin=0.1, scale="error", nuisance=("lr",)),
    )
    found = new_study(Home(tmp_path), sweep=sweep)
    with recording(found, sweep) as (journal, trials):
        for trial in trials:
            point = trial.point
            error = 0.01 * point["width"] / point["heads"] / (1 + 9 * (point["lr"] == 0.1))
            finish(journal, trial, error * (1 + trial.replicate / 100))
    answer = answer_study(found)
    told = answer.result(EffectsResult)
    assert told is not None
    assert [axis.axes for axis in told.axes] == [("heads",), ("width",)]
    assert (told.nuisance, told.tried) == (("lr",), 6)
    # Of the better rate: a doubling of heads halves the error, one of width doubles it.
    gains = [axis.gain.estimate for axis in told.axes]
    assert gains == pytest.approx([math.log10(2), -math.log10(2)], abs=0.01)


def test_a_study_can_be_asked_for_them_alone(study: StudyFolder) -> None:
    assert "One step up in lr" in asked(study).text
