"""The benchmark of watching watches a study, and counts what it heard of it."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.watch import command


@pytest.mark.slow
def test_both_sides_train_the_study_and_one_is_watched() -> None:
    result = CliRunner().invoke(command, ["--quick"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output.strip().splitlines()[-1])["pairings"]
    assert row["ratio"] > 0
    assert min(*row["facts"]["events"], *row["facts"]["pages"]) > 0
