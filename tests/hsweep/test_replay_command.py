"""``hsweep replay``: a study and a table are run again in other ways."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_studies import new_study, recording

from hsweep import Transition, grid, steps
from hsweep.design.trial import Report, TrialStatus
from hsweep.paths import Home

Invoke = Callable[..., Result]


@pytest.fixture
def study(home: Home) -> str:
    """A study whose error collapses at four of width, with four reports a trial."""
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5, 6]),
        replicates=12,
        budget=steps(4),
        question=Transition("width", None),
    )
    with recording(new_study(home, "mine", sweep), sweep) as (journal, trials):
        for trial in trials:
            attempt, width = journal.begin_attempt(trial.key), trial.point.width
            error = 10 ** (-0.1 * width - 2 * (width >= 4) + 0.02 * ((7 * trial.ordinal) % 5))
            for unit in (1, 2, 3, 4):
                values = {"nmse": error * 4 / unit, "fit": 0.0}
                report = Report(unit, unit, values, 1.0, is_last=unit == 4)
                status = TrialStatus.FINISHED if unit == 4 else TrialStatus.RUNNING
                journal.record(trial.key, attempt, report, status)
    return "mine"


def test_a_study_says_what_other_ways_would_have_cost(hsweep: Invoke, study: str) -> None:
    result = hsweep("replay", study, "--draws", 3, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    own = json.loads(hsweep("analyze", study, "--json").stdout)
    assert said["answer"] == f"h* = {own['h_star']}"
    ways = {each["way"]: each for each in said["ways"]}
    assert {"adaptive", "seeds=1", "every=width/2"} < set(ways)
    assert ways["seeds=3"]["share"][0] == pytest.approx(0.25)
    assert ways["adaptive"]["same"][0] == 1
    assert said["recommended"] in ways
    assert Path(said["picture"]).is_file()
    shown = hsweep("replay", study, "--draws", 3, "--way", "seeds=3", "--recommend")
    assert "--way seeds=3, with 25% of the training" in shown.stdout


def test_what_cannot_be_replayed_is_refused(hsweep: Invoke, study: str, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("heads,seed,step,nmse\n1,0,9,0.5\n1,1,9,0.5\n2,0,9,0.1\n2,1,9,0.1\n")
    asked = ("replay", "--table", table, "--kind", "transition", "--metric", "nmse")
    for arguments, says in (
        (("replay", "nosuch"), "nosuch"),
        (asked, "needs the histories of runs"),
        ((*asked, "--budget-column", "step"), "each run has one report"),
        (("replay", study, "--metric", "nmse"), "belongs to --table"),
        (("replay", study, "--way", "sead=1"), "part of a way"),
        (("replay",), "give the name of a study, or a table"),
    ):
        result = hsweep(*arguments)
        assert result.exit_code == 2, result.output
        assert says in result.stderr
