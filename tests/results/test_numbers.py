"""The published figures as data: complete, self-consistent and citable."""

from itertools import groupby
from typing import Any

import pytest
from published_models import ROWS

from results.printed.numbers import PrintedValue, setups

BY_SETUP = {setup.name: setup.values for setup in setups()}
PUBLISHED = [value for values in BY_SETUP.values() for value in values]


def row(table: str, name: str) -> dict[str, Any]:
    (found,) = [row for row in ROWS if (row["table"], row["row"]) == (table, name)]
    return found


def results(setup: str | None = None, **wanted: object) -> list[PrintedValue]:
    def fits(result: PrintedValue) -> bool:
        return all(
            getattr(result, name, result.settings.get(name)) == value
            for name, value in wanted.items()
        )

    return [result for result in (BY_SETUP[setup] if setup else PUBLISHED) if fits(result)]


def value(setup: str | None = None, **wanted: object) -> float:
    (found,) = results(setup, **wanted)
    return found.value


def test_every_row_of_every_table_is_there_once() -> None:
    number = {table: len(list(rows)) for table, rows in groupby(ROWS, lambda r: r["table"])}
    assert number == {"T4": 12, "T5": 10, "Fig3": 2, "T1": 2, "T2": 2, "T3": 10}
    assert len({(row["table"], row["row"]) for row in ROWS}) == 38


@pytest.mark.parametrize(
    ("table", "name", "word"),
    [
        ("T5", "ViT-L (24,16)", "4096"),
        ("T5", "DeiT-L (24,16)", "half its MLP"),
        ("T4", "TNT-B (8,16)", "1280"),
        ("T4", "VOLO-d3 ([8,8,16,4],[8,16,16,16])", "ratio 3"),
        ("T5", "VOLO-d4 ([8,8,16,4],[12,16,16,16])", "ratio 3"),
        ("T5", "VOLO-d4 ([4,4,8,2],[24,32,32,32])", "ratio 3"),
        ("T4", "DaViT-B ([1,1,5,1],[4,8,32,32])", "62.65M"),
        ("T3", "text (2,2)", "no natural variant"),
        ("T3", "retrieval (1,4)", "378.2k"),
        ("T3", "image (2,2)", "64 wide"),
        ("T3", "pathfinder (1,4)", "64 wide"),
    ],
)
def test_what_is_wrong_in_print_is_noted(table: str, name: str, word: str) -> None:
    assert word in row(table, name)["note"]
    assert "\n" not in row(table, name)["note"]


def test_every_figure_says_where_it_is_from() -> None:
    assert {row["source"] for row in ROWS} == {
        *(f"arXiv 2505.20802, table {number}" for number in (1, 2, 3, 4, 5)),
        "arXiv 2505.20802, figure 3, text",
    }
    assert all(result.source and result.metric for result in PUBLISHED)
    image_scores = [row for row in ROWS if row["metric"] == "top1" and row["table"] in "T4T5"]
    assert all(("score" in row) == ("score_source" in row) for row in image_scores)


def test_results_are_found_by_the_names_that_a_sweep_uses() -> None:
    collapse = {"setup": "retrieval", "dim": 4, "depth": 1, "seq_len": 128}
    # The settings of the ablation at fixed width are told apart by their embed_dim.
    assert value(**collapse, heads=4, source="synthetic example") == 5.23e-6
    assert value(**collapse, heads=4, embed_dim=32) == 5.70e-7
    one_attention = {"setup": "nearest_neighbor", "source": "figure 1", "depth": 3}
    assert value(**one_attention, heads=16, head_dim=4) == 0.41
    assert value(**one_attention, heads=64 * 16, head_dim=4) == 0.055
    assert value("gpt2", depth=4) == 2.41
    assert [result.value for result in results(paper="L", model="lra", depth=1)] == [
        *(0.3713, 0.6382, 0.795, 0.382, 0.699)
    ]


def test_curves_are_whole_and_hidden_markers_are_marked() -> None:
    figure = results(paper="Q", source="figure 1")
    assert len(figure) == 3 * 3 * 7
    assert sum(result.reading == "approximate" for result in figure) == 9
    assert len(results(paper="Q", source="figure on sequence length")) == 4 * 5
    assert len(results(paper="Q", source="figure on positions")) == 2 * 7
    assert not any(result.reading == "printed" for result in results(paper="Q"))


def test_a_range_has_both_ends() -> None:
    (narrow,) = results("cifar10", heads=8)
    assert (narrow.value, narrow.upper) == (0.90, 0.95)


def test_long_range_baselines_lie_below_what_they_repeat() -> None:
    for first in results(paper="N", attention="nystrom"):
        assert row("T3", f"{first.settings['task']} (2,2)")["score"] < first.value
