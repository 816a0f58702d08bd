"""Tables with columns and settings that nobody expects."""

from pathlib import Path

import pandas as pd
import pytest
from simulated_shapes import analysed

from analysis.questions.effects import fit as effects
from analysis.questions.pareto.result import ParetoSettings
from analysis.questions.settings import with_settings
from analysis.questions.transition.result import TransitionSettings
from analysis.runs.load import read_table
from hsweep.errors import UserError


def test_a_column_of_lists_is_read_as_text(tmp_path: Path) -> None:
    pd.DataFrame({"heads": [1, 2], "widths": [[8, 8], []]}).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
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
