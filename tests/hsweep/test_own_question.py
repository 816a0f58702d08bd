"""A question of the user's own, as docs/extending.md shows it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import hsweep as product
from hsweep.paths import Home

Invoke = Callable[..., Result]
PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
(SWEEP,) = re.findall(r'```python title="my_plateau\.py"\n(.*?)```', PAGE, re.S)
ANSWER = "From width = 4 on, loss is within 0.05 of its best."


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_plateau.py"
    path.write_text(SWEEP)
    return path


def test_the_question_is_as_short_as_the_page_says() -> None:
    asked = SWEEP[SWEEP.index("PLATEAU = Kind") : SWEEP.index("def train")]
    assert len(asked.splitlines()) < 60


def test_it_is_planned_run_answered_and_on_the_page(hsweep: Invoke, file: Path, home: Home) -> None:
    ran = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ran.exit_code == 0, ran.output
    assert ANSWER in ran.stdout
    page = (home.studies / "my_plateau-quick" / "report.html").read_text("utf-8")
    assert ANSWER in page
    assert "Means" in page
    answer = product.load("my_plateau-quick", home=home.root).answer()
    assert ANSWER in answer.text


def test_a_later_process_answers_it_though_the_file_has_changed(
    hsweep: Invoke, file: Path, home: Home
) -> None:
    ran = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ran.exit_code == 0, ran.output
    file.write_text("SWEEP = None\n")
    words = ["-m", "hsweep", "analyze", "my_plateau-quick", "--json", "--home", str(home.root)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["answer"], answer["value"]) == ("plateau", ANSWER, 4.0)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('Plateau("width"', 'Plateau("heads"', "unknown axis in the plateau 'heads'; known: width"),
        ("    replicates=3,\n", "    search=adaptive_search(),\n", "which asks for no rounds"),
        ("def answer(", "def solve(", "the question Plateau has no answer(study)"),
    ],
)
def test_what_it_cannot_do_is_said(
    hsweep: Invoke, file: Path, old: str, new: str, rule: str
) -> None:
    text = SWEEP.replace(old, new).replace("import Point,", "import adaptive_search, Point,")
    file.write_text(text)
    refused = hsweep("run", file, "--runner", "inline", "--no-check")
    assert (refused.exit_code, rule in refused.output) == (2, True), refused.output


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["status"]', '["state"]', "fails: KeyError: 'state' at "),
        ("        return Finding(", "        return (", "returns ("),
    ],
)
def test_an_answer_that_fails_is_told_and_given_once_it_is_mended(
    hsweep: Invoke, file: Path, home: Home, old: str, new: str, said: str
) -> None:
    file.write_text(SWEEP.replace(old, new))
    ran = hsweep("run", file, "--runner", "inline", "--no-check")
    assert ran.exit_code == 0, ran.output
    assert f"answer(study) of the question Plateau {said}" in ran.output
    assert "Traceback" not in ran.output
    file.write_text(SWEEP)
    again = hsweep("run", file, "--runner", "inline", "--no-check")
    assert again.exit_code == 0, again.output
    assert ANSWER in again.output
    assert "width=1 #0" not in again.output
