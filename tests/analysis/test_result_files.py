"""Results written to files."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import report_examples as examples

from analysis.answer import Answer
from analysis.result_files import write_answer
from hsweep.errors import UserError

RESULTS: dict[str, Any] = {
    "transition": examples.transition_result(),
    "pareto": examples.pareto_result(),
    "lean": examples.lean_result(),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_parquet_file_has_readable_rows_and_the_whole_result(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]
    answer = Answer((examples.finding(result),))
    write_answer(answer, path := tmp_path / "result.json")
    written = json.loads(path.read_text())
    assert written == {"kind": name, **result.to_json()}
    write_answer(answer, path := tmp_path / "result.parquet")
    assert json.loads(pq.read_schema(path).metadata[b"hsweep.result"]) == written
    rows = pd.read_parquet(path)
    if name == "transition":
        heads = rows.set_index("heads")
        assert heads["p_h"].sum() == pytest.approx(1)
        assert heads.index[heads["is_h_star"]].tolist() == [result.h_star]
    else:
        assert rows["label"].tolist() == [row.label for row in result.table]
        assert rows["ci_low"].tolist() == [row.ci.low for row in result.table]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.json or \.parquet"):
        write_answer(Answer((examples.finding(RESULTS["lean"]),)), tmp_path / "lean.csv")
    with pytest.raises(UserError, match="no result to write"):
        write_answer(Answer(), tmp_path / "none.json")
