"""A chart is one value that both back ends draw."""

import math

import pytest
from matplotlib import rc_context

from analysis.charts import palette
from analysis.charts.axes import GridAxis, cost_axis, row_axis
from analysis.charts.chart import (
    Axis,
    Band,
    Chart,
    Layer,
    Mark,
    Reference,
    Series,
    Stroke,
    by_look,
    shortened,
    uniquely_named,
)
from analysis.charts.matplotlib_print import STYLE, print_figure
from analysis.charts.plotly_page import figure_json
from analysis.statistics.values import Interval

POINTS = (
    Mark(1, 2, Interval(2, 1, 4), hover="one\ntwo", label="a <b> & $c$"),
    Mark(2, math.nan),
    Mark(3, 5, Interval(5, math.nan, 6), label_side="left"),
)


def chart_of(*layers: Layer, x: Axis | None = None, y: Axis | None = None) -> Chart:
    return Chart("name", "title", "Caption.", x or Axis("x"), y or Axis("y"), layers)


ALL_LAYERS = {
    "series": chart_of(
        Band(1, 2, palette.BLUE),
        Band(2, 3, palette.BLUE, is_framed=True),
        Reference("y", 0.5, is_dashed=True, label="limit"),
        Series(POINTS, palette.BLUE, "points", line=Stroke(is_step=True)),
        Series(POINTS, palette.INK, "lost", symbol="x-thin"),
        Series(POINTS, palette.INK, "rings", symbol="star", is_open=True, is_thin=True),
    ),
    "rows": chart_of(
        Reference("x", 0.0),
        Series(POINTS, palette.GREY, "rows", interval="x"),
        y=row_axis(["", "one", "two", "three"], bold=[1]),
    ),
    "log axes": chart_of(
        Series((Mark(1e3, 1e-3), Mark(1e6, 10)), palette.BLUE),
        x=cost_axis("num_params", [1e3, 1e6]),
        y=Axis("error", "log"),
    ),
}


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_every_layer_is_drawn_by_both_back_ends(name: str) -> None:
    chart = ALL_LAYERS[name]
    traces = figure_json(chart)["data"]
    assert len(traces) == sum(isinstance(each, Series) for each in chart.layers)
    with rc_context(STYLE):
        printed = print_figure(chart)
        printed.draw_without_rendering()
    assert printed.axes[0].get_xlabel() == chart.x.title
    legend = printed.axes[0].get_legend()
    named = [each.name for each in chart.layers if isinstance(each, Series) and each.name]
    shown = [text.get_text() for text in legend.get_texts()] if legend else []
    assert shown == ([] if chart.num_rows else named)


def test_a_point_reaches_as_far_as_its_interval_is_known() -> None:
    assert [point.reach("y") for point in POINTS] == [(1, 2), (0, 0), (0, 1)]
    (trace,) = figure_json(chart_of(Series(POINTS, palette.BLUE)))["data"]
    ends = trace["error_y"]
    assert (ends["arrayminus"], ends["array"]) == ([1, 0, 0], [2, 0, 1])


def test_texts_reach_the_page_as_they_are_and_of_several_lines_the_first_stands_out() -> None:
    (trace,) = figure_json(ALL_LAYERS["rows"])["data"]
    assert trace["hovertext"][0] == "<b>one</b><br>two"
    assert "a &lt;b&gt; &amp; $c$" in trace["text"][0]


def test_a_text_for_all_points_names_what_each_stands_for() -> None:
    points = (Mark(1, 2, pick=0), Mark(2, 3, pick=1))
    chart = chart_of(Series(points, palette.BLUE, hover="{pick}\nat {x}"))
    (trace,) = figure_json(chart)["data"]
    assert (trace["meta"], trace["customdata"]) == ("picks", [0, 1])
    assert trace["hovertemplate"] == "%{text}<br>at %{x}<extra></extra>"


def test_a_grid_of_many_values_is_named_where_it_stands() -> None:
    grid = GridAxis.of([2**power for power in range(30)])
    axis = figure_json(chart_of(x=grid.axis("heads")))["layout"]["xaxis"]
    assert len(axis["tickvals"]) <= 24
    assert axis["ticktext"][1] == str(2 ** round(axis["tickvals"][1]))


def test_charts_of_one_name_are_told_apart() -> None:
    chart = chart_of()
    assert [each.name for each in uniquely_named([chart] * 3)] == ["name", "name-2", "name-3"]


def test_points_are_sorted_by_their_looks_and_a_look_without_points_is_left_out() -> None:
    looks = {name: Series((), palette.BLUE, name) for name in ("a", "b", "c")}
    found = by_look(looks, [("c", POINTS[0]), ("a", POINTS[1]), ("c", POINTS[2])])
    assert [(series.name, len(series.points)) for series in found] == [("a", 1), ("c", 2)]


def test_a_long_text_loses_its_middle() -> None:
    assert shortened("short", 10) == "short"
    assert shortened("a long beginning, the end", 11) == "a lon…e end"
