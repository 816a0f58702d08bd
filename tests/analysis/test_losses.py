"""Replicates without a number are counted where the number of the others stands."""

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import report_examples as examples
from simulated_shapes import analysed

from analysis.questions.effects import fit as effects
from analysis.questions.lean.charts import lean_charts
from analysis.questions.lean.text import lean_table
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.result import ParetoRow
from analysis.questions.pareto.text import pareto_table
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.result import CellCounts, TransitionResult
from analysis.questions.transition.text import cells_table
from analysis.runs.losses import Losses, losses_named
from analysis.text.trials import (
    frame_remarks,
    outcomes_table,
    revisions_table,
    status_counts,
    trial_columns,
)
from benchmarks.table_fits import fit_conditioning, fit_lean, fit_pareto, fit_transition


def runs(lost: dict[tuple[int, int], str], seeds: int = 5) -> pd.DataFrame:
    """Shapes of 1 to 6 heads; ``lost`` says how (heads, seed) ended, if not well."""
    rng = np.random.default_rng(0)
    rows = []
    for heads in range(1, 7):
        for seed in range(seeds):
            status = lost.get((heads, seed), "finished")
            error = (0.5 / heads if heads < 4 else 0.002) + float(rng.normal(0, 1e-4))
            rows.append(
                {
                    "key": f"{heads}/{seed}",
                    "heads": heads,
                    "seed": seed,
                    "status": status,
                    "nmse": error if status == "finished" else math.nan,
                    "num_params": 100 * heads,
                    "condition_number": 10.0 + heads,
                }
            )
    return pd.DataFrame(rows)


LOST = {(3, 1): "diverged", (3, 4): "diverged", (6, 0): "too_large", (2, 2): "failed"}
WARNING = "2 of 5 diverged at heads=3; 1 of 5 failed at heads=2; 1 of 5 too large at heads=6"
SHAPES: dict[str, Any] = {"config": ["heads"], "metric": "nmse", "goal": "min"}


class TestCounting:
    def test_planned_runs_have_not_started_and_stopped_ones_are_not_lost(self) -> None:
        found = Losses.of(["finished", "diverged", "planned", "stopped_early", "running"])
        assert found == Losses(4, diverged=1)
        assert (found.total, found.text) == (1, "1 of 4 diverged")

    def test_a_number_is_marked_only_where_runs_are_missing(self) -> None:
        assert Losses(5).behind == ""
        assert Losses(5, 2, 1).behind == " left (2 of 5 diverged, 1 of 5 failed)"

    def test_the_heaviest_losses_are_named_first_and_the_rest_counted(self) -> None:
        lost = [(f"heads={h}", Losses(10, diverged=h)) for h in range(10)]
        named = losses_named(lost)
        assert named.startswith("9 of 10 diverged at heads=9; 8 of 10")
        assert named.endswith("; and 3 more")
        assert losses_named([("heads=1", Losses(3))]) == ""


@pytest.fixture(scope="module")
def found() -> TransitionResult:
    return fit_transition(runs(LOST), metric="nmse", by=None, goal="min", scale="error")


class TestTransition:
    def test_a_sentence_names_the_cells(self, found: TransitionResult) -> None:
        assert (
            f"3 of 6 cells are read from the runs that are left: {WARNING}."
            in examples.sentence(found)
        )

    def test_nothing_is_said_where_nothing_was_lost(self) -> None:
        found = fit_transition(runs({}), metric="nmse", by=None, goal="min", scale="error")
        assert "left" not in examples.sentence(found)
        assert not any("left" in warning for warning in found.warnings)
        (chart, *_) = transition_charts(found)
        assert "runs lost" not in [series.name for series in chart.series]

    def test_the_chart_crosses_the_cells_and_says_why(self, found: TransitionResult) -> None:
        (chart, *_) = transition_charts(found)
        (crosses,) = [each for each in chart.series if each.name == "runs lost"]
        assert [point.hover for point in crosses.points] == [
            "heads=2: 1 of 5 failed",
            "heads=3: 2 of 5 diverged",
            "heads=6: 1 of 5 too large",
        ]
        assert "a cross marks a cell that lost runs" in chart.caption

    def test_the_table_of_cells_has_a_column_for_what_was_too_large(
        self, found: TransitionResult
    ) -> None:
        table = cells_table(found)
        row = dict(zip(table.header, table.rows[5], strict=True))
        assert (row["started"], row["complete"], row["too large"]) == ("5", "4", "1")
        none = fit_transition(runs({}), metric="nmse", by=None, goal="min", scale="error")
        assert "too large" not in cells_table(none).header

    def test_a_cell_without_any_run_left_is_named_too(self) -> None:
        lost = {(2, seed): "diverged" for seed in range(5)}
        found = fit_transition(runs(lost), metric="nmse", by=None, goal="min", scale="error")
        assert "5 of 5 diverged at heads=2" in examples.sentence(found)
        assert 2 not in {cell.x for cell in found.cells}


