"""A kind of question that is added from outside appears wherever findings do."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from analysis import ask
from analysis.ask import answer_study
from analysis.charts.chart import Axis, Chart, Mark, Series
from analysis.charts.matplotlib_print import save_figures
from analysis.charts.palette import BLUE
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.settings import Option, with_settings
from analysis.report.build import build_report, report_charts, report_input
from analysis.runs.table import Runs
from analysis.text.tables import Table
from analysis.values import Jsonable
from hsweep.cli import main
from hsweep.paths import Home


@dataclass(frozen=True, slots=True)
class BestSettings(Jsonable):
    """The one choice of the toy."""

    digits: int = 3


@dataclass(frozen=True, slots=True)
class Best(Jsonable):
    """The best run of all."""

    value: float
    group: str
    settings: BestSettings
    warnings: tuple[str, ...] = ("the best of many runs is lucky",)

    def rows(self) -> pd.DataFrame:
        return pd.DataFrame({"value": [self.value]})


def of_table(runs: Runs, chosen: Mapping[str, Any]) -> Finding:
    settings = with_settings(BestSettings(), chosen["settings"])
    return best_finding(Best(best_of(runs, []), chosen["group"] or "", settings))


def of_study(
    study: StudyRuns, chosen: Mapping[str, Any] | None, findings: Sequence[Finding]
) -> Finding | None:
    value = best_of(study.runs, study.manifest.axes)
    return best_finding(Best(value, study.manifest.name, BestSettings()))


def best_finding(result: Best) -> Finding:
    points = Series((Mark(0.0, result.value),), BLUE, "best")
    chart = Chart("best-run", "The best", "One point.", Axis("run"), Axis("value"), (points,))
    return Finding(
        BEST,
        result,
        (f"The best run is {result.value:.{result.settings.digits}g}.",),
        tables=(Section("Best run", Table(("best",), ((str(result.value),),))),),
        charts=lambda: [chart],
    )


BEST = Kind(
    "best",
    "Which run is the best of all?",
    BestSettings,
    of_study,
    of_table,
    (Option("group", "What to call the runs."),),
)


def best_of(runs: Runs, axes: Sequence[str]) -> float:
    rows, _ = runs.rows(axes)
    return float(rows.runs.loc[rows.runs["complete"], "value"].min())


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "KINDS", (*ask.KINDS, BEST))


@pytest.mark.usefixtures("toy")
def test_any_table_can_be_asked_with_its_options_and_settings(tmp_path: Path) -> None:
    table, out = tmp_path / "runs.csv", tmp_path / "best.parquet"
    pd.DataFrame({"seed": [0, 1, 2], "loss": [0.31, 0.123456, 0.2]}).to_csv(table, index=False)

    def analyze(*given: str) -> str:
        result = CliRunner().invoke(main, ["analyze", *given])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "Which run is the best of all?" in analyze("-h")
    own = analyze("--kind", "best", "-h")
    assert "What to call the runs." in own
    assert "digits" in own
    asked = ("--table", str(table), "--kind", "best", "--metric", "loss", "--group", "mine")
    shown = analyze(*asked, "--setting", "digits=2")
    for text in ("The best run is 0.12.", "Best run", "note: the best of many runs is lucky"):
        assert text in shown
    content = json.loads(analyze(*asked, "--json", "--out", str(out)))
    assert (content["kind"], content["value"], content["group"]) == ("best", 0.123456, "mine")
    assert pd.read_parquet(out)["value"].tolist() == [0.123456]


@pytest.mark.usefixtures("toy")
def test_a_study_shows_it_on_the_page_in_json_and_in_figures(tmp_path: Path) -> None:
    sweep = tiny_sweep()
    study = new_study(Home(tmp_path / "home"), sweep=sweep)
    with recording(study, sweep) as (journal, trials):
        for at, trial in enumerate(trials):
            finish(journal, trial, 0.5 + at)
    answer = answer_study(study)
    content = answer.to_json()
    found = content if content["kind"] == "best" else content["best"]
    assert (found["value"], found["group"]) == (0.5, "mine")
    with study.reading() as tables:
        shown = report_input(study, answer, {}, tables)
    page = build_report(shown)
    for text in ("Best run", "The best run is 0.5.", 'id="figure-best-run"'):
        assert text in page
    assert "the best of many runs is lucky" in page
    written = save_figures(report_charts(shown), tmp_path / "figures", ["svg"])
    assert tmp_path / "figures" / "best-run.svg" in written
