"""A study beside the printed results: numbers where they are comparable, reasons where not."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hsweep.errors import UserError
from results.printed.difference import PrintedDifference, best_of_normal, printed_difference
from results.printed.fit import fit
from results.printed.numbers import setup_of, setups
from results.printed.result import PublishedResult, PublishedSettings
from results.printed.text import (
    missing_printed_table,
    published_sentence,
    published_table,
)

BY_NAME = {setup.name: setup for setup in setups()}
RETRIEVAL_AXES = ["heads", "seq_len", "dim", "depth", "head_dim", "lr"]
RETRIEVAL_TASKS = [{"type": "Retrieval", "seq_len": 8, "dim": 4, "num_train": 8000}]


def retrieval(
    heads: Any = (1, 4), lengths: Any = (8,), scatter: float = 0.05, factor: float = 1.0
) -> pd.DataFrame:
    """Runs about the published values of D = 4 (7.01e-2 and 6.10e-5 at T = 8)."""
    printed = {1: 7.01e-2, 2: 1e-2, 3: 1e-3, 4: 6.10e-5, 5: 1e-5}
    return pd.DataFrame(
        {
            "heads": h,
            "seq_len": length,
            "dim": 4,
            "depth": 1,
            "head_dim": 8,
            "lr": 0.01,
            "seed": seed,
            "status": "finished",
            "nmse": factor * printed[h] * 10 ** (scatter * (seed - 1)),
        }
        for h in heads
        for length in lengths
        for seed in range(3)
    )


def beside(frame: pd.DataFrame, setup: str = "retrieval", **options: Any) -> PublishedResult:
    chosen = {"axes": RETRIEVAL_AXES, "tasks": RETRIEVAL_TASKS}
    return fit(frame, BY_NAME[setup], **(chosen | options))


class TestSetups:
    def test_a_study_is_known_by_its_sweep_else_by_its_task(self) -> None:
        def name(sweep: str, *kinds: str) -> str | None:
            found = setup_of(sweep, [{"type": kind} for kind in kinds])
            return found.name if found else None

        assert name("cifar10_heads", "Images") == "cifar10"
        assert name("vision_families", "Images") == "lean_base"
        assert name("my_heads", "Retrieval", "Retrieval") == "retrieval"
        assert name("my_images", "Images") is None
        assert name("mine", "Retrieval", "Passages") is None
        assert name("mine") is None


class TestMatching:
    def test_a_cell_meets_the_values_of_its_own_settings(self) -> None:
        found = beside(retrieval())
        assert found.comparable
        met = [(row.printed.settings["heads"], row.printed.value) for row in found.rows]
        assert met == [(1, 7.01e-2), (4, 6.10e-5)]
        assert [row.label for row in found.rows] == ["heads=1", "heads=4"]
        assert len(found.rows) + len(found.missing) == 13

    def test_a_value_for_any_length_meets_every_length(self) -> None:
        found = beside(retrieval(heads=(2,), lengths=(8, 16)))
        assert [row.label for row in found.rows] == ["seq_len=8", "seq_len=16"]
        assert all(row.standing == "untested" and row.p is None for row in found.rows)
        assert "met within a factor of 3" in found.rows[0].note

    def test_the_ablations_are_told_apart(self) -> None:
        frame = retrieval(heads=(4,), lengths=(128,)).assign(nmse=5.7e-7)
        for changes, value in (({}, 5.23e-6), ({"embed_dim": 32}, 5.70e-7)):
            found = beside(frame.assign(**changes), axes=[*RETRIEVAL_AXES, "embed_dim"])
            assert [row.printed.value for row in found.rows] == [value]

    def test_what_is_no_axis_is_read_from_the_task(self) -> None:
        frame = retrieval().drop(columns=["dim", "depth"])
        assert len(beside(frame).rows) == 2
        other = [{"type": "Retrieval", "seq_len": 8, "dim": 3}]
        assert not beside(frame, tasks=other).comparable

    @pytest.mark.parametrize(
        ("changes", "tasks", "reason"),
        [
            ({"dim": 8}, RETRIEVAL_TASKS, "dim is 8 here and 4, 3 in the paper"),
            ({"seq_len": 16}, RETRIEVAL_TASKS, "seq_len is 16 here and 8, 128 in the paper"),
            (
                {},
                [{"type": "Retrieval", "num_train": 8000, "samples": "stream"}],
                "samples is stream here and fixed in the paper",
            ),
            (
                {},
                [{"type": "Retrieval", "num_train": 100}],
                "num_train is 100 here and 8000 in the paper",
            ),
        ],
    )
    def test_another_task_has_no_comparable_number(
        self, changes: dict[str, Any], tasks: list[dict[str, Any]], reason: str
    ) -> None:
        found = beside(retrieval().assign(**changes), tasks=tasks)
        assert not found.comparable
        assert found.rows == ()
        assert len(found.missing) == 13
        assert reason in found.reason
        assert f"Not comparable with {found.title}: " in published_sentence(found)

    def test_settings_that_never_meet_in_one_cell_are_said(self) -> None:
        frame = retrieval(heads=(4,), lengths=(8,)).assign(dim=3)
        found = beside(frame, tasks=[{"type": "Retrieval", "num_train": 8000}])
        assert not found.comparable
        assert " here and " in found.reason

    def test_runs_short_of_their_budget_are_no_results(self) -> None:
        frame = retrieval()
        frame.loc[frame["seed"] > 0, "status"] = "stopped_early"
        found = beside(frame)
        assert all(row.n == 1 and row.lost == 2 for row in found.rows)
        assert all(row.standing == "untested" for row in found.rows)
        assert "did not reach their full budget" in found.rows[0].note
        none = beside(frame.assign(status="failed"))
        assert "no run with a published setting" in none.reason

    def test_digits_are_not_imagenet(self) -> None:
        frame = pd.DataFrame(
            {"family": ["xcit"] * 2, "depth": 12, "heads": 16, "head_dim": 64, "mlp_ratio": 4}
            | {"seed": [0, 1], "status": "finished", "top1": [0.98, 0.99]}
        )
        axes = ["family", "depth", "heads", "head_dim", "mlp_ratio"]
        digits = [{"type": "Images", "data": "digits"}]
        found = beside(frame, "lean_base", axes=axes, tasks=digits)
        assert found.reason == "data is digits here and ImageNet-1k in the paper"
        imagenet = [{"type": "StreamedImages", "data": "imagenet-1k"}]
        (row,) = beside(frame, "lean_base", axes=axes, tasks=imagenet).rows
        assert (row.printed.value, row.scale, row.best_of) == (0.817, "accuracy", 1)
        assert row.standing == "better"

    def test_a_folder_counts_as_the_published_data_only_if_the_user_says_so(self) -> None:
        frame = pd.DataFrame(
            {"heads": [8] * 2, "seq_len": 64, "seed": [0, 1], "status": "finished"}
            | {"train_top1": [0.93, 0.94]}
        )
        tasks = [{"type": "Passages", "data": "/data/msmarco"}]
        chosen: dict[str, Any] = {"axes": ["heads", "seq_len"], "tasks": tasks}
        assert "/data/msmarco" in beside(frame, "passages", **chosen).reason
        vouched = beside(frame, "passages", settings=PublishedSettings(same_data=True), **chosen)
        assert [row.printed.value for row in vouched.rows] == [0.932]
        assert "vouches" in " ".join(vouched.assumptions)

    def test_stages_written_as_text_are_read(self) -> None:
        frame = pd.DataFrame(
            {"family": ["davit"] * 2, "depth": "[1, 1, 5, 1]", "heads": "[4, 8, 32, 32]"}
            | {"mlp_ratio": 4, "seed": [0, 1], "status": "finished", "top1": [0.834, 0.836]}
        )
        tasks = [{"type": "StreamedImages", "data": "imagenet-1k"}]
        axes = ["family", "depth", "heads", "head_dim", "mlp_ratio"]
        (row,) = beside(frame, "lean_base", axes=axes, tasks=tasks).rows
        assert row.printed.value == 0.835

    def test_rank_and_width_name_the_heads_of_the_nearest_neighbour(self) -> None:
        frame = pd.DataFrame(
            {"rank": [4] * 2, "widening": 8, "depth": 3, "dim": 64, "seq_len": 16}
            | {"positions": "none", "seed": [0, 1], "status": "finished"}
            | {"squared_error": [0.2, 0.24]}
        )
        axes = ["rank", "widening", "depth", "dim", "seq_len", "positions"]
        tasks = [{"type": "NearestNeighbor", "points": "iid", "doubled": False}]
        (row,) = beside(frame, "nearest_neighbor", axes=axes, tasks=tasks).rows
        assert (row.printed.value, row.metric, row.best_of) == (0.22, "squared_error", 5)

    def test_small_long_range_tasks_are_not_the_published_ones(self) -> None:
        frame = pd.DataFrame(
            {"task": ["listops"] * 2, "depth": 2, "heads": 2, "head_dim": 32}
            | {"seed": [0, 1], "status": "finished", "test_accuracy": [0.36, 0.37]}
        )
        axes = ["task", "depth", "heads", "head_dim"]
        small = [{"type": "ListOps", "num_train": 10_000, "max_length": 64}]
        assert "num_train" in beside(frame, "lra", axes=axes, tasks=small).reason
        whole = [{"type": "ListOps", "num_train": 96_000, "max_length": 2_000}]
        rows = beside(frame, "lra", axes=axes, tasks=whole).rows
        assert [(row.printed.paper, row.printed.value) for row in rows] == [
            ("L", 0.3679),
            ("N", 0.3715),
        ]

    @pytest.mark.parametrize("bad", [pd.DataFrame(), pd.DataFrame({"status": ["finished"]})])
    def test_a_table_without_points_is_refused(self, bad: pd.DataFrame) -> None:
        with pytest.raises(UserError):
            beside(bad)


def differing(
    y: Any,
    sd: float,
    df: float,
    printed: float,
    best_of: int = 1,
    goal: str = "min",
    **changes: Any,
) -> PrintedDifference:
    chosen = {"high": printed, "reading_sd": 0.0, "alpha": 0.05, "best_of": best_of} | changes
    return printed_difference(
        np.array(y), sd, df, low=printed, higher_is_better=goal == "max", **chosen
    )


class TestNumbers:
    def test_equal_values_are_not_told_apart_and_larger_errors_are_worse(self) -> None:
        rows = beside(retrieval()).rows
        assert [row.standing for row in rows] == ["alike", "alike"]
        worse = beside(retrieval(factor=10)).rows
        assert [row.standing for row in worse] == ["worse", "worse"]
        assert [row.standing for row in beside(retrieval(factor=0.1)).rows] == ["better", "better"]
        # The expected best of three lies 0.846 sd below the mean.
        assert worse[0].factor == pytest.approx(10 * 10 ** (-0.846 * 0.05), rel=0.01)

    @pytest.mark.parametrize(
        ("seeds", "mean", "variance"),
        [(1, 0, 1), (2, 0.56419, 0.68169), (3, 0.84628, 0.55947), (5, 1.16296, 0.44753)],
    )
    def test_the_best_of_some_seeds_lies_where_tables_say(
        self, seeds: int, mean: float, variance: float
    ) -> None:
        assert best_of_normal(seeds) == pytest.approx((mean, variance), abs=1e-5)

    @given(
        st.integers(2, 8),
        st.floats(-3, 3),
        st.floats(0.01, 1),
        st.sampled_from(["min", "max"]),
        st.integers(1, 6),
    )
    @settings(max_examples=50, deadline=None)
    def test_the_difference_is_in_its_own_standard_errors(
        self, n: int, printed: float, sd: float, goal: Any, best_of: int
    ) -> None:
        found = differing(np.linspace(-1, 1, n), sd, 10, printed, best_of, goal)
        assert found.se is not None
        assert found.in_se == pytest.approx(found.difference / found.se)
        assert found.p == pytest.approx(2 * stats.t.sf(abs(found.difference / found.se), 10))
        assert found.se >= sd * math.sqrt(1 / n)
        assert (found.standing == "alike") == (found.p > 0.05)
        if found.standing != "alike":
            assert (found.standing == "better") == ((found.difference > 0) == (goal == "max"))

    def test_a_range_is_met_anywhere_in_it(self) -> None:
        found = {
            value: differing([value, value + 0.002], 0.002, 20, 0.9, goal="max", high=0.95).standing
            for value in (0.85, 0.899, 0.93, 0.97)
        }
        assert found == {0.85: "worse", 0.899: "alike", 0.93: "alike", 0.97: "better"}

    @pytest.mark.parametrize("best_of", [1, 3, 5])
    def test_seeds_of_one_distribution_differ_as_often_as_the_level_says(
        self, best_of: int
    ) -> None:
        source = np.random.default_rng(best_of)
        told_apart = 0
        for _ in range(2000):
            y = source.normal(size=5)
            printed = source.normal(size=best_of).min()
            sd = math.sqrt(source.chisquare(30) / 30)
            told_apart += differing(y, sd, 30, printed, best_of).standing != "alike"
        assert 0.03 <= told_apart / 2000 <= 0.075

    def test_without_two_runs_anywhere_nothing_is_tested(self) -> None:
        found = beside(retrieval().query("seed == 0"))
        assert all(row.se is None and row.standing == "untested" for row in found.rows)
        assert "seed noise is unknown" in found.rows[0].note

    def test_a_value_read_off_a_figure_is_less_exact(self) -> None:
        exact, read = (differing([0.0, 0.1], 0.01, 9, 0.0, reading_sd=sd) for sd in (0.0, 0.05))
        assert exact.se is not None
        assert read.se is not None
        assert read.se == pytest.approx(math.hypot(exact.se, 0.05))

    def test_what_is_assumed_is_said(self) -> None:
        said = " ".join(beside(retrieval(), budget="150 epochs").assumptions)
        assert "a number of seeds that is not given" in said
        assert "taken to scatter as the study's do" in said
        assert "150 epochs" in said
        assert "some differ by chance" in said


class TestWords:
    def test_a_result_is_plain_json(self) -> None:
        for found in (beside(retrieval()), beside(retrieval().assign(dim=8))):
            json.dumps(found.to_json(), allow_nan=False)

    def test_tables_are_whole(self) -> None:
        found = beside(retrieval(heads=(1, 2, 4)))
        for shown in (published_table(found), missing_printed_table(found)):
            assert shown.rows
            assert all(len(row) == len(shown.header) for row in shown.rows)
        assert "3 comparisons, 2 not told apart, 1 not tested" in published_sentence(found)
        assert "10 published values of it were not run" in published_sentence(found)
