"""Results written to files and read back."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report_examples as examples

from analysis.questions.lean import fit as lean
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoSettings
from analysis.questions.transition import fit as transition
from analysis.questions.transition.result import TransitionSettings
from analysis.result_files import read_result, write_finding
from benchmarks.shapes import MARGIN, SHAPE_OPTIONS, lean_sweep, shapes_sweep
from benchmarks.sweeps import transition_sweep
from hsweep.errors import UserError


def results() -> dict[str, Any]:
    sweep = transition_sweep("asha_cell", 0)
    candidates = lean_sweep("equal", 0)
    return {
        "transition": transition.fit(
            sweep.frame,
            settings=TransitionSettings(B=50, n_mc=49),
            **sweep.options,
        ),
        "refused": transition.fit(
            (refused := transition_sweep("asha_global", 0)).frame, **refused.options
        ),
        "pareto": pareto.fit(
            shapes_sweep("hetero", 0), settings=ParetoSettings(draws=50), **SHAPE_OPTIONS
        ),
        "lean": lean.fit(
            candidates,
            baseline={"shape": candidates["shape"].max()},
            margin=MARGIN,
            **SHAPE_OPTIONS,
        ),
    }


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_result_is_read_back_as_it_was_written(tmp_path: Path, ending: str) -> None:
    for name, result in results().items():
        path = tmp_path / f"{name}.{ending}"
        write_finding(examples.finding(result), path)
        assert read_result(path) == result


def test_the_rows_of_a_parquet_file_are_readable_without_us(tmp_path: Path) -> None:
    found = results()
    for name, result in found.items():
        write_finding(examples.finding(result), tmp_path / f"{name}.parquet")
    heads = pd.read_parquet(tmp_path / "transition.parquet").set_index("heads")
    assert heads["p_h"].sum() == pytest.approx(1)
    assert heads.index[heads["is_h_star"]].tolist() == [found["transition"].h_star]
    front = pd.read_parquet(tmp_path / "pareto.parquet")
    chances = {row.label: row.p_front for row in found["pareto"].table}
    assert front.set_index("label")["p_front"].to_dict() == chances
    candidates = pd.read_parquet(tmp_path / "lean.parquet")
    assert candidates.loc[candidates["outcome"] == "established", "label"].tolist() == list(
        found["lean"].accepted
    )


def test_a_file_that_holds_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.json or \.parquet"):
        write_finding(examples.finding(results()["lean"]), tmp_path / "lean.csv")
    (tmp_path / "other.json").write_text("{}")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    for name in ("other.json", "other.parquet", "none.json"):
        with pytest.raises(UserError, match="holds no result"):
            read_result(tmp_path / name)
