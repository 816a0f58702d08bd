"""The figures for print: every format, the same file each time, no global state."""

import dataclasses
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
import report_examples as examples
from click.testing import CliRunner
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis as PrintedAxis
from matplotlib.transforms import Bbox
from tiny import tiny_sweep
from tiny_studies import finish, new_study, recording

import hsweep
from analysis.charts.chart import Axis, Chart
from analysis.charts.matplotlib_print import (
    COLUMN_INCHES,
    FORMATS,
    PAGE_INCHES,
    STYLE,
    print_figure,
    save_figures,
)
from analysis.report.build import report_charts
from hsweep.cli import main
from hsweep.paths import Home

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of two charts of a transition."""
    charts = report_charts(examples.report_input())[::2]
    return save_figures(charts, tmp_path_factory.mktemp("saved"))


PROGRAM = """
import sys, matplotlib
from pathlib import Path
def settings():  # reading the backend itself would import pyplot
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}
before = settings()
import report_examples
from analysis.charts.chart import Axis, Chart
from analysis.charts.matplotlib_print import save_figures
from analysis.report.build import report_charts
lean, transition = (
    report_charts(made()) for made in (report_examples.lean_input, report_examples.report_input)
)
# What was drawn before must not show in the files that follow.
assert save_figures(lean[:1], Path(sys.argv[1], "before"), formats=("svg",))
assert save_figures(transition[::2], Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""


def test_a_transition_is_saved_in_every_format(saved: list[Path]) -> None:
    stems = ("error", "learning-curves")
    assert [path.name for path in saved] == [f"{s}.{f}" for s in stems for f in FORMATS]
    for path in saved:
        content = path.read_bytes()
        assert content.startswith(MAGIC[path.suffix[1:]])
        # Fonts are in the file.
        if path.suffix == ".svg":
            assert b"<text" not in content
        if path.suffix == ".pdf":
            assert b"/FontFile2" in content
            assert b"/Type3" not in content


LONG = "a_name_that_someone_thought_descriptive_enough_to_keep"
DRAWN = {
    "transition": examples.report_input,
    "long names": lambda: examples.report_input(
        metric=LONG,
        transition=examples.transition_result(x=LONG, by=LONG, metric=LONG),
        trials=examples.trials_frame().rename(columns={"nmse": LONG}),
        reports=examples.reports_frame(examples.trials_frame()).rename(columns={"nmse": LONG}),
    ),
    "shapes": examples.lean_input,
    "families": examples.groups_input,
    "narrow costs": lambda: examples.lean_input(
        pareto=examples.pareto_result(
            table=tuple(
                dataclasses.replace(row, costs={"num_params": 318_000.0 + 30_000 * (at % 6)})
                for at, row in enumerate(examples.pareto_result().table)
            )
        )
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_have_a_papers_width_and_no_label_is_cut_or_covered(name: str) -> None:
    with rc_context(STYLE):
        for chart in report_charts(DRAWN[name]()):
            stem, figure = chart.name, print_figure(chart)
            figure.draw_without_rendering()
            width = figure.get_figwidth()
            assert width in (COLUMN_INCHES, PAGE_INCHES, PAGE_INCHES * 0.75), stem
            page = figure.bbox
            for axes in figure.axes:
                for axis in (axes.xaxis, axes.yaxis):
                    if not axes.get_visible():
                        continue
                    labels = [label for label in axis.get_ticklabels() if label.get_text()]
                    extents = [label.get_window_extent() for label in labels]
                    boxes = [extent for extent in extents if within(extent, axis, axes)]
                    if axis.label.get_text():
                        boxes.append(axis.label.get_window_extent())
                    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in boxes), stem
                    assert all(page.y0 <= box.y0 and box.y1 <= page.y1 for box in boxes), stem
                    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2)), stem


def within(box: Bbox, axis: PrintedAxis, axes: Axes) -> bool:
    """Whether a label belongs to a value that the axes show."""
    frame, at = axes.bbox, (box.x0 + box.x1) / 2
    if axis is axes.yaxis:
        return bool(frame.y0 - 1 <= (box.y0 + box.y1) / 2 <= frame.y1 + 1)
    return bool(frame.x0 - 1 <= at <= frame.x1 + 1)


def test_several_comparisons_are_drawn_as_one_forest(tmp_path: Path) -> None:
    written = save_figures(report_charts(examples.groups_input()), tmp_path, formats=("svg",))
    assert [path.name for path in written] == [
        "candidates-family-vit.svg",
        "candidates-family-xcit.svg",
        "front-num_params.svg",
    ]
    _, forest, front = (path.read_text("utf-8") for path in written)
    assert "worse" in forest
    assert "parameters" in front
    assert "baseline" in front


def test_the_same_study_gives_the_same_files_and_matplotlib_stays_as_it_was(
    saved: list[Path], tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=True, env=environment)
    for path in saved:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_a_study_without_results_saves_nothing(tmp_path: Path) -> None:
    bare = examples.report_input(
        transition=examples.empty_result(), trials=pd.DataFrame(), reports=pd.DataFrame()
    )
    assert save_figures(report_charts(bare), tmp_path) == []


def test_dollar_signs_in_names_are_not_read_as_mathematics(tmp_path: Path) -> None:
    chart = Chart("odd", "", "", Axis("$heads_$_$x"), Axis("$\\frac"), ())
    (path,) = save_figures([chart], tmp_path, formats=("svg",))
    assert "$heads_$_$x" in path.read_text("utf-8")


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="png, svg, pdf"):
        save_figures([], tmp_path / "new", formats=("gif",))
    assert not (tmp_path / "new").exists()


def test_the_command_writes_what_it_lists_for_every_chart_of_the_page(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    sweep = tiny_sweep(
        space=hsweep.grid(width=[2, 4, 8]),
        replicates=2,
        question=hsweep.lean({"width": 8}, margin=0.05, scale="error"),
    )
    study = new_study(home, sweep=sweep)
    with recording(study, sweep) as (journal, trials):
        for trial in trials:
            finish(journal, trial, 0.1 / trial.point.width + 0.001 * trial.replicate)
    folder = tmp_path / "figures"
    arguments = ["report", "mine", "--figures", str(folder), "--home", str(home.root)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    page, *listed = result.output.splitlines()
    assert sorted(listed) == sorted(str(path) for path in folder.iterdir())
    shown = set(re.findall(r'data-figure="([^"]+)"', Path(page).read_text("utf-8")))
    assert {Path(path).stem for path in listed} == shown
    assert {"front-num_params", "candidates"} <= shown
