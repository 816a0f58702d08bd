"""The benchmark of plans works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import plan


@pytest.mark.slow
def test_it_works_from_end_to_end() -> None:
    ended = CliRunner().invoke(plan.command, ["--quick"])
    assert ended.exit_code == 0, ended.output
    (row,) = json.loads(ended.output.strip().splitlines()[-1])["quantities"]
    assert row["name"] == "retrieval_heads: 2 points, 2 trials"
    assert row["value"] > 0
