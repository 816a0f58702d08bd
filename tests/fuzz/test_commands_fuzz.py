"""Commands that read a study, with any options: they answer, or refuse in one line."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fuzzing import at_home, many, refused_or_done, tries
from hypothesis import example, given
from hypothesis import strategies as st
from tiny_studies import trained

from hsweep.cli import main

SWEEP = """
from hsweep import Transition, grid
from tiny import tiny_sweep
SWEEP = tiny_sweep(question=Transition("width", None), replicates=2)
"""
WORDS = st.one_of(
    st.sampled_from(
        [
            *("demo", "demo2", "", ".", "..", "~", "a/b", "x.csv", "x.parquet", "x.json", "x.xlsx"),
            *(".csv", "nowhere/x.csv", "demo/x.csv", "/proc/x.csv", "/dev/null", "x" * 300, "T1"),
            *("Fig3", "num_params", "nmse", "0", "-1", "nan", "1e400", "B=0", "heads=1", "[red]"),
            *("transition", "pareto", "lean", "conditioning", "effects", "trials"),
            *("width=2", "width=99", "\x1b[2J", "file.csv", "file.csv/x.csv", "folder", "sweep.py"),
        ]
    ),
    st.text(max_size=12),
)
COMMANDS = {
    "show": ("--json",),
    "analyze": (
        *("--kind", "--out", "--setting", "--predict", "--metric", "--margin", "--json", "--x"),
        "--baseline",
    ),
    "report": ("--figures-none", "--tracking-uri"),
    "export": ("--what", "--orphaned"),
    "compare": ("--cost", "--report", "--json"),
    "list": ("--json", "--home"),
}
ALONE = ("--json", "--same-data", "--orphaned", "--figures-none")


@pytest.fixture(scope="module", autouse=True)
def studies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with two studies, in a folder with a few other files."""
    with at_home(tmp_path_factory.mktemp("commands")) as folder:
        (folder / "file.csv").write_text("a\n1\n")
        (folder / "folder").mkdir()
        trained(folder / "home", folder, SWEEP)
        shutil.copytree("home/studies/demo", "home/studies/demo2")
        yield folder


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(list(COMMANDS)))
    names = draw(st.lists(st.one_of(st.sampled_from(["demo", "demo2"]), WORDS), max_size=3))
    words: list[str] = []
    for option in draw(st.lists(st.sampled_from(COMMANDS[command]), max_size=2)):
        words += [option] if option in ALONE else [f"{option}={draw(WORDS)}"]
    return [command, *words, "--", *names]


def done_or_refused(line: list[str]) -> None:
    result = CliRunner().invoke(main, line)
    refused_or_done(result)
    assert "\x1b" not in result.output


@given(lines())
@example(["analyze", "--out=nowhere/x.json", "--", "demo"])
@example(["analyze", "--out=folder", "--", "demo"])
@example(["export", "--", "demo", "folder"])
@example(["export", "--", "demo", "file.csv/x.csv"])
@example(["compare", "--report=folder/x/y.html", "--", "demo", "demo2"])
@example(["compare", "--cost=nothing", "--", "demo", "demo2"])
@example(["show", "--", "demo", "\x1b"])
@tries(30)
def test_any_request_is_met_or_refused(line: list[str]) -> None:
    done_or_refused(line)


@given(lines())
@many(300)
def test_any_request_at_length(line: list[str]) -> None:
    done_or_refused(line)


def test_a_figure_goes_into_a_folder_or_is_refused() -> None:
    for where in ("file.csv", "/proc/nowhere", "x" * 300):
        assert not refused_or_done(CliRunner().invoke(main, ["report", "demo", "--figures", where]))
