"""The page's tables show what was recorded: nothing invented, nothing dropped."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import report_examples as examples
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.charts.axes import GridAxis, log_ticks, tick_text
from analysis.charts.chart import Chart, Mark, Ribbon
from analysis.charts.learning_curves import MAX_LINES, MAX_POINTS
from analysis.charts.picks import link_runs, query_text
from analysis.questions.lean.charts import MAX_FOREST_ROWS, forest_rows, roles_in
from analysis.questions.lean.text import (
    lean_table,
)
from analysis.questions.pareto.charts import front_charts, mean_front, side_by_side
from analysis.questions.pareto.text import pareto_table
from analysis.questions.transition.charts import MAX_RUN_POINTS, transition_charts
from analysis.questions.transition.result import RunValue, TransitionResult
from analysis.questions.transition.text import cells_table, numbers_table
from analysis.report.build import build_report
from analysis.sensitivity import Sensitivity
from analysis.text import tables
from analysis.text import trials as trial_tables
from analysis.text.numbers import MINUS, NONE
from analysis.text.settled import missing_table
from hsweep.design.labels import varying_axes
from hsweep.design.missing import Missing


def test_every_ending_is_counted_even_at_zero() -> None:
    counts = {
        item.status: item.trials for item in trial_tables.status_counts(examples.trials_frame())
    }
    assert counts == {"finished": 51, "stopped_early": 1, "failed": 1, "diverged": 1}
    none = trial_tables.status_counts(examples.trials_frame().iloc[:0])
    assert [item.trials for item in none] == [0, 0, 0, 0]


@given(st.lists(st.sampled_from([*trial_tables.STATUS_LABELS]), max_size=30))
def test_the_counts_add_up_to_the_trials(statuses: list[str]) -> None:
    counted = trial_tables.status_counts(pd.DataFrame({"status": statuses}))
    assert sum(item.trials for item in counted) == len(statuses)


def test_every_trial_is_a_row_a_missing_value_stays_missing_and_empty_columns_are_left_out() -> (
    None
):
    trials = examples.trials_frame().assign(empty="", note=np.nan)
    columns = trial_tables.trial_columns(trials, ("heads", "seq_len"), "nmse")
    assert list(columns)[:5] == ["status", "heads", "seq_len", "seed", "nmse"]
    assert {len(cells) for cells in columns.values()} == {len(trials)}
    assert not {"empty", "note"} & set(columns)
    failed = columns["status"].index("failed")
    assert columns["nmse"][failed] is None
    assert columns["reason"][failed] == "ValueError: no such file"
    # JSON has no infinity.
    odd = pd.DataFrame({"status": ["finished"], "nmse": [np.inf], "heads": [np.int64(4)]})
    assert trial_tables.trial_columns(odd, ("heads",), "nmse") == {
        "status": ["finished"],
        "heads": [4],
    }


def test_every_cell_of_a_transition_has_a_row() -> None:
    asked = cells_table(examples.transition_result())
    assert asked.header[:2] == ("heads", "seq_len")
    assert len(asked.rows) == 18


def test_a_sweep_without_lengths_has_no_row_about_them() -> None:
    table = numbers_table(
        examples.transition_result(by=None, gamma={}, gamma_below=None, gamma_above=None)
    )
    assert not any("slope" in row[0] for row in table.rows)


def test_missing_runs_are_listed_with_their_budget_and_reason() -> None:
    table = missing_table(examples.inconclusive_result().missing, None)
    assert table.header == ("heads", "seq_len", "runs to add", "why")
    assert table.rows[0] == ("5", "8", "3", "No run.")
    longer = (Missing({"heads": 5}, 3, "longer", 24),)
    assert missing_table(longer, Sensitivity(unit="epochs")).rows == (
        ("5", "24 epochs", "3", "Longer."),
    )


def test_nested_provenance_is_flattened() -> None:
    table = tables.provenance_table({"git": {"commit": "abc", "dirty": None}, "nodes": ["a", "b"]})
    assert table.rows == (("git.commit", "abc"), ("git.dirty", NONE), ("nodes", '["a", "b"]'))


def test_a_command_is_shown_as_it_is_typed() -> None:
    table = tables.provenance_table({"command": ["hsweep", "run", "my sweep.py"]})
    assert table.rows == (("command", "hsweep run 'my sweep.py'"),)


def test_shapes_and_candidates_are_shown_with_their_uncertainty() -> None:
    shapes = pareto_table(examples.pareto_result())
    assert dict(zip(shapes.header, shapes.rows[2], strict=True))["crashed"] == "25%"
    candidates = lean_table(examples.lean_result())
    assert [row[6] for row in candidates.rows].count("yes") == 1
    assert "seed standard deviation" in candidates.note


def _curves(trials: pd.DataFrame, reports: pd.DataFrame) -> Chart:
    """The learning curves of a study that searches the heads."""
    axes = ("heads", "seq_len")
    chart = examples.curves(trials, reports, "nmse", axes, "heads", unit="epochs", log=True)
    assert isinstance(chart, Chart)
    return chart


def lines_of(chart: Chart) -> dict[str, list[tuple[float, float]]]:
    """The points of every curve by what it stands for."""
    found: dict[str, list[tuple[float, float]]] = {}
    for mark in (mark for each in chart.series if each.line for mark in each.points):
        if not math.isnan(mark.x) and mark.pick is not None:
            found.setdefault(chart.picks[mark.pick].title, []).append((mark.x, mark.y))
    return found


def test_learning_curves_are_coloured_by_the_searched_axis() -> None:
    trials = examples.trials_frame()
    chart = _curves(trials, examples.reports_frame(trials))
    assert [each.name for each in chart.series if each.name.startswith("heads")] == [
        f"heads = {heads}" for heads in examples.HEADS
    ]
    assert "coloured by heads" in chart.caption
    assert "Shown are" not in chart.caption
    assert chart.y.kind == "log"


def test_seeds_of_a_point_are_one_median_with_a_band_as_far_as_all_of_them_go() -> None:
    rows = [("a", 1, "finished", 4), ("b", 1, "stopped_early", 3), ("c", 2, "finished", 4)]
    trials = pd.DataFrame(
        {"key": key, "heads": h, "seq_len": 8, "seed": at, "status": status}
        for at, (key, h, status, _) in enumerate(rows)
    )
    level = {"a": 1.0, "b": 3.0, "c": 7.0}
    reports = pd.DataFrame(
        {"key": key, "unit": unit, "nmse": level[key] / unit}
        for key, _, _, last in rows
        for unit in range(1, last + 1)
    )
    chart = _curves(trials, reports)
    assert lines_of(chart) == {
        "heads=1 · median of 2 seeds": [(1, 2), (2, 1), (3, 0.66667)],
        # What is left goes on by itself, from where the other one ended.
        "heads=1 · seed 0": [(3, 0.33333), (4, 0.25)],
        "heads=2 · seed 2": [(1, 7), (2, 3.5), (3, 2.3333), (4, 1.75)],
    }
    assert chart.picks[0].at == (("heads", 1),)
    (band,) = (layer for layer in chart.layers if isinstance(layer, Ribbon))
    assert (band.low, band.high) == ((1, 0.5, pytest.approx(1 / 3)), (3, 1.5, 1))
    (stopped,) = (each for each in chart.series if each.name == "stopped early")
    assert [(mark.x, mark.y) for mark in stopped.points] == [(3, 1)]
    assert "median" in chart.caption


def test_trials_that_reported_once_or_never_have_no_curves_and_that_is_said() -> None:
    trials = examples.trials_frame()
    ends = examples.reports_frame(trials).groupby("key").tail(1)
    once = "Each of the 54 trials has reported nmse once, at its end, so there is no curve to draw."
    for reports, why in ((ends, once), (pd.DataFrame(), "No trial has reported nmse yet.")):
        assert why in build_report(examples.report_input(reports=reports))


def test_too_many_learning_curves_are_thinned_evenly_over_the_groups() -> None:
    trials = pd.DataFrame(
        {"key": [f"{n}" for n in range(900)], "heads": [n % 3 for n in range(900)], "seed": 0}
    ).assign(status="finished", seq_len=range(900))
    reports = pd.DataFrame(
        {"key": np.repeat(trials["key"], 200), "unit": list(range(200)) * 900, "nmse": 0.5}
    )
    chart = _curves(trials, reports)
    assert f"Shown are {MAX_LINES} of 900 trials, spread evenly." in chart.caption
    curves = lines_of(chart)
    assert Counter(title.split(",")[0] for title in curves) == {
        f"heads={heads}": MAX_LINES // 3 for heads in range(3)
    }
    assert {len(points) for points in curves.values()} == {MAX_POINTS}
    assert {(points[0][0], points[-1][0]) for points in curves.values()} == {(0, 199)}


def test_a_value_that_is_not_positive_forbids_the_logarithmic_axis() -> None:
    trials = examples.trials_frame()
    reports = examples.reports_frame(trials)
    reports.loc[3, "nmse"] = 0.0
    assert _curves(trials, reports).y.kind == "number"


def test_a_doubling_grid_is_spaced_evenly_and_a_contiguous_one_as_it_is() -> None:
    assert GridAxis.of([1, 2, 4, 8, 16]).positions == [0, 1, 2, 3, 4]
    assert GridAxis.of([1, 2, 3, 4]).positions == [1, 2, 3, 4]
    assert GridAxis.of([4]).step == 1


def drawn_runs(result: TransitionResult) -> list[tuple[Mark, ...]]:
    """The points of the runs, one length after the other."""
    (chart, *_) = transition_charts(result)
    assert len(chart.picks) == sum(len(series.points) for series in chart.series if series.hover)
    return [series.points for series in chart.series if series.hover]


def test_accuracies_are_drawn_as_errors_and_losses_as_they_are() -> None:
    runs = (RunValue(1, 8, "0", 0.9, -1.0),)
    for scale, drawn in (("accuracy", 0.1), ("loss", -1.0)):
        result = examples.transition_result(scale=scale, runs=runs, cells=())
        ((point,),) = drawn_runs(result)
        assert (point.x, point.y) == (1, drawn)


def test_ten_thousand_runs_are_thinned_within_every_length() -> None:
    runs = tuple(RunValue(1 + n % 5, 8 * (1 + n % 2), str(n), 0.1, -1.0) for n in range(10_000))
    series = drawn_runs(examples.transition_result(runs=runs, cells=()))
    assert [len(points) for points in series] == [715, 715]
    assert sum(len(points) for points in series) <= MAX_RUN_POINTS


def test_the_front_names_roles_and_leads_to_its_runs() -> None:
    roles = roles_in([examples.lean_result()])
    (chart,) = front_charts(examples.pareto_result(), roles)
    points = [point for series in chart.series for point in series.points]
    shapes = sorted((point for point in points if point.pick is not None), key=lambda p: p.x)
    assert [point.pick for point in shapes] == list(range(6))
    lines = [point.hover.split("\n") for point in shapes]
    assert {text[0] for text in lines if "(" in text[0]} == {
        "heads=8, depth=6 (baseline)",
        "heads=8, depth=4 (chosen)",
    }
    (found,) = link_runs([chart], examples.shape_trials())
    assert query_text(dict(found.picks[0].at)) == "heads=4 depth=2"
    assert [name for name, _ in found.picks[0].links] == ["seed 0", "seed 1", "seed 2"]


def test_a_cost_that_no_shape_has_draws_no_front() -> None:
    front = examples.pareto_result(costs=("joules",))
    assert front_charts(front) == []


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=30),
    st.sampled_from(["min", "max"]),
)
def test_no_point_beats_a_corner_of_the_front_of_means(
    pairs: list[tuple[int, int]], goal: str
) -> None:
    sign = 1 if goal == "min" else -1
    corners = mean_front(pairs, goal)  # type: ignore[arg-type]
    assert corners
    for cost, metric in corners:
        assert not any(c <= cost and sign * m < sign * metric for c, m in pairs)


def test_a_long_forest_keeps_what_was_established() -> None:
    lean = examples.lean_result()
    bad, good = lean.table[0], next(row for row in lean.table if row.accepted)
    many = tuple(dataclasses.replace(bad, label=f"shape {n}") for n in range(100))
    rows = forest_rows(dataclasses.replace(lean, table=(*many, good)))
    assert len(rows) == MAX_FOREST_ROWS
    assert good in rows


def test_shapes_of_equal_cost_stand_side_by_side() -> None:
    places = side_by_side((1e5, 1e5, 1e5, 1e6, 1e7))
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert places[1] == pytest.approx(1e5)
    assert places[3:] == pytest.approx([1e6, 1e7])
    assert places[2] / places[0] < (1e7 / 1e5) ** 0.06


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"heads": 4, "depth": 2.0}, "heads=4 depth=2"),
        ({"heads": "[4, 8, 8]"}, 'heads="[4, 8, 8]"'),
        ({"head_dim": float("nan"), "tokenizer": None}, "head_dim=none tokenizer=none"),
        ({"lr": 0.000123456789}, "lr=0.0001234568"),
        ({"name": 'a "b" c'}, 'name="a b c"'),
    ],
)
def test_a_query_can_be_typed_into_the_table_of_trials(
    values: dict[str, object], text: str
) -> None:
    assert query_text(values) == text


def test_several_comparisons_are_one_table_of_candidates_and_one_of_baselines() -> None:
    groups = examples.lean_groups()
    title, candidates, _ = groups.tables[0]
    assert title == "Candidates"
    assert [row[0] for row in candidates.rows] == ["vit"] * 5 + ["xcit"] * 5
    assert candidates.header[:2] == ("family", "shape")
    alone = examples.finding(examples.lean_result()).tables[0].table.note
    assert candidates.note.startswith(f"family = vit: {alone} family = xcit: Baseline ")
    assert groups.sentences[-1] == "family = deit: no answer: the baseline has no full-budget run."


@example(low=3.1252482931151472e-12, ratio=1.0625, most=3)
@given(
    st.floats(min_value=1e-12, max_value=1e12),
    st.floats(min_value=1.02, max_value=1e9),
    st.integers(3, 9),
)
def test_the_named_values_of_a_logarithmic_axis_lie_on_it_and_apart(
    low: float, ratio: float, most: int
) -> None:
    high = low * ratio
    ticks = log_ticks(low, high, most)
    assert 1 <= len(ticks) <= most + 1
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)
    gaps = np.diff(np.log10(ticks))
    assert all(gap >= math.log10(ratio) / most * (1 - 1e-6) for gap in gaps)


def test_short_labels_leave_out_what_all_shapes_share() -> None:
    assert varying_axes([{"heads": 4, "depth": 2}, {"heads": 8, "depth": 2.0}]) == ("heads",)


def test_axes_that_never_change_are_told_apart_from_those_that_were_swept() -> None:
    trials = examples.trials_frame().assign(depth=1)
    axes = ("depth", "heads", "seq_len")
    assert tables.varying_columns(trials, axes) == ["heads", "seq_len"]
    assert trial_tables.fixed_axes(trials, axes) == [("depth", "1")]
    names = list(trial_tables.trial_columns(trials, axes, "nmse"))
    assert names.index("depth") > names.index("num_params")


def test_the_best_trials_are_those_that_finished_with_the_best_metric() -> None:
    trials = examples.trials_frame()
    for goal, ascending in (("min", True), ("max", False)):
        table = trial_tables.best_table(trials, ("heads", "seq_len"), "nmse", goal)  # type: ignore[arg-type]
        expected = trials[trials["status"] == "finished"].sort_values("nmse", ascending=ascending)
        assert [row[-1] for row in table.rows] == [key[:12] for key in expected["key"][:5]]
    assert table.header[:4] == ("", "nmse", "heads", "seq_len")
    assert "51 single runs are partly lucky" in table.note
    assert trial_tables.best_table(pd.DataFrame({"status": []}), (), "nmse", "min").rows == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "10⁻⁴"),
        (2.5e-5, "2.5×10⁻⁵"),  # noqa: RUF001
        (0.001, "0.001"),
        (0.1, "0.1"),
        (1234, "1234"),
        (1e5, "10⁵"),
        (0, "0"),
        (-3e-4, f"{MINUS}3×10⁻⁴"),  # noqa: RUF001
    ],
)
def test_axes_write_numbers_in_one_way(value: float, text: str) -> None:
    assert tick_text(value) == text
