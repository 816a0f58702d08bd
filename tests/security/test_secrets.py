"""Secrets are planted wherever a user may have them, and looked for wherever the tool writes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import Workplace
from click.testing import Result
from mlflow_stores import runs_by_key

from hsweep.commands import doctor
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.log import segment_files
from hsweep.secrets import HIDDEN, redact, redact_patterns, refuse_secrets
from hsweep.tracking.target import tracking_target

ENVIRONMENT = {
    "MLFLOW_TRACKING_PASSWORD": "canary-mlflow",
    "MLFLOW_TRACKING_TOKEN": "canary-bearer",
    "AWS_ACCESS_KEY_ID": "canary-aws-id",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-key",
    "HF_TOKEN": "canary-hub",
    "WANDB_API_KEY": "canary-wandb",
}

# Fails at first with what libraries might print: an address with a password, the environment. The
# file itself, which is kept as it is, holds no whole canary.
FAILING = '''"""A question whose first trial fails."""
import os
from dataclasses import dataclass
from typing import ClassVar

from tiny import TinyTask, tiny_sweep


@dataclass(frozen=True)
class LeakingTask(TinyTask):
    failures: ClassVar[list[int]] = []

    def before_update(self, number):
        if not self.failures:
            self.failures.append(number)
            bird = "canary"
            raise OSError(
                f"s3://{bird}-key:{bird}-word@bucket/x?token={bird}-query refused "
                f"{os.environ['HF_TOKEN']} and {dict(os.environ)!r}"
            )


SWEEP = tiny_sweep(task=LeakingTask(), max_failures=0)
'''


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def written_with_canary(*roots: Path) -> list[Path]:
    """Every file that holds a canary, binary ones included."""
    return [
        path
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.is_file() and b"canary-" in path.read_bytes()
    ]


def said(result: Result) -> str:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout + result.stderr


@pytest.mark.usefixtures("canaries")
def test_no_secret_of_environment_errors_or_addresses_is_written_or_shown(
    home: Home,
    hsweep: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sweep = tmp_path / "sweep.py"
    sweep.write_text(FAILING)
    store = f"sqlite:///{tmp_path}/store/mlflow.db"
    arguments = [
        "run", str(sweep), "--runner", "inline", "--no-check", "--study", "mine",
        "--set", "replicates=1", "--tracking-uri", store,
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["hsweep", *arguments])
    output = said(hsweep(*arguments))
    assert "1 failed" in output
    for verb in (
        ("show", "mine"), ("show", "mine", "--json"), ("list", "--json"), ("analyze", "mine"),
        ("report", "mine", "--tracking-uri", store), ("sync", "mine", "--tracking-uri", store),
        ("sync", "mine", "--json"), ("resume", "mine", "--runner", "inline"),
        ("export", "mine", tmp_path / "store" / "trials.csv"),
    ):  # fmt: skip
        output += said(hsweep(*verb))
    output += "".join(capfd.readouterr())
    assert "canary-" not in output
    log = "".join(file.read_text() for file in segment_files(home.study("mine").journal))
    assert HIDDEN in log, "the failure was recorded"
    runs = runs_by_key(tracking_target(store, home, "tiny"))
    assert any(HIDDEN in run.data.tags.get("hsweep.reason", "") for run in runs.values())
    assert written_with_canary(home.root, tmp_path / "store") == []


@pytest.mark.usefixtures("canaries")
@pytest.mark.parametrize(
    "uri",
    [
        "http://ann:canary-word@127.0.0.1:1",
        "http://canary-word@127.0.0.1:1",
        "http://127.0.0.1:1/?token=canary-word",
        "postgresql://ann:canary-word@127.0.0.1:1/mlflow",
    ],
)
def test_a_tracking_uris_secret_is_neither_kept_nor_shown(
    uri: str,
    home: Home,
    hsweep: Callable[..., Result],
    sweep_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = [
        "run", str(sweep_file), "--runner", "inline", "--study", "mine",
        "--set", "replicates=1", "--tracking-uri", uri,
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["hsweep", *arguments])
    output = said(hsweep(*arguments))
    assert "deliver them by: hsweep sync mine" in output
    for verb in (("sync", "mine"), ("resume", "mine"), ("report", "mine"), ("show", "mine")):
        output += said(hsweep(*verb))
        output += said(hsweep(*verb, "--tracking-uri", uri)) if verb[0] == "sync" else ""
    assert "whose password is not kept" in output
    assert "canary-" not in output + "".join(capfd.readouterr())
    assert written_with_canary(home.root) == []


def test_a_storage_uri_that_holds_a_secret_is_refused_with_what_to_do(
    home: Home, hsweep: Callable[..., Result], sweep_file: Path
) -> None:
    for uri in (
        "s3://canary-key:canary-word@bucket/runs",
        "s3://bucket/runs?access_key=canary-key&secret_key=canary-word",
        "abfs://bucket/runs?sig=canary-word",
    ):
        run = ("run", sweep_file, "--runner", "inline", "--study", "mine")
        result = hsweep(*run, "--storage", uri)
        assert result.exit_code == 2
        assert "AWS_SECRET_ACCESS_KEY" in result.stderr
        assert "canary-" not in said(result)
    assert not home.study("mine").root.exists()


def test_an_axis_value_that_holds_a_secret_is_refused(
    home: Home, hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep.py"
    sweep.write_text(
        "from hsweep import grid\nfrom tiny import tiny_sweep\n"
        "SWEEP = tiny_sweep(space=grid(width=[1], data=['s3://canary-key:canary-word@b/x']))\n"
    )
    result = hsweep("run", sweep, "--runner", "inline", "--study", "mine")
    assert result.exit_code == 2
    assert "The value of an axis must hold no password, key or token" in result.stderr
    assert "canary-" not in said(result)
    assert not home.study("mine").root.exists()


@pytest.mark.usefixtures("canaries")
def test_a_secret_of_the_environment_is_found_wherever_it_stands() -> None:
    assert redact("GET /canary-hub/x?y=canary-aws-key") == f"GET /{HIDDEN}/x?y={HIDDEN}"
    with pytest.raises(UserError, match=r"the folder must hold no password"):
        refuse_secrets(["/data/canary-wandb"], "the folder", "Use another.")
    refuse_secrets(["/data/plain", "s3://bucket/runs", 3, None], "the folder", "Use another.")


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/x?secret_key=canary-word",
        "https://host/x?X-Amz-Signature=canary-word",
        "https://host/x?sig=canary-word",
        "environ({'DB_PASSWORD': 'canary-word', 'HOME': '/root'})",
        '{"api_key": "canary-\\"word"}',
        "AWS_ACCESS_KEY_ID=canary-word",
    ],
)
def test_more_forms_of_a_secret_are_hidden(text: str) -> None:
    assert "canary" not in redact(text)
    assert redact(redact(text)) == redact(text)


def test_the_doctor_shows_no_password(home: Home) -> None:
    check = doctor.mlflow(home, "http://ann:canary-word@127.0.0.1:1")
    assert "http://***@127.0.0.1:1" in check.detail
    assert "canary-" not in f"{check}"


@pytest.mark.slow
@pytest.mark.usefixtures("canaries")
def test_rays_own_files_of_a_trial_that_failed_hold_no_secret(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    workplace = Workplace(tmp_path / "work")
    workplace.sweep.write_text(FAILING.replace("from tiny ", "from tiny_beside "))
    driver = workplace.start("run", str(workplace.sweep), "--no-check", "--study", "mine")
    driver.wait()
    assert "failed" in driver.stdout(), driver.stderr()
    # The failure is on record, without what it quoted, and Ray's files beside it hold nothing else.
    segments = segment_files(workplace.study("mine") / "journal")
    assert HIDDEN in "".join(segment.read_text() for segment in segments)
    assert "canary-" not in driver.stdout() + driver.stderr()
    assert written_with_canary(workplace.home) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("401 for OPENAI_KEY=abcd", "401 for OPENAI_KEY=***"),
        ("login --db-pass abcd failed", "login --db-pass *** failed"),
        ("{'GH_PAT': 'abcd'}", "{'GH_PAT': '***'}"),
        ("no access with hf_a1B2c3D4e5F6g7H8i9J0", "no access with ***"),
        ("no access with ghp_a1B2c3D4e5F6g7H8i9J0!", "no access with ***!"),
        ("bucket of AKIAABCDEFGHIJKLMNO1", "bucket of ***"),
        # What only looks a little like one.
        ("monkey=1 key=2 bypass=3 pattern=4", "monkey=1 key=2 bypass=3 pattern=4"),
        ("with sk-learn-and-its-many-estimators", "with sk-learn-and-its-many-estimators"),
    ],
)
def test_secrets_are_known_by_the_end_of_their_names_and_by_their_form(
    text: str, shown: str
) -> None:
    assert redact_patterns(text) == shown


@pytest.mark.parametrize("name", ["OPENAI_KEY", "DB_PASS", "GH_PAT", "MYSQL_PWD", "X_CREDENTIALS"])
def test_the_value_of_such_a_variable_is_hidden_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "very-own-words")
    assert redact("cannot log in with very-own-words") == "cannot log in with ***"
