"""The notebook among the examples: its cells run from the first to the last, as it shows them, and
so does what docs/python.md makes of its sweep."""

import json
import re
from pathlib import Path
from typing import Any

from kernels import kernel_in

ROOT = Path(__file__).resolve().parents[2]
CELLS = json.loads((ROOT / "examples" / "digits_notebook.ipynb").read_text("utf-8"))["cells"]
PAGE = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), re.DOTALL
)
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_its_cells_run_to_what_it_shows(tmp_path: Path) -> None:
    with kernel_in(tmp_path) as kernel:
        shown = ["".join(cell["source"]) for cell in CODE]
        found = [kernel.run(text.replace("epochs(12)", "epochs(2)")) for text in shown]
        study = kernel["study"]
        for block in PAGE:
            kernel.run(block)
        assert (tmp_path / "optuna.db").exists()
    by_cell = dict(zip(shown, found, strict=True))
    plan = repr(by_cell["hsweep.plan(SWEEP)"])
    assert plan == text_of("hsweep.plan(SWEEP)").replace("12 epochs", "2 epochs")
    assert set(study.trials["status"]) == {"finished"}
    assert repr(by_cell["study.figures"]) == text_of("study.figures")
    for text, value in by_cell.items():
        if "study.figure(" in text or "plot_slice" in text:
            assert value.data, text


def test_it_was_run_from_the_first_cell_to_the_last() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    kinds = {output["output_type"] for cell in CODE for output in cell["outputs"]}
    assert kinds == {"display_data", "execute_result"}
    assert "width=32" in text_of("study.answer()")


def text_of(source: str) -> Any:
    """Return what the notebook shows below a cell."""
    (cell,) = (cell for cell in CODE if "".join(cell["source"]) == source)
    return "".join(cell["outputs"][-1]["data"]["text/plain"])
