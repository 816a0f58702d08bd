"""Which shapes are on the front, with what certainty, and the volume under it."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.questions.pareto.fit import area
from analysis.questions.pareto.result import ParetoSettings
from analysis.statistics.dominance import dominated
from benchmarks.shapes import SHAPE_OPTIONS, shapes_sweep
from benchmarks.table_fits import fit_pareto as fit

QUICK = ParetoSettings(draws=500)


def truth(frame: pd.DataFrame) -> dict[str, bool]:
    shapes = frame.groupby("shape")[["true", "num_params"]].first()
    off = dominated(
        shapes["true"].to_numpy()[None], shapes["num_params"].to_numpy()[None, :, None]
    )[0]
    return {str(name): not out for name, out in zip(shapes.index, off, strict=True)}


def judged(family: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    probability, on_front = [], []
    for seed in range(number):
        frame = shapes_sweep(family, seed, seeds=4)
        real = truth(frame)
        for row in fit(frame, settings=QUICK, **SHAPE_OPTIONS).table:
            probability.append(row.p_front)
            on_front.append(real[str(row.config["shape"])])
    return np.array(probability), np.array(on_front)


def three(values: dict[str, list[float]], costs: dict[str, float]) -> pd.DataFrame:
    rows = [
        (shape, seed, value, costs[shape])
        for shape, runs in values.items()
        for seed, value in enumerate(runs)
    ]
    return pd.DataFrame(rows, columns=["shape", "seed", "top1", "num_params"])


@pytest.mark.parametrize("family", ["homo", "hetero", "ties", "heavy"])
def test_front_probabilities_are_calibrated_and_rarely_sure_and_wrong(family):
    probability, on_front = judged(family, 30)
    # A dearer shape that ties exactly is dominated, and no number of seeds can tell.
    assert np.mean((probability - on_front) ** 2) <= (0.1 if family == "ties" else 0.065)
    assert np.mean(probability[on_front] <= 0.05) <= 0.02
    assert np.mean(probability[~on_front] >= 0.95) <= 0.02


def test_a_clear_front_is_called_on_and_its_loser_off():
    frame = three(
        {"a": [0.50, 0.51, 0.49], "b": [0.70, 0.71, 0.69], "c": [0.60, 0.61, 0.59]},
        {"a": 1.0, "b": 2.0, "c": 3.0},
    )
    rows = {row.label: row for row in fit(frame, **SHAPE_OPTIONS).table}
    assert [rows[name].class_ for name in ("a", "b", "c")] == ["on", "on", "off"]
    assert [rows[name].is_dominated for name in ("a", "b", "c")] == [False, False, True]


def test_a_metric_to_minimise_mirrors_one_to_maximise():
    frame = shapes_sweep("homo", 0)
    up = fit(frame, settings=QUICK, **SHAPE_OPTIONS)
    mirrored = frame.assign(loss=1 - frame["top1"])
    down = fit(mirrored, settings=QUICK, **(SHAPE_OPTIONS | {"metric": "loss", "goal": "min"}))
    for one, other in zip(up.table, down.table, strict=True):
        assert one.mean == pytest.approx(1 - other.mean)
        assert one.p_front == pytest.approx(other.p_front, abs=0.12)
        assert one.is_dominated == other.is_dominated


def test_crashed_runs_leave_the_mean_and_show_in_their_own_column():
    frame = shapes_sweep("homo", 1, seeds=5)
    before = {row.label: row for row in fit(frame, settings=QUICK, **SHAPE_OPTIONS).table}
    hit = (frame["shape"] == "s03") & (frame["seed"] == 4)
    frame.loc[hit, "top1"] = 0.1
    frame["status"] = np.where(
        (frame["shape"] == "s05") & (frame["seed"] == 0), "failed", "finished"
    )
    result = fit(frame, settings=QUICK, **SHAPE_OPTIONS)
    rows = {row.label: row for row in result.table}
    assert (rows["s03"].n, rows["s03"].crash_share) == (4, 0.2)
    assert rows["s03"].mean == pytest.approx(before["s03"].mean, abs=0.01)
    assert (rows["s05"].n, rows["s05"].crash_share) == (4, 0.2)
    assert rows["s00"].crash_share == 0
    assert any("1 of 5 far from the others" in warning for warning in result.warnings)


def test_single_runs_leave_every_shape_undecided():
    frame = shapes_sweep("homo", 2, seeds=1)
    result = fit(frame, settings=QUICK, **SHAPE_OPTIONS)
    assert {row.class_ for row in result.table} == {"untested_on", "untested_off"}
    assert result.to_json()["table"][0]["p_front"] is None
    assert any("single runs" in warning for warning in result.warnings)


def test_a_cost_that_varies_between_runs_is_drawn():
    rng = np.random.default_rng(0)
    frame = shapes_sweep("homo", 3)
    frame["latency"] = frame["num_params"] + 0.3 * rng.standard_normal(len(frame))
    result = fit(frame, settings=QUICK, **(SHAPE_OPTIONS | {"costs": ["latency"]}))
    assert any("drawn too: latency" in warning for warning in result.warnings)


def test_three_objectives_have_a_volume_with_moocore_and_say_so_without(monkeypatch):
    pytest.importorskip("moocore")
    frame = shapes_sweep("homo", 4)
    frame["memory"] = 11 - frame["num_params"]
    options = SHAPE_OPTIONS | {"costs": ["num_params", "memory"]}
    settings = ParetoSettings(draws=50)
    assert 0 < fit(frame, settings=settings, **options).hv.estimate < 1
    monkeypatch.setitem(sys.modules, "moocore", None)
    without = fit(frame, settings=settings, **options)
    assert without.hv is None
    assert "moocore" in without.hv_note


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 1.2), st.floats(0, 1.2)), min_size=1, max_size=8))
def test_the_area_is_what_moocore_measures(points):
    moocore = pytest.importorskip("moocore")
    array = np.array(points)
    mine = area(array[None, :, 0], array[None, :, 1])[0]
    assert mine == pytest.approx(moocore.hypervolume(array, ref=[1.0, 1.0]), abs=1e-9)


def test_the_hypervolume_interval_covers_the_true_one():
    inside = []
    for seed in range(40):
        frame = shapes_sweep("homo", seed, seeds=4)
        result = fit(frame, settings=QUICK, **SHAPE_OPTIONS)
        points = np.array([[-row.mean, row.costs["num_params"]] for row in result.table])
        low, high = points.min(axis=0), points.max(axis=0)
        shapes = frame.groupby("shape")[["true", "num_params"]].first().to_numpy()
        real = (shapes * [-1, 1] - low) / (high - low)
        inside.append(
            result.hv.low <= area(real[None, :, 0], real[None, :, 1])[0] <= result.hv.high
        )
    assert np.mean(inside) >= 0.85


def test_same_input_same_answer_and_json_keeps_it():
    frame = shapes_sweep("hetero", 5)
    result = fit(frame, settings=QUICK, **SHAPE_OPTIONS)
    assert fit(frame, settings=QUICK, **SHAPE_OPTIONS) == result
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert plain["table"][0]["class"] == result.table[0].class_


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": []}, "at least one configuration column"),
        ({"costs": ["flops"]}, "no column 'flops'"),
        ({"metric": "mrr"}, "no column 'mrr'"),
        ({"status_column": "note"}, "unknown status"),
    ],
)
def test_bad_questions_are_named(changes, message):
    frame = shapes_sweep("homo", 0).assign(note="whatever")
    with pytest.raises(ValueError, match=message):
        fit(frame, **(SHAPE_OPTIONS | changes))


def test_bad_tables_are_named():
    frame = shapes_sweep("homo", 0)
    with pytest.raises(ValueError, match="no run of the table reached"):
        fit(frame.assign(status="failed"), **SHAPE_OPTIONS)
    holed = frame.assign(num_params=frame["num_params"].where(frame["seed"] > 0))
    with pytest.raises(ValueError, match="cost 'num_params' is missing"):
        fit(holed, **SHAPE_OPTIONS)
    with pytest.raises(ValueError, match="repeat a run"):
        fit(pd.concat([frame, frame.assign(top1=frame["top1"] / 2)]), **SHAPE_OPTIONS)
    with pytest.raises(ValueError, match="alpha must be from 0 to below"):
        ParetoSettings(alpha=0.5)


def timed_sweep(seed: int, scatter: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Sixteen shapes whose latency scatters in proportion, and which are truly on the front."""
    rng = np.random.default_rng([11, seed])
    latency = np.exp(rng.uniform(0, np.log(30), 16))
    true = 0.6 + 0.05 * np.log(latency) + 0.02 * rng.standard_normal(16)
    rows = [
        (
            f"s{k:02d}",
            run,
            true[k] + 0.006 * rng.standard_normal(),
            latency[k] * np.exp(scatter * rng.standard_normal()),
        )
        for k in range(16)
        for run in range(4)
    ]
    frame = pd.DataFrame(rows, columns=["shape", "seed", "top1", "latency"])
    return frame, ~dominated(true[None], latency[None, :, None])[0].astype(bool)


