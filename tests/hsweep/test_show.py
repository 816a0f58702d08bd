"""Which trials `hsweep show` lists, and in which order."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from hsweep import Sweep, grid
from hsweep.paths import Home

Invoke = Callable[..., Result]
ERRORS = {(1, 0): 0.4, (2, 0): 0.1, (3, 0): 0.3, (1, 1): 0.1}
"""By width and seed; the other two trials never began."""


def recorded(home: Home, **changes: Any) -> Sweep:
    sweep = tiny_sweep(space=grid(width=[1, 2, 3]), replicates=2, **changes)
    study = new_study(home, "mine", sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            if (error := ERRORS.get((trial.point.width, trial.replicate))) is not None:
                finish(journal, trial, error)
    return sweep


def labels(result: Result) -> list[str]:
    """Return the trials of the printed table, as width and seed."""
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("width=")]
    return [f"{row[0].removeprefix('width=')}#{row[1]}" for row in rows]


@pytest.mark.parametrize(
    ("goal", "best"), [("min", ["1#1", "2#0", "3#0"]), ("max", ["1#0", "3#0", "1#1"])]
)
def test_the_best_are_those_that_finished_by_the_metric_and_its_goal(
    hsweep: Invoke, home: Home, goal: str, best: list[str]
) -> None:
    recorded(home, goal=goal)
    shown = hsweep("show", "mine", "--best", "3")
    assert labels(shown) == best
    assert "the best by nmse:" in shown.stdout
    assert "... and 3 more trials" in shown.stdout
    assert len(labels(hsweep("show", "mine", "--best", "9"))) == 4
    found = json.loads(hsweep("show", "mine", "--best", "3", "--json").stdout)["trials_list"]
    assert [f"{each['width']}#{each['seed']}" for each in found] == best


def test_a_list_that_cannot_be_says_why(hsweep: Invoke, home: Home) -> None:
    new_study(home, "mine")
    for options, message in (
        (("--best", "0"), "0 is not in the range x>=1"),
        (("--best", "2", "--all"), "leave it out beside TRIAL, --all and --errors"),
        (("--best", "2", "--errors"), "leave it out beside TRIAL, --all and --errors"),
        (("width=1 #0", "--best", "2"), "leave it out beside TRIAL, --all and --errors"),
    ):
        refused = hsweep("show", "mine", *options)
        assert refused.exit_code == 2
        assert message in refused.stderr
    assert "no trial has finished yet" in hsweep("show", "mine", "--best", "2").stdout
