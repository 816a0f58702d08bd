"""The benchmark of copies in a storage works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.storage import command


@pytest.mark.slow
def test_it_runs_from_end_to_end() -> None:
    result = CliRunner().invoke(command, ["--quick"])
    assert result.exit_code == 0, result.output
    measured = json.loads(result.stdout.strip().splitlines()[-1])["quantities"]
    assert [row["unit"] for row in measured] == ["%", "ms", "s"]
