"""What is chosen when a study begins: the MLflow experiment, tags, whose the runs are."""

import getpass
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from mlflow_stores import database, runs_by_key

from hsweep.errors import UserError
from hsweep.options import options_from
from hsweep.paths import Home
from hsweep.running.options import StudyOptions
from hsweep.tracking.target import tracking_target

Invoke = Callable[..., Result]


def test_a_study_has_the_experiment_the_tags_and_the_user_that_it_began_with(
    home: Home,
    hsweep: Invoke,
    sweep_file: Path,
    tmp_path: Path,
    empty_database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = f"sqlite:///{database(tmp_path / 'mlflow', empty_database)}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "of the environment")
    monkeypatch.setenv("MLFLOW_RUN_CONTEXT", json.dumps({"team": "vision", "cost_centre": 7}))
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    run = ("run", sweep_file, "--study", "mine", "--runner", "inline", "--no-check")
    began = hsweep(*run, "--experiment", "Vision team", "--tag", "team=speech")
    assert began.exit_code == 0, began.output
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_CONTEXT", "MLFLOW_TRACKING_USERNAME"):
        monkeypatch.setenv(name, "bob")
    same = hsweep(*run, "--experiment", "Vision team", "--tag", "team=speech")
    assert same.exit_code == 0, same.output
    assert hsweep("sync", "mine").exit_code == 0
    runs = runs_by_key(tracking_target(store, home, "Vision team"))
    assert len(runs) == 4
    for tracked in runs.values():
        tags = tracked.data.tags
        assert {name: tags[name] for name in ("team", "cost_centre", "mlflow.user")} == {
            "team": "speech",
            "cost_centre": "7",
            "mlflow.user": "ann",
        }
    for option, told in (
        ("--experiment=other", "the experiment is chosen when a study begins, and 'mine' has Vis"),
        ("--tag=team=vision", "the tag team is chosen when a study begins, and 'mine' has speech"),
        ("--tag=new=1", "the tag new is chosen when a study begins, and 'mine' has none"),
    ):
        refused = hsweep(*run, option)
        assert (refused.exit_code, told in refused.stderr) == (2, True), refused.output


def test_without_a_choice_the_experiment_is_the_sweeps_and_the_user_the_process_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_CONTEXT", "MLFLOW_TRACKING_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert StudyOptions().experiment_for("heads") == "heads"
    assert StudyOptions().all_tags() == {"mlflow.user": getpass.getuser()}
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    assert StudyOptions().experiment_for("heads") == "ours"
    (given,) = options_from({"tags": {"mlflow.user": "bob", "n": 1}}, StudyOptions)
    assert given.all_tags() == {"mlflow.user": "bob", "n": "1"}


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--experiment=", "a name of 1 to 500 characters"),
        ("--tag=team", "'team' is not of the form NAME=VALUE"),
        ("--tag=a/b=1", "is not of the form NAME=VALUE, where a name has"),
        ("--tag=mlflow.parentRunId=1", "the tag mlflow.parentRunId is set by the tool"),
        ("--tag=hsweep.study=1", "the tag hsweep.study is set by the tool"),
        ("--tag=db=postgresql://ann:pw@host/x", "must hold no password"),
    ],
)
def test_what_mlflow_or_the_record_could_not_hold_is_refused(
    hsweep: Invoke, sweep_file: Path, home: Home, option: str, told: str
) -> None:
    refused = hsweep("run", sweep_file, option)
    assert (refused.exit_code, told in " ".join(refused.stderr.split())) == (2, True)
    assert not home.studies.exists()


@pytest.mark.parametrize("text", ["team=vision", "[1]", '{"mlflow.runName": "x"}'])
def test_tags_of_the_environment_that_cannot_be_read_are_refused_by_its_name(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_CONTEXT", text)
    with pytest.raises(UserError, match=r"^MLFLOW_RUN_CONTEXT holds tags"):
        StudyOptions().all_tags()
