"""A study in a real kernel, as Jupyter runs it."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

BEGIN = """
import hsweep
from hsweep import Sweep, epochs, grid, lean

def train(point, run):
    for epoch in range(1, run.budget + 1):
        run.report(epoch, loss=1 / point.width + 1e-3 * (run.seeds.init % 7))

SWEEP = Sweep(
    name="curves", space=grid(width=[4, 5, 6, 8]), train=train, metric="loss", goal="min",
    budget=epochs(4), replicates=3, describe=lambda point: 10 * point.width,
    question=lean({"width": 8}, 0.5, scale="loss"),
)
"""


def outputs(folder: Path, *cells: str, allow_errors: bool = False) -> list[list[Any]]:
    """Run cells in a kernel of their own; return what each shows."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook, timeout=200, resources={"metadata": {"path": str(folder)}}, kernel_name="python3"
    )
    client.allow_errors = allow_errors
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_run_is_one_line_that_is_renewed_and_its_answer_has_a_figure(tmp_path: Path) -> None:
    run = "study = hsweep.run(SWEEP, runner='inline')\nstudy"
    _, shown = outputs(tmp_path, BEGIN, run)
    texts = [each.data["text/plain"] for each in shown if each.output_type == "display_data"]
    [line] = [text for text in texts if "elapsed" in text]
    assert line.startswith("12 finished")
    assert not [text for text in texts if "width=4 #0" in text]
    answer = shown[-1].data["text/html"]
    assert "12 of 12 runs ended" in answer
    assert '<img alt="' in answer
    assert "data:image/png;base64," in answer


def test_a_refusal_is_its_message_without_the_way_there(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError):
        outputs(tmp_path, "import hsweep\nhsweep.load('nothing')")
    _, [refusal] = outputs(tmp_path, "import hsweep", "hsweep.load('nothing')", allow_errors=True)
    assert refusal.output_type == "error"
    text = "\n".join(refusal.traceback)
    assert "nothing" in text
    assert text.count("\n") < 3
