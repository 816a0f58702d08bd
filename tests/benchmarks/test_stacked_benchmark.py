"""The benchmark of replicates compares like with like, and works from end to end."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import stacked
from benchmarks.stacked import Case, train


def test_both_sides_train_the_same_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    # In a process of its own trials are timed otherwise.
    monkeypatch.setattr(stacked, "processor_time", lambda: None)
    case = Case(seq_len=8, replicates=2, updates=3)
    ours, theirs = train(case, True), train(case, False)
    assert (ours["reason"], theirs["reason"]) == ("", "")
    assert ours["nmse"].keys() == theirs["nmse"].keys() == {0, 1}
    for replicate, nmse in theirs["nmse"].items():
        assert ours["nmse"][replicate] == pytest.approx(nmse, rel=1e-4)
    assert min(ours["seconds"], theirs["seconds"]) > 0


@pytest.mark.slow
def test_the_benchmark_runs() -> None:
    done = CliRunner().invoke(stacked.command, ["--quick"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.strip().splitlines()[-1])
    assert [pairing["name"] for pairing in found["pairings"]] == ["T=8, K=4"]
    assert all(quantity["holds"] for quantity in found["quantities"])
