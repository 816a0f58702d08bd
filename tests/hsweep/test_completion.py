"""What a shell completes."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from tiny_studies import new_study

from hsweep.cli import main
from hsweep.paths import Home

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    new_study(home, "heads-quick")
    new_study(home, "lean-quick")
    new_study(Home(tmp_path / "other"), "elsewhere")
    (tmp_path / "near.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HSWEEP_HOME", str(home.root))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("sh", {"show"}),
        ("show ", {"heads-quick", "lean-quick"}),
        ("resume l", {"lean-quick"}),
        ("delete h", {"heads-quick"}),
        ("compare heads-quick l", {"lean-quick"}),
        ("show --home {folder}/other ", {"elsewhere"}),
        ("show --home {folder}/near.py ", set()),
        ("run retr", {"retrieval_heads"}),
        ("plan vi", {"vision_families", "vision_large", "vit_lean"}),
        ("plan n", {"nearest_neighbor_rank", "near.py"}),
        ("plan que", {"que"}),
    ],
)
def test_names_are_completed(folder: Path, line: str, names: set[str]) -> None:
    *words, incomplete = line.format(folder=folder).split(" ")
    complete = BashComplete(main, {}, "hsweep", "_HSWEEP_COMPLETE")
    assert {item.value for item in complete.get_completions(words, incomplete)} == names


def test_the_line_of_the_readme_completes_in_bash(folder: Path) -> None:
    (line,) = re.findall(r"^eval .*_HSWEEP_COMPLETE.*$", (ROOT / "README.md").read_text(), re.M)
    script = f"{line}\nCOMP_WORDS=(hsweep show h) COMP_CWORD=2\n_hsweep_completion hsweep\n"
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-c", script + 'echo "${COMPREPLY[@]}"'],
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["heads-quick"], done.stderr
