"""What a table must be, and what is said when it is not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_shapes import analysed

from analysis.questions.effects import fit as effects
from analysis.questions.pareto.result import ParetoSettings
from analysis.questions.settings import with_settings
from analysis.questions.transition.result import TransitionSettings
from analysis.questions.transition.table import canonical
from analysis.runs.columns import RunColumns
from analysis.runs.load import read_table
from analysis.runs.table import Runs
from hsweep.errors import UserError


def small(**columns: object) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "heads": [1, 1, 2, 2],
            "seq_len": [8, 8, 8, 8],
            "seed": [0, 1, 0, 1],
            "nmse": [0.1, 0.2, 0.01, 0.02],
        }
    )
    return frame.assign(**columns)


def load(frame: pd.DataFrame, **changes: object):
    columns = {name: changes.pop(name) for name in RunColumns.__annotations__ if name in changes}
    options = {"x": "heads", "by": "seq_len", "goal": "min", "scale": "error"}
    metric = changes.pop("metric", "nmse")
    return canonical(Runs(frame, metric, columns), **(options | changes))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_written_table_is_read_back(tmp_path, ending):
    path = tmp_path / f"runs.{ending}"
    frame = small()
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    read, notes = read_table(path)
    pd.testing.assert_frame_equal(read, frame)
    assert notes == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("runs.xlsx", b"x", r"must end in \.parquet, \.csv, \.tsv"),
        ("bad.parquet", b"not parquet", "cannot read"),
        ("bad.csv", b"a,b\n\x00\x81", "cannot read"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"heads,seed,nmse\n", "no rows"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (small().iloc[:0], {}, "no rows"),
        (small(), {"metric": "loss"}, "no column 'loss'; it has: heads, seq_len, seed, nmse"),
        (small(), {"replicate": "rep"}, "no column 'rep'"),
        (small(), {"status_column": "state"}, "no column 'state'"),
        (small(nmse=["a", 0.2, 0.3, 0.4]), {}, "'nmse' is not numeric: it holds 'a' in row 1"),
        (small(nmse=[True, False, True, True]), {}, "true and false"),
        (small(nmse=[0.1, np.inf, 0.2, 0.3]), {}, "infinity in row 2"),
        (small(nmse=[0.1, -0.1, 0.2, 0.3]), {}, "cannot be below 0"),
        (small(heads=[1, np.nan, 2, 2]), {}, "'heads' has empty entries"),
        (small(heads=["a", "b", "c", "d"]), {}, "'heads' is not numeric"),
        (small(seq_len=[0, 0, 8, 8]), {}, "above 0"),
        (small(seed=[0, 0, 0, 1]), {}, "1 rows repeat a run, the first at heads=1, seq_len=8"),
        (small(), {"goal": "max"}, "goal 'max' contradicts scale 'error'"),
        (small(), {"scale": "accuracy"}, "goal 'min' contradicts scale 'accuracy'"),
        (small(status=["finished", "ok", "failed", "failed"]), {}, "'ok'; known: .*stopped_early"),
        (
            small(nmse=[0.5, 93.0, 0.2, 0.3]),
            {"goal": "max", "scale": "accuracy"},
            r"cannot be above 1 \(divide percentages by 100\)",
        ),
        (small(nmse=1.0), {"goal": "max", "scale": "accuracy"}, "give eval_size"),
        (
            small(nmse=1.0),
            {"goal": "max", "scale": "accuracy", "eval_size": 0},
            "eval_size must be at least 1",
        ),
    ],
)
def test_bad_tables_are_refused_with_the_reason(frame, changes, message):
    with pytest.raises(ValueError, match=message):
        load(frame, **changes)


def test_only_finished_runs_are_results():
    status = ["finished", "stopped_early", "diverged", "planned"]
    frame = load(small(status=status)).frame
    assert frame["status"].tolist() == status
    assert frame["complete"].tolist() == [True, False, False, False]
    assert frame["y"].notna().tolist() == [True, False, False, False]


def test_a_column_of_true_and_false_can_say_what_is_complete():
    frame = load(
        small(done=[True, False, True, True]), status_column="done", complete=["true"]
    ).frame
    assert frame["complete"].tolist() == [True, False, True, True]


def test_a_run_short_of_the_budget_is_not_a_result():
    runs = small(epochs=[10, 4, 10, 10])
    assert load(runs, budget_column="epochs").frame["complete"].tolist() == [
        True, False, True, True,
    ]  # fmt: skip
    assert not load(runs, budget_column="epochs", target_budget=20).frame["complete"].any()


def test_of_several_reports_of_one_run_the_furthest_counts():
    runs = pd.concat([small(epochs=5, nmse=0.9), small(epochs=10)])
    frame = load(runs, budget_column="epochs").frame
    assert frame["value"].tolist() == [0.1, 0.2, 0.01, 0.02]


def test_a_finished_run_without_a_metric_counts_as_failed_and_is_reported():
    table = load(small(nmse=[0.1, np.nan, 0.2, 0.3]))
    assert table.frame["status"].tolist()[1] == "failed"
    assert any("1 finished runs have no nmse" in note for note in table.warnings)


def test_accuracy_is_floored_at_half_an_example():
    runs = small(nmse=[1.0, 0.9, 0.99, 1.0])
    table = load(runs, goal="max", scale="accuracy", eval_size=500)
    np.testing.assert_allclose(table.frame["y"], np.log10([0.001, 0.1, 0.01, 0.001]))
    guessed = load(runs, goal="max", scale="accuracy")
    assert guessed.frame["y"].min() == pytest.approx(np.log10(0.005))
    assert any("eval_size is unknown" in note for note in guessed.warnings)


def test_a_loss_stays_in_nats():
    np.testing.assert_array_equal(
        load(small(nmse=[2.0, 0.0, -1.0, 1.0]), scale="loss").frame["y"], [2.0, 0.0, -1.0, 1.0]
    )


def test_nuisance_settings_compete_and_never_pool():
    good, bad = small(lr=0.1), small(lr=0.2, nmse=[1.0, 2.0, 0.001, 0.002])
    table = load(pd.concat([good, bad]), nuisance=["lr"])
    assert table.frame["value"].tolist() == [0.1, 0.2, 0.001, 0.002]
    chosen = [table.tuned_at(heads, 8.0) for heads in (1.0, 2.0)]
    assert [each.setting.values["lr"] for each in chosen if each] == [0.1, 0.2]
    assert table.aside is not None
    assert sorted(table.aside["value"]) == [0.01, 0.02, 1.0, 2.0]


def test_the_setting_with_more_full_runs_beats_a_better_median():
    fewer = small(lr=0.2, nmse=1e-4, status=["finished", "failed", "finished", "failed"])
    table = load(pd.concat([small(lr=0.1, status="finished"), fewer]), nuisance=["lr"])
    assert table.frame["value"].tolist() == [0.1, 0.2, 0.01, 0.02]


def test_without_a_replicate_column_runs_are_numbered():
    frame = load(small().drop(columns="seed"), replicate=None).frame
    assert frame["replicate"].tolist() == ["0", "1", "0", "1"]


def test_costs_are_checked_like_the_metric():
    with pytest.raises(ValueError, match="'params' is not numeric"):
        Runs(small(params="many"), "nmse").rows(["heads"], ["params"])


def test_a_column_of_lists_is_read_as_text(tmp_path: Path) -> None:
    pd.DataFrame({"heads": [1, 2], "widths": [[8, 8], []]}).to_parquet(tmp_path / "t.parquet")
    frame, _ = read_table(tmp_path / "t.parquet")
    assert frame["heads"].tolist() == [1, 2]
    assert frame["widths"].tolist() == ["[8 8]", "[]"]
    assert frame.groupby("widths").ngroups == 2


def test_a_setting_without_end_is_refused() -> None:
    with pytest.raises(UserError, match="setting B is at most 1,000,000, not '100000000000'"):
        with_settings(TransitionSettings(), ["B=100000000000"])
    with pytest.raises(UserError, match="setting draws is at most 1,000,000"):
        with_settings(ParetoSettings(), ["draws=1000001"])
    assert with_settings(ParetoSettings(), ["draws=1000000"]).draws == 1_000_000


def test_an_infinite_value_of_an_axis_is_refused() -> None:
    frame = pd.DataFrame(
        {"heads": [1, 2, float("inf")] * 2, "seed": [0] * 3 + [1] * 3, "nmse": [0.3, 0.2, 0.1] * 2}
    )
    with pytest.raises(UserError, match="axis 'heads' holds an infinite value"):
        analysed(effects.fit, frame, config=["heads"], metric="nmse", goal="min", replicate="seed")


def test_an_error_of_zero_has_a_place_on_the_log_axis() -> None:
    """By the size of the evaluation as a perfect accuracy has, else by the smallest error above 0;
    of an error that is no share, never above what was measured."""
    runs = small()
    runs.loc[0, "nmse"] = 0.0
    smallest = runs["nmse"][1:].min()
    guessed = load(runs)
    assert guessed.frame["y"].min() == pytest.approx(np.log10(smallest / 2))
    assert any("eval_size is unknown: runs with nmse = 0" in note for note in guessed.warnings)
    rates = runs.assign(nmse=runs["nmse"].clip(upper=0).where(runs.index == 0, 0.01))
    table = load(rates, eval_size=500)
    assert table.frame["y"].min() == pytest.approx(np.log10(0.001))
    assert any("half of one in 500" in note for note in table.warnings)
    tiny = load(rates.assign(nmse=rates["nmse"] / 1000), eval_size=500)
    assert tiny.frame["y"].min() == pytest.approx(np.log10(0.5e-5))
