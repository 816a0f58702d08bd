"""What the end of a run takes is imported before anything trains, once and whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tiny_studies import SWEEP_FILE

from hsweep.paths import Home
from hsweep.record.journal_reader import JournalReader
from hsweep.tracking.store import MlflowClient
from hsweep.tracking.target import StoreState, TrackingTarget, tracking_target

ROOT = Path(__file__).parents[2]
TARGET = TrackingTarget("sqlite:////nowhere/mlflow.db", None, "tiny")


def test_a_study_of_a_second_in_a_fresh_home_delivers_everything(tmp_path: Path) -> None:
    sweep = tmp_path / "question.py"
    sweep.write_text(SWEEP_FILE)
    done = subprocess.run(
        [sys.executable, "-m", "hsweep", "run", str(sweep), "--runner", "inline", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "HSWEEP_HOME": str(tmp_path / "h")},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["finished"] == 3
    assert told["wall_seconds"] > 0
    assert "has not got" not in done.stderr
    target = tracking_target(None, Home(tmp_path / "h"), "tiny")
    record = tmp_path / "h" / "studies" / "tiny-quick" / "journal"
    with JournalReader(record) as journal:
        assert StoreState.of(record, target).cursor == journal.last_seq()
    client = MlflowClient(tracking_uri=target.uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.tags.get("hsweep.status", "the study") for run in runs) == [
        *["finished"] * 3,
        "the study",
    ]
    assert all(run.info.status == "FINISHED" for run in runs)