class TestShapes:
    def test_the_front_marks_means_of_those_left(self) -> None:
        found = fit_pareto(runs(LOST), **SHAPES)
        rows = {row.label: row for row in found.table}
        assert rows["heads=3"].lost == Losses(5, diverged=2)
        assert (rows["heads=3"].n, rows["heads=3"].crash_share) == (3, 0.4)
        table = pareto_table(found)
        shown = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
        assert shown["heads=3"]["runs"] == "3 left (2 of 5 diverged)"
        assert shown["heads=4"]["runs"] == "5"
        assert f"The means of 3 shapes are over the seeds that are left ({WARNING})." in (
            examples.sentence(found)
        )

    def test_the_chart_crosses_them_and_says_why(self) -> None:
        found = fit_pareto(runs(LOST), **SHAPES)
        (chart,) = front_charts(found)
        (crosses,) = [each for each in chart.series if each.name == "runs lost"]
        assert len(crosses.points) == 3
        hovers = " ".join(examples.hover_texts(chart))
        assert "3 full-budget runs left (2 of 5 diverged)" in hovers

    def test_a_shape_without_any_run_left_is_named(self) -> None:
        lost = {(2, seed): "diverged" for seed in range(5)}
        for found in (
            fit_pareto(runs(lost), **SHAPES),
            fit_lean(runs(lost), baseline={"heads": 6}, margin=0.01, **SHAPES),
        ):
            assert "1 shapes have no full-budget run: 5 of 5 diverged at heads=2" in found.warnings

    def test_a_run_set_aside_as_crashed_is_counted_as_well(self) -> None:
        table = runs({})
        table.loc[(table["heads"] == 5) & (table["seed"] == 0), "nmse"] = 0.9
        row = next(row for row in fit_pareto(table, **SHAPES).table if row.label == "heads=5")
        assert row.lost.text == "1 of 5 far from the others"
        assert row.crash_share == 0.2

    def test_a_lean_choice_and_its_baseline_say_what_they_lost(self) -> None:
        lost = {(4, 0): "diverged", (6, 1): "diverged", (6, 2): "diverged"}
        found = fit_lean(runs(lost), baseline={"heads": 6}, margin=0.01, **SHAPES)
        said = examples.sentence(found)
        assert "4 seeds left (1 of 5 diverged)" in said
        second = said.split(". ")[1]
        assert "2 of 5 diverged at heads=6; 1 of 5 diverged at heads=4" in second
        assert "over 3 seeds left (2 of 5 diverged)" in lean_table(found).note
        (chart,) = lean_charts(found)
        assert chart is not None
        assert "4 seeds left (1 of 5 diverged)" in " ".join(examples.hover_texts(chart))

    def test_effects_and_conditioning_name_them(self) -> None:
        asked: dict[str, Any] = {"config": ["heads"], "metric": "nmse", "goal": "min"}
        two_axes = pd.concat([runs(LOST).assign(depth=1), runs({}).assign(depth=2)])
        two_axes.loc[two_axes["depth"] == 2, "nmse"] *= 1.1
        found = analysed(
            effects.fit, two_axes, config=["heads", "depth"], metric="nmse", goal="min"
        )
        named = WARNING.replace(";", ", depth=1;") + ", depth=1"
        assert any(named in warning for warning in found.warnings)
        measured = fit_conditioning(runs(LOST), x="heads", scale="error", **asked)
        assert any(WARNING in warning for warning in measured.warnings)
        shape = next(shape for shape in measured.shapes if shape.x == 3)
        assert (shape.n, shape.lost.text) == (3, "2 of 5 diverged")


class TestReport:
    def test_what_was_too_large_has_its_own_tile_and_word(self) -> None:
        counts = {each.label: each.trials for each in status_counts(runs(LOST))}
        assert counts == {
            "finished": 26, "stopped early": 0, "failed": 1, "diverged": 2, "too large": 1,
        }  # fmt: skip
        assert "too large" not in {each.label for each in status_counts(runs({}))}

    def test_the_table_of_trials_shows_how_numbers_came_about_only_where_it_matters(self) -> None:
        table = runs({}).assign(failures=0, reused_from=None, micro_batch=None)
        names = {"failures", "reused_from", "micro_batch"}
        assert not names & set(trial_columns(table, ["heads"], "nmse"))
        table.loc[3, ["failures", "reused_from", "micro_batch"]] = [1, "first", 8]
        assert names <= set(trial_columns(table, ["heads"], "nmse"))

    def test_a_table_of_another_tool_has_endings_too(self) -> None:
        trials = pd.DataFrame({"heads": [1, 1], "status": ["finished", "failed"]})
        remarks = frame_remarks(trials, ["heads"])
        table = outcomes_table(remarks, {"no longer in the space": 3})
        assert table.rows[0] == ("failed", "1", "1 of 2 at heads=1")
        assert table.rows[1][:2] == ("orphaned", "3")
        assert table.rows[1][2].startswith("no longer in the space")

    def test_edits_are_listed(self) -> None:
        revision = {
            "time": 1.7e9,
            "command": "hsweep resume mine --set heads=1,2",
            "counts": {"before": 4, "kept": 3, "restored": 0, "new": 2, "orphaned": 1},
            "reasons": {"no longer in the space": 1},
        }
        ((_, changes, command),) = revisions_table([revision]).rows
        assert changes == "3 kept, 2 new, 1 orphaned (1 no longer in the space)"
        assert command == "hsweep resume mine --set heads=1,2"

    def test_the_example_page_names_its_lost_runs(self) -> None:
        result = examples.transition_result()
        ended = {"finished": 1, "diverged": 2}
        counts = tuple(
            dataclasses.replace(cell, ended=ended) if at == 0 else cell
            for at, cell in enumerate(result.counts)
        )
        assert isinstance(counts[0], CellCounts)
        lossy = dataclasses.replace(result, counts=counts)
        assert "1 of" in examples.sentence(lossy)
        assert "2 of 3 diverged at" in examples.sentence(lossy)

    def test_rows_made_without_losses_have_none(self) -> None:
        fields = {field.name: field for field in dataclasses.fields(ParetoRow)}
        assert fields["lost"].default == Losses()
