"""The benchmark of two processes works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.processes import MODELS, command


@pytest.mark.slow
def test_a_model_is_trained_by_two_processes_and_by_one_to_the_same_loss() -> None:
    result = CliRunner().invoke(command, ["--quick", "--pairs", "1", "--strict"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert [row["name"] for row in found["pairings"]] == [f"a trial of {MODELS[0]}"]
