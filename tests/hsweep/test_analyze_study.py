"""A finished study is asked another kind of question than its own, with that kind's options."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

from hsweep import Asha, Recipe, Sweep, Transition, grid, lean
from hsweep.cli import main
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Ask = Callable[..., dict[str, Any]]
FEW = ("--setting", "B=100", "--setting", "n_mc=99")


def recorded(home: Home, sweep: Sweep, name: str, **changes: Any) -> StudyFolder:
    """Record an error that collapses at four of width, lowest at the middle rate."""
    study = new_study(home, name, sweep, **changes)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            width, lr = trial.point.width, trial.point.get("lr", 0.01)
            error = 10 ** (-0.2 * width - 1.5 * (width >= 4)) * {0.001: 3, 0.01: 1, 0.1: 2}[lr]
            finish(journal, trial, error * (1 + 0.05 * ((7 * trial.ordinal) % 5)))
    return study


@pytest.fixture
def ask(home: Home) -> Ask:
    """Ask three studies: ``plain`` asks nothing, ``lean`` and ``tuned`` have a question."""
    widths = grid(width=[1, 2, 3, 4, 5, 6])
    recorded(home, tiny_sweep(space=widths, replicates=3, question=None), "plain")
    own = lean({"width": 6}, margin=0.01, scale="error")
    recorded(home, tiny_sweep(space=widths, replicates=3, question=own), "lean")
    tuned = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5, 6], lr=[0.001, 0.01, 0.1]),
        recipe=lambda point: Recipe(lr=point.lr, batch_size=8),
        replicates=4,
        question=Transition("width", None, nuisance=("lr",)),
        early_stopping=Asha(scouts=1, reduction_factor=2),
    )
    recorded(home, tuned, "tuned", scouts=1)

    def invoke(study: str, *options: str) -> dict[str, Any]:
        arguments = ["analyze", study, *options, "--json", "--home", str(home.root)]
        result: Result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        content: dict[str, Any] = json.loads(result.stdout)
        return content

    return invoke


@pytest.mark.parametrize("study", ["plain", "lean", "tuned"])
def test_a_study_is_asked_where_its_error_collapses(ask: Ask, study: str) -> None:
    found = ask(study, "--kind", "transition", "--x", "width", *FEW)
    assert (found["kind"], found["verdict"], found["h_star"]) == ("transition", "collapse", 4)
    assert found["settings"]["B"] == 100
    assert found["nuisance"] == (["lr"] if study == "tuned" else [])
    assert "nmse is minimised (lower is better)" in found["direction"]
    asks = any("--only-missing" in text for text in found["qualifications"])
    assert not asks or study == "tuned"


@pytest.mark.parametrize("study", ["plain", "lean", "tuned"])
def test_a_study_is_asked_for_its_front(ask: Ask, study: str) -> None:
    found = ask(study, "--kind", "pareto", "--cost", "train_flops_per_example")
    assert found["costs"] == ["train_flops_per_example"]
    # The settings of a shape are no shapes, and scouts count in none.
    assert [row["config"] for row in found["table"]] == [{"width": each} for each in range(1, 7)]
    assert {row["n"] + row["lost"]["screened"] for row in found["table"]} == {3}


@pytest.mark.parametrize("study", ["plain", "lean", "tuned"])
def test_a_study_is_asked_for_a_cheaper_equal_of_any_shape(ask: Ask, study: str) -> None:
    asked = ("--kind", "lean", "--baseline", "width=5", "--margin", "0.005")
    found = ask(study, *asked)
    assert (found["kind"], found["baseline"], found["choice"]) == ("lean", {"width": 5}, "width=4")
    assert found["goal"] == "min"


def test_what_is_not_asked_for_is_as_in_the_studys_own_question(ask: Ask) -> None:
    own, again = ask("lean"), ask("lean", "--kind", "lean")
    assert again["table"] == own["table"]
    assert again["sensitivity"] == own["sensitivity"]
    wider = ask("lean", "--kind", "lean", "--margin", "0.5")
    assert (wider["baseline"], wider["margin"]) == (own["baseline"], 0.5)
    cells = ask("tuned")["counts"]
    assert ask("tuned", "--kind", "transition")["counts"] == cells


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--kind transition", "name the searched axis with --x AXIS; the axes are width"),
        ("--kind transition --x wdith", "Did you mean 'width'?"),
        ("--kind lean --margin 0.1", "needs --baseline"),
        ("--kind lean --margin 0.1 --baseline width=9", "picks 0 shapes"),
        ("--kind pareto --cost dollars", "has no column 'dollars'"),
        ("--kind pareto --nuisance rate", "unknown axis in --nuisance 'rate'"),
        ("--kind pareto --config width", "--config belongs to --table; a study knows it"),
        ("--kind effects --goal min", "--goal belongs to --table; a study knows it"),
        ("--scale error", "--scale belongs to --table; a study knows it"),
    ],
)
def test_what_cannot_be_asked_is_one_message(home: Home, options: str, message: str) -> None:
    recorded(home, tiny_sweep(space=grid(width=[1, 4]), question=None), "plain")
    arguments = ["analyze", "plain", *options.split(), "--home", str(home.root)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
