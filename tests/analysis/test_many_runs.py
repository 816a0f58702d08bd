"""What is worked out sooner for very many runs has the numbers of the plain way, to the bit."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.charts.picks import config_key, links_by_values
from analysis.questions.transition.result import RunValue
from analysis.statistics import pair_differences
from analysis.statistics.pair_differences import median_difference
from analysis.statistics.values import Interval
from analysis.values import encode


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(2, 60), st.sampled_from([3, 50, None]))
def test_the_median_difference_is_that_of_all_pairs(
    seed: int, groups: int, most: int, values: int | None
) -> None:
    rng = np.random.default_rng(seed)
    runs = []
    for _ in range(groups):
        size = int(rng.integers(1, most))
        drawn = rng.standard_normal(size) if values is None else rng.integers(0, values, size) / 7
        runs.append(drawn * 10.0 ** float(rng.integers(-8, 8)) + float(rng.integers(-3, 3)))
    pairs = np.concatenate(
        [np.abs(run[:, None] - run[None, :])[np.triu_indices(run.size, 1)] for run in runs]
    )
    expected = float(np.median(pairs)) if pairs.size else math.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_differences, "_ALL_PAIRS", 0)
        patch.setattr(pair_differences, "_SAMPLE", 40)
        found = median_difference(runs)
    assert repr(found) == repr(expected)
    assert repr(median_difference(runs)) == repr(expected)


def test_the_median_difference_of_millions_of_pairs() -> None:
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal(size) for size in (2100, 700, 1)]
    pairs = [np.abs(run[:, None] - run)[np.triu_indices(run.size, 1)] for run in runs]
    assert sum(map(len, pairs)) > pair_differences._ALL_PAIRS
    assert median_difference(runs) == np.median(np.concatenate(pairs))


def test_results_are_written_as_plain_json() -> None:
    values = [Interval(0.5, math.nan, math.inf), np.float64(0.25), {2.0: (True, None, "é")}]
    assert encode(values) == [[0.5, None, None], 0.25, {"2": [True, None, "é"]}]
    for strange in (object(), {1, 2}, np.int64(1), RunValue):
        with pytest.raises(TypeError, match="cannot write a"):
            encode(strange)


def test_runs_are_found_by_the_same_words() -> None:
    frame = pd.DataFrame(
        {
            "heads": [1, 2, 1, 1],
            "act": ["gelu", None, "gelu", "gelu"],
            "rate": [0.1, 2.0, 0.1, math.nan],
            "seed": [0, 0, 1, 2],
            "mlflow_url": ["a", "b", "c", "d"],
        }
    )
    names = ["rate", "heads", "act"]
    expected: dict[Any, list[tuple[str, str]]] = {}
    for row in frame.to_dict("records"):
        key = config_key({name: row[name] for name in names})
        expected.setdefault(key, []).append((f"seed {row['seed']}", row["mlflow_url"]))
    assert links_by_values(frame, names) == expected
