"""Questions put to any table, as the command line does."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from hsweep.cli import main
from hsweep.commands.analyze import analyze


@pytest.fixture
def study_table(tmp_path: Path) -> Path:
    """Two shapes and three seeds in the columns of a study's own export."""
    rows = [
        {
            "key": f"t{heads}{seed}",
            "study": "s",
            "ordinal": 3 * heads + seed,
            "heads": heads,
            "seed": seed,
            "stratum": f"heads={heads}",
            "status": "finished",
            "attempt": 1,
            "reached": 3,
            "budget": 3,
            "top1": 0.9 + heads / 100 + seed / 1000,
            "train_top1": 0.95 + seed / 1000 + heads / 70,
            "num_params": heads * 1000,
            "wall_seconds": 1.5 * heads + seed,
        }
        for heads in (1, 2)
        for seed in range(3)
    ]
    path = tmp_path / "trials.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def ask(path: Path, **asked: Any) -> Result:
    given = {"metric": "top1", **asked}.items()
    options = [part for name, value in given if value for part in (f"--{name}", str(value))]
    return CliRunner().invoke(main, ["analyze", "--table", str(path), *options, "--json"])


def found(path: Path, **asked: Any) -> dict[str, Any]:
    result = ask(path, **asked)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_the_shape_of_a_study_is_its_axes_not_what_was_measured(study_table: Path) -> None:
    front = found(study_table, kind="pareto")
    assert [row["config"] for row in front["table"]] == [{"heads": 1}, {"heads": 2}]


def test_what_a_probe_measured_is_no_part_of_the_shape(study_table: Path) -> None:
    frame = pd.read_csv(study_table)
    # Few values, none of them missing: by its looks an axis.
    frame["probed_layers"] = frame["heads"] * 2.0
    frame["condition_number_layer_00"] = frame["seed"] * 1.0
    frame.to_csv(study_table, index=False)
    front = found(study_table, kind="pareto")
    assert [row["config"] for row in front["table"]] == [{"heads": 1}, {"heads": 2}]


def test_a_lean_question_names_its_baseline_by_axis(study_table: Path) -> None:
    answer = found(study_table, kind="lean", baseline="heads=2", margin=0.05)
    assert answer["choice"] == "heads=1"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kind": "pareto", "metric": "top2"}, "Did you mean 'top1'"),
        ({"kind": "lean"}, "--baseline"),
        ({"kind": "lean", "baseline": "heads=2"}, "--margin"),
        ({"kind": "lean", "baseline": "depth=2", "margin": 1.0}, "depth"),
        ({"kind": "lean", "baseline": "heads=", "margin": 1.0}, "COLUMN=VALUE"),
        ({"kind": "pareto", "baseline": "heads=2"}, "--baseline belongs to --kind lean"),
        ({"kind": "lean", "replicate": "rep"}, "unknown column 'rep'"),
        ({"kind": "pareto", "pruned": "cut", "status-column": "ended"}, "no column 'ended'"),
        ({}, "a table needs --kind transition, pareto"),
        ({"kind": "pareto", "metric": None}, "--metric"),
    ],
)
def test_a_question_that_cannot_be_put_says_what_is_missing(
    study_table: Path, asked: dict[str, Any], message: str
) -> None:
    result = ask(study_table, **asked)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_help_is_short_and_a_kind_tells_the_rest() -> None:
    def help_text(*words: str) -> str:
        with analyze.make_context("analyze", [*words], resilient_parsing=True) as context:
            return analyze.get_help(context)

    short, lean = help_text(), help_text("--kind", "lean")
    assert "--baseline" not in short
    assert "Which cheaper shapes are no worse than a baseline" in short
    assert "--baseline" in lean
    assert "looks" in lean


def test_a_table_gets_the_page_of_a_study_beside_it(tmp_path: Path, study_table: Path) -> None:
    table = study_table.rename(tmp_path / "their runs.csv")
    options = ["--kind", "pareto", "--metric", "top1", "--goal", "max", "--report"]
    result = CliRunner().invoke(main, ["analyze", "--table", str(table), *options])
    assert result.exit_code == 0, result.output
    page = tmp_path / "their runs.report.html"
    assert f"report {page}" in result.output
    html = page.read_text("utf-8")
    assert "<h1>Which shapes lie on the front of metric and cost?</h1>" in html
    assert "2 of 2 shapes lie on the" in html
    assert "<h3>Best trials</h3>" in html
    # One row a run: nothing to say of curves; no study: nothing of MLflow.
    assert 'id="curves"' not in html
    assert "hsweep ui" not in html
    assert str(table) in html


def test_rows_along_a_budget_are_the_learning_curves_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    pd.DataFrame(
        {
            **{"width": width, "seed": seed, "epoch": epoch, "params": 100 * width},
            "loss": 2 / width / epoch + seed / 100,
        }
        for width in (2, 4, 8)
        for seed in range(3)
        for epoch in (1, 2, 3)
    ).to_csv(table, index=False)
    options = [
        *("--kind", "pareto", "--metric", "loss", "--goal", "min", "--cost", "params"),
        *("--budget-column", "epoch", "--report"),
    ]
    result = CliRunner().invoke(main, ["analyze", "--table", str(table), *options])
    assert result.exit_code == 0, result.output
    html = (tmp_path / "runs.report.html").read_text("utf-8")
    assert 'data-figure="learning-curves"' in html
    assert "median of trials that differ" in html
    trials = json.loads(html.split('id="trials-data">')[1].split("</script>")[0])
    assert len(trials["rows"]) == 9
    at = [column["name"] for column in trials["columns"]].index("epoch")
    assert {row[at] for row in trials["rows"]} == {3}
