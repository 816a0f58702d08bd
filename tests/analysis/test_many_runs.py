"""What is worked out sooner for very many runs has the numbers of the plain way."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.charts.picks import config_key, links_by_values
from analysis.questions.transition.result import RunValue
from analysis.statistics.moderated import PAIR_SCALE, pair_differences
from analysis.statistics.values import Interval
from analysis.values import encode


def test_the_pairs_of_many_runs_are_those_of_evenly_spread_ones() -> None:
    few = [np.array([3.0, 1.0, 1.5]), np.zeros(1), np.array([2.0, 5.0])]
    assert pair_differences(few).tolist() == [2.0, 1.5, 0.5, 3.0]
    assert pair_differences([]).size == 0
    many = np.random.default_rng(0).standard_normal(20_000)
    pairs = pair_differences([many])
    assert pairs.size == 200 * 199 // 2
    assert pairs.max() == np.ptp(many)
    assert np.median(pairs) / PAIR_SCALE == pytest.approx(1.0, rel=0.02)


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
