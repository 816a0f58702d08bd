"""A study of a user's own training, from its run to its tables, its MLflow store and its answer."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]

SWEEP = '''"""How many heads?"""
from hsweep import *

def train(point, run, rate=1.0):
    for epoch in (run.budget - 1, run.budget):
        value = 0.5 + 0.1 * min(point["heads"], 4) / 4 + 0.01 * epoch + run.seeds.init % 7 / 1e4
        more = {"odd/f1": value / 2} if point["heads"] > 1 else {}
        more |= {"early": 1.0} if epoch < run.budget else {}
        run.report(epoch, top1=value, loss=1 - value, num_params=1000 * point["heads"], **more)

SWEEP = Sweep(name="own", space=grid(heads=(1, 4, 8)), train=train, metric="top1", goal="max",
              budget=epochs(3), replicates=2, depends_on=["data.txt"],
              question=lean({"heads": 8}, margin=0.05))
'''
LOOP = """from hsweep import grid
from tiny import tiny_sweep
SWEEP = tiny_sweep(name="own", space=grid(width=(1, 2)), replicates=1)
"""


@pytest.fixture
def done(hsweep: Invoke, tmp_path: Path) -> Callable[..., Result]:
    """Write a sweep file and what it depends on; run it, or another command with it."""
    (tmp_path / "data.txt").write_text("data")

    def call(source: str, *arguments: object, command: str = "run", rc: int = 0) -> Result:
        file = tmp_path / "sweep.py"
        file.write_text(source)
        inline = ("--runner", "inline") if command == "run" else ()
        result = hsweep(command, *(arguments or (file,)), *inline)
        assert result.exit_code == rc, result.output
        return result

    return call


def test_all_that_a_function_reports_is_on_record_and_answers(
    done: Callable[..., Result], hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    told = done(SWEEP).output
    study = StudyFolder.open(home, "own-quick")

    trials = pq.read_table(study.paths.trials_table).to_pylist()
    reports = pq.read_table(study.paths.reports_table).to_pylist()
    assert {row["num_params"] for row in trials} == {1000, 4000, 8000}
    assert all(row["loss"] == pytest.approx(1 - row["top1"]) for row in trials + reports)
    assert [row["odd/f1"] is None for row in trials] == [row["heads"] == 1 for row in trials]
    assert sum(row["odd/f1"] is None for row in reports) == 4
    assert [row["early"] for row in reports] == [1.0, None] * 6
    assert [row["unit"] for row in reports if row["key"] == trials[0]["key"]] == [2, 3]

    assert "heads=4 does as well as heads=8, with 50% fewer parameters" in told
    page = study.paths.report.read_text()
    for shown in ("training_function", "depends_on", str(tmp_path / "data.txt")):
        assert shown in page
    shown = hsweep("show", "own-quick").output
    assert "waiting for data" not in shown
    assert json.loads(hsweep("show", "own-quick", "--json").output)["data_wait_share"] is None

    store = sqlite3.connect(home.root / "mlflow" / "mlflow.db")
    tags = store.execute("SELECT value FROM tags WHERE key = 'hsweep.training'").fetchall()
    assert tags == [("train",)] * 7
    metrics = {name for (name,) in store.execute("SELECT DISTINCT key FROM latest_metrics")}
    assert metrics >= {"top1", "loss", "odd/f1", "num_params"}
    params = store.execute("SELECT DISTINCT key FROM params").fetchall()
    assert sorted(params) == [("epochs",), ("heads",), ("replicate",)]
    store.close()

    other = SWEEP.replace('metric="top1", goal="max"', 'metric="loss", goal="min"').replace(
        'question=lean({"heads": 8}, margin=0.05)', ""
    )
    told = done(other, tmp_path / "sweep.py", "--study", "other").output
    assert "6 of 6 trials taken from study own-quick" in told
    taken = pq.read_table(StudyFolder.open(home, "other").paths.trials_table).to_pylist()
    assert [row["odd/f1"] for row in taken] == [row["odd/f1"] for row in trials]


def test_what_changed_is_told_by_its_name(
    done: Callable[..., Result], hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    """Also where a sweep was trained by this project's loop before."""
    file = tmp_path / "sweep.py"
    done(LOOP)
    edited = (
        LOOP.replace("SWEEP", "LOOP")
        + """
from hsweep import *
def train(point, run):
    run.report(run.budget, nmse=1.0)
SWEEP = Sweep(name="own", space=grid(width=(1, 2)), train=train, metric="nmse", goal="min",
              budget=LOOP.budget)
"""
    )
    told = done(edited, file, "--study", "own-quick", "--dry-run").output
    assert "it is trained in another way (train=)" in told
    assert "new        2" in told

    done(SWEEP, file, "--study", "mine")
    changes: list[tuple[str, str, str]] = [
        ("0.01 * epoch", "0.02 * epoch", "its training function code (the sweep file) has changed"),
        ("train=train", "train=lambda p, r: train(p, r)", "its training function and training fun"),
        ("epochs(3)", "epochs(4)", "its budget is now 4 epochs"),
        (
            "train=train",
            "train=command('python sweep.py {heads} {seed}')",
            "it is trained in another way",
        ),
    ]
    for old, new, why in changes:
        told = done(SWEEP.replace(old, new), file, "--study", "mine", "--dry-run").output
        assert why in told
    assert "nothing to prepare" in hsweep("data", "prepare", file).output

    changed = SWEEP.replace("0.01 * epoch", "0.01 * epoch + 0")
    told = done(changed, file, "--study", "mine", "--accept-code").output
    assert "6 trials kept although the training function code (the sweep file) had changed" in told
    accepted: dict[str, Any] = dict(StudyFolder.open(home, "mine").manifest.accepted[0]["files"])
    assert accepted == {"training_function_code": ["the sweep file"]}
