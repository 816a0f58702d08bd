"""What the lean paper prints beside what is built here, row by row."""

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tiny_studies import trained

from analysis.published.numbers import PrintedCount, printed_counts
from hsweep.cli import main
from hsweep.commands.paper import built_counts, published_presets, rows_of

# Millions of parameters of every row's model, as timm builds it or closed forms give it.
MEASURED = {
    "T4": "86.568 40.113 86.568 40.113 84.396 59.003 65.429 30.898 86.325 47.454 87.954 62.653",
    "T5": "203.614 98.598 203.614 98.598 189.096 103.793 192.962 105.557 196.812 139.986",
    "Fig3": "61.365 67.663",
    "T1": "119.590 84.182",
    "T2": "89.161 64.151",
}
THOUSANDS = {
    "T3": "209.802 192.906 370.562 353.666 395.138 378.242 174.986 158.090 173.954 157.058",
}
CANNOT_BE_RIGHT = {
    ("T4", "DaViT-B ([1,1,5,1],[4,8,32,32])"),
    ("T3", "retrieval (1,4)"),
    ("T3", "image (2,2)"),
    ("T3", "image (1,4)"),
    ("T3", "pathfinder (2,2)"),
    ("T3", "pathfinder (1,4)"),
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return built_counts(printed_counts(), published_presets())


def expected() -> Iterator[tuple[str, float]]:
    for tables, unit in ((MEASURED, 1e6), (THOUSANDS, 1e3)):
        for table, figures in tables.items():
            yield from ((table, float(figure) * unit) for figure in figures.split())


def test_every_row_has_the_measured_count_to_the_printed_digit(rows: list[dict[str, Any]]) -> None:
    found = [
        (row["table"], round(row["num_params"], -3 if row["num_params"] > 1e6 else 0))
        for row in rows
    ]
    assert found == [(table, round(count)) for table, count in expected()]


def test_all_rows_are_within_half_a_percent_of_print_but_those_that_a_note_explains(
    rows: list[dict[str, Any]],
) -> None:
    off = [row for row in rows if abs(row["ratio"] - 1) > 0.005]
    assert {(row["table"], row["row"]) for row in off} == CANNOT_BE_RIGHT
    assert all(row["note"] for row in off)


def test_a_wrong_note_on_the_mlp_would_show_in_the_count() -> None:
    """The widths that the paper prints, and the counts they would have."""

    def millions(model: str, **settings: object) -> float:
        (row,) = built_counts([_row(model, settings)], published_presets())
        return round(row["num_params"] / 1e6, 1)

    assert millions("vit_large", depth=24, heads=16, mlp_ratio=4) == 304.3
    assert millions("tnt_base", depth=8, heads=16, mlp_ratio=4) == 44.0
    lean = {"depth": (4, 4, 8, 2), "heads": (24, 32, 32, 32)}
    assert millions("volo_d4", **lean, mlp_ratio=2) == 85.5
    assert millions("xcit_medium", depth=12, heads=16) == 46.4
    assert millions("xcit_large", depth=12, heads=24, head_dim=48) == 118.0


@pytest.mark.parametrize(
    ("settings", "thousands"),
    [
        ({"task": "retrieval", "depth": 1, "heads": 4, "mlp_ratio": 4}, 394.754),
        ({"task": "retrieval", "depth": 1, "heads": 4, "head_dim": 48}, 394.818),
        ({"task": "image", "depth": 1, "heads": 4, "head_dim": 64}, 191.242),
        ({"task": "pathfinder", "depth": 1, "heads": 4, "head_dim": 64}, 190.210),
    ],
)
def test_the_shapes_that_would_give_the_printed_long_range_counts(
    settings: dict[str, object], thousands: float
) -> None:
    (row,) = built_counts([_row("lra", settings)], published_presets())
    assert row["num_params"] == round(1000 * thousands)


def _row(model: str, settings: dict[str, object]) -> PrintedCount:
    return PrintedCount(
        table="T1", row="a variant", model=model, settings=settings, printed="1M", batch_size=1
    )


def paper(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["paper", *arguments])


def test_json_is_a_list_of_rows_with_the_figures_and_the_note() -> None:
    result = paper("--json", "--table", "t2")
    assert result.exit_code == 0
    deep, lean = json.loads(result.stdout)
    assert {"table", "row", "printed_params", "num_params", "ratio", "note"} <= set(deep)
    assert (deep["table"], deep["row"]) == ("T2", "GPT-2 (12,12)")
    assert (deep["printed_params"], deep["num_params"]) == (89_000_000, 89_160_785)
    assert deep["ratio"] == pytest.approx(89_160_785 / 89e6)
    assert deep["num_params"] == sum(deep["params"].values())
    assert lean["train_memory_bytes"] < deep["train_memory_bytes"]
    assert lean["num_params"] == 64_150_609
    assert lean["settings"] == {"depth": 4, "heads": 16, "head_dim": 32}


def test_people_see_print_and_measurement_side_by_side() -> None:
    result = paper("--table", "T3")
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if "listops (2,2)" in line]
    assert line.split()[:7] == ["T3", "listops", "(2,2)", "209.8k", "209.802", "k", "1.0000"]
    assert "within 0.2 %" in result.stdout


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    result = paper("--table", "T7")
    assert result.exit_code == 2
    assert "unknown table 'T7'; known: Fig3, T1, T2, T3, T4, T5." in result.stderr