def test_a_front_over_a_noisy_cost_is_rarely_sure_and_wrong():
    probability, on_front = [], []
    for seed in range(25):
        frame, real = timed_sweep(seed, scatter=0.2)
        result = fit(frame, settings=QUICK, **(SHAPE_OPTIONS | {"costs": ["latency"]}))
        by_name = dict(zip([f"s{k:02d}" for k in range(16)], real, strict=True))
        for row in result.table:
            probability.append(row.p_front)
            on_front.append(by_name[str(row.config["shape"])])
    told, real = np.array(probability), np.array(on_front)
    assert np.mean(told[real] <= 0.05) <= 0.02
    assert np.mean(told[~real] >= 0.95) <= 0.02
    assert np.mean((told - real) ** 2) <= 0.11


def test_a_noisy_cost_of_a_single_run_scatters_like_that_of_the_others():
    frame, _ = timed_sweep(0, scatter=0.2)
    two = frame[frame["shape"].isin(["s00", "s01"])]
    single = two.assign(latency=two.groupby("shape")["latency"].transform("first"))
    exact = fit(single, settings=QUICK, **(SHAPE_OPTIONS | {"costs": ["latency"]}))
    assert not any("latency" in warning for warning in exact.warnings)
    lone = frame[(frame["seed"] == 0) | (frame["shape"] == "s00")]
    kept = lone[lone["shape"].isin(["s00", "s01"])]
    result = fit(kept, settings=QUICK, **(SHAPE_OPTIONS | {"costs": ["latency"]}))
    assert any("drawn too: latency" in warning for warning in result.warnings)
    assert result.noise_gap == ""
