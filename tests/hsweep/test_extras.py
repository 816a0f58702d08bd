"""An installation without the extras: what runs all the same, and what is said of the rest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hsweep.errors import OPTIONAL_LIBRARIES, not_installed
from hsweep.shipped import shipped_sweeps

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_EXTRAS = f"""
import contextlib, io, json, sys
from importlib.machinery import PathFinder

WITHOUT = set({sorted(OPTIONAL_LIBRARIES)!r})
find = PathFinder.find_spec.__func__

def find_spec(cls, name, path=None, target=None):
    return None if name.split(".")[0] in WITHOUT else find(cls, name, path, target)

PathFinder.find_spec = classmethod(find_spec)

from hsweep.cli import main

def told(*words):
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main(words, standalone_mode=False)
        except SystemExit as ended:
            code = ended.code
    return code or 0, output.getvalue()
"""


def bare(program: str, folder: Path) -> dict[str, tuple[int, str]]:
    """Return what a program tells as JSON, in a Python that finds none of the optional
    libraries."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HSWEEP_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + program],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[int, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_core_runs_a_study_and_says_what_the_report_needs(tmp_path: Path) -> None:
    program = """
few = ["--set", "epochs=1", "--set", "heads=1,2", "--set", "replicates=1"]
commands = {
    "new": ["new", "mine.py", "--kind", "heads"],
    "run": ["run", "mine.py", "--runner", "inline", *few],
    "show": ["show", "mine-quick"],
    "report": ["report", "mine-quick"],
    "watch": ["watch", "mine-quick"],
    "analyze": ["analyze", "mine-quick"],
    "timm's": ["plan", "mine.py", "--set", "recipe.optimizer=lamb"],
}
found = {name: told(*words) for name, words in commands.items()}
import hsweep
study = hsweep.load("mine-quick")
found["answer"] = 0, study.answer().sentence
try:
    study.figure()
except hsweep.UserError as error:
    found["figure"] = 2, str(error)
print(json.dumps(found))
"""
    found = bare(program, tmp_path)
    codes = {name: code for name, (code, _) in found.items()}
    refused = dict.fromkeys(("report", "watch", "figure", "timm's"), 2)
    assert codes == dict.fromkeys(codes, 0) | refused, found
    needed = "plotly is not installed; pip install 'hsweep[report]'"
    assert f"the report could not be written ({needed})" in " ".join(found["run"][1].split())
    assert found["report"][1].endswith(f"hsweep: {needed}\n")
    assert found["watch"][1].endswith(f"hsweep: {needed}\n")
    assert found["figure"][1] == needed
    assert "timm is not installed; pip install 'hsweep[vision]'" in found["timm's"][1]
    assert "4 finished" in found["run"][1]
    assert found["answer"][1]
    # What could be written is delivered.
    assert [*(tmp_path / "home" / "mlflow").rglob("analysis.json")]


NEEDED = {
    "vision": {"cifar10_heads", "lra_nystromformer", "vision_families", "vision_large", "vit_lean"},
    "text": {"crammed_bert", "gpt2_tinystories"},
    "ranking": {"msmarco_heads"},
}


def test_each_shipped_study_names_the_one_extra_that_it_needs(tmp_path: Path) -> None:
    program = f"""
print(json.dumps({{name: told("plan", name) for name in {sorted(shipped_sweeps())!r}}}))
"""
    found = bare(program, tmp_path)
    refused = {name: text for name, (code, text) in found.items() if code == 2}
    assert set(refused) == set().union(*NEEDED.values())
    for extra, names in NEEDED.items():
        for name in names:
            assert f"not installed; pip install 'hsweep[{extra}]'" in refused[name]
            assert "Traceback" not in refused[name]
    assert {name for name, (code, _) in found.items() if code == 0} == (
        set(shipped_sweeps()) - set(refused)
    )


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        (["timm"], "timm is not installed; pip install 'hsweep[vision]'"),
        (
            ["tokenizers", "datasets"],
            "datasets and tokenizers are not installed; pip install 'hsweep[text]'",
        ),
        (
            ["plotly", "bm25s"],
            "bm25s and plotly are not installed; pip install 'hsweep[ranking,report]'",
        ),
    ],
)
def test_the_fewest_extras_are_named_that_bring_what_is_missing(
    libraries: list[str], said: str
) -> None:
    assert not_installed(libraries) == said
