"""The benchmark of a user's own function works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.own import command


@pytest.mark.slow
def test_every_row_is_measured() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert found["benchmark"] == "own"
    assert [row["ours"].split(",")[0] for row in found["pairings"]] == ["as a trial"]
    rest, *rates = found["quantities"]
    assert rest["value"] > 0
    assert [row["name"].split(", ")[-1] for row in rates] == ["ray", "inline"]
