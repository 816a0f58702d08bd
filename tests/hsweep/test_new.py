"""``hsweep new``, and the sweeps that are found by their names."""

import os
import pty
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import hsweep as product
from hsweep.cli import main
from hsweep.commands.new import KINDS
from hsweep.errors import UserError
from hsweep.workspace import shipped_sweeps, sweep_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hsweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["hsweep", *words])  # what a study records
        return CliRunner().invoke(main, words)

    return call


@pytest.mark.parametrize("kind", KINDS)
def test_what_new_writes_is_planned_as_it_stands_without_a_concern(
    hsweep: Callable[..., Result], kind: str
) -> None:
    written = hsweep("new", "mine.py", "--kind", kind)
    assert written.exit_code == 0, written.output
    assert written.output.splitlines()[-1] == "  hsweep run mine.py"
    planned = product.plan("mine.py")
    assert len(planned.trials) >= 15
    assert planned.skipped.empty
    text = repr(planned)
    assert "weakly" not in text
    assert "cannot be answered" not in text
    ruff = Path(sysconfig.get_path("scripts"), "ruff")
    for words in (["check"], ["format", "--check"]):
        subprocess.run([ruff, *words, "--config", ROOT / "pyproject.toml", "mine.py"], check=True)


@pytest.mark.parametrize(("kind", "metric", "epochs"), [("own", "error", 2), ("model", "nmse", 8)])
def test_training_of_ones_own_runs_as_new_writes_it(
    hsweep: Callable[..., Result], kind: str, metric: str, epochs: int
) -> None:
    hsweep("new", "mine.py", "--kind", kind)
    few = ("--set", f"epochs={epochs}", "--set", "heads=1,3", "--set", "replicates=1")
    ran = hsweep("run", "mine.py", "--runner", "inline", *few)
    assert ran.exit_code == 0, ran.output
    errors = product.load("mine-quick").trials.set_index("heads")[metric]
    assert errors[3] < errors[1] < 1


def test_a_script_runs_as_new_writes_it_beside_its_sweep(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    written = hsweep("new", "mine.py", "--kind", "script")
    assert written.output.startswith("mine_train.py and mine.py are written")
    ran = hsweep(
        *("run", "mine.py", "--runner", "inline", "--set", "epochs=1"),
        *("--set", "heads=3", "--set", "replicates=1"),
    )
    assert ran.exit_code == 0, ran.output
    (error,) = product.load("mine-quick").trials["error"]
    assert 0 < error < 1
    (tmp_path / "mine.py").unlink()
    refused = hsweep("new", "mine.py", "--kind", "script")
    assert (refused.exit_code, "mine_train.py exists" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["mine.py", "--kind", "wide"],
            "'wide' is not one of 'heads', 'lean', 'front', 'model'",
        ),
        (["mine.txt", "--kind", "own"], "with the ending .py, in a folder that exists"),
        (["there/mine.py", "--kind", "own"], "with the ending .py, in a folder that exists"),
        (["my sweep.py", "--kind", "own"], "a study's name starts with"),
        (["taken.py", "--kind", "own"], "taken.py exists"),
        (["mine.py"], "--kind: heads, lean, front, model, own, script"),
    ],
)
def test_new_refuses_what_it_cannot_write(
    hsweep: Callable[..., Result], tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "taken.py").write_text("of another")
    refused = hsweep("new", *words)
    assert (refused.exit_code, said in refused.output) == (2, True), refused.output
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("taken.py", "of another")
    ]


def test_new_asks_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"narrow\nlean\n")
    done = subprocess.run(
        [sys.executable, "-m", "hsweep", "new", "mine.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=theirs,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert all(question in done.stdout for question in KINDS.values())
    assert "'narrow' is not one of" in done.stdout
    assert "lean(baseline=" in (tmp_path / "mine.py").read_text()


def test_a_shipped_sweep_is_found_by_its_name_and_a_file_beside_is_not_passed_over(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    assert sorted(shipped_sweeps()) == sorted(
        path.stem for path in (ROOT / "sweeps").glob("*.py") if path.stem != "__init__"
    )
    (tmp_path / "retrieval_heads").mkdir()  # no file, and so not meant
    by_name = product.plan("retrieval_heads", preset="smoke")
    by_path = product.plan(ROOT / "sweeps" / "retrieval_heads.py", preset="smoke")
    assert list(by_name.trials["key"]) == list(by_path.trials["key"])
    wrong = hsweep("plan", "retrieval_head")
    assert (wrong.exit_code, "Did you mean 'retrieval_heads'?" in wrong.output) == (2, True)
    (tmp_path / "mine.py").touch()
    with pytest.raises(UserError, match=r"named by its file; .* mine\.py is there"):
        sweep_path(Path("mine"))
    (tmp_path / "retrieval_heads.py").touch()
    with pytest.raises(UserError, match=r"retrieval_heads\.py is yours; give retrieval_heads\.py"):
        product.plan("retrieval_heads")
    for path in ("retrieval_heads.py", "elsewhere/retrieval_heads", "retrieval_heads.txt"):
        assert sweep_path(Path(path)) == Path(path)


def test_a_study_of_a_shipped_sweep_goes_on_by_the_commands_it_prints(
    hsweep: Callable[..., Result],
) -> None:
    small = ("--preset", "smoke", "--runner", "inline")
    ran = hsweep("run", "retrieval_heads", *small)
    assert ran.exit_code == 0, ran.output
    file = shipped_sweeps()["retrieval_heads"]
    assert f"hsweep run {file} --study retrieval_heads-smoke --only-missing" in ran.output
    again = hsweep("run", "retrieval_heads", *small, "--study", "again")
    assert "2 of 2 trials" in again.output or "taken" in again.output, again.output
