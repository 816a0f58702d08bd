"""What is sorted and looked up is what comparing every pair of shapes gives, to the bit."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoSettings
from analysis.runs.grouped import grouped
from analysis.runs.table import Runs
from analysis.statistics import dominance
from analysis.statistics.dominance import dominated, dominated_share
from benchmarks.table_fits import fit_pareto


def by_definition(quality: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Compare every shape with every other one, draw by draw."""
    result = np.zeros(quality.shape, dtype=bool)
    for k in range(quality.shape[1]):
        at_most = (cost <= cost[:, k : k + 1]).all(axis=2)
        cheaper = at_most & (cost < cost[:, k : k + 1]).any(axis=2)
        equal = at_most & ~cheaper
        rival = quality[:, k : k + 1]
        beats = (cheaper & (quality >= rival)) | (equal & (quality > rival))
        result[:, k] = beats.any(axis=1)
    return result


@st.composite
def draws(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Few values, so that there are ties of every kind, or many."""
    shapes, number, costs = (draw(st.integers(1, most)) for most in (12, 5, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = draw(st.sampled_from([2, 4, 1000]))
    are_exact = draw(st.booleans())
    quality = rng.integers(0, values, (number, shapes)) / 7
    cost = rng.integers(0, values, (1 if are_exact else number, shapes, costs)) / 3
    return quality, cost


@settings(deadline=None, max_examples=400)
@given(draws())
def test_the_same_shapes_are_dominated_in_the_same_draws(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    quality, cost = drawn
    expected = by_definition(quality, cost)
    assert np.array_equal(dominated(quality, cost), expected)
    assert np.array_equal(dominated_share(quality, cost), expected.mean(axis=0))


def test_a_share_is_the_same_however_few_draws_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    quality, cost = rng.standard_normal((50, 30)), rng.standard_normal((50, 30, 2))
    whole = dominated_share(quality, cost)
    for at_once in (1, 30, 31, 700, 10**9):
        monkeypatch.setattr(dominance, "_CHUNK_VALUES", at_once)
        assert np.array_equal(dominated_share(quality, cost), whole)


def shapes_frame(seed: int, shapes: int = 40, runs: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    number = np.arange(shapes * runs)
    shape = number % shapes
    top1 = 0.5 + 0.01 * shape + 0.02 * rng.standard_normal(len(number))
    words = ["finished", "stopped_early", "failed", "diverged", "too_large", "planned"]
    status = rng.choice(words, len(number), p=[0.85, 0.03, 0.05, 0.03, 0.02, 0.02])
    return pd.DataFrame(
        {
            "heads": 1 + shape % 5,
            "act": np.where(shape % 3 == 0, "gelu", "relu"),
            "depth": 1 + shape // 5,
            "seed": number // shapes,
            "top1": np.where(status == "finished", top1, np.nan),
            "num_params": 1000 * (1 + shape // 2),
            "latency": 1 + shape + rng.uniform(0, 0.1, len(number)),
            "status": status,
        }
    )


CONFIG = ["heads", "act", "depth"]


@pytest.mark.parametrize("costs", [["num_params"], ["latency"], ["num_params", "latency"]])
@pytest.mark.parametrize("seed", range(3))
def test_a_front_has_the_numbers_of_the_definition(seed: int, costs: list[str]) -> None:
    few_draws = ParetoSettings(draws=60)
    result = fit_pareto(
        shapes_frame(seed), config=CONFIG, metric="top1", costs=costs, settings=few_draws
    )
    rows = result.table
    mean = np.array([row.mean for row in rows])
    cost = np.array([[row.costs[name] for name in costs] for row in rows])
    for k, row in enumerate(rows):
        assert row.is_dominated == any(
            (cost[j] <= cost[k]).all()
            and mean[j] >= mean[k]
            and ((cost[j] < cost[k]).any() or mean[j] > mean[k])
            for j in range(len(rows))
        )
    assert 0 < sum(row.p_front > 0.5 for row in rows) < len(rows)


def test_hypervolumes_are_the_same_however_few_draws_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for costs in (["num_params"], ["latency"]):
        options = {"config": CONFIG, "metric": "top1", "costs": costs}
        volumes = []
        for at_once in (1, 100, 10**9):
            monkeypatch.setattr(pareto, "_CHUNK_VALUES", at_once)
            volumes.append(
                fit_pareto(shapes_frame(1), settings=ParetoSettings(draws=50), **options).hv
            )
        assert volumes[0] == volumes[1] == volumes[2]


@pytest.mark.parametrize("seed", range(5))
def test_shapes_hold_the_runs_that_pandas_groups(seed: int) -> None:
    frame = shapes_frame(seed)
    shapes = grouped(Runs(frame, "top1"), CONFIG, goal="max", costs=["num_params", "latency"])
    comparable = {tuple(item.config.values()): item for item in shapes.comparable}
    stopped = {tuple(shape.config.values()): shape.costs for shape in shapes.stopped}
    for key, rows in frame.groupby(CONFIG):
        done = rows[rows["status"] == "finished"]
        if (rows["status"] == "stopped_early").any():
            assert key not in comparable
            assert stopped.pop(key) == {
                name: pytest.approx(rows[name].mean(), rel=1e-15)
                for name in ("num_params", "latency")
            }
            continue
        if done.empty:
            assert key not in comparable
            continue
        item = comparable.pop(key)
        assert item.values.tolist() == done["top1"].tolist()
        assert item.numbers["latency"].tolist() == done["latency"].tolist()
        assert item.costs["latency"] == done["latency"].to_numpy().mean()
        counts = rows["status"].value_counts()
        assert item.lost.failed == counts.get("failed", 0)
        assert item.lost.started == len(rows) - counts.get("planned", 0)
        assert [type(value) for value in item.config.values()] == [int, str, int]
    assert not comparable
    assert not stopped
