"""The pictures for a paper: every format, the same file each time, no global state."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import report_examples as examples

from analysis.plots import FORMATS, save_figures

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def test_a_transition_is_saved_in_every_format(tmp_path: Path) -> None:
    written = save_figures(examples.report_input(), tmp_path)
    panels = ("error", "slopes", "drops", "location", "success")
    stems = ("transition", *panels, "learning-curves")
    assert [path.name for path in written] == [f"{s}.{f}" for s in stems for f in FORMATS]
    for path in written:
        assert path.read_bytes().startswith(MAGIC[path.suffix[1:]])


def test_shapes_are_saved_as_front_and_candidates(tmp_path: Path) -> None:
    written = save_figures(examples.lean_input(), tmp_path, formats=("svg",))
    assert [path.name for path in written] == ["front-num_params.svg", "candidates.svg"]
    text = written[0].read_text("utf-8")
    assert "parameters" in text
    assert "baseline" in text


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_study_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    first = save_figures(examples.report_input(), tmp_path / "a", formats=(suffix,))
    again = save_figures(examples.report_input(), tmp_path / "b", formats=(suffix,))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_study_without_results_saves_nothing(tmp_path: Path) -> None:
    bare = examples.report_input(
        transition=examples.empty_result(), trials=pd.DataFrame(), reports=pd.DataFrame()
    )
    assert save_figures(bare, tmp_path) == []


def test_dollar_signs_in_names_are_not_read_as_mathematics(tmp_path: Path) -> None:
    result = examples.transition_result(x="$heads", by="cost_$_$x", metric="$\\frac")
    (path, *_) = save_figures(examples.report_input(transition=result), tmp_path, formats=("svg",))
    assert "$heads" in path.read_text("utf-8")


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="png, svg, pdf"):
        save_figures(examples.report_input(), tmp_path / "new", formats=("gif",))
    assert not (tmp_path / "new").exists()


def test_drawing_leaves_matplotlib_as_it_was_and_never_needs_pyplot() -> None:
    program = """
import sys, tempfile, matplotlib
from pathlib import Path
def settings():  # reading the backend itself would import pyplot
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}
before = settings()
import report_examples
from analysis.plots import save_figures
with tempfile.TemporaryDirectory() as folder:
    assert save_figures(report_examples.report_input(), Path(folder), formats=("svg",))
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
