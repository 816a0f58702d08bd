"""Questions put to any table, as the command line does."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.answer import Answer
from analysis.ask import ask_table
from hsweep.errors import UserError

NOTHING: dict[str, Any] = dict.fromkeys(
    [
        "kind",
        "metric",
        "goal",
        "x",
        "by",
        "scale",
        "eval_size",
        "baseline",
        "margin",
        "status_column",
        "budget_column",
        "target_budget",
    ]
)


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


def ask(path: Path, **asked: Any) -> Answer:
    defaults = NOTHING | {"replicate": "seed", "config": (), "costs": (), "complete": "finished"}
    return ask_table(path, **(defaults | asked))


def test_the_shape_of_a_study_is_its_axes_not_what_was_measured(study_table: Path) -> None:
    answer = ask(study_table, kind="pareto", metric="top1")
    assert answer.pareto is not None
    assert [row.config for row in answer.pareto.table] == [{"heads": 1}, {"heads": 2}]


def test_what_a_probe_measured_is_no_part_of_the_shape(study_table: Path) -> None:
    frame = pd.read_csv(study_table)
    # Few values, none of them missing: by its looks an axis.
    frame["probed_layers"] = frame["heads"] * 2.0
    frame["condition_number_layer_00"] = frame["seed"] * 1.0
    frame.to_csv(study_table, index=False)
    answer = ask(study_table, kind="pareto", metric="top1")
    assert answer.pareto is not None
    assert [row.config for row in answer.pareto.table] == [{"heads": 1}, {"heads": 2}]


def test_a_lean_question_names_its_baseline_by_axis(study_table: Path) -> None:
    answer = ask(study_table, kind="lean", metric="top1", baseline="heads=2", margin=0.05)
    assert answer.lean is not None
    assert answer.lean.choice_config == {"heads": 1}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "top1"}, "--kind"),
        ({"kind": "pareto"}, "--metric"),
        ({"kind": "pareto", "metric": "top2"}, "Did you mean 'top1'"),
        ({"kind": "lean", "metric": "top1"}, "--baseline"),
        ({"kind": "lean", "metric": "top1", "baseline": "heads=2"}, "--margin"),
        ({"kind": "lean", "metric": "top1", "baseline": "depth=2", "margin": 1.0}, "depth"),
        ({"kind": "lean", "metric": "top1", "baseline": "heads=", "margin": 1.0}, "COLUMN=VALUE"),
    ],
)
def test_a_question_that_cannot_be_put_says_what_is_missing(
    study_table: Path, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ask(study_table, **asked)