def test_all_tables_are_shown_unless_one_is_named() -> None:
    assert len(rows_of(None)) == 38
    assert {row.table for row in rows_of("fig3")} == {"Fig3"}


@pytest.fixture(scope="module")
def study_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of one head at length 8, barely trained."""
    folder = tmp_path_factory.mktemp("paper")
    source = (Path(__file__).parents[2] / "sweeps" / "retrieval_heads.py").read_text()
    small = [
        *("--set", "epochs=5"),
        *("--set", "samples=fixed"),
        *("--set", "heads=1"),
        *("--set", "replicates=3"),
    ]
    return trained(folder / "home", folder, source, "--preset", "smoke", *small, study="s").root


def test_a_study_stands_beside_what_it_repeats(study_home: Path) -> None:
    result = paper("s", "--home", str(study_home), "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert (content["setup"], content["comparable"]) == ("retrieval", True)
    (row,) = content["rows"]
    assert (row["printed"]["value"], row["n"], row["standing"]) == (0.0701, 3, "worse")
    assert len(content["missing"]) == 12
    assert "train for 5 epochs" in " ".join(content["assumptions"])
    analysed = CliRunner().invoke(main, ["analyze", "s", "--home", str(study_home), "--json"])
    assert json.loads(analysed.stdout)["published"] == content
    page = (study_home / "studies" / "s" / "report.html").read_text()
    assert "compare with the papers' printed ones?" in html.unescape(page)
    assert "Published and run" in page


def test_people_see_a_study_beside_the_paper(study_home: Path) -> None:
    result = paper("s", "--home", str(study_home))
    assert result.exit_code == 0
    assert "1 worse than printed. 12 published values of it were not run" in result.stdout
    other = paper("s", "--home", str(study_home), "--as", "nearest_neighbor")
    assert "Not comparable with paper Q" in other.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s", "--as", "nothing"], "unknown group of published results 'nothing'"),
        (["s", "--table", "T4"], "--table is of parameter counts"),
        (["--as", "retrieval"], "--as and --same-data are of a STUDY"),
        (["absent"], "no study called 'absent'"),
    ],
)
def test_what_cannot_be_compared_is_said(
    study_home: Path, arguments: list[str], message: str
) -> None:
    result = paper(*arguments, "--home", str(study_home))
    assert result.exit_code == 2
    assert message in result.stderr
