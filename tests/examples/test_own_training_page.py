"""What docs/own-training.md shows: its sweeps run, and its fragments stand in the examples."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import hsweep
from hsweep.design import sources

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own-training.md").read_text("utf-8")
FUNCTION, *_, SCRIPT, TRAINER, LIGHTNING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TRAIN_PY = """
import sys
for epoch in (1, 2, 3):
    print(f"epoch {epoch} loss 0.1 top1 0.{epoch}", flush=True)
"""

Invoke = Callable[..., Result]


def test_its_sweeps_run(tmp_path: Path, hsweep: Invoke) -> None:
    (tmp_path / "train.py").write_text(TRAIN_PY)
    for name, source in (("function", FUNCTION), ("script", SCRIPT)):
        (tmp_path / f"{name}.py").write_text(source)
        result = hsweep("run", tmp_path / f"{name}.py", "--runner", "inline")
        assert result.exit_code == 0, result.output
        assert "3 finished" in result.output


@pytest.mark.parametrize(
    ("fragment", "example"),
    [(TRAINER, "trainer_gpt2"), (LIGHTNING, "lightning_digits")],
    ids=["trainer", "lightning"],
)
def test_its_fragments_are_the_examples(fragment: str, example: str) -> None:
    text = re.sub(r"\s+", "", (ROOT / "examples" / f"{example}.py").read_text("utf-8"))
    for line in fragment.splitlines():
        for part in re.sub(r"\s+", "", line).split("...,"):
            assert part.rstrip(")") in text, line


def test_its_tables_have_all_sources_and_all_that_a_run_offers() -> None:
    source = re.findall(r"^\| `(\w+)\(\w*\)` \|", PAGE, re.MULTILINE)
    named = {
        name
        for name in hsweep.__all__
        if inspect.getmodule(getattr(hsweep, name)) is sources and name.islower()
    }
    assert set(source) == named
    members = vars(hsweep.Run).keys() | hsweep.Run.__annotations__.keys()
    offered = {name for name in members if not name.startswith("_")}
    assert set(re.findall(r"^\|.*`run\.(\w+)", PAGE, re.MULTILINE)) <= offered
    assert offered <= set(re.findall(r"`run\.(\w+)", PAGE))
