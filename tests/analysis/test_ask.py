"""Questions put to any table, as the command line does."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from hsweep.cli import main


@pytest.fixture
def study_table(tmp_path: Path) -> Path:
    """Two shapes and three seeds in the columns of a study's own export."""
    rows = [
        {
            "key": f"t{heads}{seed}",
            "study": "s",
            "heads": heads,
            "seed": seed,
            "status": "finished",
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
    assert answer["choice_config"] == {"heads": 1}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kind": "pareto", "metric": "top2"}, "Did you mean 'top1'"),
        ({"kind": "lean"}, "--baseline"),
        ({"kind": "lean", "baseline": "heads=2"}, "--margin"),
        ({"kind": "lean", "baseline": "depth=2", "margin": 1.0}, "depth"),
        ({"kind": "lean", "baseline": "heads=", "margin": 1.0}, "COLUMN=VALUE"),
        ({"kind": "pareto", "baseline": "heads=2"}, "--baseline belongs to --kind lean or surrog"),
        ({"kind": "lean", "replicate": "rep"}, "unknown column 'rep'"),
        ({"kind": "pareto", "pruned": "cut", "status-column": "ended"}, "there is no ended"),
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
    short, lean = (
        CliRunner().invoke(main, ["analyze", *asked, "-h"]).stdout
        for asked in ([], ["--kind", "lean"])
    )
    assert "--baseline" not in short
    assert "Which cheaper shapes are no worse than a baseline" in short
    assert "--baseline" in lean
    assert "max_prior_df" in lean
