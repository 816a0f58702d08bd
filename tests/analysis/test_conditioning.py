"""Conditioning: the paper's account of it can be borne out, refuted and left open."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from report_examples import report_input

from analysis.charts.matplotlib_print import save_figures
from analysis.questions.conditioning.charts import conditioning_charts
from analysis.questions.conditioning.fit import has_probe
from analysis.questions.conditioning.result import ConditioningResult, ConditioningSettings
from analysis.questions.conditioning.text import (
    conditioning_sentences,
    shapes_table,
)
from analysis.report.build import build_report, report_charts
from benchmarks.table_fits import fit_conditioning as fit
from hsweep.cli import main
from hsweep.errors import UserError

TOKENS = 17
WIDTH = 48


def predicted(columns: float) -> float:
    return (columns**0.5 + TOKENS**0.5) / abs(columns**0.5 - TOKENS**0.5)


def table(slope: float = -0.02, noise: float = 0.002, seed: int = 0, **changes: Any) -> Any:
    """Shapes whose accuracy follows the logarithm of their condition number by ``slope``."""
    source = np.random.default_rng(seed)
    rows = []
    for depth in (1, 2):
        for head_dim in (None, 8):
            for heads in (1, 2, 3, 4, 6, 8):
                columns = WIDTH if head_dim is None else head_dim * heads
                if columns == WIDTH and head_dim is not None:
                    continue
                theory = predicted(columns)
                condition = 3000 * theory / heads**2 * math.exp(source.normal(0, 0.1))
                for replicate in range(3):
                    measured = condition * math.exp(source.normal(0, 0.02))
                    accuracy = 0.9 + slope * math.log(measured) + source.normal(0, noise)
                    rows.append(
                        {
                            "heads": heads,
                            "head_dim": head_dim,
                            "depth": depth,
                            "embed_dim": WIDTH,
                            "seed": replicate,
                            "status": "finished",
                            "top1": accuracy,
                            "condition_number": measured,
                            "predicted_condition_number": theory,
                            "condition_number_layer_00": measured,
                            "num_params": 1000 * depth * (9 + heads * (head_dim or 8) / 8),
                            **changes,
                        }
                    )
    return pd.DataFrame(rows)


def analysed(frame: pd.DataFrame, **options: Any) -> ConditioningResult:
    chosen = {"config": ["heads", "head_dim", "depth"], "metric": "top1", "replicate": "seed"}
    quick = ConditioningSettings(draws=999)
    return fit(frame, **({"settings": quick} | chosen | options))


@pytest.fixture(scope="module")
def found() -> ConditioningResult:
    return analysed(table())


class TestVerdict:
    def test_better_conditioned_and_better_is_support(self, found: ConditioningResult) -> None:
        assert (found.verdict, found.leading) == ("supported", "size_controlled")
        assert found.size_controlled is not None
        assert found.size_controlled.rho < -0.8
        assert "better conditioned shapes have the better top1" in found.reason
        assert len(found.shapes) == 22
        assert all(shape.n == 3 for shape in found.shapes)

    def test_worse_conditioned_and_better_refutes_the_account(self) -> None:
        found = analysed(table(slope=0.02))
        assert found.verdict == "contradicted"
        assert "worse conditioned shapes have the better top1" in found.reason

    def test_accuracy_that_does_not_follow_leaves_it_open(self) -> None:
        found = analysed(table(slope=0.0))
        assert found.verdict == "undecided"
        assert "no correlation" in found.reason

    def test_what_size_alone_explains_is_no_support(self) -> None:
        frame = table(slope=0.0)
        frame["num_params"] = 1000.0 * frame["heads"] * frame["depth"] ** 3
        order = np.log(frame["num_params"])
        source = np.random.default_rng(3)
        shape = frame.groupby(["heads", "head_dim", "depth"], dropna=False).ngroup()
        frame["top1"] = 0.5 + 0.05 * order + 0.05 * source.normal(size=40)[shape]
        frame["condition_number"] = np.exp(25 - order + source.normal(size=40)[shape])
        found = analysed(frame)
        assert found.raw is not None
        assert found.raw.p < 0.05
        assert found.verdict == "undecided"
        assert "without regard to size" in found.reason

    def test_size_that_orders_both_cannot_be_told_apart(self) -> None:
        frame = table().query("depth == 1 and head_dim == 8").copy()
        frame["condition_number"] = 1e6 / frame["num_params"]
        frame["top1"] = frame["num_params"] / 1e5
        found = analysed(frame)
        assert (found.verdict, found.leading) == ("undecided", None)
        assert "cannot be told apart" in found.reason

    def test_shapes_of_one_size_need_no_control(self) -> None:
        found = analysed(table(num_params=1000))
        assert (found.verdict, found.leading) == ("supported", "raw")
        assert found.size_controlled is None

    def test_without_sizes_all_shapes_are_compared(self) -> None:
        assert analysed(table().drop(columns="num_params")).leading == "raw"

    def test_correlation_within_equal_heads_is_told(self) -> None:
        frame = table(slope=0.0)
        # Heads drive both; within a number of heads nothing is left.
        source = np.random.default_rng(5)
        shape = frame.groupby(["heads", "head_dim", "depth"], dropna=False).ngroup()
        frame["condition_number"] = np.exp(10 - frame["heads"] + source.normal(size=40)[shape] / 9)
        frame["top1"] = 0.5 + frame["heads"] / 50 + source.normal(size=40)[shape] / 1000
        found = analysed(frame)
        assert found.same_heads is not None
        assert found.same_heads.p > 0.05
        assert found.verdict == "supported"
        assert "not told apart from the number of heads" in found.reason

    def test_few_shapes_are_not_tested(self) -> None:
        found = analysed(table().query("depth == 1 and head_dim == 8 and heads < 6"))
        assert (found.verdict, found.leading) == ("undecided", None)
        assert "4 shapes" in found.reason

    def test_more_seeds_of_the_same_shapes_are_no_more_evidence(
        self, found: ConditioningResult
    ) -> None:
        frame = table()
        repeated = pd.concat([frame.assign(seed=frame["seed"] + 10 * copy) for copy in range(5)])
        one, many = found, analysed(repeated)
        assert one.raw is not None
        assert many.raw is not None
        assert (one.raw.p, one.raw.rho) == pytest.approx((many.raw.p, many.raw.rho))

    def test_a_smaller_metric_may_be_the_better_one(self) -> None:
        frame = table()
        frame["loss"] = 1 - frame["top1"]
        found = analysed(frame, metric="loss", goal="min", scale="loss")
        assert found.verdict == "supported"
        assert found.raw is not None
        assert found.raw.rho < -0.5


class TestTheory:
    def test_each_kind_of_heads_is_a_curve_of_its_own(self, found: ConditioningResult) -> None:
        trends = {trend.series: trend for trend in found.trends}
        assert set(trends) == {"coupled", "head_dim = 8"}
        assert trends["coupled"].x == (1, 2, 3, 4, 6, 8)
        assert trends["head_dim = 8"].x == (1, 2, 3, 4, 8)
        assert trends["coupled"].predicted == pytest.approx([predicted(WIDTH)] * 6)
        _, of_width, coupled = conditioning_sentences(found)
        assert "With heads coupled, the condition number falls 67-fold from 1 to 8 heads" in coupled
        assert "; the theory says that it stays the same." in coupled
        assert "; the theory says that it falls 1.7-fold, with a peak at 2." in of_width

    def test_a_table_without_the_theory_has_none(self) -> None:
        found = analysed(table().drop(columns="predicted_condition_number"))
        assert all(not trend.predicted for trend in found.trends)

    def test_blocks_without_all_heads_do_not_bend_the_curve(self) -> None:
        frame = table().query("head_dim.isna()")
        frame = frame.query("not (depth == 2 and heads == 8)").copy()
        frame["condition_number"] *= frame["depth"] * 100
        (trend,) = analysed(frame).trends
        assert list(trend.measured) == sorted(trend.measured, reverse=True)


class TestTables:
    def test_shapes_stopped_early_are_left_out(self) -> None:
        frame = table()
        frame.loc[(frame["heads"] == 3) & (frame["seed"] == 0), "status"] = "stopped_early"
        found = analysed(frame)
        assert {shape.x for shape in found.shapes} == {1, 2, 4, 6, 8}
        assert any("early stopping" in warning for warning in found.warnings)

    def test_runs_without_a_probe_are_told(self) -> None:
        frame = table()
        frame.loc[frame["seed"] == 2, "condition_number"] = np.nan
        found = analysed(frame)
        assert all(shape.n == 2 for shape in found.shapes)
        assert any("22 full-budget runs have no" in warning for warning in found.warnings)

    def test_singular_matrices_are_told(self) -> None:
        frame = table()
        frame["condition_number_capped"] = (frame["heads"] == 1) * 0.5
        warnings = analysed(frame).warnings
        assert any("4 of 22 shapes have matrices that are singular" in text for text in warnings)

    def test_errors_are_averaged_as_logarithms(self) -> None:
        frame = table()
        frame["nmse"] = 10.0 ** ((frame.groupby(["heads"]).ngroup() - frame["seed"]) % 3 - 2.0)
        found = analysed(frame, metric="nmse", goal="min", scale="error")
        assert all(shape.metric == pytest.approx(0.1) for shape in found.shapes)

    def test_a_probe_is_recognised(self) -> None:
        frame = table()
        assert has_probe(frame)
        assert not has_probe(frame.drop(columns="condition_number"))
        assert not has_probe(frame.assign(condition_number=np.nan))

    @pytest.mark.parametrize(
        ("changes", "options", "message"),
        [
            ({}, {"config": []}, "at least one configuration column"),
            ({"condition_number": 0.5}, {}, "at least 1"),
            ({"condition_number": np.nan}, {}, "no run of the table"),
            ({"condition_number": "large"}, {}, "not numeric"),
            ({"condition_number": np.inf}, {}, "infinity"),
            ({"status": "failed"}, {}, "no run of the table"),
        ],
    )
    def test_what_cannot_be_used_is_said(
        self, changes: dict[str, Any], options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UserError, match=message):
            analysed(table(**changes), **options)

    @pytest.mark.parametrize("wrong", [{"alpha": 0}, {"draws": 0}])
    def test_settings_that_make_no_sense_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ConditioningSettings(**wrong)


class TestResults:
    def test_the_same_table_gives_the_same_bits_and_plain_json(
        self, found: ConditioningResult
    ) -> None:
        content = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert len(content["shapes"]) == len(found.shapes)
        assert analysed(table()).to_json() == found.to_json()

    def test_tables_are_whole(self, found: ConditioningResult) -> None:
        shown = shapes_table(found)
        assert len(shown.rows) == len(found.shapes)
        assert all(len(row) == len(shown.header) for row in shown.rows)

    def test_charts_show_every_shape_and_both_curves(self, found: ConditioningResult) -> None:
        heads, metric = conditioning_charts(found)
        assert {series.name for series in heads.series if series.name} == {
            "coupled",
            "head_dim = 8",
            "theory",
        }
        assert sum(len(series.points) for series in metric.series) == 22

    def test_one_shape_draws_nothing(self) -> None:
        found = analysed(table().query("heads == 1 and depth == 1 and head_dim == 8"))
        assert conditioning_charts(found) == []
        assert found.verdict == "undecided"

    def test_the_report_and_the_figures_have_it(
        self, found: ConditioningResult, tmp_path: Path
    ) -> None:
        shown = report_input(conditioning=found)
        page = build_report(shown)
        assert "Condition numbers" in page
        assert "condition-heads" in page
        written = {path.name for path in save_figures(report_charts(shown), tmp_path, ["svg"])}
        assert {"condition-heads.svg", "condition-metric.svg"} <= written

    def test_any_table_can_be_asked(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        arguments = ["analyze", "--table", str(path), "--kind", "conditioning", "--metric", "top1"]
        # Without --config the shape is found: an empty head_dim is a value of its own.
        table().to_csv(path, index=False)
        fewer = [*arguments, "--setting", "draws=99", "--json"]
        found = json.loads(CliRunner().invoke(main, fewer).stdout)
        assert (found["verdict"], len(found["shapes"])) == ("supported", 22)
        assert found["settings"]["draws"] == 99
        table().drop(columns="condition_number").to_csv(path, index=False)
        refused = CliRunner().invoke(main, arguments)
        assert refused.exit_code == 2
        assert "unknown column 'condition_number'" in refused.stderr
