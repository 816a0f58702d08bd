"""What a shell completes, asked as a shell asks."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tiny_studies import new_study

from hsweep.paths import Home

ROOT = Path(__file__).resolve().parents[2]
SWEEP_FILE = """
raise SystemExit("a file is not run to complete its presets")
OTHERS = {"long": preset(replicates=3), "no preset": 1}
SWEEP = Sweep(presets={"paper": hsweep.preset("note"), **OTHERS, 2: preset()})
"""


@pytest.fixture
def folder(tmp_path: Path, home: Home) -> Path:
    new_study(home, "heads-quick")
    new_study(home, "lean-quick")
    new_study(Home(tmp_path / "other"), "elsewhere")
    (tmp_path / "question.py").write_text(SWEEP_FILE)
    (tmp_path / "near.py").touch()
    (tmp_path / "broken.py").write_text("SWEEP = (")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hsweep sh", {"show"}),
        ("hsweep show ", {"heads-quick", "lean-quick"}),
        ("hsweep resume l", {"lean-quick"}),
        ("hsweep delete h", {"heads-quick"}),
        ("hsweep compare heads-quick l", {"lean-quick"}),
        ("hsweep show --home {folder}/other ", {"elsewhere"}),
        ("hsweep show --home {folder}/question.py ", set()),
        ("hsweep run question.py --preset ", {"long", "paper", "quick"}),
        ("hsweep plan question.py --preset=p", {"paper"}),
        ("hsweep run --preset ", set()),
        ("hsweep run broken.py --preset ", set()),
        ("hsweep run nothing.py --preset ", set()),
        ("hsweep run retr", {"retrieval_heads"}),
        ("hsweep plan vi", {"vision_families", "vision_large", "vit_lean"}),
        ("hsweep plan n", {"nearest_neighbor_rank", "near.py"}),
        ("hsweep plan que", {"que"}),
        ("hsweep run msmarco_heads --preset ", {"paper", "quick", "sample", "smoke", "tuned"}),
    ],
)
def test_names_are_completed(folder: Path, home: Home, line: str, found: set[str]) -> None:
    words = line.format(folder=folder)
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = subprocess.run(
        [Path(sysconfig.get_path("scripts"), "hsweep")],
        cwd=folder,
        env={
            **os.environ,
            **asked,
            "_HSWEEP_COMPLETE": "bash_complete",
            "HSWEEP_HOME": str(home.root),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert {each.partition(",")[2] for each in done.stdout.split()} == found


def test_the_line_of_the_readme_completes_in_bash(folder: Path, home: Home) -> None:
    (line,) = re.findall(r"^eval .*_HSWEEP_COMPLETE.*$", (ROOT / "README.md").read_text(), re.M)
    script = f"{line}\nCOMP_WORDS=(hsweep show h) COMP_CWORD=2\n_hsweep_completion hsweep\n"
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-c", script + 'echo "${COMPREPLY[@]}"'],
        env={
            **os.environ,
            "HSWEEP_HOME": str(home.root),
            "PATH": f"{scripts}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["heads-quick"], done.stderr
