"""The benchmark of tracking works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.tracking import command


@pytest.mark.slow
def test_it_runs_from_end_to_end() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    (pairing,) = found["pairings"]
    assert pairing["name"] == "reported metrics into SQLite"
    assert pairing["facts"]["our_trials"] == 60
