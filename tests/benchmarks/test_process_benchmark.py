"""The benchmark of what a process does besides its kernels works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.process import command


@pytest.mark.slow
def test_every_row_is_measured() -> None:
    result = CliRunner().invoke(command, ["--quick"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert found["benchmark"] == "process"
    assert [row["name"].split(",")[0] for row in found["pairings"]] == [
        "step of the smallest retrieval model",
        "step of the smallest retrieval model",
        "training held up by a checkpoint",
        "opening data",
        "opening data",
        "opening data",
    ]
    assert [row["unit"] for row in found["quantities"]] == ["MiB"]
