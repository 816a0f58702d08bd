import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsweep.record.provenance import collect, git_state, hardware, version_of
from hsweep.secrets import redact, redact_command

SECRET = "s3cr3t-XyZ"


@pytest.mark.parametrize(
    "text",
    [
        f"http://ann:{SECRET}@tracker.example:5000/api failed",
        f"postgresql+psycopg2://ann:{SECRET}@db/mlflow",
        f"postgresql://ann:{SECRET}/with/slash@db/mlflow",
        f"https://ann:{SECRET}@half@tracker.example",
        f"https://{SECRET}@tracker.example",
        f"hsweep run a.py --token={SECRET} --seed 1",
        f"hsweep run a.py --hub-token {SECRET}",
        f"hsweep run a.py --api_key='{SECRET} {SECRET}'",
        f"MLFLOW_TRACKING_PASSWORD={SECRET} hsweep sync",
        f"HF_TOKEN={SECRET}",
        f"GET https://host/x?a=1&access_token={SECRET}&b=2",
        f"Authorization: Bearer {SECRET}",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:5000/#/experiments/1",
        "sqlite:////home/ann/hsweep/mlflow/mlflow.db",
        "hsweep run sweeps/vit_lean.py --study lean-2 --max-tokens 100",
        "write to ann@example.org",
        "token mixing is quadratic in seq_len",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert redact(text) == text


def test_what_surrounds_a_secret_stays() -> None:
    assert redact("http://a:b@h:5000/x?token=c&y=1") == "http://***@h:5000/x?token=***&y=1"


@given(st.text(alphabet="ab:/@ =-'\"&token", max_size=40))
def test_redacting_twice_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_the_folder_a_shell_is_in_is_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/data/studies")
    monkeypatch.setenv("STORE_PWD", "hunter2-hunter2")
    assert redact("sqlite:////data/studies/mlflow.db") == "sqlite:////data/studies/mlflow.db"
    assert redact("opens with hunter2-hunter2") == "opens with ***"


def test_a_secret_that_is_an_argument_of_its_own_is_hidden() -> None:
    command = ["hsweep", "run", "--password", f"{SECRET} b", f"--token={SECRET} c", "--seed", "1"]
    assert redact_command(command) == [
        "hsweep", "run", "--password", "***", "--token=***", "--seed", "1",
    ]  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    )
    return done.stdout.strip()


@pytest.fixture
def committed_sweep(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    sweep = tmp_path / "sweep.py"
    sweep.write_text("heads = 1\n")
    git(tmp_path, "add", "sweep.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return sweep


def test_a_committed_sweep_names_its_commit(committed_sweep: Path) -> None:
    state = git_state(committed_sweep)
    commit = git(committed_sweep.parent, "rev-parse", "HEAD")
    assert state == {"commit": commit, "dirty": False, "tracked": True}


def test_an_edit_or_an_untracked_sweep_makes_the_checkout_dirty(committed_sweep: Path) -> None:
    untracked = committed_sweep.with_name("other.py")
    untracked.touch()
    clean, other = git_state(committed_sweep), git_state(untracked)
    assert clean is not None
    assert not clean["dirty"]
    assert other is not None
    assert (other["dirty"], other["tracked"]) == (True, False)
    committed_sweep.write_text("heads = 2\n")
    edited = git_state(committed_sweep)
    assert edited is not None
    assert edited["dirty"]


def test_outside_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path / "sweep.py") is None


def test_without_git_there_is_no_commit(
    committed_sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(committed_sweep.parent))
    assert git_state(committed_sweep) is None


def test_an_installed_sweep_is_of_no_checkout_that_its_environment_lies_in(
    committed_sweep: Path,
) -> None:
    installed = committed_sweep.parent / ".venv/lib/python3/site-packages/sweeps/sweep.py"
    installed.parent.mkdir(parents=True)
    installed.write_text(committed_sweep.read_text())
    assert collect(command=(), sweep_file=installed)["sweep"] is None


def test_a_git_hooks_variables_do_not_mislead(
    committed_sweep: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(committed_sweep.parent / ".git"))
    assert git_state(tmp_path_factory.mktemp("elsewhere") / "sweep.py") is None


def test_cuda_devices_are_asked_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\ncase $1 in *name*) echo 'H200, 143771 MiB'; echo 'H200, 143771 MiB';;"
        " *) echo 570.1; echo 570.1;; esac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = hardware()
    assert found["cuda_devices"] == ["H200, 143771 MiB"] * 2
    assert found["cuda_driver"] == "570.1"


def test_a_missing_package_has_no_version() -> None:
    assert version_of("numpy")
    assert version_of("no-such-package-of-ours") is None


def test_what_is_collected_survives_json_and_holds_no_secret(committed_sweep: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    found = collect(command=["hsweep", "--token", SECRET], sweep_file=committed_sweep)
    assert json.loads(json.dumps(found)) == found
    assert SECRET not in json.dumps(found)
    assert found["sweep"]["commit"] == git(committed_sweep.parent, "rev-parse", "HEAD")
    assert found["packages"]["torch"]
    assert found["hardware"]["cores"] >= 1
    assert found["hardware"]["memory_bytes"] > 2**20
    assert before <= datetime.fromisoformat(found["time"]) <= datetime.now(UTC)
