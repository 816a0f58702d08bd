"""What the end of a run takes is imported before anything trains, once and whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tiny_studies import SWEEP_FILE

from hsweep.commands import conclusion
from hsweep.commands.conclusion import Conclusion
from hsweep.paths import Home
from hsweep.record.journal import Journal
from hsweep.running.phases import PHASES
from hsweep.tracking.mlflow_api import MlflowClient
from hsweep.tracking.state import StoreState
from hsweep.tracking.target import TrackingTarget, tracking_target

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
    assert [*told["seconds"]] == [*PHASES]
    assert told["seconds"]["planning"] > 0, "the process had to start"
    assert "has not got" not in done.stderr
    target = tracking_target(None, Home(tmp_path / "h"), "tiny")
    record = tmp_path / "h" / "studies" / "tiny-quick" / "journal.db"
    with Journal(record, read_only=True) as journal:
        assert StoreState(record, target).cursor == journal.last_seq()
    client = MlflowClient(tracking_uri=target.uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.tags.get("hsweep.status", "the study") for run in runs) == [
        *["finished"] * 3,
        "the study",
    ]
    assert all(run.info.status == "FINISHED" for run in runs)


def test_the_analysis_is_there_without_having_been_called() -> None:
    program = """
import sys
from rich.console import Console
from hsweep.tracking.target import TrackingTarget
from hsweep.commands.conclusion import Conclusion
assert not {"analysis.ask", "analysis.report.build"} & set(sys.modules)
assert "mlflow" not in sys.modules
Conclusion(TrackingTarget("sqlite:////nowhere/mlflow.db", None, "tiny"), Console()).import_ahead()
assert "analysis.ask" in sys.modules
assert "mlflow.store.tracking.sqlalchemy_store" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_an_analysis_that_cannot_be_imported_is_said_at_the_end_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(conclusion.importlib, "import_module", broken)
    made = Conclusion(TARGET, Console())
    made.import_ahead()
    assert made.problem == ""
    assert made.found is None
