import posixpath
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_studies import new_study

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.journal import TrialRow
from hsweep.tracking.contents import safe_names, trial_values
from hsweep.tracking.target import TrackingTarget, target_of, tracking_target


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_by_default_runs_go_to_the_home(home: Home) -> None:
    target = tracking_target(None, home, "heads")
    assert target.sqlite_file == home.mlflow_database
    assert target.artifact_location == home.mlflow_artifacts.as_uri()
    assert target.experiment == "heads"


def test_a_relative_database_becomes_absolute_with_its_artifacts_beside_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tracking_target("sqlite:///runs/mlflow.db", home, "heads")
    assert target.uri == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert target.artifact_location == (tmp_path / "runs" / "artifacts").as_uri()


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "https://ann:pw@host/mlflow"])
def test_a_server_decides_where_artifacts_go(uri: str, home: Home) -> None:
    target = tracking_target(uri, home, "heads")
    assert (target.uri, target.artifact_location, target.sqlite_file) == (uri, None, None)
    assert target.is_server


def test_a_remote_database_keeps_artifacts_in_the_home(home: Home) -> None:
    target = tracking_target("postgresql+psycopg2://ann:pw@host/mlflow", home, "heads")
    assert target.artifact_location == home.mlflow_artifacts.as_uri()
    assert not target.is_server


@pytest.mark.parametrize("uri", ["runs", "/data/mlruns", "file:///data/mlruns", "", "databricks"])
def test_a_folder_is_refused_with_the_way_out(uri: str, home: Home) -> None:
    with pytest.raises(UserError, match=r"no longer keeps runs in a folder.*sqlite:////"):
        tracking_target(uri, home, "heads")


def test_the_path_of_a_database_file_is_suggested_as_it_is(home: Home) -> None:
    with pytest.raises(UserError, match=r"give sqlite:////data/mlflow\.db$"):
        tracking_target("/data/mlflow.db", home, "heads")


@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:////data/", "SQLite:///a.db"]
)
def test_sqlite_needs_a_file(uri: str, home: Home) -> None:
    with pytest.raises(UserError, match=r"must be .*sqlite:////PATH/FILE\.db"):
        tracking_target(uri, home, "heads")


@pytest.mark.parametrize("uri", ["s3://bucket/x", "http://", "ftp://a:pw@host", "postgresql://"])
def test_other_schemes_are_refused_without_showing_secrets(uri: str, home: Home) -> None:
    with pytest.raises(UserError, match="--tracking-uri must be") as refused:
        tracking_target(uri, home, "heads")
    assert "pw" not in str(refused.value)


def test_a_changed_password_is_the_same_store_and_another_experiment_is_not() -> None:
    first = TrackingTarget("http://ann:old@host", None, "heads")
    assert first.scope == TrackingTarget("http://ann:new@host", None, "heads").scope
    assert first.scope != TrackingTarget("http://ann:old@host", None, "depth").scope
    assert first.scope != TrackingTarget("http://ann:old@other", None, "heads").scope
    assert "old" not in first.shown_uri


def test_names_that_mlflow_accepts_stay() -> None:
    names = ["nmse", "top-1", "val/loss", "a b", "f1.0"]
    assert safe_names(names) == {name: name for name in names}


def test_names_that_would_collide_stay_apart() -> None:
    names = safe_names(["a(b)", "a@b@", "a_b_"])
    assert names["a_b_"] == "a_b_"
    assert len(set(names.values())) == 3


def is_accepted_by_mlflow(name: str) -> bool:
    """The rules of mlflow.utils.validation, for every operating system."""
    normal = posixpath.normpath(name)
    return (
        re.fullmatch(r"[/\w.\- ]*", name) is not None
        and normal == name
        and name != "."
        and not name.startswith(("..", "/"))
        and len(name) <= 250
    )


@given(st.lists(st.text(max_size=300) | st.text("./a_ ", max_size=8), unique=True, max_size=6))
def test_any_names_become_different_acceptable_ones(names: list[str]) -> None:
    safe = safe_names(names)
    assert list(map(is_accepted_by_mlflow, safe.values())) == [True] * len(names)
    assert len(set(safe.values())) == len(names)
    assert safe == safe_names(reversed(names))


def test_runs_are_compared_by_shape_cost_and_recipe() -> None:
    trial = TrialRow("k", 0, {"heads": 3, "lr": 0.01}, 1, "", 8, {"num_params": 10})
    recipe = {"lr": 0.01, "batch_size": 64, "optimizer_args": {"eps": 1e-6}}
    params = {
        "heads": 3, "lr": 0.01, "replicate": 1, "epochs": 8, "num_params": 10,
        "batch_size": 64, "optimizer_args.eps": 1e-6,
    }  # fmt: skip
    assert trial_values(trial, recipe, "epochs") == params
    # An axis that is no recipe's field, though it is called like one, keeps its name.
    scaled = trial_values(trial, recipe | {"lr": 0.02}, "epochs")
    assert scaled == params | {"recipe.lr": 0.02}
    of_budgets = trial_values(TrialRow("k", 0, {"epochs": 3}, 1, "", 8, {}), {}, "epochs")
    assert of_budgets == {"epochs": 3, "replicate": 1, "budget": 8}


@pytest.mark.parametrize("name", ["run #3", "50%20 of it", "what?", "a;b=c&d", "[x]{y}", "größe"])
def test_a_home_of_any_name_has_its_store_and_artifacts_in_it(name: str, tmp_path: Path) -> None:
    from hsweep.tracking.store import connect

    target = tracking_target(None, Home(tmp_path / name / "home"), "heads")
    assert target.sqlite_file == tmp_path / name / "home" / "mlflow" / "mlflow.db"
    again = tracking_target(target.uri, Home(tmp_path / name / "home"), "heads")
    assert (again.uri, again.sqlite_file) == (target.uri, target.sqlite_file)
    client = connect(target)
    run = client.create_run("0").info
    client.log_text(run.run_id, "here", "note.txt")
    assert client.search_runs(["0"])[0].info.run_id == run.run_id
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.parent.name for path in tmp_path.rglob("note.txt")] == ["artifacts"]


def test_mlflows_own_variable_names_the_store_of_new_studies(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_target(None, home, "heads").uri == "http://127.0.0.1:5000"
    assert tracking_target("http://other", home, "heads").uri == "http://other"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    with pytest.raises(UserError, match=r"^MLFLOW_TRACKING_URI \(which --tracking-uri sqlite:///"):
        tracking_target(None, home, "heads")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert tracking_target(None, home, "heads").sqlite_file == home.mlflow_database


def test_a_study_stays_with_its_store_whose_password_the_variable_may_hold(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = "postgresql://ann:secret@host/mlflow"
    study = new_study(home, tracking_uri=TrackingTarget(uri, None, "").shown_uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other")
    with pytest.raises(UserError, match="whose password is not kept"):
        target_of(study, home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert target_of(study, home).uri == uri
