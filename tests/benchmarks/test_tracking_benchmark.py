"""The benchmark of tracking runs, and both of its sides write what they say."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.delivery import make_record
from benchmarks.tracking import command
from hsweep.record.journal import Journal


def test_the_made_up_record_is_of_finished_trials(tmp_path: Path) -> None:
    make_record(tmp_path / "journal.db", trials=3, reports=2, metrics=4)
    with Journal(tmp_path / "journal.db", read_only=True) as journal:
        assert {row.status for row in journal.trials()} == {"finished"}
        assert sum(len(entry.payload["metrics"]) for entry in journal.reports()) == 3 * 2 * 4


@pytest.mark.slow
def test_it_runs_from_end_to_end() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    barred = [each["name"] for each in found["pairings"] if each["bar"]]
    assert barred == ["reported metrics into SQLite", "reported metrics into a server over HTTP"]
    (runs,) = (each["facts"]["runs"] for each in found["quantities"] if "runs" in each["facts"])
    assert all((run["which"] == "with") == (run["tracker_seconds"] > 0) for run in runs)
