"""Words for how a run ended."""

import pandas as pd
import pytest

from analysis.runs.statuses import STATUSES, read_statuses
from hsweep.errors import UserError


@pytest.mark.parametrize(
    ("words", "statuses"),
    [
        pytest.param(
            ["COMPLETE", "PRUNED", "FAIL", "RUNNING", "WAITING"],
            ["finished", "stopped_early", "failed", "running", "planned"],
            id="Optuna",
        ),
        pytest.param(
            ["TrialState.COMPLETE", "TrialState.PRUNED"], ["finished", "stopped_early"],
            id="Optuna, printed",
        ),
        pytest.param(
            ["FINISHED", "KILLED", "FAILED", "RUNNING", "SCHEDULED"],
            ["finished", "stopped_early", "failed", "running", "planned"],
            id="MLflow",
        ),
        pytest.param(
            ["TERMINATED", "ERROR", "PENDING", "PAUSED"],
            ["finished", "failed", "planned", "running"],
            id="Ray Tune",
        ),
        pytest.param(
            ["finished", "crashed", "killed"], ["finished", "failed", "stopped_early"],
            id="Weights & Biases",
        ),
        pytest.param(list(STATUSES), list(STATUSES), id="ours"),
    ],
)  # fmt: skip
def test_words_of_known_tools_need_no_options(words: list[str], statuses: list[str]) -> None:
    assert read_statuses(pd.Series(words), "state").tolist() == statuses


def test_other_words_are_said_to_mean_something() -> None:
    found = read_statuses(
        pd.Series(["OK", "CUT", "gone", "lost"]), "state",
        complete=["ok"], pruned=["cut"], failed=["Gone", "LOST"],
    )  # fmt: skip
    assert found.tolist() == ["finished", "stopped_early", "failed", "failed"]


def test_a_word_can_be_given_another_meaning() -> None:
    assert read_statuses(pd.Series(["killed"]), "state", failed=["KILLED"]).tolist() == ["failed"]


def test_every_unknown_word_is_listed() -> None:
    with pytest.raises(UserError, match=r"'state': 'odd', 'strange'; known: .*--pruned"):
        read_statuses(pd.Series(["strange", "finished", "odd"]), "state")
    with pytest.raises(UserError, match="'state' has 1 empty entries"):
        read_statuses(pd.Series(["finished", None]), "state")
    with pytest.raises(UserError, match="unknown status in column 'state': 'false'"):
        read_statuses(pd.Series(["true", "false"]), "state")
